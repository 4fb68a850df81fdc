#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "store/blob_state.hpp"
#include "store/in_parallel.hpp"

namespace penstock {

namespace {

constexpr std::uint64_t kPieceBytes = 8 << 20;
constexpr std::size_t kMostThreads = 8;
/// What file systems allocate at once: shorter runs of zeros save no space.
constexpr std::size_t kHoleBytes = 4096;

[[noreturn]] void fail_export(const std::string& path, const char* what) {
  const int error = errno;
  throw Error(error == ENOSPC || error == EDQUOT ? ErrorCode::no_space : ErrorCode::io,
              std::string("cannot ") + what + " " + path, -1, std::strerror(error), error);
}

/// Differs between hosts and containers, which may have equal host names and process numbers.
std::string random_suffix() {
  std::random_device random;
  char suffix[40];
  std::snprintf(suffix, sizeof suffix, ".penstock-%08x%08x%08x", random(), random(), random());
  return suffix;
}

/// Calls action(offset, piece) for the parts of `data` that have other bytes than zeros. A part begins and ends at
/// multiples of kHoleBytes within `data`.
template <typename Action>
void for_each_nonzero(ConstBytes data, const Action& action) {
  const auto is_zero = [](ConstBytes block) {
    return block.front() == std::byte{0} && std::memcmp(block.data(), block.data() + 1, block.size() - 1) == 0;
  };
  std::size_t begin = 0;
  for (std::size_t at = 0; at < data.size(); at += kHoleBytes) {
    const ConstBytes block = data.subspan(at, std::min(kHoleBytes, data.size() - at));
    if (!is_zero(block)) continue;
    if (begin < at) action(begin, data.subspan(begin, at - begin));
    begin = at + block.size();
  }
  if (begin < data.size()) action(begin, data.subspan(begin));
}

/// A plain file that appears under its name if it is complete, or else not at all.
class PlainFile {
 public:
  PlainFile(const std::string& path, std::uint64_t size_bytes) : path_(path), temporary_(path + random_suffix()) {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
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

}  // namespace

void Store::export_file(std::string_view name, std::uint64_t version, const std::string& path) const {
  const auto blob = store::BlobState::open(backend_, name);
  const auto map = blob->readable_at(version, store::BlobState::Loading::whole).map;
  std::vector<store::Extent> pieces;
  for (const store::Extent& range : map->stored_ranges()) {
    for (std::uint64_t done = 0; done < range.size_bytes;) {
      // Pieces end at multiples of kPieceBytes, so that holes are found where file systems can have them.
      const std::uint64_t offset = range.offset_bytes + done;
      const std::uint64_t size = std::min(kPieceBytes - offset % kPieceBytes, range.size_bytes - done);
      pieces.push_back({offset, size});
      done += size;
    }
  }
  // What is not written reads as zeros and takes no space.
  PlainFile file(path, map->size_bytes());
  const std::size_t threads = std::min(kMostThreads, std::size_t{store::usable_cores()});
  std::vector<std::vector<std::byte>> buffers(threads);
  store::in_parallel(pieces.size(), threads, [&](std::size_t i, std::size_t thread) {
    const store::Extent& piece = pieces[i];
    buffers[thread].resize(kPieceBytes);
    const Bytes found = Bytes(buffers[thread]).first(piece.size_bytes);
    const ReadRegion region{piece.offset_bytes, found};
    blob->read(*map, std::span(&region, 1));
    for_each_nonzero(found, [&](std::size_t at, ConstBytes data) { file.write(piece.offset_bytes + at, data); });
  });
  file.finish();
}

}  // namespace penstock
