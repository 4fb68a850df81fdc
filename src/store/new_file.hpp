// The file of one put of the posix backend, and how failed system calls are reported.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/types.hpp"
#include "store/backend.hpp"
#include "store/io_vector.hpp"
#include "store/posix_calls.hpp"

namespace penstock::store {

/// Throws Error(no_space) if the device or the quota is full, else Error(io). Its cause is the system's text for
/// `error`, an errno.
[[noreturn]] void fail_call(const std::string& what, int error);

/// A new file of this object, open for writing. The destructor removes its path, unless keep() was called. Not
/// thread-safe; throws penstock::Error.
class NewFile {
 public:
  /// Creates the file exclusively; throws Error(exists). `calls` must outlive this object.
  NewFile(PosixCalls& calls, std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// Writes the pieces, one after another. Returns when all of it is written, if `durable` to the device, and verifies
  /// the length that the file system reports. `read_soon` as in Stream.
  void write(std::span<const ConstBytes> pieces, bool durable, bool read_soon = true);
  void write(const Stream& stream, bool durable);
  /// Throws what the file system reports. Some network file systems report errors of write() only here.
  void close();
  FileStatus status() const;

  enum class Link { made, exists, vanished };
  /// Gives the file a second name by link(2), exclusively. `vanished`: a reclaim has removed this file as one of a dead
  /// writer.
  Link link_to(const std::string& target);
  /// Renames the file to `target`, replacing it if it exists.
  void rename_to(const std::string& target);
  /// The destructor does not remove the path.
  void keep() { kept_ = true; }

 private:
  void begin(std::uint64_t total_bytes, bool drops_cached);
  void transfer(IoVector rest, bool durable);
  void complete(std::uint64_t total_bytes, bool durable);
  void sync();

  PosixCalls& calls_;
  const std::string path_;
  int fd_ = -1;
  std::uint64_t written_bytes_ = 0;
  std::uint64_t started_bytes_ = 0;  ///< that the device was told to write
  bool drops_cached_ = false;
  bool kept_ = false;
};

}  // namespace penstock::store
