// The places of a checkpoint, and what is kept in them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/keys.hpp"
#include "checkpoint/peers.hpp"
#include "store/backend.hpp"

namespace penstock::checkpoint {

struct Tiers {
  std::shared_ptr<store::Backend> slow;  ///< shared by all ranks
  std::shared_ptr<store::Backend> fast;  ///< the burst buffer, perhaps local to each node; empty: none

  store::Backend& first() const { return fast ? *fast : *slow; }
};

using Warn = std::function<void(const std::string&)>;

/// What follows from a version that has become durable.
struct Retirement {
  Version saved;
  bool drained = false;         ///< in the slow tier, not only in the burst buffer
  int keep = 0;                 ///< newest steps to keep in the slow tier; 0: all
  std::set<Version> under_way;  ///< still to be drained; rank 0's counts
};

/// Removes what `retirement` makes superfluous: in the slow tier, once `saved` is drained, older attempts at its step
/// and steps beyond the `keep` newest up to it; in the burst buffer what is drained, or older than what is, except the
/// newest. Manifests go first, by rank 0, then the data. Later steps, of a time line that was abandoned, stay.
/// Collective; what cannot be removed is a warning.
void retire(Peers& peers, const Tiers& tiers, const Retirement& retirement, const Warn& warn);

/// Removes the data of versions that have no manifest: of runs that died while they saved. Collective; only before
/// this run's first save.
void reclaim(Peers& peers, const Tiers& tiers, const Warn& warn);

}  // namespace penstock::checkpoint
