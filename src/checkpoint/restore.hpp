// Restoring: the newest intact checkpoint that the ranks can reach together.
#pragma once

#include "checkpoint/peers.hpp"
#include "checkpoint/tiers.hpp"
#include "penstock/checkpoint.hpp"

namespace penstock::checkpoint {

/// Checkpointer::restore. Collective.
Restored restore(Peers& peers, const Tiers& tiers, const RestoreOptions& options);

/// Versions that have a manifest in either tier, as this rank sees them, ascending. Local.
std::vector<Version> complete_versions(const Tiers& tiers);

}  // namespace penstock::checkpoint
