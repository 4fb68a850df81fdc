#pragma once

#include <span>
#include <string>

namespace penstock::base {

/// "rank 3", "ranks 1, 2 and 5": the first eight of many by number.
std::string ranks_text(std::span<const int> ranks);

}  // namespace penstock::base
