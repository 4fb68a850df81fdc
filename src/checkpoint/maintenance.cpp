// Lists, verifies and removes checkpoints without a job.
#include <algorithm>

#include "checkpoint/blob_tier.hpp"
#include "checkpoint/folder_tier.hpp"
#include "checkpoint/object.hpp"
#include "checkpoint/restore.hpp"
#include "penstock/checkpoint.hpp"

namespace penstock {

using checkpoint::Holding;
using checkpoint::Manifest;
using checkpoint::Tiers;
using checkpoint::Version;

namespace {

struct Place {
  Tiers tiers;
  std::map<Version, Holding> slow;
  std::map<Version, Holding> fast;

  explicit Place(const CheckpointPlace& place) {
    const auto backend = store::open_backend(place.url, {.create = false});
    tiers.slow = place.run.empty() ? checkpoint::folder_tier(backend) : checkpoint::blob_tier(backend, place.run);
    slow = tiers.slow->list();
    if (place.burst_buffer.empty()) return;
    tiers.fast = checkpoint::folder_tier(store::open_backend(place.burst_buffer, {.create = false}));
    fast = tiers.fast->list();
    for (const Version& version : checkpoint::removed_in(slow)) {
      if (const auto at = fast.find(version); at != fast.end()) at->second.removed = true;
    }
  }

  static bool complete(const std::map<Version, Holding>& holdings, const Version& version) {
    const auto at = holdings.find(version);
    return at != holdings.end() && at->second.complete();
  }

  std::set<Version> versions() const {
    std::set<Version> all;
    for (const auto* holdings : {&slow, &fast}) {
      for (const auto& [version, holding] : *holdings) {
        if (holding.complete()) all.insert(version);
      }
    }
    return all;
  }

  std::set<Version> versions_of(std::optional<std::uint64_t> step) const {
    std::set<Version> some = versions();
    if (!step) return some;
    std::erase_if(some, [&](const Version& version) { return version.step != *step; });
    if (some.empty())
      throw Error(ErrorCode::not_found, "there is no complete checkpoint of step " + std::to_string(*step) + " at " +
                                            tiers.slow->title() + (tiers.fast ? " and " + tiers.fast->title() : ""));
    return some;
  }

  CheckpointState state(const Version& version) const {
    if (complete(slow, version)) {
      const bool evictable = complete(fast, version) && !checkpoint::kept_in_burst_buffer(fast, slow).contains(version);
      return evictable ? CheckpointState::evictable : CheckpointState::drained;
    }
    const auto at = slow.find(version);
    return at != slow.end() && at->second.begun() ? CheckpointState::draining : CheckpointState::fast;
  }

  CheckpointEntry entry(const Version& version, const std::set<Version>& line) const {
    CheckpointEntry entry;
    entry.step = version.step;
    entry.generation = version.generation;
    entry.sequence = version.sequence;
    entry.fast = complete(fast, version);
    entry.drained = complete(slow, version);
    entry.state = state(version);
    entry.superseded = !line.contains(version);
    try {
      const Manifest manifest = read_manifest(tiers, version);
      entry.ranks = manifest.ranks();
      entry.metrics = manifest.metrics;
      entry.saved_at_s = static_cast<double>(manifest.saved_at_us) / 1e6;
      for (const checkpoint::ObjectInfo& object : manifest.objects) entry.size_bytes += object.size_bytes;
    } catch (const Error& error) {
      entry.damage = error.message();
    }
    return entry;
  }
};

CheckpointVerified verify(const checkpoint::Tier& tier, bool all_objects, const Version& version) {
  CheckpointVerified result;
  result.step = version.step;
  result.generation = version.generation;
  result.tier = tier.url();
  const auto noting = [&](const std::function<void()>& read) {
    try {
      read();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::not_found && !all_objects) {
        ++result.elsewhere;
      } else {
        result.problems.push_back(error.message());
      }
    }
  };
  std::optional<Manifest> manifest;
  noting([&] {
    manifest = Manifest::parse(tier.manifest(version));
    if (manifest->version != version)
      throw Error(ErrorCode::corrupt, tier.name_of(version, -1) + " is of another checkpoint");
  });
  if (!manifest) return result;
  for (int rank = 0; rank < manifest->ranks(); ++rank) {
    const checkpoint::ObjectInfo& info = manifest->objects[static_cast<std::size_t>(rank)];
    if (info.size_bytes == 0) continue;
    noting([&] {
      checkpoint::ObjectReader reader({{&tier}, version, rank}, info, manifest->chunk_bytes, [](const std::string&) {});
      std::vector<std::byte> chunk(std::min(manifest->chunk_bytes, info.data_bytes));
      for (std::uint64_t at = 0; at < checkpoint::chunks_of(info.data_bytes, manifest->chunk_bytes); ++at) {
        const Bytes to = Bytes(chunk).first(reader.size_bytes({at, 1}));
        reader.read({at, 1}, to);
        result.verified_bytes += to.size();
      }
    });
  }
  return result;
}

}  // namespace

std::string_view name(CheckpointState state) {
  switch (state) {
    case CheckpointState::fast: return "fast";
    case CheckpointState::draining: return "draining";
    case CheckpointState::drained: return "drained";
    case CheckpointState::evictable: break;
  }
  return "evictable";
}

std::vector<CheckpointEntry> list_checkpoints(const CheckpointPlace& place) {
  const Place opened(place);
  const std::set<Version> versions = opened.versions();
  const std::set<Version> line = checkpoint::line_of(versions);
  std::vector<CheckpointEntry> entries;
  for (const Version& version : versions) entries.push_back(opened.entry(version, line));
  return entries;
}

CheckpointInfo inspect_checkpoint(const CheckpointPlace& place, std::optional<std::uint64_t> step) {
  return checkpoint::inspect(Place(place).tiers, step);
}

std::vector<CheckpointVerified> verify_checkpoints(const CheckpointPlace& place, std::optional<std::uint64_t> step) {
  const Place opened(place);
  std::vector<CheckpointVerified> results;
  for (const Version& version : opened.versions_of(step)) {
    if (Place::complete(opened.slow, version)) results.push_back(verify(*opened.tiers.slow, true, version));
    if (Place::complete(opened.fast, version)) results.push_back(verify(*opened.tiers.fast, false, version));
  }
  return results;
}

std::vector<CheckpointEntry> remove_checkpoint(const CheckpointPlace& place, std::uint64_t step) {
  const Place opened(place);
  const std::set<Version> line = checkpoint::line_of(opened.versions());
  const std::set<Version> versions = opened.versions_of(step);
  std::vector<CheckpointEntry> removed;
  for (const Version& version : versions) removed.push_back(opened.entry(version, line));
  // The burst buffers of other nodes may have it, too.
  for (const Version& version : versions) opened.tiers.slow->mark_removed(version);
  const auto for_each_tier = [&](const auto& action) {
    // The slow tier last: while the burst buffer's is removed, the checkpoint is whole.
    if (opened.tiers.fast) action(*opened.tiers.fast, opened.fast);
    action(*opened.tiers.slow, opened.slow);
  };
  for_each_tier([&](checkpoint::Tier& tier, const std::map<Version, Holding>& holdings) {
    for (const Version& version : versions) {
      const auto at = holdings.find(version);
      if (at == holdings.end()) continue;
      if (at->second.manifest) tier.remove(version);
      tier.remove_data(version, at->second.ranks);
    }
    tier.sweep();
  });
  return removed;
}

}  // namespace penstock
