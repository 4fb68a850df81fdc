#include "redistribute/assignment.hpp"

#include <algorithm>
#include <string>

#include "penstock/error.hpp"

namespace penstock {
namespace {

std::uint64_t magnitude(std::int64_t weight) {
  return weight < 0 ? 0 - static_cast<std::uint64_t>(weight) : static_cast<std::uint64_t>(weight);
}

/// Distances must not overflow. A path visits different weights, at most 2n of them.
void check_magnitudes(std::uint64_t n, std::span<const std::int64_t> weights) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 61;
  std::uint64_t sum = 0;
  for (const std::int64_t weight : weights) {
    sum += std::min(magnitude(weight), kLimit);
    if (sum >= kLimit) break;
  }
  if (sum < kLimit) return;
  std::uint64_t greatest = 0;
  for (const std::int64_t weight : weights) greatest = std::max(greatest, magnitude(weight));
  if (greatest < kLimit / 4 / n) return;
  throw Error(ErrorCode::unsupported, "assign_max_weight: the magnitudes of the weights sum up to 2^61 or more, and " +
                                          std::to_string(n) + " times the greatest of them, " +
                                          std::to_string(greatest) + ", is 2^59 or more; scale the weights down");
}

}  // namespace

std::vector<std::int32_t> assign_max_weight(std::int32_t n, std::span<const std::int64_t> weights) {
  if (n < 0 || weights.size() != static_cast<std::size_t>(n) * static_cast<std::size_t>(n))
    throw Error(ErrorCode::invalid_argument, "assign_max_weight: " + std::to_string(weights.size()) +
                                                 " weights given; expected n*n of them for n = " + std::to_string(n));
  check_magnitudes(static_cast<std::uint64_t>(std::max(n, 1)), weights);
  return redistribute::assign_dense(n, weights);
}

std::vector<std::int32_t> assign_max_weight_sparse(std::int32_t n, std::span<const SparseWeight> weights) {
  std::uint64_t sum = 0;
  for (const SparseWeight& weight : weights) {
    if (weight.row < 0 || weight.row >= n || weight.column < 0 || weight.column >= n || weight.weight <= 0)
      throw Error(ErrorCode::invalid_argument,
                  "assign_max_weight: the weight " + std::to_string(weight.weight) + " in row " +
                      std::to_string(weight.row) + " and column " + std::to_string(weight.column) +
                      " given; expected one above 0 in rows and columns below " + std::to_string(n));
    if (__builtin_add_overflow(sum, static_cast<std::uint64_t>(weight.weight), &sum) || sum >> 62 != 0)
      throw Error(ErrorCode::unsupported, "assign_max_weight: the weights sum up to 2^62 or more; scale them down");
  }
  return redistribute::assign_sparse(n, weights);
}

namespace redistribute {

bool is_sparse(std::int32_t n, std::size_t weights) {
  return n > 64 && weights < static_cast<std::size_t>(n) * static_cast<std::size_t>(n) / 16;
}

double estimated_seconds(std::int32_t n, std::size_t weights) {
  // The dense solver scans a row about 60 times, at about two weights per nanosecond.
  if (is_sparse(n, weights)) return 200e-9 * static_cast<double>(weights);
  return 30e-9 * static_cast<double>(n) * static_cast<double>(n);
}

}  // namespace redistribute
}  // namespace penstock
