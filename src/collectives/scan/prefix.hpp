// Building blocks of scan and exscan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/parts/arguments.hpp"

namespace penstock::collectives {

/// An inclusive scan over `ranks`, which ascend: `value` of ranks[self] becomes value of ranks[0] (op) ... (op) value
/// of ranks[self]. The rank at index i sends to i + 1, i + 2, i + 4, … (Hillis and Steele 1986). Uses at most 32 tags,
/// from first_tag on. Overwrites `value`.
void doubling_stage(Sequence& sequence, const std::vector<int>& ranks, int self, Region value, std::uint32_t first_tag);
inline constexpr std::uint32_t kDoublingTags = 32;

}  // namespace penstock::collectives
