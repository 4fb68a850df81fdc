// One blob in a backend: its log of records and the maps that replaying it gives. The protocol and why it is safe:
// docs/design/store.md.
//
//   catalog/<name>             the entry of a name: identity, size, whether it grows, folder
//   successors/<name>/<number> the same, after the first blob of this name
//   freed/<number>             entries up to <number> may have been freed; see "Names" in docs/design/store.md
//
// The folder of a blob is places/<time>-<random>. Of blobs that Penstock 0.1 made it is blobs/<name>, or
// homes/<time>-<random>; those have no gc/alive, and keep gc/gone for ever. In it:
//
//   data/<base>-<time>-<writer>   data of one write; <base> is the newest version known before
//   versions/<number>    record of one version, created exclusively, last
//   index/<number>       the whole map of a version; saves replaying, and holds versions that a tag keeps
//   compact/<number>     another map of the version, to a contiguous copy of its data; only saves time
//   tags/<tag>           the number of a version that gc keeps
//   gc/alive             put first and removed with the data: where it is missing, the blob was removed
//   gc/fence-<number>    a gc gives up, or gave up, all uncommitted data with a base below <number>
//   gc/keep-<number>     versions below <number> are collected, except those with a tag
//   gc/gone              the blob was removed
//   gc/unfinished        a gc takes a blob that no entry names for one of a dead process
//   lost/<object>        what repair has taken away, for people to look at
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
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

/// Where blobs have their folders. A collector of Penstock 0.1 would take those for leftovers in "homes" and "folders",
/// where it looks for blobs of its own.
inline constexpr std::string_view kFolders = "places";
inline constexpr std::string_view kFormerFolders[] = {"homes", "folders"};
inline constexpr std::string_view kAlive = "alive";
inline constexpr std::string_view kGone = "gone";
inline constexpr std::string_view kUnfinished = "unfinished";
inline constexpr std::uint64_t kInlineBytes = 4 << 10;
inline constexpr std::uint64_t kMostBlobBytes = std::uint64_t{1} << 63;
/// Versions between two looks at whether an index is due. Each look replays what others wrote, which takes longer the
/// more regions there are.
inline constexpr std::uint64_t kIndexConsidered = 24;
inline constexpr std::uint64_t kIndexConsideredForFew = 6;

/// Time since 1970 by the clock of this host.
std::int64_t now_ns();
/// When a lease that ends now began.
std::int64_t begin_of(std::chrono::seconds lease);
/// "[offset, offset + size)", for messages.
std::string region_text(std::uint64_t offset_bytes, std::uint64_t size_bytes);

class BlobState {
 public:
  static std::shared_ptr<BlobState> create(std::shared_ptr<Backend> backend, std::string_view name,
                                           const BlobOptions& options);
  /// Throws not_found.
  static std::shared_ptr<BlobState> open(std::shared_ptr<Backend> backend, std::string_view name);
  /// As open; nothing where no blob has this name.
  static std::shared_ptr<BlobState> find(const std::shared_ptr<Backend>& backend, std::string_view name);
  /// Names that stand for a blob, or did.
  static std::set<std::string> names(const Backend& backend);
  /// All folders that an entry names, also those of blobs that were removed.
  static std::set<std::string> named_folders(const std::shared_ptr<Backend>& backend);
  /// From here on the blob does not exist any more. False, and nothing changes, where another removal came before.
  bool remove();
  /// An entry of a name that stands for no blob only because something is damaged.
  struct DamagedEntry {
    std::string object;
    std::string reason;
    std::vector<std::byte> content;  ///< to put in its place; empty where that is not known
    std::string action;              ///< what putting it there does
  };
  /// What the witness in a folder says. Throws not_found, corrupt.
  struct Witness {
    std::string name;
    std::vector<std::byte> entry;
  };
  static Witness read_witness(const Backend& backend, const std::string& folder);
  static std::vector<DamagedEntry> damaged_entries(const std::shared_ptr<Backend>& backend, std::string_view name);
  /// Frees what is left of blobs that were removed: what is in their folders, and, of those that were made before the
  /// lease began, also their names.
  static void free_names(const std::shared_ptr<Backend>& backend, std::chrono::seconds lease, GcReport& report);

  Backend& backend() const { return *backend_; }
  const std::string& name() const { return name_; }
  bool grows() const { return grows_; }
  /// "store URL, blob 'name'", for messages.
  std::string title() const;

  std::uint64_t latest();
  bool wait(std::uint64_t version, std::chrono::nanoseconds timeout);
  /// Throws not_found for collected versions.
  Record record(std::uint64_t version);
  /// The map as the log says. Everything that is stored for later builds on these alone.
  std::shared_ptr<const VersionMap> map_at(std::uint64_t version);
  /// A map of the same bytes, contiguous where the version was compacted.
  std::shared_ptr<const VersionMap> readable_map_at(std::uint64_t version);
  struct Readable {
    std::shared_ptr<const VersionMap> map;
    std::string damage;  ///< why this is older than the newest version; empty if it is not
  };
  /// As readable_map_at. Of kLatest the newest that can be read, which is older where a record is damaged.
  Readable readable_at(std::uint64_t version);
  void read(const VersionMap& map, std::span<const ReadRegion> regions);

  void check_regions(std::span<const WriteRegion> regions) const;
  /// Throws corrupt where the newest version cannot be read: what is written after it could not be read either. Looks
  /// once in a process.
  void check_log();
  /// Records, indexes and compacted maps of versions that do not exist.
  std::vector<std::string> beyond_newest();
  Part stage(std::span<const WriteRegion> regions);
  std::optional<std::uint64_t> commit(RecordKind kind, std::vector<Part> parts, std::uint64_t number = 0);

  bool is_removed() const;
  /// What the collector has announced.
  struct Marks {
    std::uint64_t keep_from = 0;    ///< versions below are collected
    std::uint64_t fence_below = 0;  ///< bases below may be fenced: the log says whether and from which version on
  };
  /// Throws not_found when the blob was removed.
  Marks marks() const;
  void put_index(std::uint64_t version);

  // Snapshots as things of their own: snapshots.cpp.
  void tag(std::string_view name, std::uint64_t version);
  void untag(std::string_view name);
  /// Name and version of all tags, by name.
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
  std::string record_key(std::uint64_t version) const { return numbered_key(key("versions"), version); }
  std::string index_key(std::uint64_t version) const { return numbered_key(key("index"), version); }
  VersionMap empty_map() const { return VersionMap(blob_id_, size_bytes_); }
  VersionMap read_index(std::uint64_t version) const;

 private:
  struct News;

  BlobState(std::shared_ptr<Backend> backend, std::string_view name);
  /// Takes a new folder, which exists from here on.
  void begin_folder();
  /// What an entry of the name holds, and its copy in the folder.
  std::vector<std::byte> header() const;
  std::vector<std::byte> witness() const;
  DamagedEntry substitute(const std::string& entry, const std::string& reason);
  static std::uint64_t freed_numbers(const Backend& backend);
  /// A blob with the size of `map` in a folder of its own, which nobody sees before announce().
  std::shared_ptr<BlobState> prepare_clone(std::string_view name, const VersionMap& map) const;
  struct Standing;
  /// What a name stands for at some instant of this call.
  static Standing standing(const std::shared_ptr<Backend>& backend, std::string_view name);
  /// False where the entry is not there (any more).
  bool read_entry(const std::string& entry);
  void follow_news();
  /// Creates the entry of the name; throws exists. False where a gc took the blob, or what its name was chosen by, away
  /// meanwhile: then this blob counts as removed.
  bool announce();
  /// Whether a map of `version` is better built from an index than from one of version `from`.
  bool is_shorter_from_index(std::uint64_t from, std::uint64_t version) const;
  void put_index_if_due(std::uint64_t version);
  VersionMap read_kept(std::uint64_t version, std::uint64_t keep_from) const;
  /// The newest index that is not newer than `version`; 0 for none.
  std::uint64_t list_indexes(std::uint64_t version);
  /// The index that the writer of this version knew, which spares a cold reader a listing, or its own; 0 for none.
  /// Leaves the record of the version in `newest` where it was read for that.
  std::uint64_t index_near(std::uint64_t version, std::optional<Record>& newest);
  /// The index to start from for `version`: the newest sound one that is not newer, else version 0.
  VersionMap nearest_index(std::uint64_t version, std::uint64_t keep_from, std::optional<Record>& newest);
  VersionMap rebuild(std::uint64_t version);
  void replay(VersionMap& map, std::uint64_t version);
  [[noreturn]] void fail_collected(std::uint64_t version, std::uint64_t keep_from) const;
  void learn(std::uint64_t version);
  /// Who writes: differs between processes, also between those of a fork, which share this object's numbers.
  std::uint64_t writer() const;
  static std::string writer_name();
  Record decode_of(std::uint64_t version, std::span<const std::byte> sealed) const;
  /// The newest version before the first record that cannot be read.
  VersionMap map_before_damage();
  void settle(std::uint64_t version);
  bool given_up(const Record& record, std::uint64_t version);
  void remove_if_uncommitted(const Record& record, std::uint64_t first);

  const std::shared_ptr<Backend> backend_;
  const std::string name_;
  const std::uint64_t random_;  ///< of the process that made this, and of its children
  std::string folder_;
  std::shared_ptr<News> news_;
  std::uint64_t blob_id_ = 0;
  std::uint64_t size_bytes_ = 0;
  std::int64_t made_ns_ = 0;  ///< as its entry says
  bool grows_ = false;
  bool has_witness_ = false;  ///< gc/alive is in the folder as long as the blob is

  std::atomic<std::uint64_t> known_{0};        ///< a version that existed
  std::atomic<std::uint64_t> known_index_{0};  ///< a version that had an index
  std::atomic<std::uint64_t> counter_{0};
  std::mutex mutex_;
  std::shared_ptr<const VersionMap> tip_;  ///< the newest map so far
  std::deque<std::shared_ptr<const VersionMap>> recent_;
  std::shared_ptr<const VersionMap> compacted_;
};

}  // namespace penstock::store
