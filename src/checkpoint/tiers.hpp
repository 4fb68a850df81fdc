// The tiers of checkpoints, and the removal of old checkpoints from them.
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

/// The backends of the tiers, as this rank has opened them.
struct Tiers {
  std::shared_ptr<store::Backend> slow;  ///< shared by all ranks
  std::shared_ptr<store::Backend> fast;  ///< the burst buffer, which may be local to each node; empty: none

  store::Backend& first() const { return fast ? *fast : *slow; }
};

using Warn = std::function<void(const std::string&)>;

/// A version that has become durable, from which retire() derives what to remove.
struct Retirement {
  Version saved;
  bool drained = false;         ///< durable in the slow tier, not only in the burst buffer
  int keep = 0;                 ///< how many of the newest steps to keep in the slow tier; 0: all
  std::set<Version> under_way;  ///< versions still to be drained; rank 0's counts
};

/// Removes superseded versions. Slow tier: once `saved` is drained, older attempts at its step, and steps up to it
/// beyond the `keep` newest. Burst buffer: drained versions and older ones, except the newest. Later steps, left by an
/// abandoned run, stay. Rank 0 removes manifests first, then each rank the data. Collective. A failed removal is a
/// warning.
void retire(Peers& peers, const Tiers& tiers, const Retirement& retirement, const Warn& warn);

/// Removes data without a manifest, left by runs that died while saving. Collective. Call it only before this run's
/// first save.
void reclaim(Peers& peers, const Tiers& tiers, const Warn& warn);

}  // namespace penstock::checkpoint
