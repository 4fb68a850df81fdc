// Kernels of the dense assignment, chosen for this processor.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::redistribute {

/// The two largest profits (weight - price) of a row, and the column of the first.
struct TwoBest {
  std::int64_t first;
  std::int64_t second;
  std::size_t column;
};

/// The state of a shortest-path search, by column.
struct PathState {
  std::int64_t* distance;
  std::int64_t* previous_row;
  const std::int64_t* state;  ///< 0: free, 1: assigned, kSettled: its distance is final
};
inline constexpr std::int64_t kSettled = INT64_MAX;

/// The nearest column that is not settled. key = 2 * distance, plus 1 if it is assigned, so that free columns come
/// first.
struct Nearest {
  std::int64_t key;
  std::size_t column;
};

struct RowKernels {
  TwoBest (*two_best)(const std::int64_t* weights, const std::int64_t* prices, std::size_t n);
  /// Updates distances with paths through this row, base - (weight - price).
  Nearest (*relax)(const std::int64_t* weights, const std::int64_t* prices, std::int64_t base, std::int64_t row,
                   const PathState& path, std::size_t n);
};

const RowKernels& row_kernels();

}  // namespace penstock::redistribute
