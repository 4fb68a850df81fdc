#include "store/posix_calls.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace penstock::store {

namespace {

void convert(const struct stat& from, FileStatus& to) {
  to.is_directory = S_ISDIR(from.st_mode);
  to.size_bytes = static_cast<std::uint64_t>(from.st_size);
  to.links = from.st_nlink;
  to.modified_s = from.st_mtim.tv_sec;
}

int open_and(int (*call)(int), const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -1;
  const int result = call(fd);
  const int error = errno;
  ::close(fd);
  errno = error;
  return result;
}

}  // namespace

int PosixCalls::open_to_read(const std::string& path) { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }

int PosixCalls::create(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
}

int PosixCalls::close(int fd) { return ::close(fd); }

int PosixCalls::reserve(int fd, std::uint64_t size_bytes) {
#ifdef FALLOC_FL_KEEP_SIZE
  return ::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size_bytes));
#else
  errno = EOPNOTSUPP;
  return -1;
#endif
}

ssize_t PosixCalls::writev(int fd, const iovec* pieces, int count) { return ::writev(fd, pieces, count); }

ssize_t PosixCalls::preadv(int fd, const iovec* pieces, int count, std::uint64_t offset_bytes) {
  return ::preadv(fd, pieces, count, static_cast<off_t>(offset_bytes));
}

int PosixCalls::fdatasync(int fd) { return ::fdatasync(fd); }

int PosixCalls::sync_directory(const std::string& path) { return open_and(::fsync, path); }

int PosixCalls::sync_file_system(const std::string& path) { return open_and(::syncfs, path); }

int PosixCalls::link(const std::string& from, const std::string& to) { return ::link(from.c_str(), to.c_str()); }

int PosixCalls::unlink(const std::string& path) { return ::unlink(path.c_str()); }

int PosixCalls::mkdir(const std::string& path) { return ::mkdir(path.c_str(), 0755); }

int PosixCalls::fstat(int fd, FileStatus& status) {
  struct stat found;
  if (::fstat(fd, &found) < 0) return -1;
  convert(found, status);
  return 0;
}

int PosixCalls::stat(const std::string& path, FileStatus& status) {
  struct stat found;
  if (::stat(path.c_str(), &found) < 0) return -1;
  convert(found, status);
  return 0;
}

int PosixCalls::list(const std::string& path, std::vector<DirectoryEntry>& entries) {
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return -1;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    const auto kind = entry->d_type == DT_REG   ? DirectoryEntry::Kind::file
                      : entry->d_type == DT_DIR ? DirectoryEntry::Kind::directory
                                                : DirectoryEntry::Kind::unknown;
    entries.push_back({std::string(name), kind});
  }
  const int error = errno;
  ::closedir(directory);
  errno = error;
  return error == 0 ? 0 : -1;
}

PosixCalls& PosixCalls::system() {
  static PosixCalls calls;
  return calls;
}

}  // namespace penstock::store
