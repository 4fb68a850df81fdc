#include "dataset/read_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "penstock/error.hpp"

namespace penstock::dataset {

namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::string& message, int error) {
  const ErrorCode code = error == ENOENT || error == ENOTDIR ? ErrorCode::not_found : ErrorCode::io;
  throw Error(code, message, -1, std::generic_category().message(error), error);
}

[[noreturn]] void refuse_size(const std::string& size, std::uint64_t max_bytes) {
  throw Error(ErrorCode::invalid_argument,
              "holds " + size + " bytes, more than the limit of " + std::to_string(max_bytes) + " bytes per sample");
}

// The buffer never shrinks: clearing it for every sample would cost as much as the copy.
void grow(std::vector<std::byte>& buffer, std::size_t size) {
  if (buffer.size() < size) buffer.resize(size);
}

std::size_t read_some(int file, std::byte* to, std::size_t size, std::uint64_t begin) {
  for (;;) {
    const ssize_t got = pread(file, to, size, static_cast<off_t>(begin));
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) fail("cannot be read", errno);
  }
}

}  // namespace

void check_size(std::uint64_t size_bytes, std::uint64_t max_bytes) {
  if (size_bytes > max_bytes) refuse_size(std::to_string(size_bytes), max_bytes);
}

ConstBytes read_file(const std::string& path, const ReadLimits& limits, std::vector<std::byte>& buffer,
                     std::optional<FilePart> part) {
  // O_NONBLOCK: opening a FIFO must not block the thread until somebody writes.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) fail("cannot be opened", errno);
  struct stat info {};
  if (fstat(file.get(), &info) != 0) fail("cannot be examined (fstat)", errno);
  if (!S_ISREG(info.st_mode)) throw Error(ErrorCode::io, "is not a regular file");
  const auto allocate = [&](std::size_t size) {
    if (limits.before_allocation) limits.before_allocation(size);
    grow(buffer, size);
  };
  const auto file_bytes = static_cast<std::uint64_t>(info.st_size);
  std::size_t filled = 0;
  if (part) {
    check_size(part->size_bytes, limits.max_bytes);
    if (part->begin > file_bytes || part->size_bytes > file_bytes - part->begin)
      throw Error(ErrorCode::io, "ends at " + std::to_string(file_bytes) + " bytes; the index expects the bytes " +
                                     std::to_string(part->begin) + " to " +
                                     std::to_string(part->begin + part->size_bytes));
    allocate(part->size_bytes);
    while (filled < part->size_bytes) {
      const std::size_t got =
          read_some(file.get(), buffer.data() + filled, part->size_bytes - filled, part->begin + filled);
      if (got == 0) throw Error(ErrorCode::io, "was cut off while it was read");
      filled += got;
    }
    return {buffer.data(), filled};
  }
  check_size(file_bytes, limits.max_bytes);
  // One byte more than the size, so that the end is seen in the first read.
  allocate(file_bytes + 1);
  for (;;) {
    const std::size_t got = read_some(file.get(), buffer.data() + filled, buffer.size() - filled, filled);
    filled += got;
    if (got == 0 || (filled < buffer.size() && filled == file_bytes)) break;
    // The file grows while it is read, or reports no size, as in /proc.
    if (filled > limits.max_bytes) refuse_size("at least " + std::to_string(filled), limits.max_bytes);
    if (filled == buffer.size()) allocate(2 * buffer.size());
  }
  check_size(filled, limits.max_bytes);
  return {buffer.data(), filled};
}

}  // namespace penstock::dataset
