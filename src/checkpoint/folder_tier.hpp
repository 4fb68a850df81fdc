// Checkpoints as immutable objects below checkpoints/ in a backend.
#pragma once

#include <memory>

#include "checkpoint/tier.hpp"
#include "store/backend.hpp"

namespace penstock::checkpoint {

std::shared_ptr<Tier> folder_tier(std::shared_ptr<store::Backend> backend);

}  // namespace penstock::checkpoint
