// Normalizes blocks so that inner loops run along contiguous memory.
#pragma once

#include <cstdlib>
#include <utility>

#include "penstock/arithmetic.hpp"

namespace penstock::kernels {

/// Swaps rows and columns if that makes the column stride of `from` smaller.
inline Block columns_first(Block block) {
  const bool rows_are_closer = block.columns == 1 || (block.rows > 1 && std::abs(block.from_row_stride_elems) <
                                                                            std::abs(block.from_column_stride_elems));
  if (rows_are_closer) {
    std::swap(block.rows, block.columns);
    std::swap(block.from_row_stride_elems, block.from_column_stride_elems);
    std::swap(block.to_row_stride_elems, block.to_column_stride_elems);
  }
  return block;
}

}  // namespace penstock::kernels
