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

enum class FileSystemKind : std::uint8_t {
  local,    ///< of one kernel, and known to create links exclusively
  overlay,  ///< of one kernel; what it can do depends on the layers
  nfs,      ///< of several hosts; what was written is on the server when the file is closed
  other,    ///< of several hosts, or unknown
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
  virtual int rename(const std::string& from, const std::string& to);
  virtual int mkdir(const std::string& path);
  virtual int rmdir(const std::string& path);
  virtual int fstat(int fd, FileStatus& status);
  virtual int stat(const std::string& path, FileStatus& status);
  /// What is in a directory without "." and "..", in any order.
  virtual int list(const std::string& path, std::vector<DirectoryEntry>& entries);

  /// Whether this process may create files in a directory.
  virtual bool can_write(const std::string& directory);
  /// Of the file system that holds an existing path.
  virtual FileSystemKind file_system(const std::string& path);
  /// A number of the running kernel: another one after each start of the machine. What one kernel's processes wrote
  /// lies in one page cache, also if they run in different containers.
  virtual std::uint64_t kernel();

  /// The operating system's.
  static PosixCalls& system();
};

}  // namespace penstock::store
