// Arrays whose elements encode their position, and random layouts for them.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "penstock/layout.hpp"

namespace penstock::checkpoint::test {

inline std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 31)) * 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 29)) * 0xBF58476D1CE4E5B9u;
  return value ^ (value >> 32);
}

/// This rank's part of the array defined by `seed`, in any layout.
inline std::vector<std::byte> local_part(const Layout& layout, int rank, std::size_t item_bytes, std::uint64_t seed) {
  std::vector<std::byte> data(static_cast<std::size_t>(layout.local_size_elems(rank)) * item_bytes);
  const std::size_t dimensions = layout.dimensions();
  for (const LayoutBlock& block : layout.local_blocks(rank)) {
    std::vector<std::int64_t> index(dimensions, 0);
    for (bool more = true; more;) {
      std::int64_t global = 0;
      std::int64_t local = block.local_offset_elems;
      for (std::size_t d = 0; d < dimensions; ++d) {
        global = global * layout.shape()[d] + block.global_start[d] + index[d];
        local += index[d] * block.strides_elems[d];
      }
      const std::uint64_t words[2] = {mix(seed + static_cast<std::uint64_t>(global)),
                                      mix(~seed + static_cast<std::uint64_t>(global))};
      std::memcpy(data.data() + static_cast<std::size_t>(local) * item_bytes, words, item_bytes);
      more = false;
      for (std::size_t d = dimensions; d-- > 0 && !more;) {
        more = ++index[d] < block.shape[d];
        if (!more) index[d] = 0;
      }
    }
  }
  return data;
}

using Random = std::mt19937_64;

inline std::int64_t between(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

inline std::vector<std::int64_t> random_shape(Random& random) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(between(random, 0, 3)));
  for (std::int64_t& length : shape)
    length = between(random, 0, 9) == 0 ? 0 : between(random, 1, shape.size() == 1 ? 300 : 19);
  return shape;
}

inline Layout random_layout(Random& random, const std::vector<std::int64_t>& shape, int ranks) {
  const Order storage = between(random, 0, 1) == 0 ? Order::row_major : Order::column_major;
  if (between(random, 0, 1) == 0) {
    std::vector<std::int64_t> grid;
    std::vector<std::int64_t> block;
    std::int64_t left = ranks;
    for (const std::int64_t length : shape) {
      grid.push_back(between(random, 1, left));
      left /= grid.back();
      block.push_back(between(random, 1, std::max<std::int64_t>(length, 1)));
    }
    const Order grid_order = between(random, 0, 1) == 0 ? Order::row_major : Order::column_major;
    const Layout layout = Layout::block_cyclic(shape, block, grid, grid_order, storage);
    std::vector<std::int32_t> permutation(static_cast<std::size_t>(ranks));
    std::iota(permutation.begin(), permutation.end(), 0);
    std::shuffle(permutation.begin(), permutation.end(), random);
    return layout.relabeled(permutation);
  }
  std::vector<std::vector<std::int64_t>> splits;
  std::size_t tiles = 1;
  for (const std::int64_t length : shape) {
    std::vector<std::int64_t> borders{0};
    while (borders.back() < length) borders.push_back(between(random, borders.back() + 1, length));
    tiles *= borders.size() - 1;
    splits.push_back(std::move(borders));
  }
  std::vector<std::int32_t> owners(tiles);
  for (std::int32_t& owner : owners) owner = static_cast<std::int32_t>(between(random, 0, ranks - 1));
  return Layout::grid(std::move(splits), std::move(owners), ranks, storage);
}

inline DType random_dtype(Random& random) {
  constexpr DType kTypes[] = {DType::uint8, DType::float16, DType::float32, DType::float64, DType::complex128};
  return kTypes[between(random, 0, 4)];
}

}  // namespace penstock::checkpoint::test
