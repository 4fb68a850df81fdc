#include "checkpoint/tiers.hpp"

#include <algorithm>
#include <chrono>

namespace penstock::checkpoint {

namespace {

constexpr std::chrono::hours kDeadWriter{1};

struct Victim {
  std::uint64_t fast = 0;
  Version version;
  std::int64_t ranks = 0;  ///< the highest rank with data, plus one
};

void try_to(const Warn& warn, const std::string& what, const std::function<void()>& action) {
  if (const std::optional<Error> error = attempt(what, -1, action)) warn(error->message());
}

std::map<Version, Holding> list_or_warn(const store::Backend& backend, const Warn& warn) {
  std::map<Version, Holding> versions;
  try_to(warn, "listing checkpoints", [&] { versions = list_versions(backend); });
  return versions;
}

std::vector<Version> slow_victims(const std::map<Version, Holding>& slow, const Retirement& retirement) {
  std::vector<Version> victims;
  std::set<std::uint64_t> kept_steps;
  for (auto at = slow.rbegin(); at != slow.rend(); ++at) {
    const auto& [version, holding] = *at;
    if (!holding.manifest || retirement.saved < version) continue;
    const bool superseded = kept_steps.contains(version.step);
    const bool beyond = retirement.keep > 0 && kept_steps.size() >= static_cast<std::size_t>(retirement.keep);
    // Other steps keep their older attempts: only the step just saved is known to be good.
    if ((superseded && version.step == retirement.saved.step) || (!superseded && beyond)) {
      victims.push_back(version);
    } else {
      kept_steps.insert(version.step);
    }
  }
  return victims;
}

std::vector<Version> fast_victims(const std::map<Version, Holding>& fast, const std::map<Version, Holding>& slow,
                                  const Retirement& retirement) {
  std::vector<Version> complete;
  for (const auto& [version, holding] : fast) {
    if (holding.manifest) complete.push_back(version);
  }
  std::vector<Version> victims;
  for (const Version& version : complete) {
    if (version == complete.back()) continue;
    const auto at = slow.find(version);
    const bool drained = at != slow.end() && at->second.manifest;
    const bool outdated = retirement.drained && version < retirement.saved && !retirement.under_way.contains(version);
    if (drained || outdated) victims.push_back(version);
  }
  return victims;
}

/// On rank 0: chooses the victims and removes their manifests, which makes them invisible.
std::vector<Victim> remove_manifests(const Tiers& tiers, const Retirement& retirement, const Warn& warn) {
  const std::map<Version, Holding> slow = list_or_warn(*tiers.slow, warn);
  std::vector<Victim> victims;
  const auto remove_from = [&](store::Backend& backend, const std::map<Version, Holding>& holdings,
                               const std::vector<Version>& versions) {
    for (const Version& version : versions) {
      try_to(warn, "removing the checkpoint of " + describe(version), [&] {
        backend.remove(manifest_key(version));
        const std::vector<int>& ranks = holdings.at(version).ranks;
        victims.push_back({&backend == tiers.fast.get() ? 1u : 0u, version, ranks.empty() ? 0 : ranks.back() + 1});
      });
    }
  };
  if (retirement.drained) remove_from(*tiers.slow, slow, slow_victims(slow, retirement));
  if (tiers.fast) {
    const std::map<Version, Holding> fast = list_or_warn(*tiers.fast, warn);
    remove_from(*tiers.fast, fast, fast_victims(fast, slow, retirement));
  }
  return victims;
}

}  // namespace

void retire(Peers& peers, const Tiers& tiers, const Retirement& retirement, const Warn& warn) {
  std::vector<Victim> victims;
  if (peers.rank() == 0) victims = remove_manifests(tiers, retirement, warn);
  std::uint64_t count = victims.size();
  peers.broadcast(std::as_writable_bytes(std::span(&count, 1)), 0);
  if (count == 0) return;
  victims.resize(count);
  peers.broadcast(std::as_writable_bytes(std::span(victims)), 0);

  std::map<Version, Holding> seen;
  if (tiers.fast && std::any_of(victims.begin(), victims.end(), [](const Victim& v) { return v.fast != 0; })) {
    seen = list_or_warn(*tiers.fast, warn);
  }
  for (const Victim& victim : victims) {
    std::vector<int> ranks;
    if (victim.fast != 0) {
      // The burst buffer may be local to nodes, so each rank removes all that it sees.
      ranks = seen[victim.version].ranks;
    } else {
      for (int r = peers.rank(); r < victim.ranks; r += peers.size()) ranks.push_back(r);
    }
    try_to(warn, "removing the data of " + describe(victim.version),
           [&] { remove_data(victim.fast != 0 ? *tiers.fast : *tiers.slow, victim.version, ranks); });
  }
}

void reclaim(Peers& peers, const Tiers& tiers, const Warn& warn) {
  const auto reclaim_tier = [&](store::Backend& backend, bool takes_part) {
    std::map<Version, Holding> held;
    if (takes_part) held = list_or_warn(backend, warn);
    std::vector<Version> complete;
    for (const auto& [version, holding] : held) {
      if (holding.manifest) complete.push_back(version);
    }
    // If the burst buffer is local to nodes, only some ranks see a manifest there.
    std::set<Version> complete_somewhere;
    for (const std::vector<Version>& seen : gather(peers, complete))
      complete_somewhere.insert(seen.begin(), seen.end());
    for (const auto& [version, holding] : held) {
      if (complete_somewhere.contains(version)) continue;
      try_to(warn, "removing what is left of " + describe(version),
             [&] { remove_data(backend, version, holding.ranks); });
    }
    if (takes_part) try_to(warn, "removing files of dead runs", [&] { backend.reclaim(kDeadWriter); });
  };
  reclaim_tier(*tiers.slow, peers.rank() == 0);
  if (tiers.fast) reclaim_tier(*tiers.fast, true);
}

}  // namespace penstock::checkpoint
