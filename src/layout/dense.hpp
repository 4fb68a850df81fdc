// Strides of dense local arrays.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "penstock/layout.hpp"

namespace penstock::layout {

/// In elements, one per dimension.
inline std::vector<std::int64_t> dense_strides(std::span<const std::int64_t> shape, Order storage) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t d = storage == Order::row_major ? shape.size() - 1 - i : i;
    strides[d] = stride;
    stride *= shape[d];
  }
  return strides;
}

}  // namespace penstock::layout
