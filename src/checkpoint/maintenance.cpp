// Lists, verifies and removes checkpoints without a job.
#include <algorithm>

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
    tiers.slow = store::open_backend(place.url, {.create = false});
    slow = checkpoint::list_versions(*tiers.slow);
    if (place.burst_buffer.empty()) return;
    tiers.fast = store::open_backend(place.burst_buffer, {.create = false});
    fast = checkpoint::list_versions(*tiers.fast);
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
                                            tiers.slow->url() + (tiers.fast ? " and " + tiers.fast->url() : ""));
    return some;
  }

  CheckpointEntry entry(const Version& version, const std::set<Version>& line) const {
    CheckpointEntry entry;
    entry.step = version.step;
    entry.generation = version.generation;
    entry.fast = complete(fast, version);
    entry.drained = complete(slow, version);
    entry.superseded = !line.contains(version);
    try {
      const Manifest manifest = read_manifest(tiers, version);
      entry.ranks = manifest.ranks();
      for (const checkpoint::ObjectInfo& object : manifest.objects) entry.size_bytes += object.size_bytes;
    } catch (const Error& error) {
      entry.damage = error.message();
    }
    return entry;
  }
};

CheckpointVerified verify(const store::Backend& tier, bool all_objects, const Version& version) {
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
    const std::vector<std::byte> bytes = store::read_all(tier, manifest_key(version));
    manifest = Manifest::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    if (manifest->version != version)
      throw Error(ErrorCode::corrupt, tier.url() + ": " + manifest_key(version) + " is of another checkpoint");
  });
  if (!manifest) return result;
  for (int rank = 0; rank < manifest->ranks(); ++rank) {
    const checkpoint::ObjectInfo& info = manifest->objects[static_cast<std::size_t>(rank)];
    if (info.size_bytes == 0) continue;
    noting([&] {
      checkpoint::ObjectReader reader({{&tier}, data_key(version, rank)}, info, manifest->chunk_bytes,
                                      [](const std::string&) {});
      for (std::uint64_t chunk = 0; chunk < reader.chunk_count(); ++chunk)
        result.verified_bytes += reader.chunk(chunk).size();
    });
  }
  return result;
}

}  // namespace

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
  const auto for_each_tier = [&](const auto& action) {
    // The slow tier last: while the burst buffer's is removed, the checkpoint is whole.
    if (opened.tiers.fast) action(*opened.tiers.fast, opened.fast);
    action(*opened.tiers.slow, opened.slow);
  };
  for_each_tier([&](store::Backend& tier, const std::map<Version, Holding>& holdings) {
    for (const Version& version : versions) {
      const auto at = holdings.find(version);
      if (at == holdings.end()) continue;
      if (at->second.manifest) tier.remove(manifest_key(version));
      remove_data(tier, version, at->second.ranks);
    }
  });
  return removed;
}

}  // namespace penstock
