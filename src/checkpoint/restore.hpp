// Restores the newest intact checkpoint that all ranks can reach.
#pragma once

#include "checkpoint/manifest.hpp"
#include "checkpoint/peers.hpp"
#include "checkpoint/tiers.hpp"
#include "penstock/checkpoint.hpp"

namespace penstock::checkpoint {

/// Implements Checkpointer::restore. `nodes`: by rank; empty: each rank is its own node. Collective.
Restored restore(Peers& peers, const Tiers& tiers, const RestoreOptions& options, const std::vector<int>& nodes = {});
/// Implements Checkpointer::try_restore. Collective.
std::optional<Restored> try_restore(Peers& peers, const Tiers& tiers, const RestoreOptions& options,
                                    const std::vector<int>& nodes = {});
/// Implements Checkpointer::inspect. Local.
CheckpointInfo inspect(const Tiers& tiers, std::optional<std::uint64_t> step);

/// The manifest of a version, from the first tier that has it intact. Local. Throws Error(corrupt), Error(not_found).
Manifest read_manifest(const Tiers& tiers, const Version& version);
/// What a manifest says, for the caller.
CheckpointInfo info_of(Manifest manifest);

/// Versions with a manifest in either tier, as this rank sees them, the preferred ones last. Local.
std::vector<Version> complete_versions(const Tiers& tiers);

}  // namespace penstock::checkpoint
