#pragma once

#include <span>
#include <string>

namespace penstock::base {

/// "rank 3", "ranks 1, 2 and 5"; of many ranks the first eight.
std::string ranks_text(std::span<const int> ranks);

}  // namespace penstock::base
