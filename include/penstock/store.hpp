// Versioned blobs: many processes write overlapping, non-contiguous regions of one blob at once, each write atomic and
// without a lock; readers follow consistent snapshots. After Tran, Nicolae, Antoniu, Bouge, "Efficient support for
// MPI-IO atomicity based on versioning" (2010), sections 4 and 5; the protocol is in docs/design/store.md.
//
// No call needs MPI. Objects of every class here are handles: copies are cheap and refer to the same thing. Everything
// is thread-safe and blocking, and throws penstock::Error.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/export.hpp"
#include "penstock/types.hpp"

namespace penstock {

namespace store {
class BlobState;
class Backend;
class VersionMap;
}  // namespace store

/// Where bytes of a write go to. The data is read during the call only.
struct WriteRegion {
  std::uint64_t offset_bytes = 0;
  ConstBytes data;
};

/// Where bytes of a read come from. The data is filled during the call only.
struct ReadRegion {
  std::uint64_t offset_bytes = 0;
  Bytes data;
};

inline constexpr std::uint64_t kLatest = ~std::uint64_t{0};

/// One version of a blob, as its log shows it.
struct LogEntry {
  std::uint64_t version = 0;
  std::int64_t time_ns = 0;  ///< since 1970, by the clock of the writer
  std::string writer;        ///< host:process
  /// "write", "append", "resize"; "fence" (left by gc); "void": collected before it came; "unreadable": its record is
  /// damaged; "lost": it was, and repair has put in its place that nothing was written.
  std::string kind;
  std::uint64_t bytes = 0;
  std::uint64_t regions = 0;
};

/// A name for a version, which gc then keeps.
struct Tag {
  std::string name;
  std::uint64_t version = 0;
};

struct Range {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

/// One version of a blob, which never changes. Stays readable until gc collects the version.
class PENSTOCK_API Snapshot {
 public:
  std::uint64_t version() const;
  std::uint64_t size_bytes() const;
  /// Why this is not the newest version although that was asked for: a record is damaged. Else empty.
  const std::string& damage() const { return damage_; }

  /// Fills all regions; bytes that were never written are zero. Every chunk that is touched is verified: a wrong
  /// checksum throws corrupt with object, offset, expected and found checksum. Regions must lie in [0, size_bytes()).
  void read(std::span<const ReadRegion> regions) const;

  Snapshot(std::shared_ptr<store::BlobState> blob, std::shared_ptr<const store::VersionMap> map,
           std::string damage = {});

 private:
  std::shared_ptr<store::BlobState> blob_;
  std::shared_ptr<const store::VersionMap> map_;
  std::string damage_;
};

/// Data that is stored but belongs to no version yet. Any process that has opened the blob may commit it, once.
struct StagedWrite {
  std::vector<std::byte> encoded;  ///< opaque, may be sent to another process; a few bytes per region
};

/// A sequence of bytes with numbered versions. Version 0 is all zeros; every write makes one more.
class PENSTOCK_API Blob {
 public:
  const std::string& name() const;
  /// The newest version, or a later one that appeared meanwhile.
  std::uint64_t latest() const;
  /// Size at the newest version.
  std::uint64_t size_bytes() const;
  bool grows() const;

  /// Makes one version out of the newest one and all regions: a reader sees all of them or none. When the call returns
  /// the version is durable, and so are all before it. Throws corrupt, and writes nothing, where the newest version
  /// cannot be read. Regions may be empty but must not overlap each other, and must lie in [0, size) unless the
  /// blob grows. On an Error nothing was written, except where its message says that the outcome is unknown.
  std::uint64_t write(std::span<const WriteRegion> regions);

  struct Appended {
    std::uint64_t version;
    std::uint64_t offset_bytes;  ///< where the data lies
  };
  /// Adds data at the end, wherever that is by then; concurrent appends never overlap. Only for blobs that grow.
  Appended append(std::span<const ConstBytes> pieces);

  /// Cuts the end off, or adds zeros. Only for blobs that grow.
  std::uint64_t resize(std::uint64_t size_bytes);

  /// The two halves of write, for a group of processes that makes one version together: each stages its own regions,
  /// one of them commits all. Where staged writes overlap, the later one in `parts` wins. Returns nothing, with no
  /// effect, when a gc has given up one of the parts: stage all of them again.
  StagedWrite stage(std::span<const WriteRegion> regions);
  std::optional<std::uint64_t> commit(std::span<const StagedWrite> parts);
  /// Frees what was staged and will not be committed; gc would do so later.
  void discard(const StagedWrite& part) noexcept;

  /// Throws not_found for versions that do not exist yet or were collected, corrupt where a record that it needs is
  /// damaged. The newest version is then the newest that can be read; Snapshot::damage says so.
  Snapshot snapshot(std::uint64_t version = kLatest) const;
  void read(std::span<const ReadRegion> regions, std::uint64_t version = kLatest) const;
  /// Waits until `version` exists. Versions of this process end the wait at once, others within 10 ms. False when it
  /// does not within the time.
  bool wait(std::uint64_t version, std::chrono::nanoseconds timeout) const;
  /// Versions from `first` on, oldest first; collected ones are left out.
  std::vector<LogEntry> log(std::uint64_t first = 1) const;

  /// Names a version, which then stays readable whatever gc is asked to keep. Throws exists; not_found for versions
  /// that gc has collected or is about to.
  void tag(std::string_view tag, std::uint64_t version = kLatest);
  void untag(std::string_view tag);                  ///< throws not_found
  std::vector<Tag> tags() const;                     ///< by name
  std::uint64_t tagged(std::string_view tag) const;  ///< its version; throws not_found
  /// What was written between two versions, in either order: ascending, disjoint ranges. Bytes that were written anew
  /// with the same value count; so do those that only the longer of the two has. Reads no data.
  std::vector<Range> diff(std::uint64_t from, std::uint64_t to = kLatest) const;
  /// Copies a version's data to one place, in the order of the offsets, so that it reads like a plain file. Nothing
  /// else changes. The copy needs as much space again, until gc frees the scattered data with the versions that need
  /// it.
  void compact(std::uint64_t version = kLatest);

  explicit Blob(std::shared_ptr<store::BlobState> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<store::BlobState> state_;
};

struct StoreOptions {
  bool create = true;   ///< make the store where it does not exist
  bool durable = true;  ///< a version is on the device before its write returns; false: the page cache is enough
};

struct BlobOptions {
  std::uint64_t size_bytes = 0;
  bool grows = false;  ///< writes may go beyond the end, and append and resize are allowed
};

struct BlobInfo {
  std::string name;
  std::uint64_t size_bytes = 0;
  std::uint64_t first_version = 0;   ///< the oldest that can be read
  std::uint64_t latest_version = 0;  ///< that can be read
  bool grows = false;
  std::string damage;  ///< why newer versions cannot be read; empty where there are none
};

/// What `check` found. The store is sound when `problems` is empty.
struct CheckReport {
  std::uint64_t blobs = 0;
  std::uint64_t versions = 0;  ///< that can be read, but for older ones with a tag
  std::uint64_t objects = 0;
  std::uint64_t bytes = 0;
  std::uint64_t garbage_objects = 0;  ///< of writes that were never committed or versions that were collected
  std::uint64_t garbage_bytes = 0;
  std::uint64_t lost_versions = 0;  ///< that repair has given up
  std::vector<std::string> problems;
};

struct RepairOptions {
  bool apply = false;  ///< false: only says what it would do
  /// Gives up versions whose data is damaged or missing, too: they read as the versions before them.
  bool drop_damaged_data = false;
};

/// One thing that `repair` does, or would do.
struct RepairAction {
  std::string blob;
  std::string object;  ///< the damaged one
  std::string reason;  ///< what is wrong with it
  std::string action;  ///< what follows
};

struct RepairReport {
  std::vector<RepairAction> actions;
  std::vector<std::string> remaining;  ///< problems that it cannot mend, or not without other options
};

struct GcOptions {
  std::uint64_t keep_last = kLatest;  ///< versions of each blob that stay readable; kLatest: all of them
  /// Versions stay, too, that were the newest at any time this long ago or less, by the clocks of their writers: a
  /// reader that takes a snapshot has it for as long at least.
  std::chrono::seconds keep_for{0};
  /// How long a write may take before its data counts as left by a dead writer. Too short costs a slow writer a second
  /// attempt, never data.
  std::chrono::seconds lease = std::chrono::hours(1);
};

struct GcReport {
  std::uint64_t versions_removed = 0;
  std::uint64_t objects_removed = 0;
  std::uint64_t bytes_freed = 0;
};

class PENSTOCK_API Store {
 public:
  /// "file:///scratch/run7", "memory:name".
  explicit Store(std::string_view url, const StoreOptions& options = {});

  const std::string& url() const;

  /// Throws exists. Names are letters, digits, '.', '_' and '-', not starting with '.'.
  Blob create(std::string_view name, const BlobOptions& options);
  /// Throws not_found.
  Blob open(std::string_view name) const;
  bool exists(std::string_view name) const;
  std::vector<BlobInfo> list() const;
  /// A new blob whose version 1 is one version of another. Shares the data where the backend can (posix: by hard
  /// links); each may be written, collected and removed without the other. Throws exists, not_found.
  Blob clone(std::string_view name, std::uint64_t version, std::string_view new_name);
  /// Removes a blob with all versions and tags. Handles of it throw not_found from then on, except that a read under
  /// way may still succeed. Throws not_found.
  GcReport remove(std::string_view name);

  /// Reads everything and verifies every checksum and reference. Reports what is broken instead of throwing.
  CheckReport check() const;
  /// Finds what a loss of power, a failing device or a hand has damaged, and with `apply` mends it, so that everything
  /// else can be read and written again. Nothing is thrown away: damaged objects are kept under the blob's lost/.
  /// Nothing that can be read changes, but versions that were read through a damaged record. Others may use the store
  /// meanwhile.
  RepairReport repair(const RepairOptions& options);
  /// Frees the space of old versions, dead writers and earlier interrupted runs. May run at any time, also while
  /// others read, write and collect.
  GcReport gc(const GcOptions& options);
  /// What was written with durable = false is durable afterwards, by whichever process it was written.
  void sync();
  /// Writes one version of a blob as a plain file, atomically: under a temporary name, synced, then renamed. Uses
  /// several threads.
  void export_file(std::string_view name, std::uint64_t version, const std::string& path) const;

 private:
  std::shared_ptr<store::Backend> backend_;
};

}  // namespace penstock
