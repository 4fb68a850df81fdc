// Copies of what a burst buffer holds, on another node: a checkpoint outlives the loss of one node before it is
// drained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/peers.hpp"
#include "checkpoint/tier.hpp"

namespace penstock::checkpoint {

/// Of one rank. Together the partners of all ranks are a permutation, in which no rank keeps a copy of its own node.
struct Partners {
  int keeper = 0;  ///< keeps the copy of this rank's object
  int kept = 0;    ///< this rank keeps the copy of this one's object
};

/// Throws Error(invalid_argument) if a node has more than half of the ranks, so that there is no such permutation.
Partners partners_of(const std::vector<int>& node_of_rank, int rank);

/// Sends each rank's object to its keeper, which writes it into its own `tier`, durably, under the same name. Fails on
/// all ranks if it does on one; a copy that was written then stays, for discard(). Collective.
void copy_to_partner(Peers& peers, Tier& tier, const Version& version, const Content& content, const Partners& partners,
                     const std::string& what);

}  // namespace penstock::checkpoint
