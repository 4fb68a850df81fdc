#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "penstock/error.hpp"
#include "penstock/store.hpp"

namespace penstock {

namespace {

constexpr std::uint64_t kPieceBytes = 8 << 20;
constexpr std::uint64_t kMostThreads = 8;

[[noreturn]] void fail_export(const std::string& path, const char* what) {
  const int error = errno;
  throw Error(error == ENOSPC || error == EDQUOT ? ErrorCode::no_space : ErrorCode::io,
              std::string("cannot ") + what + " " + path, -1, std::strerror(error), error);
}

/// A plain file that appears under its name if it is complete, or else not at all.
class PlainFile {
 public:
  PlainFile(const std::string& path, std::uint64_t size_bytes)
      : path_(path), temporary_(path + ".penstock-" + std::to_string(getpid())) {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) fail_export(temporary_, "create");
    if (::ftruncate(fd_, static_cast<off_t>(size_bytes)) == 0) return;
    const int error = errno;
    ::close(fd_);
    ::unlink(temporary_.c_str());
    errno = error;
    fail_export(temporary_, "extend");
  }
  ~PlainFile() {
    ::close(fd_);
    if (!finished_) ::unlink(temporary_.c_str());
  }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;

  void write(std::uint64_t offset, ConstBytes data) const {
    while (!data.empty()) {
      const ssize_t written = ::pwrite(fd_, data.data(), data.size(), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_export(temporary_, "write");
      data = data.subspan(static_cast<std::size_t>(written));
      offset += static_cast<std::uint64_t>(written);
    }
  }

  void finish() {
    if (::fsync(fd_) < 0) fail_export(temporary_, "sync");
    if (::rename(temporary_.c_str(), path_.c_str()) < 0) fail_export(path_, "rename to");
    finished_ = true;
    const std::size_t slash = path_.find_last_of('/');
    const std::string directory = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) fail_export(directory, "open");
    const int result = ::fsync(fd);
    ::close(fd);
    if (result < 0) fail_export(directory, "sync");
  }

 private:
  const std::string path_;
  const std::string temporary_;
  int fd_ = -1;
  bool finished_ = false;
};

/// Calls action(buffer, offset) for every piece of `size_bytes`, on several threads. Throws the first exception.
template <typename Action>
void for_each_piece(std::uint64_t size_bytes, const Action& action) {
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      std::vector<std::byte> buffer(std::min(kPieceBytes, size_bytes));
      for (;;) {
        const std::uint64_t offset = next.fetch_add(kPieceBytes);
        if (offset >= size_bytes) return;
        action(Bytes(buffer).first(std::min<std::uint64_t>(buffer.size(), size_bytes - offset)), offset);
      }
    } catch (...) {
      next = size_bytes;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  const std::uint64_t pieces = (size_bytes + kPieceBytes - 1) / kPieceBytes;
  const std::uint64_t threads = std::min({pieces, kMostThreads, std::uint64_t{std::thread::hardware_concurrency()}});
  std::vector<std::thread> helpers;
  for (std::uint64_t i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

void Store::export_file(std::string_view name, std::uint64_t version, const std::string& path) const {
  const Snapshot snapshot = open(name).snapshot(version);
  PlainFile file(path, snapshot.size_bytes());
  for_each_piece(snapshot.size_bytes(), [&](Bytes piece, std::uint64_t offset) {
    const ReadRegion region{offset, piece};
    snapshot.read(std::span(&region, 1));
    file.write(offset, piece);
  });
  file.finish();
}

}  // namespace penstock
