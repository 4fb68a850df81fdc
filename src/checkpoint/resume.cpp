// Drains what dead jobs have left in burst buffers. The tiers are the journal: a checkpoint that is complete in a burst
// buffer and not in the slow tier is to be drained. docs/design/checkpoint-drains.md.
#include <algorithm>

#include "checkpoint/blob_header.hpp"
#include "checkpoint/object.hpp"
#include "checkpoint/saver.hpp"
#include "penstock/trace.hpp"

namespace penstock::checkpoint {

namespace {

/// The manifest of a checkpoint, from the first rank that sees an intact one. Collective.
std::string manifest_in(Peers& peers, const Tier& fast, const Version& version, const Complete& complete,
                        const std::string& what) {
  std::optional<Error> own;
  std::vector<Outcome> outcomes;
  for (std::size_t holder = 0; holder < complete.seen.size(); ++holder) {
    if (!complete.seen[holder].contains(version)) continue;
    std::string text;
    const Poll<Done> read = poll(peers, what, [&] {
      if (static_cast<std::size_t>(peers.rank()) != holder) return Done{};
      text = fast.manifest(version);
      if (Manifest::parse(text).version != version)
        throw Error(ErrorCode::corrupt, fast.name_of(version, -1) + " is of another checkpoint");
      return Done{};
    });
    if (read.outcomes[holder].code == 0) return broadcast_text(peers, std::move(text), static_cast<int>(holder));
    own = read.own;
    outcomes = read.outcomes;
  }
  deliver(own, outcomes, what);
  throw Error(ErrorCode::not_found, what + ": its manifest has been removed meanwhile");
}

/// Places the objects in the blob of the run one behind the other. Returns the end of the last one.
std::uint64_t place_objects(Manifest& manifest) {
  std::uint64_t end_bytes = kPlaceAlignment;
  for (ObjectInfo& object : manifest.objects) {
    object.place_bytes = object.size_bytes == 0 ? 0 : end_bytes;
    end_bytes = aligned_place(end_bytes + object.size_bytes);
  }
  return end_bytes;
}

/// Which rank drains which of these objects: of those that hold it, the one with the least to do. Equal on all ranks.
std::vector<int> divided(const std::vector<int>& objects, const std::vector<std::vector<int>>& holders,
                         const Manifest& manifest, int ranks) {
  std::vector<std::uint64_t> bytes_of(static_cast<std::size_t>(ranks));
  std::vector<int> owners;
  for (const int object : objects) {
    const std::vector<int>& some = holders[static_cast<std::size_t>(object)];
    const int owner = *std::min_element(some.begin(), some.end(), [&](int a, int b) {
      return bytes_of[static_cast<std::size_t>(a)] < bytes_of[static_cast<std::size_t>(b)];
    });
    bytes_of[static_cast<std::size_t>(owner)] += manifest.objects[static_cast<std::size_t>(object)].size_bytes;
    owners.push_back(owner);
  }
  return owners;
}

}  // namespace

void Saver::resume(Job& job) {
  const std::string what = "draining the checkpoint of step " + std::to_string(job.step) + ", which job " +
                           std::to_string(job.version().generation) + " has left in the burst buffer";
  Peers& peers = *channels_.drainer;
  std::optional<Version> newest;
  const std::optional<Error> failure = attempt(what, peers.rank(), [&] {
    const trace::Span span("resume drain", "checkpoint");
    newest = drain_left(peers, job, what);
  });
  if (failure) {
    warn(failure->message());
    job.fail(*failure);
  } else {
    // Drained, or not needed any more.
    job.reach(CheckpointLevel::drained);
  }
  if (newest) retire_after(peers, job, *newest, true);
  job.close();
}

/// Returns the newest checkpoint in the slow tier, as rank 0 sees it; nothing if this one has been removed meanwhile.
std::optional<Version> Saver::drain_left(Peers& peers, const Job& job, const std::string& what) {
  const Version version = job.version();
  std::map<Version, Holding> fast;
  std::map<Version, Holding> slow;
  agree(peers, what, [&] {
    fast = tiers_.fast->list();
    if (peers.rank() == 0) slow = tiers_.slow->list();
    return Done{};
  });
  std::map<Version, Holding> removed;
  for (const Version& gone : removed_in(slow)) removed[gone].removed = true;
  const Complete complete = gather_complete(peers, removed, fast);
  if (!complete.versions.contains(version)) return std::nullopt;
  const std::string text = manifest_in(peers, *tiers_.fast, version, complete, what);
  const std::vector<std::uint64_t> wanted = agree(peers, what, [&] {
    if (peers.rank() != 0) return std::uint64_t{0};
    const auto at = slow.find(version);
    const bool drained = at != slow.end() && at->second.complete();
    return std::uint64_t{!drained && is_kept(version, Manifest::parse(text), slow) ? 1u : 0u};
  });
  if (wanted[0] != 0) put_left(peers, job, text, what);
  Version newest = version;
  for (const auto& [other, holding] : slow) {
    if (holding.complete()) newest = std::max(newest, other);
  }
  return newest;
}

/// On rank 0: whether this version would stay in the slow tier.
bool Saver::is_kept(const Version& version, const Manifest& manifest, const std::map<Version, Holding>& slow) {
  std::set<Version> complete = {version};
  for (const auto& [other, holding] : slow) {
    if (holding.complete()) complete.insert(other);
  }
  Rating rating;
  rating.saved_at_us = manifest.saved_at_us;
  const auto metric = manifest.metrics.find(options_.best_metric);
  if (metric != manifest.metrics.end()) rating.metric = metric->second;
  ratings_.emplace(version, rating);
  const std::vector<Version> victims =
      not_kept(complete, *complete.rbegin(), keep_rules(), [this](const Version& other) { return rating_of(other); });
  return std::find(victims.begin(), victims.end(), version) == victims.end();
}

/// By object, the ranks whose burst buffers have it. Collective.
std::vector<std::vector<int>> Saver::holders_of(Peers& peers, const Manifest& manifest, const std::string& what) const {
  std::vector<std::int32_t> here;
  agree(peers, what, [&] {
    const std::map<Version, Holding> fast = tiers_.fast->list();
    if (const auto at = fast.find(manifest.version); at != fast.end()) {
      here.assign(at->second.ranks.begin(), at->second.ranks.end());
    }
    return Done{};
  });
  std::vector<std::vector<int>> holders(manifest.objects.size());
  const std::vector<std::vector<std::int32_t>> all = gather(peers, here);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (const std::int32_t object : all[rank]) {
      if (static_cast<std::size_t>(object) < holders.size()) {
        holders[static_cast<std::size_t>(object)].push_back(static_cast<int>(rank));
      }
    }
  }
  return holders;
}

/// The ranks are others, and maybe fewer, than those that saved: each drains objects that its burst buffer has. An
/// object that one of them cannot read, another one drains that has a copy.
void Saver::put_left(Peers& peers, const Job& job, const std::string& text, const std::string& what) {
  Tier& tier = *tiers_.slow;
  const Attempt of = job.attempt();
  Manifest manifest = Manifest::parse(text);
  const std::uint64_t end_bytes = place_objects(manifest);
  const std::string placed = tier.builds_on_base() ? manifest.serialize() : text;
  for (std::uint64_t published = 0; published == 0;) {
    const Base base = base_of(peers, tier, of, what);
    std::vector<std::vector<int>> holders = holders_of(peers, manifest, what);
    std::map<int, Written> written;
    const auto discard_own = [&] {
      for (const auto& [object, own] : written) {
        tier.discard(of, object, own, [this](const std::string& warning) { warn(warning); });
      }
    };
    std::vector<int> left;
    for (int object = 0; object < manifest.ranks(); ++object) {
      if (manifest.objects[static_cast<std::size_t>(object)].size_bytes > 0) left.push_back(object);
    }
    try {
      while (!left.empty()) {
        for (const int object : left) {
          if (holders[static_cast<std::size_t>(object)].empty()) {
            throw Error(ErrorCode::not_found, what + ": no burst buffer of this job's nodes has the object of rank " +
                                                  std::to_string(object) +
                                                  "; run on the node that has it, or remove the checkpoint");
          }
        }
        const std::vector<int> owners = divided(left, holders, manifest, peers.size());
        std::vector<std::int32_t> failed;
        const Poll<Done> tried = poll(peers, what, [&] {
          std::optional<Error> first;
          for (std::size_t i = 0; i < left.size(); ++i) {
            if (owners[i] != peers.rank()) continue;
            const std::optional<Error> failure = attempt("", peers.rank(), [&] {
              const ObjectInfo& info = manifest.objects[static_cast<std::size_t>(left[i])];
              written[left[i]] = {};
              written[left[i]] = tier.write(
                  of, left[i], content_in(*tiers_.fast, of.version, left[i], info, manifest.chunk_bytes, drain_), base);
            });
            if (!failure) continue;
            failed.push_back(left[i]);
            tier.discard(of, left[i], written[left[i]], [this](const std::string& warning) { warn(warning); });
            written.erase(left[i]);
            if (!first) first = failure;
          }
          if (first) {
            tier.check_generation(of.job);
            throw *first;
          }
          return Done{};
        });
        const std::vector<std::vector<std::int32_t>> all_failed = gather(peers, failed);
        std::vector<int> again;
        bool hopeless = std::any_of(tried.outcomes.begin(), tried.outcomes.end(), [](const Outcome& outcome) {
          return outcome.code == static_cast<std::int32_t>(ErrorCode::fenced);
        });
        for (std::size_t rank = 0; rank < all_failed.size(); ++rank) {
          for (const std::int32_t object : all_failed[rank]) {
            std::vector<int>& some = holders[static_cast<std::size_t>(object)];
            std::erase(some, static_cast<int>(rank));
            hopeless = hopeless || some.empty();
            again.push_back(object);
          }
        }
        if (hopeless) deliver(tried.own, tried.outcomes, what);
        std::sort(again.begin(), again.end());
        left = std::move(again);
      }
    } catch (const Error&) {
      discard_own();
      throw;
    }
    Draft draft{placed, end_bytes, base, {}};
    draft.drained = true;
    if (tier.builds_on_base()) {
      Written own;
      for (const auto& [object, part] : written) own.insert(own.end(), part.begin(), part.end());
      draft.written = gather(peers, own);
    }
    published = publish(
        peers, tier, of, draft, [] {}, discard_own, what);
  }
}

}  // namespace penstock::checkpoint
