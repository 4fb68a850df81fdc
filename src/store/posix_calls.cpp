#include "store/posix_calls.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
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
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
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

int PosixCalls::start_writing(int fd, std::uint64_t offset_bytes, std::uint64_t size_bytes) {
#ifdef SYNC_FILE_RANGE_WRITE
  return ::sync_file_range(fd, static_cast<off_t>(offset_bytes), static_cast<off_t>(size_bytes), SYNC_FILE_RANGE_WRITE);
#else
  static_cast<void>(fd), static_cast<void>(offset_bytes), static_cast<void>(size_bytes);
  return 0;
#endif
}

int PosixCalls::drop_cached(int fd, std::uint64_t offset_bytes, std::uint64_t size_bytes) {
  return ::posix_fadvise(fd, static_cast<off_t>(offset_bytes), static_cast<off_t>(size_bytes), POSIX_FADV_DONTNEED);
}

int PosixCalls::sync_directory(const std::string& path) { return open_and(::fsync, path); }

int PosixCalls::sync_file_system(const std::string& path) { return open_and(::syncfs, path); }

int PosixCalls::link(const std::string& from, const std::string& to) { return ::link(from.c_str(), to.c_str()); }

int PosixCalls::unlink(const std::string& path) { return ::unlink(path.c_str()); }

int PosixCalls::rename(const std::string& from, const std::string& to) { return ::rename(from.c_str(), to.c_str()); }

int PosixCalls::mkdir(const std::string& path) { return ::mkdir(path.c_str(), 0777); }

int PosixCalls::rmdir(const std::string& path) { return ::rmdir(path.c_str()); }

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

bool PosixCalls::can_write(const std::string& directory) { return ::access(directory.c_str(), W_OK | X_OK) == 0; }

FileSystemKind PosixCalls::file_system(const std::string& path) {
  // From statfs(2) or, if it does not list the file system, from the kernel's headers.
  constexpr std::uint64_t kLocal[] = {
      0xef53,      // ext2, ext3, ext4
      0x58465342,  // xfs
      0x9123683e,  // btrfs
      0x01021994,  // tmpfs
      0x858458f6,  // ramfs
      0xf2f52010,  // f2fs
      0x2fc12fc1,  // zfs
      0xca451a4e,  // bcachefs
      0x3153464a,  // jfs
      0x3434,      // nilfs2
  };
  constexpr std::uint64_t kNfs = 0x6969;
  constexpr std::uint64_t kOverlay = 0x794c7630;
  struct statfs found;
  if (::statfs(path.c_str(), &found) < 0) return FileSystemKind::other;
  const auto type = static_cast<std::uint32_t>(found.f_type);
  if (type == kNfs) return FileSystemKind::nfs;
  if (type == kOverlay) return FileSystemKind::overlay;
  for (const std::uint64_t local : kLocal) {
    if (type == local) return FileSystemKind::local;
  }
  return FileSystemKind::other;
}

std::uint64_t PosixCalls::kernel() {
  static const std::uint64_t number = [] {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash;
  }();
  return number;
}

PosixCalls& PosixCalls::system() {
  static PosixCalls calls;
  return calls;
}

}  // namespace penstock::store
