// Restores the newest intact checkpoint that all ranks can reach.
#pragma once

#include "checkpoint/peers.hpp"
#include "checkpoint/tiers.hpp"
#include "penstock/checkpoint.hpp"

namespace penstock::checkpoint {

/// Implements Checkpointer::restore. Collective.
Restored restore(Peers& peers, const Tiers& tiers, const RestoreOptions& options);

/// Versions with a manifest in either tier, as this rank sees them, ascending. Local.
std::vector<Version> complete_versions(const Tiers& tiers);

}  // namespace penstock::checkpoint
