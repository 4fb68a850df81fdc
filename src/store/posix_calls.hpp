// The system calls of the posix backend as a table that tests replace: to fail at any call, to write less than asked,
// or to cut the power and keep only what was synced.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::store {

struct FileStatus {
  bool is_directory = false;
  std::uint64_t size_bytes = 0;
  std::uint64_t links = 0;
  std::int64_t modified_s = 0;  ///< by the clock of the file system
};

struct DirectoryEntry {
  enum class Kind : std::uint8_t { file, directory, unknown };
  std::string name;
  Kind kind = Kind::unknown;
};

/// Every function behaves as the call it is named after: -1 and errno on failure. Thread-safe.
class PosixCalls {
 public:
  virtual ~PosixCalls() = default;

  virtual int open_to_read(const std::string& path);
  virtual int create(const std::string& path);  ///< a new file, exclusively, to write
  virtual int close(int fd);
  /// Allocates the space of a file without changing its size. Many file systems cannot: EOPNOTSUPP and others.
  virtual int reserve(int fd, std::uint64_t size_bytes);
  virtual ssize_t writev(int fd, const iovec* pieces, int count);
  virtual ssize_t preadv(int fd, const iovec* pieces, int count, std::uint64_t offset_bytes);
  virtual int fdatasync(int fd);
  virtual int sync_directory(const std::string& path);
  virtual int sync_file_system(const std::string& path);
  virtual int link(const std::string& from, const std::string& to);
  virtual int unlink(const std::string& path);
  virtual int mkdir(const std::string& path);
  virtual int fstat(int fd, FileStatus& status);
  virtual int stat(const std::string& path, FileStatus& status);
  /// What is in a directory without "." and "..", in any order.
  virtual int list(const std::string& path, std::vector<DirectoryEntry>& entries);

  /// The operating system's.
  static PosixCalls& system();
};

}  // namespace penstock::store
