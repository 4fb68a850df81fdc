// Sorts columns: element i of all rows, for all i at once, by a sorting network, which vectorizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/vectors.hpp"

namespace penstock::kernels {

/// The compare-exchange pairs that sort any `count` values: Batcher's merge exchange (Knuth, The Art of Computer
/// Programming, volume 3, algorithm 5.2.2M). The smaller value of a pair goes to the first index.
std::vector<std::pair<std::uint32_t, std::uint32_t>> sorting_network(std::uint32_t count);

/// The order of the keys.
enum class Keys : std::uint8_t {
  magnitude16,  ///< 16-bit floating-point numbers, smaller magnitudes first; of equal magnitudes the positive one first
  magnitude32,
  magnitude64,
};

/// Rows of equal length in aligned memory of the caller, which begin `stride_bytes` apart.
struct Rows {
  std::byte* first;
  std::size_t count;
  std::size_t row_bytes;
  std::size_t stride_bytes;
};
/// Sorts every column of the rows, in place. The processor must have `vectors`.
void sort_columns(Vectors vectors, Keys keys, const Rows& rows);

}  // namespace penstock::kernels
