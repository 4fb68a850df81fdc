#include "checkpoint/tiers.hpp"

#include <algorithm>

namespace penstock::checkpoint {

namespace {

struct Victim {
  std::uint64_t fast = 0;
  Version version;
  std::int64_t ranks = 0;  ///< the highest rank with data, plus one
};

std::map<Version, Holding> list_or_warn(const Tier& tier, const Warn& warn) {
  std::map<Version, Holding> versions;
  try_to(warn, "listing checkpoints", [&] { versions = tier.list(); });
  return versions;
}

std::set<Version> complete_up_to(const Version& last, const std::map<Version, Holding>& holdings) {
  std::set<Version> complete;
  for (const auto& [version, holding] : holdings) {
    if (holding.complete() && version <= last) complete.insert(version);
  }
  return complete;
}

/// Of the line, those whose metric is among the best. Of two equal ones the newer.
std::set<Version> best_of(const std::map<Version, Rating>& ratings, const KeepRules& rules) {
  std::vector<std::pair<double, Version>> rated;
  for (const auto& [version, rating] : ratings) {
    if (rating.metric) rated.emplace_back(rules.best_is_highest ? -*rating.metric : *rating.metric, version);
  }
  std::sort(rated.begin(), rated.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first < b.first : a.second > b.second; });
  if (rated.size() > static_cast<std::size_t>(rules.keep_best)) rated.resize(static_cast<std::size_t>(rules.keep_best));
  std::set<Version> best;
  for (const auto& [metric, version] : rated) best.insert(version);
  return best;
}

/// The newest stays, and the newest that is drained: until a newer one is, it is the only one that has two copies.
std::vector<Version> fast_victims(const std::map<Version, Holding>& fast, const std::map<Version, Holding>& slow,
                                  const Retirement& retirement) {
  const std::set<Version> kept = kept_in_burst_buffer(fast, slow);
  std::vector<Version> victims;
  for (const Version& version : complete_up_to(retirement.saved, fast)) {
    if (kept.contains(version)) continue;
    const auto at = slow.find(version);
    const bool drained = at != slow.end() && (at->second.complete() || at->second.removed);
    const bool outdated =
        retirement.drained && version.step <= retirement.saved.step && !retirement.under_way.contains(version);
    if (drained || outdated) victims.push_back(version);
  }
  return victims;
}

/// On rank 0: chooses the victims and removes their manifests, which makes them invisible.
std::vector<Victim> remove_manifests(const Tiers& tiers, const Retirement& retirement,
                                     const std::set<Version>& in_copies, const Warn& warn) {
  const std::map<Version, Holding> slow = list_or_warn(*tiers.slow, warn);
  std::vector<Victim> victims;
  const auto remove_from = [&](Tier& tier, const std::map<Version, Holding>& holdings,
                               const std::vector<Version>& versions) {
    for (const Version& version : versions) {
      try_to(warn, "removing the checkpoint of " + describe(version), [&] {
        tier.remove(version);
        const std::vector<int>& ranks = holdings.at(version).ranks;
        victims.push_back({&tier == tiers.fast.get() ? 1u : 0u, version, ranks.empty() ? 0 : ranks.back() + 1});
      });
    }
    if (!versions.empty()) try_to(warn, "freeing the space of removed checkpoints", [&] { tier.sweep(); });
  };
  if (retirement.drained) {
    remove_from(
        *tiers.slow, slow,
        not_kept(complete_up_to(retirement.saved, slow), retirement.saved, retirement.rules, retirement.rating));
  }
  if (tiers.fast) {
    std::map<Version, Holding> fast = list_or_warn(*tiers.fast, warn);
    // The node of an earlier rank 0 may be lost.
    for (const Version& version : in_copies) fast[version].manifest = true;
    remove_from(*tiers.fast, fast, fast_victims(fast, slow, retirement));
  }
  return victims;
}

}  // namespace

std::set<Version> kept_in_burst_buffer(const std::map<Version, Holding>& fast, const std::map<Version, Holding>& slow) {
  std::optional<Version> newest;
  std::optional<Version> newest_drained;
  for (const auto& [version, holding] : fast) {
    if (!holding.complete()) continue;
    newest = version;
    const auto at = slow.find(version);
    if (at != slow.end() && at->second.complete()) newest_drained = version;
  }
  std::set<Version> kept;
  if (newest) kept.insert(*newest);
  if (newest_drained) kept.insert(*newest_drained);
  return kept;
}

std::vector<Version> not_kept(const std::set<Version>& complete, const Version& saved, const KeepRules& rules,
                              const Rate& rating) {
  const std::set<Version> line = line_of(complete);
  std::set<Version> unknown;
  std::map<Version, Rating> ratings;
  if (rules.keep > 0 && (rules.keep_best > 0 || rules.keep_younger_s > 0)) {
    for (const Version& version : line) {
      if (const std::optional<Rating> found = rating(version)) {
        ratings.emplace(version, *found);
      } else {
        unknown.insert(version);
      }
    }
  }
  const std::set<Version> best = best_of(ratings, rules);
  const auto is_young = [&](const Version& version) {
    const auto its = ratings.find(version);
    const auto newest = ratings.find(saved);
    if (rules.keep_younger_s <= 0 || its == ratings.end() || newest == ratings.end()) return false;
    // The clocks of two jobs may differ, and a clock may have gone back: then this one is "saved later", and stays.
    const double age_s =
        (static_cast<double>(newest->second.saved_at_us) - static_cast<double>(its->second.saved_at_us)) / 1e6;
    return age_s < rules.keep_younger_s;
  };
  std::vector<Version> victims;
  int kept = 0;
  for (auto version = complete.rbegin(); version != complete.rend(); ++version) {
    bool stays = true;
    if (line.contains(*version)) {
      const bool periodic = rules.keep_every > 0 && version->step % rules.keep_every == 0;
      stays = rules.keep == 0 || kept < rules.keep || periodic || best.contains(*version) ||
              unknown.contains(*version) || is_young(*version);
      ++kept;
    } else if (version->step != saved.step) {
      stays = rules.keep == 0 || version->step > saved.step;
    } else {
      stays = false;
    }
    if (!stays) victims.push_back(*version);
  }
  return victims;
}

void retire(Peers& peers, const Tiers& tiers, const Retirement& retirement, const Warn& warn) {
  std::vector<Victim> victims;
  std::set<Version> in_copies;
  if (tiers.fast && retirement.has_copies) {
    in_copies = gather_complete(peers, {}, list_or_warn(*tiers.fast, warn)).versions;
  }
  if (peers.rank() == 0) victims = remove_manifests(tiers, retirement, in_copies, warn);
  std::uint64_t count = victims.size();
  peers.broadcast(std::as_writable_bytes(std::span(&count, 1)), 0);
  if (count == 0) return;
  victims.resize(count);
  peers.broadcast(std::as_writable_bytes(std::span(victims)), 0);

  std::map<Version, Holding> seen;
  if (tiers.fast && std::any_of(victims.begin(), victims.end(), [](const Victim& v) { return v.fast != 0; })) {
    seen = list_or_warn(*tiers.fast, warn);
    if (retirement.has_copies) {
      // All copies of a manifest go before any data.
      agree(peers, "removing old checkpoints", [&] {
        for (const Victim& victim : victims) {
          if (victim.fast != 0 && seen[victim.version].manifest) tiers.fast->remove(victim.version);
        }
        return Done{};
      });
    }
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
           [&] { (victim.fast != 0 ? *tiers.fast : *tiers.slow).remove_data(victim.version, ranks); });
  }
}

Complete gather_complete(Peers& peers, const std::map<Version, Holding>& slow, const std::map<Version, Holding>& fast) {
  struct Seen {
    Version version;
    std::uint64_t in_fast = 0;
    std::uint64_t manifest = 0;
    std::uint64_t abandoned = 0;
    std::uint64_t removed = 0;
  };
  std::vector<Seen> mine;
  const auto add = [&](const std::map<Version, Holding>& holdings, std::uint64_t in_fast) {
    for (const auto& [version, holding] : holdings) {
      if (!holding.manifest && !holding.abandoned && !holding.removed) continue;
      mine.push_back(
          {version, in_fast, holding.manifest ? 1u : 0u, holding.abandoned ? 1u : 0u, holding.removed ? 1u : 0u});
    }
  };
  if (peers.rank() == 0) add(slow, 0);
  add(fast, 1);
  const std::vector<std::vector<Seen>> all = gather(peers, mine);
  std::set<std::pair<Version, std::uint64_t>> abandoned;
  std::set<Version> removed;
  for (const std::vector<Seen>& of_rank : all) {
    for (const Seen& seen : of_rank) {
      if (seen.abandoned != 0) abandoned.emplace(seen.version, seen.in_fast);
      if (seen.removed != 0) removed.insert(seen.version);
    }
  }
  Complete complete;
  for (const std::vector<Seen>& of_rank : all) {
    std::set<Version>& here = complete.seen.emplace_back();
    for (const Seen& seen : of_rank) {
      if (seen.manifest == 0 || removed.contains(seen.version)) continue;
      if (!abandoned.contains({seen.version, seen.in_fast})) here.insert(seen.version);
    }
    complete.versions.insert(here.begin(), here.end());
  }
  return complete;
}

std::vector<Version> reclaim(Peers& peers, const Tiers& tiers, std::uint64_t generation, const Warn& warn) {
  std::map<Version, Holding> slow;
  std::map<Version, Holding> fast;
  bool listed = true;
  const Warn unlisted = [&](const std::string& text) {
    listed = false;
    warn(text);
  };
  if (peers.rank() == 0) slow = list_or_warn(*tiers.slow, unlisted);
  if (tiers.fast) fast = list_or_warn(*tiers.fast, warn);
  const std::set<Version> complete_slow = gather_complete(peers, slow, {}).versions;
  std::map<Version, Holding> removed;
  for (const Version& version : removed_in(slow)) removed[version].removed = true;
  const std::set<Version> complete_fast = gather_complete(peers, removed, fast).versions;
  if (peers.rank() == 0) tiers.slow->reclaim(generation, slow, complete_slow, warn);
  if (tiers.fast) tiers.fast->reclaim(generation, fast, complete_fast, warn);

  std::uint64_t slow_is_known = listed ? 1 : 0;
  peers.broadcast(std::as_writable_bytes(std::span(&slow_is_known, 1)), 0);
  if (slow_is_known == 0) return {};
  std::set<Version> all = complete_slow;
  all.insert(complete_fast.begin(), complete_fast.end());
  std::vector<Version> undrained = by_preference(all);
  std::erase_if(undrained, [&](const Version& version) { return complete_slow.contains(version); });
  std::reverse(undrained.begin(), undrained.end());
  return undrained;
}

}  // namespace penstock::checkpoint
