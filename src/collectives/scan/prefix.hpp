// The parts of scan and exscan, which both combine in the order of the ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/parts/arguments.hpp"

namespace penstock::collectives {

/// `value` of ranks[self] becomes value of ranks[0] (op) ... (op) value of ranks[self], where `ranks` ascend: the rank
/// at index i sends to i + 1, i + 2, i + 4, … what it has (Hillis and Steele 1986). Uses the tags from first_tag on, at
/// most 32 of them. `value` must be this rank's to overwrite.
void doubling_stage(Sequence& sequence, const std::vector<int>& ranks, int self, Region value, std::uint32_t first_tag);
inline constexpr std::uint32_t kDoublingTags = 32;

}  // namespace penstock::collectives
