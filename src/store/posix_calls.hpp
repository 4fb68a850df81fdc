// The system calls of the posix backend, as virtual functions. Tests replace them: a call fails, writes less than
// asked, or the power is cut and only synced data stays.
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
  local,    ///< used by one kernel; creates links exclusively
  overlay,  ///< used by one kernel; its abilities depend on its layers
  nfs,      ///< shared by hosts; the data of a closed file is on the server
  other,    ///< shared by hosts, or unknown
};

/// Each function behaves as the system call it is named after: it returns -1 and sets errno on failure. Thread-safe.
class PosixCalls {
 public:
  virtual ~PosixCalls() = default;

  virtual int open_to_read(const std::string& path);
  virtual int create(const std::string& path);  ///< opens a new file for writing; EEXIST if it exists
  virtual int close(int fd);
  /// Allocates space for a file without changing its size. Many file systems cannot; then EOPNOTSUPP or another error.
  virtual int reserve(int fd, std::uint64_t size_bytes);
  virtual ssize_t writev(int fd, const iovec* pieces, int count);
  virtual ssize_t preadv(int fd, const iovec* pieces, int count, std::uint64_t offset_bytes);
  virtual int fdatasync(int fd);
  /// Begins to write a range of a file to the device, and waits for nothing. Not durable. Other systems than Linux may
  /// do nothing.
  virtual int start_writing(int fd, std::uint64_t offset_bytes, std::uint64_t size_bytes);
  /// Takes what the device has of a range out of the page cache; 0 bytes: up to the end. A hint.
  virtual int drop_cached(int fd, std::uint64_t offset_bytes, std::uint64_t size_bytes);
  virtual int sync_directory(const std::string& path);
  virtual int sync_file_system(const std::string& path);
  virtual int link(const std::string& from, const std::string& to);
  virtual int unlink(const std::string& path);
  virtual int rename(const std::string& from, const std::string& to);
  virtual int mkdir(const std::string& path);
  virtual int rmdir(const std::string& path);
  virtual int fstat(int fd, FileStatus& status);
  virtual int stat(const std::string& path, FileStatus& status);
  /// The entries of a directory, without "." and "..", in any order.
  virtual int list(const std::string& path, std::vector<DirectoryEntry>& entries);

  /// Whether this process may create files in a directory.
  virtual bool can_write(const std::string& directory);
  /// The kind of the file system that holds an existing path.
  virtual FileSystemKind file_system(const std::string& path);
  /// Identifies the running kernel; changes with each start of the machine. Processes of one kernel share a page cache,
  /// even in different containers.
  virtual std::uint64_t kernel();

  /// The calls of the operating system. Lives until the process ends.
  static PosixCalls& system();
};

}  // namespace penstock::store
