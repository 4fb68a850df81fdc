#include "checkpoint/restore.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <set>

#include "checkpoint/gather.hpp"
#include "checkpoint/object.hpp"
#include "checkpoint/shared_reads.hpp"
#include "penstock/trace.hpp"
#include "store/in_parallel.hpp"
#include "store/read_buffer.hpp"

namespace penstock::checkpoint {

namespace {

constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;
/// Of one broadcast, and of what one rank reads for all.
constexpr std::uint64_t kReadBytes = std::uint64_t{8} << 20;
constexpr std::size_t kReadsInFlight = 4;
constexpr std::uint64_t kMostToldOfARank = 20;
/// What the ranks exchange at most to find out what several need. Beyond that each reads for itself.
constexpr std::uint64_t kNeedsBytes = std::uint64_t{64} << 20;

/// Whether an error is damage, for which another checkpoint can be read; an invalid argument is not.
bool is_damage(ErrorCode code) {
  return code == ErrorCode::corrupt || code == ErrorCode::not_found || code == ErrorCode::io;
}

std::shared_ptr<std::byte> allocate(std::uint64_t size_bytes) {
  const bool large = size_bytes >= 2 * kHugePageBytes;
  const std::uint64_t alignment = large ? kHugePageBytes : kArrayAlignment;
  const std::uint64_t rounded = std::max(size_bytes, std::uint64_t{1}) + alignment - 1;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded / alignment * alignment));
  if (memory == nullptr) {
    throw Error(ErrorCode::no_space, "no memory for an array of " + std::to_string(size_bytes) + " bytes");
  }
  // The first touch of small pages takes longer than a fast disk takes to fill them. Optional: only faster.
  if (large) madvise(memory, size_bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  return {memory, [](std::byte* p) { std::free(p); }};
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t d = 0; d < shape.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return text + ")";
}

/// Throws unless all failures are damage. Returns the text of the first failed rank; empty if none failed.
template <class Value>
std::optional<std::string> damage_of(const Poll<Value>& poll, const std::string& what) {
  std::optional<std::string> damage;
  for (std::size_t r = 0; r < poll.outcomes.size(); ++r) {
    const Outcome& outcome = poll.outcomes[r];
    if (outcome.code == 0) continue;
    if (!is_damage(static_cast<ErrorCode>(outcome.code))) deliver(poll.own, poll.outcomes, what);
    if (!damage) damage = outcome.text + (" (rank " + std::to_string(r) + ")");
  }
  return damage;
}

/// "checkpoint of step 3 at file:///slow and file:///fast"
std::string subject_of(const Tiers& tiers, std::optional<std::uint64_t> step) {
  const std::string what = step ? "checkpoint of step " + std::to_string(*step) : "checkpoint";
  return what + " at " + tiers.slow->title() + (tiers.fast ? " and " + tiers.fast->title() : "");
}

std::vector<const Tier*> places(const Tiers& tiers) {
  if (tiers.fast) return {tiers.fast.get(), tiers.slow.get()};
  return {tiers.slow.get()};
}

struct IntactManifest {
  std::string text;
  Manifest manifest;
};

/// From either tier.
IntactManifest intact_manifest(const Tiers& tiers, const Version& version, int rank) {
  std::optional<Error> failure;
  for (const Tier* tier : places(tiers)) {
    IntactManifest found;
    bool absent = false;
    std::optional<Error> damage = attempt(tier->name_of(version, -1), rank, [&] {
      try {
        found.text = tier->manifest(version);
      } catch (const Error& error) {
        absent = error.code() == ErrorCode::not_found;
        throw;
      }
      found.manifest = Manifest::parse(found.text);
      if (found.manifest.version != version) throw Error(ErrorCode::corrupt, "it is of another checkpoint");
    });
    if (!damage) return found;
    if (absent) continue;
    if (!is_damage(damage->code())) throw *damage;
    failure = damage;
  }
  if (failure) throw *failure;
  throw Error(ErrorCode::not_found, tiers.slow->name_of(version, -1) + " has been removed meanwhile");
}

/// One call of restore().
class Restoration {
 public:
  Restoration(Peers& peers, const Tiers& tiers, const RestoreOptions& options, const std::vector<int>& nodes)
      : peers_(peers), tiers_(tiers), options_(options) {
    if (cached_by_node(*tiers.slow) && (!tiers.fast || cached_by_node(*tiers.fast))) nodes_ = nodes;
  }

  /// Empty if there is no checkpoint to try.
  std::optional<Restored> run() {
    std::set<Version> tried;
    // Meanwhile another run may remove old checkpoints and complete new ones.
    while (true) {
      std::vector<Version> untried;
      for (const Version& version : candidates()) {
        if (tried.insert(version).second) untried.push_back(version);
      }
      if (untried.empty()) break;
      for (auto version = untried.rbegin(); version != untried.rend(); ++version) {
        if (std::optional<Restored> restored = try_version(*version)) return restored;
      }
    }
    if (!tried.empty()) throw Error(ErrorCode::corrupt, "no intact " + subject_of(tiers_, options_.step) + reasons());
    // A burst buffer that cannot be listed may hold the only checkpoint.
    if (unlisted_)
      throw Error(ErrorCode::io,
                  "cannot tell whether there is a complete " + subject_of(tiers_, options_.step) + reasons());
    return std::nullopt;
  }

  [[noreturn]] void fail_not_found() const {
    throw Error(ErrorCode::not_found, "there is no complete " + subject_of(tiers_, options_.step) + reasons());
  }

 private:
  /// Versions that are complete in some tier, the preferred ones last. Equal on all ranks.
  std::vector<Version> candidates() {
    struct Request {
      std::uint64_t step = 0;
      std::uint64_t any_step = 0;
      std::uint64_t unlisted = 0;
    };
    std::map<Version, Holding> slow;
    std::map<Version, Holding> fast;
    const std::size_t told = warnings_.size();
    const std::vector<Request> requests = agree(peers_, "restore", [&] {
      // All ranks see the same slow tier, so one rank lists it for all.
      if (peers_.rank() == 0) slow = tiers_.slow->list();
      if (tiers_.fast) {
        const auto failure = attempt("burst buffer", peers_.rank(), [&] { fast = tiers_.fast->list(); });
        if (failure) warnings_.push_back(failure->message());
      }
      return Request{options_.step.value_or(0), options_.step ? 0u : 1u, warnings_.size() > told ? 1u : 0u};
    });
    unlisted_ = std::any_of(requests.begin(), requests.end(), [](const Request& one) { return one.unlisted != 0; });
    for (std::size_t r = 0; r < requests.size(); ++r) {
      if (requests[r].step == requests[0].step && requests[r].any_step == requests[0].any_step) continue;
      throw Error(ErrorCode::mismatch, "restore: rank " + std::to_string(r) +
                                           " asks for another step than rank 0; all ranks must ask for the same");
    }
    in_slow_ = complete_in(slow);
    here_ = std::move(fast);
    const Complete complete = gather_complete(peers_, slow, here_);
    seen_ = complete.seen;
    line_ = line_of(complete.versions);
    std::vector<Version> all = by_preference(complete.versions);
    std::erase_if(all, [&](const Version& version) { return options_.step && version.step != *options_.step; });
    return all;
  }

  static std::set<Version> complete_in(const std::map<Version, Holding>& holdings) {
    std::set<Version> complete;
    for (const auto& [version, holding] : holdings) {
      if (holding.complete()) complete.insert(version);
    }
    return complete;
  }

  std::string reasons() const {
    std::string text = warnings_.empty() ? "" : ":";
    for (const std::string& warning : warnings_) text += "\n  " + warning;
    return text;
  }

  /// Empty, with a warning, if the checkpoint is damaged. Equal on all ranks.
  std::optional<Restored> try_version(const Version& version) {
    const trace::Span span("restore checkpoint", "application");
    const std::string what = "checkpoint of " + describe(version);
    const std::optional<Manifest> manifest = read_manifest(version, what);
    if (!manifest) return std::nullopt;
    Restored restored;
    std::vector<std::string> repairs;
    const RestoreOptions chosen = choose(*manifest);
    std::vector<std::vector<Piece>> pieces;
    const std::vector<std::uint64_t> in_slow = agree(peers_, what, [&] {
      restored.arrays = plan(*manifest, chosen, pieces);
      return std::uint64_t{in_slow_.contains(version) ? 1u : 0u};
    });
    std::optional<Error> unread;
    if (in_slow[0] == 0) unread = read_from_others(*manifest, pieces);
    ObjectReaders readers(places(tiers_), *manifest, [&](const std::string& text) { repairs.push_back(text); });
    const std::vector<std::vector<std::uint64_t>> needed = read_once(readers, *manifest, pieces, what);
    repairs = told_by_all(repairs);
    const Poll<Done> read = poll(peers_, what, [&] {
      if (unread) throw *unread;
      read_pieces(readers, *manifest, pieces, needed);
      return Done{};
    });
    if (const std::optional<std::string> damage = damage_of(read, what)) {
      warnings_.push_back(*damage + "; passed over");
      return std::nullopt;
    }
    restored.step = version.step;
    restored.metadata = manifest->metadata;
    restored.warnings = warnings_;
    if (!options_.step && !line_.contains(version)) {
      restored.warnings.push_back(what + " was restored, which a save of an earlier step had superseded");
    }
    restored.warnings.insert(restored.warnings.end(), repairs.begin(), repairs.end());
    return restored;
  }

  /// The options for this checkpoint. Equal on all ranks.
  RestoreOptions choose(const Manifest& manifest) {
    RestoreOptions chosen = options_;
    const std::vector<Digest> digests = agree(peers_, "restore", [&] {
      if (options_.choose) options_.choose(info_of(manifest), chosen);
      check_names(manifest, chosen.layouts, "layouts");
      check_names(manifest, chosen.into, "into");
      std::string text;
      for (const auto& [name, layout] : chosen.layouts) text += name + '\n' + layout.serialize() + '\n';
      if (chosen.only) {
        for (const std::string& name : *chosen.only) text += '\n' + name;
      }
      return digest(text);
    });
    for (std::size_t r = 0; r < digests.size(); ++r) {
      if (digests[r] == digests[0]) continue;
      throw Error(ErrorCode::mismatch, "restore: rank " + std::to_string(r) +
                                           " asks for other arrays or layouts than rank 0; all ranks must ask for the "
                                           "same");
    }
    return chosen;
  }

  /// The manifest, from the first rank that sees an intact one.
  std::optional<Manifest> read_manifest(const Version& version, const std::string& what) {
    for (std::size_t holder = 0; holder < seen_.size(); ++holder) {
      if (!seen_[holder].contains(version)) continue;
      const bool holds = static_cast<std::size_t>(peers_.rank()) == holder;
      IntactManifest found;
      const Poll<Done> read = poll(peers_, what, [&] {
        if (holds) found = intact_manifest(tiers_, version, peers_.rank());
        return Done{};
      });
      if (const std::optional<std::string> damage = damage_of(read, what)) {
        warnings_.push_back(*damage + "; passed over");
        continue;
      }
      const std::string text = broadcast_text(peers_, std::move(found.text), static_cast<int>(holder));
      return holds ? std::move(found.manifest) : Manifest::parse(text);
    }
    return std::nullopt;
  }

  /// Throws invalid_argument for a name that is not in the checkpoint.
  template <class Value>
  void check_names(const Manifest& manifest, const std::map<std::string, Value>& named, const char* argument) const {
    for (const auto& [name, value] : named) {
      std::string known;
      bool found = false;
      for (const ArraySpec& array : manifest.arrays) {
        found = found || array.name == name;
        known += (known.empty() ? "'" : ", '") + array.name + "'";
      }
      if (!found) {
        throw Error(ErrorCode::invalid_argument, std::string(argument) + ": no array '" + name + "' was saved, only " +
                                                     (known.empty() ? "none" : known));
      }
    }
  }

  RestoredArray target_of(const ArraySpec& saved, const RestoreOptions& chosen) const {
    const auto wanted = chosen.layouts.find(saved.name);
    RestoredArray array{saved.name,
                        saved.dtype,
                        wanted != chosen.layouts.end()
                            ? wanted->second
                            : Layout::whole(saved.layout.shape(), peers_.rank(), peers_.size()),
                        {},
                        nullptr};
    if (array.layout.shape() != saved.layout.shape()) {
      throw Error(ErrorCode::invalid_argument, "array '" + saved.name + "' was saved with the shape " +
                                                   shape_text(saved.layout.shape()) + "; the requested layout has " +
                                                   shape_text(array.layout.shape()));
    }
    if (array.layout.ranks() > peers_.size()) {
      throw Error(ErrorCode::invalid_argument, "array '" + saved.name + "': the requested layout is on " +
                                                   std::to_string(array.layout.ranks()) + " ranks; expected at most " +
                                                   std::to_string(peers_.size()));
    }
    const std::uint64_t wanted_bytes = local_bytes({saved.name, saved.dtype, array.layout}, peers_.rank());
    const auto into = chosen.into.find(saved.name);
    if (into == chosen.into.end()) {
      array.memory = allocate(wanted_bytes);
      array.local = {array.memory.get(), wanted_bytes};
    } else if (into->second.size() != wanted_bytes) {
      throw Error(ErrorCode::invalid_argument, "array '" + saved.name + "' takes " + std::to_string(wanted_bytes) +
                                                   " bytes on rank " + std::to_string(peers_.rank()) + ", " +
                                                   std::to_string(into->second.size()) + " given");
    } else {
      array.local = into->second;
    }
    return array;
  }

  /// `pieces`: what this rank needs, by the rank that saved it.
  std::vector<RestoredArray> plan(const Manifest& manifest, const RestoreOptions& chosen,
                                  std::vector<std::vector<Piece>>& pieces) const {
    std::vector<RestoredArray> arrays;
    pieces.resize(static_cast<std::size_t>(manifest.ranks()));
    for (std::size_t a = 0; a < manifest.arrays.size(); ++a) {
      const ArraySpec& saved = manifest.arrays[a];
      if (chosen.only && !chosen.only->contains(saved.name)) continue;
      arrays.push_back(target_of(saved, chosen));
      plan_pieces(saved.layout, arrays.back().layout, peers_.rank(), size_bytes(saved.dtype), manifest.offsets_bytes[a],
                  arrays.back().local, pieces);
    }
    return arrays;
  }

  /// Reads once what several ranks need. Returns the chunks, by object, that this rank still has to read. Collective.
  std::vector<std::vector<std::uint64_t>> read_once(ObjectReaders& readers, const Manifest& manifest,
                                                    std::vector<std::vector<Piece>>& pieces, const std::string& what) {
    const std::uint64_t most = chunks_at_once(manifest.chunk_bytes);
    std::vector<std::vector<std::uint64_t>> needed(pieces.size());
    std::vector<ObjectChunks> ranges;
    const std::vector<std::uint64_t> counts = agree(peers_, what, [&] {
      for (std::size_t object = 0; object < pieces.size(); ++object) {
        sort_pieces(pieces[object]);
        needed[object] = needed_chunks(pieces[object], manifest.chunk_bytes);
        std::vector<ChunkRange> of_object;
        for (const std::uint64_t chunk : needed[object])
          add_chunk(of_object, chunk, manifest.objects[object].data_bytes);
        for (const ChunkRange& range : of_object) ranges.push_back({object, range});
      }
      return std::uint64_t{ranges.size()};
    });
    const std::uint64_t longest = *std::max_element(counts.begin(), counts.end());
    const auto ranks = static_cast<std::uint64_t>(peers_.size());
    if (ranks == 1 || longest * ranks * sizeof(ObjectChunks) > kNeedsBytes) return needed;
    const std::vector<std::vector<ObjectChunks>> needs = gather(peers_, ranges);
    std::vector<std::vector<std::uint8_t>> at_hand;
    if (tiers_.fast && pieces.size() * ranks <= kNeedsBytes) at_hand = gather(peers_, held_here(manifest));
    read_shared(peers_, plan_shared_reads(needs, at_hand, nodes_, most), readers, manifest, pieces, needed);
    return needed;
  }

  /// The texts of all ranks: what one rank has read from another tier, others have got from it. Collective.
  std::vector<std::string> told_by_all(const std::vector<std::string>& mine) {
    std::vector<std::string> all;
    const std::vector<std::uint64_t> counts = agree(peers_, "restore", [&] { return std::uint64_t{mine.size()}; });
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      for (std::uint64_t i = 0; i < std::min<std::uint64_t>(counts[rank], kMostToldOfARank); ++i) {
        const bool own = static_cast<std::size_t>(peers_.rank()) == rank;
        all.push_back(broadcast_text(peers_, own ? mine[i] : std::string(), static_cast<int>(rank)));
      }
    }
    return all;
  }

  /// Whether ranks of a node find in the page cache what another one has read.
  static bool cached_by_node(const Tier& tier) { return tier.url().starts_with("file:"); }

  static std::uint64_t chunks_at_once(std::uint64_t chunk_bytes) {
    return std::max<std::uint64_t>(1, kReadBytes / chunk_bytes);
  }

  /// By object: 1 if this rank's burst buffer has it.
  std::vector<std::uint8_t> held_here(const Manifest& manifest) const {
    std::vector<std::uint8_t> held(manifest.objects.size());
    if (const auto found = here_.find(manifest.version); found != here_.end()) {
      for (const int rank : found->second.ranks) {
        if (static_cast<std::size_t>(rank) < held.size()) held[static_cast<std::size_t>(rank)] = 1;
      }
    }
    return held;
  }

  /// Several threads read, verify and copy what this rank needs: so requests are in flight while others are verified.
  void read_pieces(ObjectReaders& readers, const Manifest& manifest, const std::vector<std::vector<Piece>>& pieces,
                   const std::vector<std::vector<std::uint64_t>>& needed) const {
    struct Read {
      std::size_t object;
      ChunkRead chunks;
    };
    const std::uint64_t chunk_bytes = manifest.chunk_bytes;
    std::uint64_t request_bytes = 0;
    for (const Tier* tier : places(tiers_)) request_bytes = std::max(request_bytes, tier->request_bytes());
    const std::uint64_t most = std::max<std::uint64_t>(1, request_bytes / chunk_bytes);
    std::vector<Read> reads;
    // Each rank starts with another object, so that the ranks do not all read the same one.
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::size_t object = (static_cast<std::size_t>(peers_.rank()) + i) % pieces.size();
      const std::uint64_t data_bytes = manifest.objects[object].data_bytes;
      for (ChunkRead& chunks : reads_of(pieces[object], needed[object], chunk_bytes, data_bytes, most)) {
        // To such memory it is faster by way of a buffer.
        if (store::copies_slowly(chunks.range.first * chunk_bytes, chunks.target.data())) chunks.target = {};
        reads.push_back({object, chunks});
      }
    }
    const std::size_t threads = chunk_bytes > kReadBytes ? 1 : kReadsInFlight;
    std::vector<store::ReadBuffer> buffers(threads);
    in_streams(reads.size(), threads, [&](std::size_t i, std::size_t thread) {
      const auto& [object, chunks] = reads[i];
      ObjectReader& reader = readers.of(object);
      if (!chunks.target.empty()) return reader.read(chunks.range, chunks.target);
      const std::uint64_t offset_bytes = chunks.range.first * chunk_bytes;
      const Bytes to = buffers[thread].take(offset_bytes, reader.size_bytes(chunks.range));
      reader.read(chunks.range, to);
      copy_from(pieces[object], offset_bytes, to);
    });
  }

  /// As store::in_parallel, but each thread goes through a part of its own in order, so that the kernel reads ahead of
  /// it. Then it helps with what is left of the others.
  static void in_streams(std::size_t count, std::size_t threads,
                         const std::function<void(std::size_t, std::size_t)>& body) {
    std::vector<std::atomic<std::size_t>> next(threads);
    const auto begin_of = [&](std::size_t part) { return count * part / threads; };
    for (std::size_t part = 0; part < threads; ++part) next[part] = begin_of(part);
    store::in_parallel(threads, threads, [&](std::size_t first, std::size_t thread) {
      try {
        for (std::size_t part = 0; part < threads; ++part) {
          const std::size_t of = (first + part) % threads;
          for (std::size_t i; (i = next[of].fetch_add(1)) < begin_of(of + 1);) body(i, thread);
        }
      } catch (...) {
        for (std::atomic<std::size_t>& rest : next) rest = count;
        throw;
      }
    });
  }

  /// For a checkpoint that only burst buffers hold. Of the objects that some rank needs and does not find in its own,
  /// one that has it broadcasts the chunks. Returns what could not be had. Collective.
  std::optional<Error> read_from_others(const Manifest& manifest, std::vector<std::vector<Piece>>& pieces) {
    struct Row {
      std::uint8_t has = 0;
      std::uint8_t needs = 0;
    };
    const std::vector<std::uint8_t> held = held_here(manifest);
    std::vector<Row> mine(pieces.size());
    for (std::size_t r = 0; r < pieces.size(); ++r) mine[r].has = held[r];
    for (std::size_t r = 0; r < pieces.size(); ++r) mine[r].needs = !pieces[r].empty() && mine[r].has == 0 ? 1 : 0;
    const std::vector<std::vector<Row>> rows = gather(peers_, mine);
    std::optional<Error> unread;
    for (std::size_t r = 0; r < pieces.size(); ++r) {
      if (std::none_of(rows.begin(), rows.end(), [&](const auto& row) { return row[r].needs != 0; })) continue;
      std::vector<int> holders;
      for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        if (rows[rank][r].has != 0) holders.push_back(static_cast<int>(rank));
      }
      const std::optional<Error> failure = broadcast_object(manifest, r, holders, pieces[r], mine[r].needs != 0);
      if (failure && mine[r].needs != 0) unread = failure;
      if (mine[r].needs != 0) pieces[r] = {};
    }
    return unread;
  }

  std::optional<Error> broadcast_object(const Manifest& manifest, std::size_t saved_rank,
                                        const std::vector<int>& holders, std::vector<Piece>& pieces, bool is_needed) {
    const ObjectInfo& info = manifest.objects[saved_rank];
    const std::uint64_t chunks = chunks_of(info.data_bytes, manifest.chunk_bytes);
    const std::uint64_t most = chunks_at_once(manifest.chunk_bytes);
    std::vector<std::byte> buffer;
    std::optional<ObjectReader> reader;
    std::size_t holder = 0;
    Outcome outcome;
    if (is_needed) sort_pieces(pieces);
    for (std::uint64_t first = 0; first < chunks;) {
      if (holder == holders.size()) {
        return Error(outcome.code == 0 ? ErrorCode::not_found : static_cast<ErrorCode>(outcome.code),
                     outcome.code == 0 ? tiers_.slow->name_of(manifest.version, static_cast<int>(saved_rank)) +
                                             " is missing, and in the burst buffers of all nodes"
                                       : std::string(outcome.text));
      }
      const ChunkRange range{first, std::min(most, chunks - first)};
      buffer.resize(std::min(range.count * manifest.chunk_bytes, info.data_bytes - first * manifest.chunk_bytes));
      outcome = {};
      if (peers_.rank() == holders[holder]) {
        const auto failure = attempt("", peers_.rank(), [&] {
          if (!reader) {
            reader.emplace(Source{{tiers_.fast.get()}, manifest.version, static_cast<int>(saved_rank)}, info,
                           manifest.chunk_bytes, [](const std::string&) {});
          }
          reader->read(range, buffer);
        });
        if (failure) outcome = Outcome::of(*failure);
      }
      peers_.broadcast(std::as_writable_bytes(std::span(&outcome, 1)), holders[holder]);
      if (outcome.code != 0) {
        ++holder;
        continue;
      }
      peers_.broadcast(buffer, holders[holder]);
      if (is_needed) copy_from(pieces, first * manifest.chunk_bytes, buffer);
      first += range.count;
    }
    return std::nullopt;
  }

  Peers& peers_;
  const Tiers& tiers_;
  const RestoreOptions& options_;
  std::vector<int> nodes_;
  std::vector<std::set<Version>> seen_;  ///< by rank
  std::set<Version> line_;
  std::vector<std::string> warnings_;
  std::set<Version> in_slow_;        ///< on rank 0
  std::map<Version, Holding> here_;  ///< in this rank's burst buffer
  bool unlisted_ = false;            ///< some rank could not list its burst buffer
};

}  // namespace

Restored restore(Peers& peers, const Tiers& tiers, const RestoreOptions& options, const std::vector<int>& nodes) {
  Restoration restoration(peers, tiers, options, nodes);
  std::optional<Restored> restored = restoration.run();
  if (!restored) restoration.fail_not_found();
  return *std::move(restored);
}

std::optional<Restored> try_restore(Peers& peers, const Tiers& tiers, const RestoreOptions& options,
                                    const std::vector<int>& nodes) {
  return Restoration(peers, tiers, options, nodes).run();
}

Manifest read_manifest(const Tiers& tiers, const Version& version) {
  return intact_manifest(tiers, version, -1).manifest;
}

CheckpointInfo info_of(Manifest manifest) {
  CheckpointInfo info;
  info.step = manifest.version.step;
  info.metadata = std::move(manifest.metadata);
  info.metrics = std::move(manifest.metrics);
  info.saved_at_s = static_cast<double>(manifest.saved_at_us) / 1e6;
  info.arrays.reserve(manifest.arrays.size());
  for (ArraySpec& array : manifest.arrays)
    info.arrays.push_back({std::move(array.name), array.dtype, std::move(array.layout)});
  return info;
}

CheckpointInfo inspect(const Tiers& tiers, std::optional<std::uint64_t> step) {
  CheckpointInfo info;
  std::optional<Error> damage;
  const std::vector<Version> all = complete_versions(tiers);
  for (auto version = all.rbegin(); version != all.rend(); ++version) {
    if (step && version->step != *step) continue;
    damage =
        attempt("checkpoint of " + describe(*version), -1, [&] { info = info_of(read_manifest(tiers, *version)); });
    if (!damage) return info;
    if (!is_damage(damage->code())) break;
  }
  if (damage) throw *damage;
  throw Error(ErrorCode::not_found, "there is no complete " + subject_of(tiers, step));
}

std::vector<Version> complete_versions(const Tiers& tiers) {
  std::set<Version> complete;
  std::set<Version> removed;
  for (const Tier* tier : {tiers.slow.get(), tiers.fast.get()}) {
    if (tier == nullptr) continue;
    const std::map<Version, Holding> found = tier->list();
    if (tier == tiers.slow.get()) removed = removed_in(found);
    for (const auto& [version, holding] : found) {
      if (holding.complete() && !removed.contains(version)) complete.insert(version);
    }
  }
  return by_preference(complete);
}

}  // namespace penstock::checkpoint
