// Versioned blobs. Many processes write overlapping, non-contiguous regions of one blob at once. Every write is atomic
// and takes no lock. Readers read consistent snapshots. After Tran, Nicolae, Antoniu, Bouge, "Efficient support for
// MPI-IO atomicity based on versioning" (2010), sections 4 and 5. The protocol: docs/design/store.md.
//
// Store, Blob and Snapshot are handles: copies are cheap and refer to the same thing. A handle keeps what it needs
// alive. All their calls are thread-safe and blocking, and report failures by penstock::Error. No call needs MPI.
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

/// One contiguous region of a write. The caller owns `data`, which is read during the call only.
struct WriteRegion {
  std::uint64_t offset_bytes = 0;
  ConstBytes data;
};

/// One contiguous region of a read. The caller owns `data`, which is filled during the call only.
struct ReadRegion {
  std::uint64_t offset_bytes = 0;
  Bytes data;
};

/// As a version: the newest one.
inline constexpr std::uint64_t kLatest = ~std::uint64_t{0};

/// One version of a blob in its log.
struct LogEntry {
  std::uint64_t version = 0;
  std::int64_t time_ns = 0;  ///< since 1970, by the writer's clock
  std::string writer;        ///< host:process
  /// "write", "append" or "resize"; "fence": put by gc; "void": changes nothing, since gc had given up its data;
  /// "unreadable": its record is damaged; "lost": its record was damaged and repair replaced it by one that changes
  /// nothing.
  std::string kind;
  std::uint64_t bytes = 0;
  std::uint64_t regions = 0;
};

/// A name for a version. gc keeps tagged versions.
struct Tag {
  std::string name;
  std::uint64_t version = 0;
};

/// The bytes [offset_bytes, offset_bytes + size_bytes) of a blob.
struct Range {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

/// Reads one version of a blob. A version never changes. It stays readable until gc collects it.
class PENSTOCK_API Snapshot {
 public:
  std::uint64_t version() const;
  std::uint64_t size_bytes() const;
  /// Not empty if the newest version was asked for, but a damaged record made this older one the newest readable one:
  /// names the damage.
  const std::string& damage() const { return damage_; }

  /// Fills all regions. Bytes that were never written are zero. Regions must lie in [0, size_bytes()). Verifies every
  /// chunk that it touches. Throws Error(corrupt) for a wrong checksum; the message has the object, the offset, and the
  /// expected and found checksums.
  void read(std::span<const ReadRegion> regions) const;

  Snapshot(std::shared_ptr<store::BlobState> blob, std::shared_ptr<const store::VersionMap> map,
           std::string damage = {});

 private:
  std::shared_ptr<store::BlobState> blob_;
  std::shared_ptr<const store::VersionMap> map_;
  std::string damage_;
};

/// Refers to data that is stored but belongs to no version yet. Any process that has opened the blob may commit it,
/// once.
struct StagedWrite {
  std::vector<std::byte> encoded;  ///< opaque, may be sent to another process; a few bytes per region
};

/// A sequence of bytes with numbered versions. Version 0 is all zeros. Every write, append and resize makes the next
/// version. No call changes an older version.
class PENSTOCK_API Blob {
 public:
  const std::string& name() const;
  /// The newest version, or one that was made during the call.
  std::uint64_t latest() const;
  /// Size at the newest version.
  std::uint64_t size_bytes() const;
  /// See BlobOptions::grows.
  bool grows() const;

  /// Makes one version out of the newest one and all regions, and returns its number. A reader sees all regions or
  /// none. When the call returns, this version and all before it are durable (see StoreOptions::durable).
  /// Regions may be empty. They must not overlap, and must lie in [0, size_bytes()) unless the blob grows.
  /// Throws Error(corrupt) if the newest version cannot be read. If the call throws, nothing was written, unless the
  /// message says that the outcome is unknown.
  std::uint64_t write(std::span<const WriteRegion> regions);

  /// As write, but only if nothing changed since version `parent`. Throws Error(exists), and writes nothing, if a
  /// write, append or resize came after it, or if gc has collected versions after it; Error(invalid_argument) if there
  /// is no such version yet. Of several concurrent calls with one parent, one succeeds. What gc itself adds to the log
  /// does not count as a change, so the result may be greater than parent + 1.
  std::uint64_t write_if(std::uint64_t parent, std::span<const WriteRegion> regions);

  struct Appended {
    std::uint64_t version;
    std::uint64_t offset_bytes;  ///< where the data lies
  };
  /// Makes a version with the pieces, one after another, at the end of the newest version. Concurrent appends never
  /// overlap. Errors as for write. Only for blobs that grow.
  Appended append(std::span<const ConstBytes> pieces);

  /// Makes a version of this size: cuts the end off, or adds zeros. Returns its number. Only for blobs that grow.
  std::uint64_t resize(std::uint64_t size_bytes);

  /// A write in two steps, for a group of processes that makes one version together: each process stages its regions,
  /// and one of them commits all. stage() stores the data; readers do not see it.
  StagedWrite stage(std::span<const WriteRegion> regions);
  /// Makes one version of all parts and returns its number. If parts overlap, the later one in `parts` wins. Returns
  /// nothing, and makes no version, if gc has taken a part for that of a dead writer: stage all parts again.
  std::optional<std::uint64_t> commit(std::span<const StagedWrite> parts);
  /// As commit, with the condition of write_if. After Error(exists) the parts are still staged: commit them on top of
  /// another version, or discard them.
  std::optional<std::uint64_t> commit_if(std::uint64_t parent, std::span<const StagedWrite> parts);
  /// Frees staged data that will not be committed. Without this call gc frees it after the lease.
  void discard(const StagedWrite& part) noexcept;

  /// Throws Error(not_found) for a version that does not exist yet or was collected. Throws Error(corrupt) for a
  /// numbered version that needs a damaged record. kLatest then gives the newest version that can be read, and
  /// Snapshot::damage tells.
  Snapshot snapshot(std::uint64_t version = kLatest) const;
  /// snapshot(version).read(regions).
  void read(std::span<const ReadRegion> regions, std::uint64_t version = kLatest) const;
  /// Waits until `version` exists; false if it does not within `timeout`. Notices a version that this process makes at
  /// once, and others within 10 ms.
  bool wait(std::uint64_t version, std::chrono::nanoseconds timeout) const;
  /// The versions from `first` on, oldest first, without collected ones.
  std::vector<LogEntry> log(std::uint64_t first = 1) const;

  /// Names a version. It then stays readable, independent of GcOptions. Throws Error(exists) if the tag exists,
  /// Error(not_found) if gc has collected the version or has announced that it will.
  void tag(std::string_view tag, std::uint64_t version = kLatest);
  void untag(std::string_view tag);                  ///< throws Error(not_found)
  std::vector<Tag> tags() const;                     ///< sorted by name
  std::uint64_t tagged(std::string_view tag) const;  ///< the version of a tag; throws Error(not_found)
  /// The ranges that were written between two versions, ascending and disjoint. The order of the arguments does not
  /// matter. Includes bytes that were rewritten with the same value, and bytes that only the longer version has. Reads
  /// no data.
  std::vector<Range> diff(std::uint64_t from, std::uint64_t to = kLatest) const;
  /// Copies a version's data to one place in the order of its offsets, so that it reads like a plain file. The version
  /// keeps its number and its bytes. The copy takes extra space until gc frees the scattered data, together with the
  /// versions that need it.
  void compact(std::uint64_t version = kLatest);

  explicit Blob(std::shared_ptr<store::BlobState> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<store::BlobState> state_;
};

struct StoreOptions {
  bool create = true;   ///< make the store if it does not exist
  bool durable = true;  ///< a version is on the device before its write returns; false: it is in the page cache
  /// Writes store their data compressed by zstd, each chunk of up to 64 KiB alone: 1 (fast) to 22 (small); 0: as it is.
  /// Anybody reads both. A Penstock that knows no compression reports that it needs a newer one. A write of any size
  /// takes memory for up to 32 MiB of compressed data. Needs libzstd.so.1 on the machine, as reading does.
  int compress_level = 0;
};

struct BlobOptions {
  std::uint64_t size_bytes = 0;
  bool grows = false;  ///< allows writes beyond the end, append and resize
};

struct BlobInfo {
  std::string name;
  std::uint64_t size_bytes = 0;
  std::uint64_t first_version = 0;   ///< the oldest readable one, without older ones that a tag keeps
  std::uint64_t latest_version = 0;  ///< the newest readable one
  bool grows = false;
  std::string damage;  ///< why newer versions cannot be read; empty if there are none
};

/// The result of Store::check. The store is sound if `problems` is empty.
struct CheckReport {
  std::uint64_t blobs = 0;
  std::uint64_t versions = 0;  ///< readable ones, without older ones that a tag keeps
  std::uint64_t objects = 0;
  std::uint64_t bytes = 0;
  std::uint64_t garbage_objects = 0;  ///< of uncommitted writes and of collected versions
  std::uint64_t garbage_bytes = 0;
  std::uint64_t lost_versions = 0;  ///< given up by repair
  std::vector<std::string> problems;
};

struct RepairOptions {
  bool apply = false;  ///< false: reports the actions and changes nothing
  /// Also gives up writes whose data is damaged or missing: their versions read as the ones before them.
  bool drop_damaged_data = false;
};

/// One action of Store::repair.
struct RepairAction {
  std::string blob;
  std::string object;  ///< the damaged one
  std::string reason;  ///< the damage
  std::string action;  ///< what repair does about it
};

struct RepairReport {
  std::vector<RepairAction> actions;
  std::vector<std::string> remaining;  ///< problems that repair cannot mend, or only with other options
};

struct GcOptions {
  std::uint64_t keep_last = kLatest;  ///< how many of the newest versions of each blob to keep; kLatest: all
  /// Also keeps the versions that were the newest at some time within this period before the run, by the clocks of
  /// their writers. So a snapshot of the newest version stays readable for at least this long.
  std::chrono::seconds keep_for{0};
  /// The age at which uncommitted data counts as left by a dead writer. A lease that is too short costs a slow writer a
  /// second attempt, never data.
  std::chrono::seconds lease = std::chrono::hours(1);
};

struct GcReport {
  std::uint64_t versions_removed = 0;
  std::uint64_t objects_removed = 0;
  std::uint64_t bytes_freed = 0;
};

/// A set of named blobs in a directory, in the memory of this process, in Ceph or in S3. Any number of threads and,
/// except for a store in memory, of processes may use one store at once.
class PENSTOCK_API Store {
 public:
  /// Opens "file:///scratch/run7", "memory:name", "rados://pool/name" or "s3://bucket/name".
  explicit Store(std::string_view url, const StoreOptions& options = {});

  const std::string& url() const;

  /// Throws Error(exists) if the name is taken. A name has letters, digits, '.', '_' and '-', and does not start with
  /// '.'.
  Blob create(std::string_view name, const BlobOptions& options);
  /// Throws Error(not_found).
  Blob open(std::string_view name) const;
  bool exists(std::string_view name) const;
  std::vector<BlobInfo> list() const;
  /// Makes a new blob whose version 1 is `version` of blob `name`. They share the data if the backend can (posix: by
  /// hard links). Writing, collecting or removing one does not affect the other. Throws Error(exists),
  /// Error(not_found).
  Blob clone(std::string_view name, std::uint64_t version, std::string_view new_name);
  /// Removes a blob with all versions and tags. Its handles then throw Error(not_found); a read in progress may still
  /// succeed. Throws Error(not_found).
  GcReport remove(std::string_view name);

  /// Reads everything and verifies every checksum and reference. Reports damage; does not throw for it.
  CheckReport check() const;
  /// Finds damage by a loss of power, a failing device or manual changes. With `apply` it mends the damage, so that
  /// everything else can be read and written again. Keeps copies of damaged objects under the blob's lost/. Changes no
  /// readable version, except those that needed a damaged record. Others may use the store at the same time, but in
  /// Ceph no process may write.
  RepairReport repair(const RepairOptions& options);
  /// Frees the space of old versions, dead writers and interrupted gc runs. Others may read, write and collect at the
  /// same time.
  GcReport gc(const GcOptions& options);
  /// Makes durable what any process on this host wrote with durable = false.
  void sync();
  /// Writes one version of a blob to a plain file at `path`, atomically: under a temporary name, synced, then renamed.
  /// Uses several threads.
  void export_file(std::string_view name, std::uint64_t version, const std::string& path) const;

 private:
  int compress_level_ = 0;
  std::shared_ptr<store::Backend> backend_;
};

}  // namespace penstock
