// One blob in a backend: its log of records, and the maps of its versions, which are made by replaying the log. The
// protocol and why it is safe: docs/design/store.md.
//
//   catalog/<name>             the entry of a name: identity, size, whether the blob grows, folder
//   successors/<name>/<number> the entry of a later blob of the same name
//   freed/<number>             entries up to <number> may have been freed; "Names" in docs/design/store-repair.md
//
// The folder of a blob is places/<time>-<random>. Penstock 0.1 named it blobs/<name> or homes/<time>-<random>; such a
// folder has no gc/alive, and keeps gc/gone for ever. A folder holds:
//
//   data/<base>-<time>-<writer>-<n>  data of one write; <base>: the newest version the writer knew before it stored it
//   versions/<number>    record of one version; its exclusive create commits the version
//   index/<number>       the whole map of a version; saves replaying, and keeps versions with a tag readable
//   delta/<number>       what the versions from an earlier one up to this one changed; saves replaying
//   compact/<number>     another map of the version, to a contiguous copy of its data
//   confirmed/<number>   no gc gives up that copy any more, so it may replace what it was copied from
//   tags/<tag>           the number of a version that gc keeps
//   gc/alive             makes the blob exist, or gives its creation up; see "Names" in docs/design/store-snapshots.md
//   gc/fence-<number>    a gc gives up, or gave up, all uncommitted data with a base below <number>
//   gc/keep-<number>     versions below <number> are collected, except those with a tag
//   gc/base-<number>     index/<number> has a write that the log has lost: later versions are built on that index
//   gc/repair-<number>   a repair changes something (odd), or has done so (even)
//   gc/gone              the blob was removed; with the time
//   gc/clone             a clone that is not complete: its data is there before gc/alive
//   gc/named             the same, put just before the entry: a gc may have removed gc/clone
//   gc/unfinished        a gc takes a blob without an entry for that of a dead process
//   lost/<object>        copy of a damaged object that repair replaced or removed
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/store.hpp"
#include "store/backend.hpp"
#include "store/record.hpp"
#include "store/version_map.hpp"

namespace penstock::store {

/// The parent of the folders of blobs. "homes" and "folders" are not used any more: a collector of Penstock 0.1 would
/// take the folders there for leftovers of its own blobs.
inline constexpr std::string_view kFolders = "places";
inline constexpr std::string_view kFormerFolders[] = {"homes", "folders"};
inline constexpr std::string_view kAlive = "alive";
inline constexpr std::string_view kGone = "gone";
inline constexpr std::string_view kUnfinished = "unfinished";
inline constexpr std::string_view kClone = "clone";
inline constexpr std::string_view kNamed = "named";
inline constexpr std::uint64_t kInlineBytes = 4 << 10;
inline constexpr std::uint64_t kMostBlobBytes = std::uint64_t{1} << 63;
/// A writer checks every so many versions whether an index is due; more often if its record has few regions. A check
/// replays the records of other writers, so its cost grows with their regions.
inline constexpr std::uint64_t kIndexConsidered = 24;
inline constexpr std::uint64_t kIndexConsideredForFew = 6;

/// When a writer puts a delta. Costs are those of Replayed. Tests lower them.
struct DeltaRule {
  std::uint64_t interval = 32;  ///< at multiples of this, if replaying instead costs at least `least_cost`
  std::uint64_t least_cost = 240;
  std::uint64_t cost = 1 << 13;  ///< at any version, if replaying instead costs this much
};
inline DeltaRule delta_rule;

/// Time since 1970 by the clock of this host.
std::int64_t now_ns();
/// The begin of a lease that ends now, as now_ns.
std::int64_t begin_of(std::chrono::seconds lease);
/// "[offset, offset + size)", for messages.
std::string region_text(std::uint64_t offset_bytes, std::uint64_t size_bytes);

/// One blob, as opened once: all handles (Blob, Snapshot) of that open share this state. It owns its caches of maps.
/// Thread-safe; throws penstock::Error.
class BlobState {
 public:
  static std::shared_ptr<BlobState> create(std::shared_ptr<Backend> backend, std::string_view name,
                                           const BlobOptions& options);
  /// Throws Error(not_found).
  static std::shared_ptr<BlobState> open(std::shared_ptr<Backend> backend, std::string_view name);
  /// As open; null if no blob has this name.
  static std::shared_ptr<BlobState> find(const std::shared_ptr<Backend>& backend, std::string_view name);
  /// Later writes of this state compress their data; 0: no more. See StoreOptions::compress_level.
  void compress(int level) { compress_level_ = level; }
  bool compresses() const { return compress_level_ != 0; }
  /// Whether what later writes of this state store is read soon: see Stream::read_soon.
  void expect_reads(bool read_soon) { read_soon_ = read_soon; }
  /// All names that have an entry, including names of removed blobs.
  static std::set<std::string> names(const Backend& backend);
  /// All folders that an entry names, including folders of removed blobs.
  static std::set<std::string> named_folders(const std::shared_ptr<Backend>& backend);
  /// Removes the blob: no write succeeds from here on. Its data stays for remove_folder. Returns false, and changes
  /// nothing, if the blob was removed before.
  bool remove();
  /// When the blob of a folder was removed; 0 if it was not, or if that is unknown.
  static std::int64_t removal_time_ns(const Backend& backend, const std::string& folder);
  /// An entry of a name, or its witness, that is damaged, and how to mend it.
  struct DamagedEntry {
    std::string object;
    std::string reason;
    std::vector<std::byte> content;  ///< what to replace it by; empty if that is unknown
    std::string action;              ///< the effect of the replacement
  };
  /// The content of gc/alive in a folder: a copy of the entry of its blob. If the creation was given up, `name` is
  /// empty. Throws Error(not_found), Error(corrupt).
  struct Witness {
    std::string name;
    std::vector<std::byte> entry;
  };
  static Witness read_witness(const Backend& backend, const std::string& folder);
  static std::vector<DamagedEntry> damaged_entries(const std::shared_ptr<Backend>& backend, std::string_view name);
  /// Frees what is left of removed blobs: the contents of their folders and, if they were made before the lease began,
  /// their names.
  static void free_names(const std::shared_ptr<Backend>& backend, std::chrono::seconds lease, GcReport& report);

  Backend& backend() const { return *backend_; }
  const std::shared_ptr<Backend>& shared_backend() const { return backend_; }
  const std::string& name() const { return name_; }
  bool grows() const { return grows_; }
  /// "store URL, blob 'name'", for messages.
  std::string title() const;

  std::uint64_t latest();
  bool wait(std::uint64_t version, std::chrono::nanoseconds timeout);
  /// Throws Error(not_found) for collected versions.
  Record record(std::uint64_t version);
  /// The map of a version by the log alone. Indexes and later versions build only on such maps. Throws
  /// Error(not_found).
  std::shared_ptr<const VersionMap> map_at(std::uint64_t version);
  /// As map_at, for lookups and for what a map says besides places. Reads few blocks of large maps.
  std::shared_ptr<const VersionMap> lookup_map_at(std::uint64_t version);
  /// Whether a large map is read at once, or as lookups need it.
  enum class Loading : std::uint8_t { whole, parts };
  /// A map of the same bytes: the compacted one if the version was compacted, else map_at or lookup_map_at.
  std::shared_ptr<const VersionMap> readable_map_at(std::uint64_t version, Loading loading);
  struct Readable {
    std::shared_ptr<const VersionMap> map;
    std::string damage;  ///< why the newest version cannot be read; empty if `map` is the version that was asked for
  };
  /// As readable_map_at. For kLatest: the newest readable version, even if later records are damaged.
  Readable readable_at(std::uint64_t version, Loading loading = Loading::parts);
  void read(const VersionMap& map, std::span<const ReadRegion> regions);

  void check_regions(std::span<const WriteRegion> regions) const;
  /// Throws Error(corrupt) if the newest version cannot be read, since later versions could not be read either. Reads
  /// the log once per process.
  void check_log();
  /// Records, indexes, compacted maps and their marks beyond the newest version. A loss of power may leave such.
  std::vector<std::string> beyond_newest();
  /// Stores the data of one part of a version.
  Part stage(std::span<const WriteRegion> regions);
  /// Makes one version and returns its number; nothing if a gc has given up one of the parts. `number` as in Record.
  std::optional<std::uint64_t> commit(RecordKind kind, std::vector<Part> parts, std::uint64_t number = 0);
  /// As commit, of a write. Makes no version and throws Error(exists) if a version after `parent` changes anything or
  /// was collected, Error(invalid_argument) if there is no `parent`. The parts stay staged then.
  std::optional<std::uint64_t> commit_if(std::uint64_t parent, std::vector<Part> parts);

  /// Changes the size, with the condition of commit_if. Nothing if a gc fenced it.
  std::optional<std::uint64_t> resize_if(std::uint64_t parent, std::uint64_t size_bytes);

  /// A blob without gc/alive does not exist yet (pending), or not any more.
  enum class Existence : std::uint8_t { pending, there, removed };
  Existence existence() const;
  bool is_removed() const { return existence() != Existence::there; }
  /// What collectors have announced by marks in gc/.
  struct Marks {
    std::uint64_t keep_from = 0;       ///< versions below are collected, except those with a tag
    std::uint64_t fence_below = 0;     ///< bases below may be fenced; the fence record in the log decides
    std::vector<std::uint64_t> bases;  ///< see gc/base-<number>; ascending
    std::uint64_t repairs = 0;         ///< grows with each repair

    /// The oldest version whose map may be brought to `version` by records.
    std::uint64_t base_of(std::uint64_t version) const {
      const auto above = std::upper_bound(bases.begin(), bases.end(), version);
      return std::max(keep_from, above == bases.begin() ? 0 : *std::prev(above));
    }
  };
  /// Throws Error(not_found) if the blob was removed.
  Marks marks() const;
  /// Stores the map of a version as an index, if it has none.
  void put_index(std::uint64_t version);

  // Tags, compaction and clones: snapshots.cpp.
  void tag(std::string_view name, std::uint64_t version);
  void untag(std::string_view name);
  /// Name and version of all tags, sorted by name.
  std::vector<std::pair<std::string, std::uint64_t>> tags() const;
  std::uint64_t read_tag(std::string_view name) const;
  void compact(std::uint64_t version);
  void clone(std::uint64_t version, std::string_view name);
  std::optional<VersionMap> read_compacted(std::uint64_t version) const;

  const std::string& folder() const { return folder_; }
  std::string key(std::string_view folder) const { return folder_ + '/' + std::string(folder); }
  bool has_witness() const { return has_witness_; }
  std::string alive_key() const { return key("gc/") + std::string(kAlive); }
  std::string gone_key() const { return key("gc/") + std::string(kGone); }
  std::string tag_key(std::string_view name) const;
  std::string compacted_key(std::uint64_t version) const { return numbered_key(key("compact"), version); }
  std::string confirmed_key(std::uint64_t version) const { return numbered_key(key("confirmed"), version); }
  std::string record_key(std::uint64_t version) const { return numbered_key(key("versions"), version); }
  std::string index_key(std::uint64_t version) const { return numbered_key(key("index"), version); }
  std::string delta_key(std::uint64_t version) const { return numbered_key(key("delta"), version); }
  VersionMap empty_map() const { return VersionMap(blob_id_, size_bytes_); }
  VersionMap read_index(std::uint64_t version, Loading loading = Loading::whole) const;

 private:
  struct News;
  class Way;

  BlobState(std::shared_ptr<Backend> backend, std::string_view name);
  /// Chooses a new folder. Stores nothing.
  void begin_folder();
  /// Gives the creation of this blob up, so that it never exists. Returns false if the blob exists.
  bool give_up() const;
  /// Whether a collector may free what is left of the removed blob: its creator and its remover have had a lease to
  /// look at the marks.
  bool is_settled(std::int64_t deadline_ns) const;
  void put(const std::string& object, const std::vector<std::byte>& content) const;
  /// The contents of the entry of the name and of its copy in gc/alive.
  std::vector<std::byte> header() const;
  std::vector<std::byte> witness() const;
  DamagedEntry substitute(const std::string& entry, const std::string& reason);
  static std::uint64_t freed_numbers(const Backend& backend);
  /// A blob with the size of `map` and a folder of its own. It has no entry before announce().
  std::shared_ptr<BlobState> prepare_clone(std::string_view name, const VersionMap& map) const;
  struct Standing;
  /// What a name stood for at some instant during the call.
  static Standing standing(const std::shared_ptr<Backend>& backend, std::string_view name);
  /// False if the entry does not exist.
  bool read_entry(const std::string& entry);
  void follow_news();
  /// Creates the entry of the name, and makes the blob exist; throws Error(exists). Returns false if another process
  /// gave the creation up, or may free the entry: then the blob never exists.
  bool announce();
  bool confirm(const std::string& entry, std::uint64_t freed);
  /// Whether an index, rather than the map of version `from`, is the shorter way to the map of `version`.
  bool is_shorter_from_index(std::uint64_t from, std::uint64_t version) const;
  /// Returns whether it did.
  bool put_index_if_due(std::uint64_t version);
  /// Puts an index or a compacted map. Encodes a new map and replaces it if a repair changed something meanwhile.
  void put_map(const std::string& object, std::uint64_t repairs, std::vector<std::byte> sealed,
               const std::function<std::vector<std::byte>()>& again);
  void put_delta_if_due(std::uint64_t version);
  VersionMap read_kept(std::uint64_t version, std::uint64_t keep_from, Loading loading) const;
  /// Throws Error(not_found) if there is no such version yet.
  void check_exists(std::uint64_t version);
  using MapAt = std::function<std::shared_ptr<const VersionMap>(std::uint64_t version)>;
  /// Of the newest version that was not collected before its map was read.
  std::shared_ptr<const VersionMap> newest_map(const MapAt& map_at);
  /// A map that this process holds already; null if there is none. The caller holds the lock.
  std::shared_ptr<const VersionMap> held_map(std::uint64_t version) const;
  std::shared_ptr<const VersionMap> hold(VersionMap map);
  /// Drops maps from before a repair that this process has seen: they may have what it gave up. The caller holds the
  /// lock.
  void forget_if_repaired();
  /// `map` brought to a newer version by the log. Nothing if that needs what is damaged or collected, or if an index
  /// decides.
  std::optional<VersionMap> advanced(const VersionMap& map, std::uint64_t version);
  void read_by(const VersionMap& map, std::span<const ReadRegion> regions) const;
  bool read_by_copy(std::uint64_t version, std::span<const ReadRegion> regions);
  /// The newest index at or before `version`, by a listing; 0 if there is none.
  std::uint64_t list_indexes(std::uint64_t version);
  /// The index of this version, or else the one that its record names; 0 if there is none. Saves a cold reader a
  /// listing. If it reads the record, it leaves it in `newest`.
  std::uint64_t index_near(std::uint64_t version, std::optional<Record>& newest);
  /// The map to replay from to `version`: the newest undamaged index at or before it, else version 0.
  VersionMap nearest_index(std::uint64_t version, const Marks& found, std::optional<Record>& newest);
  [[noreturn]] void fail_without_index(std::uint64_t version) const;
  struct Rebuilt {
    VersionMap map;
    std::uint64_t from;  ///< the version of the index below; the records behind it were read, or deltas instead
  };
  Rebuilt replayed(std::uint64_t version, const Marks& found);
  /// As replayed, in parts: by an index, deltas, and the newest records.
  Rebuilt layered(std::uint64_t version, const Marks& found);
  VersionMap rebuild(std::uint64_t version, Loading loading);
  void replay(VersionMap& map, std::uint64_t version);
  [[noreturn]] void fail_collected(std::uint64_t version, std::uint64_t keep_from) const;
  void learn(std::uint64_t version);
  /// Identifies this process as a writer. Differs between parent and child after a fork, although they share random_.
  std::uint64_t writer() const;
  static std::string writer_name();
  Record decode_of(std::uint64_t version, std::span<const std::byte> sealed) const;
  /// The newest version before the first record that cannot be read.
  VersionMap map_before_damage();
  void settle(std::uint64_t version);
  std::optional<std::uint64_t> commit_record(RecordKind kind, std::vector<Part> parts, std::uint64_t number,
                                             std::optional<std::uint64_t> parent);
  /// Appends a record behind `parent` and what follows it, if that changes nothing. Throws as commit_if.
  std::uint64_t append_on(std::uint64_t parent, ConstBytes record_bytes);
  /// Says what a version changes in its predecessor; empty if nothing: a fence, or a void record.
  std::string change_of(std::uint64_t version);
  bool given_up(const Record& record, std::uint64_t version);
  void remove_if_uncommitted(const Record& record, std::uint64_t first);

  const std::shared_ptr<Backend> backend_;
  const std::string name_;
  const std::uint64_t random_;  ///< shared with children of a fork; see writer()
  std::string folder_;
  std::shared_ptr<News> news_;
  std::uint64_t blob_id_ = 0;
  std::uint64_t size_bytes_ = 0;
  std::int64_t made_ns_ = 0;  ///< time in its entry
  bool grows_ = false;
  bool has_witness_ = false;  ///< gc/alive exists as long as the blob does; false: Penstock 0.1 made the blob
  bool is_clone_ = false;     ///< has data before it has gc/alive

  std::atomic<std::uint64_t> known_{0};                 ///< the newest version seen so far
  std::atomic<std::uint64_t> known_index_{0};           ///< a version that had an index at the last look
  std::atomic<std::uint64_t> known_delta_{0};           ///< a version that has a delta
  mutable std::atomic<std::uint64_t> seen_repairs_{0};  ///< Marks::repairs at the last look
  std::atomic<std::uint64_t> counter_{0};
  std::atomic<int> compress_level_{0};
  std::atomic<bool> read_soon_{true};
  std::mutex mutex_;
  std::uint64_t repairs_of_maps_ = 0;          ///< the maps below were made after so many repairs
  std::shared_ptr<const VersionMap> tip_;      ///< the newest cached map
  std::shared_ptr<const VersionMap> partial_;  ///< the last map that is read in parts
  std::deque<std::shared_ptr<const VersionMap>> recent_;
  std::shared_ptr<const VersionMap> compacted_;
};

}  // namespace penstock::store
