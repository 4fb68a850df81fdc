// Arithmetic on sizes that throws on overflow.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "penstock/error.hpp"

namespace penstock::layout {

[[noreturn]] inline void reject(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "layout: " + message);
}

inline std::int64_t checked_product(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    throw Error(ErrorCode::invalid_argument,
                std::string(what) + ": " + std::to_string(a) + " x " + std::to_string(b) + " is 2^63 or more");
  return product;
}

/// Product of non-negative numbers. If one of them is 0, the product is 0, whatever the others are.
inline std::int64_t checked_product(std::span<const std::int64_t> factors, const char* what) {
  for (const std::int64_t factor : factors)
    if (factor == 0) return 0;
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) product = checked_product(product, factor, what);
  return product;
}

}  // namespace penstock::layout
