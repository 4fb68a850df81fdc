// Sorting of columns: element i of all rows, for all i at once, by a network that vector instructions can follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/vectors.hpp"

namespace penstock::kernels {

/// The comparisons that sort any `count` values: Batcher's merge exchange (Knuth, The Art of Computer Programming,
/// volume 3, algorithm 5.2.2M). Of each pair the smaller value goes to the first place.
std::vector<std::pair<std::uint32_t, std::uint32_t>> sorting_network(std::uint32_t count);

/// How the bits of the keys are to be ordered.
enum class Keys : std::uint8_t {
  magnitude16,  ///< floating-point numbers of 16 bits, smaller magnitudes first, of equal ones the positive
  magnitude32,
  magnitude64,
};

/// Sorts every column of `count` rows of `row_bytes`, which begin `stride_bytes` apart in aligned memory.
struct Rows {
  std::byte* first;
  std::size_t count;
  std::size_t row_bytes;
  std::size_t stride_bytes;
};
void sort_columns(Vectors vectors, Keys keys, const Rows& rows);

}  // namespace penstock::kernels
