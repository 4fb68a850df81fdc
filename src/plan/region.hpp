// Relations of regions: to their buffer, and to each other.
#pragma once

#include <array>
#include <cstdint>

#include "base/overlap.hpp"
#include "penstock/plan.hpp"

namespace penstock::plan {

inline std::uint64_t buffer_bytes(const Plan& plan, Buffer buffer) {
  return std::array{plan.input_bytes, plan.output_bytes, plan.scratch_bytes,
                    plan.shared_bytes}[static_cast<std::size_t>(buffer)];
}

constexpr bool is_inside(const Region& region, std::uint64_t limit_bytes) {
  return region.size_bytes <= limit_bytes && region.offset_bytes <= limit_bytes - region.size_bytes;
}
inline bool is_inside(const Region& region, const Plan& plan) {
  return is_inside(region, buffer_bytes(plan, region.buffer));
}

/// Regions of one buffer.
constexpr bool overlap(const Region& a, const Region& b) {
  return base::overlap(a.offset_bytes, a.offset_bytes + a.size_bytes, b.offset_bytes, b.offset_bytes + b.size_bytes);
}

}  // namespace penstock::plan
