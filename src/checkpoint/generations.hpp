// The jobs that save to a place, in the order of their first saves. A job's number is its generation: its checkpoints
// are newer than those of all jobs with lower numbers, and a job with a higher number fences it.
#pragma once

#include <cstdint>

#include "store/backend.hpp"

namespace penstock::checkpoint {

/// Takes the next generation above `seen`, durably. From then on, check_generation fails for all lower ones.
std::uint64_t take_generation(store::Backend& slow, std::uint64_t seen);

/// The highest generation that has left an object in this tier. It can be above all in the slow tier, if that was
/// emptied meanwhile.
std::uint64_t newest_generation(const store::Backend& tier);

/// Throws Error(exists), which names the newer job, if a higher generation than this was taken.
void check_generation(const store::Backend& slow, std::uint64_t generation);

}  // namespace penstock::checkpoint
