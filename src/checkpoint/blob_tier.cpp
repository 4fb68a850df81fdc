#include "checkpoint/blob_tier.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <utility>

#include "checkpoint/blob_header.hpp"
#include "checkpoint/object.hpp"
#include "checkpoint/peers.hpp"
#include "penstock/store.hpp"
#include "store/blob_state.hpp"
#include "store/collect.hpp"

namespace penstock::checkpoint {

namespace {

using store::BlobState;

constexpr std::uint64_t kSnapshots = 8;
/// What is left of a data object is written again once it is less than one part in so many. So the newest version needs
/// at most this many times its size, and at most one chunk is written again for every kSparse - 1 that were replaced.
constexpr std::uint64_t kSparse = 4;
constexpr std::chrono::hours kLease{1};
constexpr std::string_view kRemovedTags = "checkpoints/removed";

ConstBytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

std::string read_text(const Snapshot& snapshot, std::uint64_t offset_bytes, std::uint64_t size_bytes) {
  if (offset_bytes > snapshot.size_bytes() || size_bytes > snapshot.size_bytes() - offset_bytes) {
    throw Error(ErrorCode::corrupt, "version " + std::to_string(snapshot.version()) + " ends at byte " +
                                        std::to_string(snapshot.size_bytes()) + "; expected " +
                                        std::to_string(size_bytes) + " bytes at offset " +
                                        std::to_string(offset_bytes));
  }
  std::string text(size_bytes, '\0');
  const ReadRegion region{offset_bytes, std::as_writable_bytes(std::span(text))};
  snapshot.read(std::span(&region, 1));
  return text;
}

/// The header of a version; that of no job for a blob that was only created.
BlobHeader header_of(const Snapshot& snapshot) {
  if (snapshot.version() == 0) return {};
  return BlobHeader::parse(read_text(snapshot, 0, kHeaderBytes));
}

/// All that a rank has staged: each part behind its length.
Written encode(const std::vector<StagedWrite>& staged) {
  Written written;
  for (const StagedWrite& one : staged) {
    const std::uint64_t size_bytes = one.encoded.size();
    const ConstBytes head = std::as_bytes(std::span(&size_bytes, 1));
    written.insert(written.end(), head.begin(), head.end());
    written.insert(written.end(), one.encoded.begin(), one.encoded.end());
  }
  return written;
}

std::vector<StagedWrite> decode(const Written& written) {
  std::vector<StagedWrite> staged;
  for (ConstBytes rest(written); !rest.empty();) {
    std::uint64_t size_bytes = 0;
    std::memcpy(&size_bytes, rest.data(), sizeof size_bytes);
    rest = rest.subspan(sizeof size_bytes);
    staged.push_back({{rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(size_bytes)}});
    rest = rest.subspan(size_bytes);
  }
  return staged;
}

std::string who(const BlobHeader& header) {
  return " (host " + header.host + ", process " + std::to_string(header.pid) + ")";
}

class BlobTier final : public Tier {
 public:
  BlobTier(std::shared_ptr<store::Backend> backend, const std::string& run, int compress_level)
      : backend_(store::durable_backend(backend)), run_(run), compress_level_(compress_level) {
    find();
  }

  const std::string& url() const override { return backend_->url(); }
  std::string title() const override { return url() + ", run '" + run_ + "'"; }
  std::string name_of(const Version& version, int rank) const override {
    return title() + ": " + (rank < 0 ? "the manifest" : "the part of rank " + std::to_string(rank)) + " of " +
           tag_of(version);
  }

  std::map<Version, Holding> list() const override {
    const std::shared_ptr<BlobState> state = find();
    if (!state) return {};
    std::map<Version, Holding> versions;
    // The newest first: if another version follows meanwhile, it had its tag before.
    const Newest newest = newest_of(state);
    if (newest.header.complete) versions[newest.header.version].manifest = true;
    for (const std::string& key : backend_->list_unchanged(state->key("tags"))) {
      const std::optional<Version> version = version_of_tag(std::string_view(key).substr(key.find_last_of('/') + 1));
      if (version) versions[*version].manifest = true;
    }
    for (const std::string& key : backend_->list(state->key(kRemovedTags))) {
      const std::optional<Version> version = version_of_tag(std::string_view(key).substr(key.find_last_of('/') + 1));
      if (version) versions[*version].removed = true;
    }
    return versions;
  }

  std::string manifest(const Version& version) const override {
    const Snapshot snapshot = snapshot_of(version);
    const BlobHeader header = header_of(snapshot);
    if (header.version != version) throw Error(ErrorCode::corrupt, "the tag is of another checkpoint");
    return read_text(snapshot, header.manifest_place_bytes, header.manifest_bytes);
  }

  void read(const Version& version, int rank, const ObjectInfo& info, std::uint64_t offset_bytes,
            Bytes to) const override {
    try {
      read_part(snapshot_of(version), info.place_bytes + offset_bytes, to);
    } catch (const Error& error) {
      // What later versions share with this one may be damaged, too.
      if (error.code() == ErrorCode::corrupt) ++damages_;
      throw Error(error.code(), name_of(version, rank) + ": " + error.message(), error.rank(), error.cause());
    }
  }

  std::uint64_t take_generation(std::uint64_t seen) override {
    const std::shared_ptr<BlobState> state = find_or_create();
    for (;;) {
      const Newest newest = newest_of(state);
      put_tag(*state, newest);
      BlobHeader header = BlobHeader::of_job(std::max(newest.header.job, seen) + 1);
      header.version = newest.header.version;
      header.manifest_place_bytes = newest.header.manifest_place_bytes;
      header.manifest_bytes = newest.header.manifest_bytes;
      if (put_header(state, newest.number, header)) return header.job;
    }
  }

  void check_generation(std::uint64_t generation) const override {
    const std::shared_ptr<BlobState> state = find();
    if (!state) return;
    const Newest newest = newest_of(state);
    if (newest.header.job > generation) throw fenced_by(newest.header, generation);
  }

  void reclaim(std::uint64_t, const std::map<Version, Holding>&, const std::set<Version>&, const Warn& warn) override {
    try_to(warn, "removing data of dead runs", [&] { collect(kLatest); });
  }

  bool builds_on_base() const override { return true; }

  Base base(std::uint64_t generation) override {
    const std::shared_ptr<BlobState> state = existing();
    const Newest newest = newest_of(state);
    if (newest.header.job != generation) throw fenced_by(newest.header, generation);
    // Nothing is committed on top of a checkpoint without a tag.
    put_tag(*state, newest);
    base_version_ = newest.header.version;
    return {newest.number, 0};
  }

  bool distrusts() const override { return damages_ != trusted_since_; }

  Written write(const Attempt&, int rank, const Content& content, const Base& base) override {
    const ObjectInfo& info = content.info;
    damages_before_ = damages_;
    verified_ = base.distrusted != 0;
    if (info.size_bytes == 0) return {};
    const std::shared_ptr<BlobState> state = existing();
    const std::vector<bool> unchanged = unchanged_chunks(state, rank, content, base);
    std::vector<ChunkRange> changed;
    for (std::uint64_t chunk = 0; chunk < unchanged.size(); ++chunk)
      if (!unchanged[chunk]) add_chunk(changed, chunk);
    Blob blob(state);
    std::vector<StagedWrite> staged;
    std::vector<WriteRegion> regions;
    const auto stage = [&] { staged.push_back(blob.stage(std::exchange(regions, {}))); };
    try {
      const auto chunks = content.open(changed);
      while (const auto piece = chunks->next()) {
        regions.push_back({info.place_bytes + piece->first_chunk * content.chunk_bytes, piece->data});
        if (!chunks->full()) continue;
        stage();
        chunks->release();
      }
      const std::vector<std::byte> tail = tail_of(content);
      regions.push_back({info.place_bytes + info.data_bytes, tail});
      stage();
    } catch (...) {
      for (const StagedWrite& one : staged) blob.discard(one);
      throw;
    }
    return encode(staged);
  }

  void discard(const Attempt&, int, const Written& written, const Warn& warn) override {
    if (written.empty()) return;
    try_to(warn, "removing what was not saved", [&] {
      Blob blob(existing());
      for (const StagedWrite& one : decode(written)) blob.discard(one);
    });
  }

  Publication publish(const Attempt& of, const Draft& draft, const Tier&) override {
    const Version& version = of.version;
    Publication result;
    std::optional<StagedWrite> own;
    result.failure = attempt("", 0, [&] {
      const std::shared_ptr<BlobState> state = existing();
      Blob blob(state);
      BlobHeader header = BlobHeader::of_job(of.job);
      header.complete = true;
      header.version = version;
      header.manifest_place_bytes = draft.end_bytes;
      header.manifest_bytes = draft.manifest.size();
      std::string manifest = draft.manifest;
      manifest.resize(aligned_place(manifest.size()), '\n');
      const std::string head = header.serialize();
      std::uint64_t parent = draft.base.number;
      if (const std::uint64_t end_bytes = draft.end_bytes + manifest.size();
          blob.snapshot(parent).size_bytes() > end_bytes) {
        const auto cut = on_top(state, parent, header, [&] { return state->resize_if(parent, end_bytes); });
        if (!cut) return;
        parent = *cut;
      }
      const WriteRegion body{draft.end_bytes, bytes_of(manifest)};
      own = blob.stage(std::span(&body, 1));
      // Apart, so that it lies in the record: as long as that is intact, the run can go on.
      const WriteRegion front{0, bytes_of(head)};
      std::vector<StagedWrite> parts;
      for (const Written& written : draft.written) {
        for (StagedWrite& one : decode(written)) parts.push_back(std::move(one));
      }
      parts.push_back(*own);
      parts.push_back(blob.stage(std::span(&front, 1)));
      const auto number = on_top(state, parent, header, [&] { return blob.commit_if(parent, parts); });
      if (!number) return;
      result.number = *number;
      if (const auto error = attempt("", 0, [&] { put_tag(*state, {*number, header}); })) {
        result.warning = "it has no tag yet: " + error->message();
      }
    });
    if (!result.failure) return result;
    // A commit of unknown outcome shows in the newest version.
    const auto unknown = attempt("", 0, [&] { result.gone = newest_of(existing()).header.version != version; });
    if (unknown) result.gone = false;
    if (result.gone && own) Blob(existing()).discard(*own);
    return result;
  }

  void published(std::uint64_t number, const Content& content) override {
    last_ = {number, content.info.place_bytes, content.chunk_bytes, content.info.data_bytes, content.digests};
    if (verified_) trusted_since_ = damages_before_;
  }

  void remove(const Version& version) override {
    const std::shared_ptr<BlobState> state = existing();
    for (;;) {
      const Newest newest = newest_of(state);
      if (!newest.header.complete || newest.header.version != version) break;
      BlobHeader header = newest.header;
      header.complete = false;
      if (put_header(state, newest.number, header)) break;
    }
    try {
      state->untag(tag_of(version));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;
    }
  }

  void mark_removed(const Version& version) override {
    backend_->put_if_absent(existing()->key(kRemovedTags) + '/' + tag_of(version), {});
  }

  void remove_data(const Version&, const std::vector<int>&) override {}

  void sweep() override { collect(1); }

 private:
  struct Newest {
    std::uint64_t number = 0;
    BlobHeader header;
  };

  /// The digests of this rank's object in a version of the blob.
  struct Known {
    std::uint64_t number = 0;
    std::uint64_t place_bytes = 0;
    std::uint64_t chunk_bytes = 0;
    std::uint64_t data_bytes = 0;
    std::vector<Digest> digests;
  };

  /// What follows the data: the digests, and zeros over what an earlier version may have up to the next place.
  static std::vector<std::byte> tail_of(const Content& content) {
    std::vector<std::byte> tail(aligned_place(content.info.size_bytes) - content.info.data_bytes);
    const ConstBytes table = std::as_bytes(std::span(content.digests));
    std::copy(table.begin(), table.end(), tail.begin());
    return tail;
  }

  std::shared_ptr<BlobState> find() const {
    const std::lock_guard lock(mutex_);
    if (!state_) {
      state_ = BlobState::find(backend_, run_);
      if (state_) {
        state_->compress(compress_level_);
        // Only a restore reads it.
        state_->expect_reads(false);
      }
    }
    return state_;
  }

  std::shared_ptr<BlobState> existing() const {
    if (auto state = find()) return state;
    throw Error(ErrorCode::not_found, title() + " does not exist");
  }

  std::shared_ptr<BlobState> find_or_create() {
    if (auto state = find()) return state;
    try {
      BlobState::create(backend_, run_, {.size_bytes = 0, .grows = true});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::exists) throw;
    }
    return existing();
  }

  Newest newest_of(const std::shared_ptr<BlobState>& state) const {
    const Snapshot snapshot = Blob(state).snapshot();
    try {
      return {snapshot.version(), header_of(snapshot)};
    } catch (const Error& error) {
      throw Error(error.code(),
                  title() + ": version " + std::to_string(snapshot.version()) +
                      " of the blob does not begin as a checkpoint does (" + error.message() +
                      "); give the run another name, or see 'penstock store check'",
                  error.rank(), error.cause());
    }
  }

  Error fenced_by(const BlobHeader& header, std::uint64_t generation) const {
    return fenced(title(), header.job, who(header), generation);
  }

  /// Tags a checkpoint, unless it has its tag.
  static void put_tag(BlobState& state, const Newest& newest) {
    const std::string tag = tag_of(newest.header.version);
    if (!newest.header.complete || state.backend().exists(state.tag_key(tag))) return;
    try {
      state.tag(tag, newest.number);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::exists) throw;
    }
  }

  /// Makes a version of which only the header differs. False if another version came first.
  static bool put_header(const std::shared_ptr<BlobState>& state, std::uint64_t parent, const BlobHeader& header) {
    const std::string text = header.serialize();
    const WriteRegion region{0, bytes_of(text)};
    try {
      Blob(state).write_if(parent, std::span(&region, 1));
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::exists) throw;
      return false;
    }
  }

  /// Runs `commit`, which builds on `parent`, until no other version is in the way but of the header alone: 'penstock
  /// checkpoint remove' makes such. Throws Error(fenced) if a newer job has begun, Error(exists) for another change.
  /// Empty if a collector was faster.
  std::optional<std::uint64_t> on_top(const std::shared_ptr<BlobState>& state, std::uint64_t& parent,
                                      const BlobHeader& own,
                                      const std::function<std::optional<std::uint64_t>()>& commit) const {
    for (;;) {
      try {
        return commit();
      } catch (const Error& error) {
        if (error.code() != ErrorCode::exists) throw;
        const Newest newest = newest_of(state);
        if (newest.header.job != own.job) throw fenced_by(newest.header, own.job);
        if (!differs_in_header_only(state, parent, newest)) {
          throw Error(ErrorCode::exists, title() + ": version " + std::to_string(newest.number) +
                                             " was written by another program during the save; save again");
        }
        parent = newest.number;
      }
    }
  }

  bool differs_in_header_only(const std::shared_ptr<BlobState>& state, std::uint64_t parent,
                              const Newest& newest) const {
    try {
      const std::vector<Range> changed = Blob(state).diff(parent, newest.number);
      return std::all_of(changed.begin(), changed.end(),
                         [](const Range& range) { return range.offset_bytes + range.size_bytes <= kHeaderBytes; });
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;
      // The parent was collected. Every save changes the version in the header.
      return newest.header.version == base_version_;
    }
  }

  static void read_part(const Snapshot& snapshot, std::uint64_t offset_bytes, Bytes to) {
    if (offset_bytes > snapshot.size_bytes() || to.size() > snapshot.size_bytes() - offset_bytes) {
      throw Error(ErrorCode::corrupt, "version " + std::to_string(snapshot.version()) + " ends before byte " +
                                          std::to_string(offset_bytes + to.size()));
    }
    const ReadRegion region{offset_bytes, to};
    snapshot.read(std::span(&region, 1));
  }

  /// The version of a checkpoint. It never changes, so its map is read once.
  Snapshot snapshot_of(const Version& version) const {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = snapshots_.find(version); found != snapshots_.end()) return found->second;
    }
    const std::shared_ptr<BlobState> state = existing();
    const Snapshot snapshot = Blob(state).snapshot(number_of(state, version));
    const std::lock_guard lock(mutex_);
    if (snapshots_.size() >= kSnapshots) snapshots_.clear();
    return snapshots_.emplace(version, snapshot).first->second;
  }

  std::uint64_t number_of(const std::shared_ptr<BlobState>& state, const Version& version) const {
    const auto tagged = [&]() -> std::optional<std::uint64_t> {
      try {
        return state->read_tag(tag_of(version));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::not_found) throw;
        return std::nullopt;
      }
    };
    if (const auto number = tagged()) return *number;
    const Newest newest = newest_of(state);
    if (newest.header.complete && newest.header.version == version) return newest.number;
    // It may have got its tag, and a successor, between the two looks.
    if (const auto number = tagged()) return *number;
    throw Error(ErrorCode::not_found, title() + ": the checkpoint " + tag_of(version) + " was removed");
  }

  /// What this rank had in the base; nothing if that cannot be read: then all is written.
  Known known_in(const std::shared_ptr<BlobState>& state, int rank, const Base& base) const {
    Known known;
    const auto unreadable = attempt("", -1, [&] {
      const Snapshot snapshot = Blob(state).snapshot(base.number);
      const BlobHeader header = header_of(snapshot);
      if (header.manifest_bytes == 0) return;
      const Manifest manifest =
          Manifest::parse(read_text(snapshot, header.manifest_place_bytes, header.manifest_bytes));
      if (rank >= manifest.ranks()) return;
      const ObjectInfo& info = manifest.objects[static_cast<std::size_t>(rank)];
      std::vector<Digest> digests(chunks_of(info.data_bytes, manifest.chunk_bytes));
      const Bytes table = std::as_writable_bytes(std::span(digests));
      read_part(snapshot, info.place_bytes + info.data_bytes, table);
      if (digest(table) != info.table) return;
      known = {base.number, info.place_bytes, manifest.chunk_bytes, info.data_bytes, std::move(digests)};
    });
    return unreadable ? Known{} : known;
  }

  /// Which chunks the base has at the same place with the same content. After damage, and at the first save of a job,
  /// it reads them.
  std::vector<bool> unchanged_chunks(const std::shared_ptr<BlobState>& state, int rank, const Content& content,
                                     const Base& base) const {
    const ObjectInfo& info = content.info;
    std::vector<bool> unchanged(content.digests.size(), false);
    const Known known = last_.number == base.number ? last_ : known_in(state, rank, base);
    if (known.place_bytes != info.place_bytes || known.chunk_bytes != content.chunk_bytes) return unchanged;
    std::vector<std::byte> chunk;
    std::optional<Snapshot> snapshot;
    for (std::size_t i = 0; i < std::min(unchanged.size(), known.digests.size()); ++i) {
      const std::uint64_t at = i * content.chunk_bytes;
      const std::uint64_t size_bytes = std::min(content.chunk_bytes, info.data_bytes - at);
      const bool same_size = size_bytes == std::min(content.chunk_bytes, known.data_bytes - at);
      unchanged[i] = same_size && known.digests[i] == content.digests[i];
      if (!unchanged[i] || base.distrusted == 0) continue;
      const auto damage = attempt("", -1, [&] {
        if (!snapshot) snapshot = Blob(state).snapshot(base.number);
        chunk.resize(size_bytes);
        read_part(*snapshot, info.place_bytes + at, chunk);
      });
      unchanged[i] = !damage && digest(chunk) == content.digests[i];
    }
    renew_sparse(state, content, base, unchanged);
    return unchanged;
  }

  /// A data object is freed as a whole: one chunk that never changes would keep all that was written with it.
  static void renew_sparse(const std::shared_ptr<BlobState>& state, const Content& content, const Base& base,
                           std::vector<bool>& unchanged) {
    if (std::find(unchanged.begin(), unchanged.end(), true) == unchanged.end()) return;
    const ObjectInfo& info = content.info;
    const auto map = state->map_at(base.number);
    if (map->size_bytes() <= info.place_bytes) return;
    const std::uint64_t stored_bytes = std::min(info.place_bytes + info.data_bytes, map->size_bytes());
    const auto visit = [&](const auto& visitor) {
      map->visit(info.place_bytes, stored_bytes - info.place_bytes,
                 [&](std::uint64_t offset_bytes, std::uint64_t size_bytes, const store::Source* source, std::uint64_t) {
                   if (source != nullptr && source->is_object()) visitor(offset_bytes, size_bytes, *source);
                 });
    };
    std::map<const store::Source*, std::uint64_t> used_bytes;
    visit([&](std::uint64_t, std::uint64_t size_bytes, const store::Source& source) {
      used_bytes[&source] += size_bytes;
    });
    visit([&](std::uint64_t offset_bytes, std::uint64_t size_bytes, const store::Source& source) {
      if (used_bytes[&source] >= source.size_bytes() / kSparse) return;
      const std::uint64_t first = (offset_bytes - info.place_bytes) / content.chunk_bytes;
      const std::uint64_t last = (offset_bytes + size_bytes - 1 - info.place_bytes) / content.chunk_bytes;
      for (std::uint64_t chunk = first; chunk <= last; ++chunk) unchanged[chunk] = false;
    });
  }

  void collect(std::uint64_t keep_last) const {
    const std::shared_ptr<BlobState> state = find();
    if (!state) return;
    GcReport report;
    store::collect_blob(*state, {.keep_last = keep_last, .lease = kLease}, report);
  }

  const std::shared_ptr<store::Backend> backend_;
  const std::string run_;
  const int compress_level_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<BlobState> state_;
  mutable std::map<Version, Snapshot> snapshots_;
  mutable std::atomic<std::uint64_t> damages_{1};  ///< found by this process; 1 more, since it has verified nothing yet
  // Used by the thread that saves.
  std::uint64_t damages_before_ = 0;
  std::uint64_t trusted_since_ = 0;  ///< all but later damages are behind the newest version
  bool verified_ = false;
  Version base_version_;  ///< of the checkpoint in the base, on rank 0
  Known last_;
};

}  // namespace

std::shared_ptr<Tier> blob_tier(std::shared_ptr<store::Backend> backend, const std::string& run, int compress_level) {
  return std::make_shared<BlobTier>(std::move(backend), run, compress_level);
}

}  // namespace penstock::checkpoint
