// Parallel files on versioned blobs: MPI-IO semantics, with atomic writes and without locks. After Tran, Nicolae,
// Antoniu, Bouge (2010), sections 5.3.4 and 5.4.
//
// Collective functions are called by all ranks of the file in the same order; sizes may differ. They return one version
// on all ranks. If one fails, it throws on all ranks and nothing is written: failed ranks throw their own Error, the
// others Error(peer_failed). If arguments that must be equal differ, all ranks throw Error(mismatch). All other
// functions are local. Functions block, except those that return a FileRequest. A buffer belongs to the call, or to its
// request until that is complete. One thread at a time per File.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/comm.hpp"
#include "penstock/datatype.hpp"
#include "penstock/export.hpp"
#include "penstock/store.hpp"
#include "penstock/types.hpp"

namespace penstock {

struct FileOptions {
  bool read = true;
  bool write = true;
  bool create = false;           ///< make the store and the blob if they do not exist; the blob grows
  bool exclusive = false;        ///< with create: fail if the blob exists
  bool append = false;           ///< individual pointers start at the end
  bool durable = true;           ///< false: only sync() makes writes survive a power loss
  bool delete_on_close = false;  ///< close() removes the blob with all its versions and tags
};

/// A file view, as in MPI: the bytes that a rank sees. The pieces repeat every extent_bytes from displacement_bytes on,
/// and are concatenated. Offsets count in that sequence, in units of etype_bytes.
struct FileView {
  struct Piece {
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0;
  };
  std::uint64_t displacement_bytes = 0;
  std::uint64_t etype_bytes = 1;
  /// Ascending and disjoint. No pieces: the view shows every byte. Pieces of 0 bytes alone: it shows none, as the
  /// file type of a rank that takes no part in collective accesses.
  std::vector<Piece> pieces = {};
  /// If it is less than the pieces span, only the first repetition can be accessed.
  std::uint64_t extent_bytes = 0;
};

/// The view of an MPI file type; see make_datatype in <penstock/mpi.hpp>. Throws Error(invalid_argument) if the type
/// has bytes at negative offsets or a negative extent.
PENSTOCK_API FileView make_view(std::uint64_t displacement_bytes, std::uint64_t etype_bytes, const Datatype& filetype);

/// A started operation. Thread-safe. The destructor of the last copy waits.
class PENSTOCK_API FileRequest {
 public:
  FileRequest() = default;
  bool test();
  /// Returns the number of bytes moved. Throws the operation's Error.
  std::uint64_t wait();

  struct Operation;
  explicit FileRequest(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}

 private:
  std::shared_ptr<Operation> operation_;
};

enum class Whence { set, current, end };

class PENSTOCK_API File {
 public:
  /// `url` is a store's URL, '/', and the name of a blob: "file:///scratch/run7/field". Collective; equal arguments on
  /// all ranks.
  static File open(const Comm& comm, std::string_view url, const FileOptions& options = {});
  /// For a single process: collective functions are then local.
  static File open(std::string_view url, const FileOptions& options = {});
  /// Collective. Destroying an open file closes it on this rank only.
  void close();
  /// As close(). `at_rank_0` runs on rank 0 when all ranks have called this, before any returns: the newest version
  /// holds all their writes. If it throws, the file is closed nevertheless, and all ranks throw.
  void close_after(const std::function<void()>& at_rank_0);
  /// For a rank that cannot make the next collective call because its arguments are invalid: the call fails on the
  /// other ranks with Error(peer_failed) and `message`. Local.
  void fail_next(const std::string& message) noexcept;

  /// Collective; ranks may have different views. Sets the individual pointer to 0.
  void set_view(FileView view);
  const FileView& view() const;

  /// Independent access at an offset, in etypes. A write makes one atomic version and returns its number. A read sees
  /// one version, the newest or the pinned one, and returns the number of bytes read, fewer than requested at the end.
  std::uint64_t write_at(std::uint64_t offset_etypes, ConstBytes data);
  std::uint64_t read_at(std::uint64_t offset_etypes, Bytes data) const;
  FileRequest start_write_at(std::uint64_t offset_etypes, ConstBytes data);
  FileRequest start_read_at(std::uint64_t offset_etypes, Bytes data) const;

  /// Collective access. The writes of all ranks make one version; where they overlap, the higher rank wins. All ranks
  /// read the same version.
  std::uint64_t write_at_all(std::uint64_t offset_etypes, ConstBytes data);
  std::uint64_t read_at_all(std::uint64_t offset_etypes, Bytes data) const;
  /// Non-blocking collective access. Collective accesses of a file run in the order of the calls. Without
  /// MPI_THREAD_MULTIPLE (Comm::any_thread) the call blocks until the access is complete.
  FileRequest start_write_at_all(std::uint64_t offset_etypes, ConstBytes data);
  FileRequest start_read_at_all(std::uint64_t offset_etypes, Bytes data) const;

  /// The same at the individual pointer, which advances.
  std::uint64_t write(ConstBytes data);
  std::uint64_t read(Bytes data);
  std::uint64_t write_all(ConstBytes data);
  std::uint64_t read_all(Bytes data);
  FileRequest start_write_all(ConstBytes data);
  FileRequest start_read_all(Bytes data);
  FileRequest start_write(ConstBytes data);
  FileRequest start_read(Bytes data);

  /// Access at the shared pointer, which advances at once by the requested size. All ranks have the same view. Local:
  /// each access gets its own place, in an undefined order, as in MPI. The pointer is stored in the store (one small
  /// object per access, until the next collective call below), so no rank waits for another.
  std::uint64_t write_shared(ConstBytes data);
  std::uint64_t read_shared(Bytes data);
  FileRequest start_write_shared(ConstBytes data);
  FileRequest start_read_shared(Bytes data);

  /// Access at the shared pointer in rank order; the pointer advances by the total. Collective; all ranks have the same
  /// view. The start_ forms agree on the places before they return.
  std::uint64_t write_ordered(ConstBytes data);
  std::uint64_t read_ordered(Bytes data);
  FileRequest start_write_ordered(ConstBytes data);
  FileRequest start_read_ordered(Bytes data);
  void seek_shared(std::int64_t offset_etypes, Whence whence);  ///< collective, equal arguments on all ranks
  std::uint64_t position_shared() const;                        ///< in etypes

  void seek(std::int64_t offset_etypes, Whence whence);
  std::uint64_t position() const;  ///< in etypes
  /// Position in the file of an offset of the view.
  std::uint64_t byte_offset(std::uint64_t offset_etypes) const;

  std::uint64_t size_bytes() const;
  std::uint64_t set_size(std::uint64_t size_bytes);     ///< collective, equal sizes on all ranks
  std::uint64_t preallocate(std::uint64_t size_bytes);  ///< as set_size(), but never truncates
  /// Only remembers the flag: every access is atomic. Collective, equal on all ranks.
  void set_atomicity(bool atomic);
  bool atomicity() const;
  /// Makes earlier writes of all ranks durable, and visible to all ranks. Collective.
  void sync();

  /// The same file and view, read-only, at one version. Local; all functions of the result are local too.
  File snapshot(std::uint64_t version = kLatest) const;
  std::uint64_t version() const;  ///< of a snapshot: its version; else the newest
  const Blob& blob() const;

  struct State;
  explicit File(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

}  // namespace penstock
