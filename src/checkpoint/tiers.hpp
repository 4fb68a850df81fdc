// The tiers of checkpoints, and the removal of old checkpoints from them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/keys.hpp"
#include "checkpoint/peers.hpp"
#include "checkpoint/tier.hpp"

namespace penstock::checkpoint {

/// The tiers, as this rank has opened them.
struct Tiers {
  std::shared_ptr<Tier> slow;  ///< shared by all ranks
  std::shared_ptr<Tier> fast;  ///< the burst buffer, which may be local to each node; empty: none

  Tier& first() const { return fast ? *fast : *slow; }
};

/// Which old versions stay in the slow tier: those that at least one rule keeps. See CheckpointerOptions.
struct KeepRules {
  int keep = 0;  ///< 0: all stay
  std::uint64_t keep_every = 0;
  int keep_best = 0;
  std::string best_metric = {};
  bool best_is_highest = false;
  double keep_younger_s = 0;
};

/// What the rules need to know of a version; its manifest says it.
struct Rating {
  std::uint64_t saved_at_us = 0;
  std::optional<double> metric;
};

/// Nothing for a version whose manifest cannot be read; it stays.
using Rate = std::function<std::optional<Rating>(const Version&)>;

/// Those of the complete versions of a tier that no rule keeps, when `saved`, the newest of them, has become durable
/// there.
std::vector<Version> not_kept(const std::set<Version>& complete, const Version& saved, const KeepRules& rules,
                              const Rate& rating);

/// What a burst buffer never gives up: the newest version, and the newest that is drained.
std::set<Version> kept_in_burst_buffer(const std::map<Version, Holding>& fast, const std::map<Version, Holding>& slow);

/// A version that has become durable, from which retire() derives what to remove.
struct Retirement {
  Version saved;
  bool drained = false;  ///< durable in the slow tier, not only in the burst buffer
  KeepRules rules;
  Rate rating;                  ///< called on rank 0
  std::set<Version> under_way;  ///< versions still to be drained; rank 0's counts
  bool has_copies = false;      ///< burst buffers hold copies of what others hold
};

/// Removes old versions, none newer than `saved`. Slow tier, once `saved` is drained: older ones of its step; beyond
/// the `keep` newest of the line, unless another rule keeps them; and with a `keep`, those that were superseded and
/// that the line has passed. Burst buffer: drained versions, and older ones of no later step, but those that it keeps.
/// Later steps, which the run has gone back behind, stay until the line passes them. Rank 0 removes manifests first,
/// then each rank the data. Collective. A failed removal is a warning.
void retire(Peers& peers, const Tiers& tiers, const Retirement& retirement, const Warn& warn);

/// The complete versions in the tiers of all ranks.
struct Complete {
  std::set<Version> versions;
  std::vector<std::set<Version>> seen;  ///< by rank: what its tiers show
};

/// Exchanges what the ranks see. `slow` and `fast` are this rank's listings; rank 0's of the slow tier counts. A
/// version that some rank finds abandoned in its burst buffer is complete in no other, and one that is marked as
/// removed in the slow tier is complete nowhere. Collective.
Complete gather_complete(Peers& peers, const std::map<Version, Holding>& slow, const std::map<Version, Holding>& fast);

/// Removes what jobs of lower generations have left unfinished. Such a job may be alive, but cannot complete it any
/// more. Returns the checkpoints that only burst buffers hold, the one that restore() prefers first. Collective. Call
/// it only before this job's first save.
std::vector<Version> reclaim(Peers& peers, const Tiers& tiers, std::uint64_t generation, const Warn& warn);

}  // namespace penstock::checkpoint
