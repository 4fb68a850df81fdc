// The kernels of the dense assignment for the processor that this runs on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::redistribute {

/// The two greatest profits weight - price of a row, and the column of the first.
struct TwoBest {
  std::int64_t first;
  std::int64_t second;
  std::size_t column;
};

/// Of a search for a shortest path, by column.
struct PathState {
  std::int64_t* distance;
  std::int64_t* previous_row;
  const std::int64_t* state;  ///< 0: free, 1: taken, kSettled: its distance is final
};
inline constexpr std::int64_t kSettled = INT64_MAX;

/// The nearest column that is not settled: 2 * distance, plus 1 where it is taken, so that free ones come first.
struct Nearest {
  std::int64_t key;
  std::size_t column;
};

struct RowKernels {
  TwoBest (*two_best)(const std::int64_t* weights, const std::int64_t* prices, std::size_t n);
  /// Distances through this row, base - (weight - price), where they are shorter.
  Nearest (*relax)(const std::int64_t* weights, const std::int64_t* prices, std::int64_t base, std::int64_t row,
                   const PathState& path, std::size_t n);
};

const RowKernels& row_kernels();

}  // namespace penstock::redistribute
