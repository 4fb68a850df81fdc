// A file that many ranks write at once, on a versioned blob: the semantics of MPI-IO, with every write atomic and no
// lock anywhere. After Tran, Nicolae, Antoniu, Bouge (2010), sections 5.3.4 and 5.4.
//
// "Collective" functions are called by all ranks of the file in the same order, with any sizes; they return one version
// for all, or throw on every rank with nothing written: the failing ranks their own Error, the others peer_failed.
// Where arguments have to be the same on all ranks and are not, every rank gets Error(mismatch). All other functions
// are local. Blocking, except those that return a FileRequest. Buffers are used during the call (until wait() for
// requests). One thread at a time per handle.
#pragma once

#include <cstdint>
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
  bool create = false;           ///< make store and blob where they do not exist; the blob grows
  bool exclusive = false;        ///< with create: an error where the blob exists
  bool append = false;           ///< the individual pointers start at the end
  bool durable = true;           ///< false: only sync() makes writes survive a loss of power
  bool delete_on_close = false;  ///< close() removes the blob with all its versions and tags
};

/// Which bytes of the file a rank sees, and in which units it counts. The pieces, repeated every extent_bytes from
/// displacement_bytes on, are laid end to end; offsets are multiples of etype_bytes in that sequence.
struct FileView {
  struct Piece {
    std::uint64_t offset_bytes = 0;
    std::uint64_t size_bytes = 0;
  };
  std::uint64_t displacement_bytes = 0;
  std::uint64_t etype_bytes = 1;
  std::vector<Piece> pieces = {};  ///< ascending and disjoint, also across repetitions; none: every byte
  std::uint64_t extent_bytes = 0;
};

/// What a rank sees of a file through an MPI datatype, see make_datatype in <penstock/mpi.hpp>. Throws
/// Error(invalid_argument) for a type without bytes, or with some before its address.
PENSTOCK_API FileView make_view(std::uint64_t displacement_bytes, std::uint64_t etype_bytes, const Datatype& filetype);

/// An operation that was started. Thread-safe. The destructor of the last copy waits.
class PENSTOCK_API FileRequest {
 public:
  FileRequest() = default;
  bool test();
  /// Number of bytes moved. Throws the operation's Error.
  std::uint64_t wait();

  struct Operation;
  explicit FileRequest(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}

 private:
  std::shared_ptr<Operation> operation_;
};

enum class Whence { set, current, end };

class PENSTOCK_API File {
 public:
  /// `url` is that of a store, '/', and the name of a blob: "file:///scratch/run7/field". Collective, with the same
  /// options on all ranks.
  static File open(const Comm& comm, std::string_view url, const FileOptions& options = {});
  /// For one process alone: collective functions are then like the others.
  static File open(std::string_view url, const FileOptions& options = {});
  /// Collective. A file that is destroyed without it is closed on this rank alone.
  void close();
  /// Takes part in the next collective call by failing it: for a caller that cannot make it, since what it was given is
  /// no argument for it. The other ranks get Error(peer_failed) with `message`. Local.
  void fail_next(const std::string& message) noexcept;

  /// Collective; each rank has its own view. Sets the individual pointer to 0.
  void set_view(FileView view);
  const FileView& view() const;

  /// Independent access at an offset, in etypes. A write is one atomic version, whose number is returned. A read sees
  /// one version: the newest, or the pinned one; it returns the number of bytes read, fewer than asked at the end.
  std::uint64_t write_at(std::uint64_t offset_etypes, ConstBytes data);
  std::uint64_t read_at(std::uint64_t offset_etypes, Bytes data) const;
  FileRequest start_write_at(std::uint64_t offset_etypes, ConstBytes data);
  FileRequest start_read_at(std::uint64_t offset_etypes, Bytes data) const;

  /// Collective access. The writes of all ranks are one version; where they overlap, the higher rank wins. All ranks
  /// read the same version.
  std::uint64_t write_at_all(std::uint64_t offset_etypes, ConstBytes data);
  std::uint64_t read_at_all(std::uint64_t offset_etypes, Bytes data) const;
  /// Collective accesses that return at once; all of a file run in the order of the calls. Without
  /// MPI_THREAD_MULTIPLE (Comm::any_thread) they are complete when they return.
  FileRequest start_write_at_all(std::uint64_t offset_etypes, ConstBytes data);
  FileRequest start_read_at_all(std::uint64_t offset_etypes, Bytes data) const;

  /// The same at the individual pointer, which moves on.
  std::uint64_t write(ConstBytes data);
  std::uint64_t read(Bytes data);
  std::uint64_t write_all(ConstBytes data);
  std::uint64_t read_all(Bytes data);
  FileRequest start_write_all(ConstBytes data);
  FileRequest start_read_all(Bytes data);
  FileRequest start_write(ConstBytes data);
  FileRequest start_read(Bytes data);

  /// At the pointer that all ranks share, which moves on at once by all that was asked for; the views of all ranks are
  /// the same. Not collective: each access has a place of its own, in an order that chance decides. The pointer lives
  /// in the store (a small object per access, until the next collective call below), so no rank waits for another.
  std::uint64_t write_shared(ConstBytes data);
  std::uint64_t read_shared(Bytes data);
  FileRequest start_write_shared(ConstBytes data);
  FileRequest start_read_shared(Bytes data);

  /// One rank after the other at the shared pointer, which moves on by all of it. Collective; the views are the same.
  /// The forms that start agree on the places before they return.
  std::uint64_t write_ordered(ConstBytes data);
  std::uint64_t read_ordered(Bytes data);
  FileRequest start_write_ordered(ConstBytes data);
  FileRequest start_read_ordered(Bytes data);
  void seek_shared(std::int64_t offset_etypes, Whence whence);  ///< collective, the same arguments on all ranks
  std::uint64_t position_shared() const;                        ///< in etypes

  void seek(std::int64_t offset_etypes, Whence whence);
  std::uint64_t position() const;  ///< in etypes
  /// Where an offset of the view lies in the file.
  std::uint64_t byte_offset(std::uint64_t offset_etypes) const;

  std::uint64_t size_bytes() const;
  std::uint64_t set_size(std::uint64_t size_bytes);     ///< collective, the same size on all ranks
  std::uint64_t preallocate(std::uint64_t size_bytes);  ///< likewise; never shrinks
  /// Every access is atomic anyway; this is remembered only. Collective, the same on all ranks.
  void set_atomicity(bool atomic);
  bool atomicity() const;
  /// What any rank wrote before is durable, and visible to all ranks after. Collective.
  void sync();

  /// The same file and view, read-only, at one version for ever. Local, and all functions of the result are too.
  File snapshot(std::uint64_t version = kLatest) const;
  std::uint64_t version() const;  ///< the pinned one, or the newest
  const Blob& blob() const;

  struct State;
  explicit File(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

}  // namespace penstock
