#include "store/new_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "penstock/error.hpp"
#include "store/io_vector.hpp"

namespace penstock::store {

namespace {

/// Smaller files are not worth a system call that others than the write need.
constexpr std::uint64_t kLargeBytes = 1 << 20;
/// Bytes that the device is told to write while the next ones are copied into the page cache.
constexpr std::size_t kWriteBehindBytes = 8 << 20;

}  // namespace

void fail_call(const std::string& what, int error) {
  const ErrorCode code = error == ENOSPC || error == EDQUOT ? ErrorCode::no_space : ErrorCode::io;
  const std::string advice = code == ErrorCode::no_space ? "; free space or raise the quota, then repeat" : "";
  throw Error(code, what + advice, -1, std::string(std::strerror(error)) + " (errno " + std::to_string(error) + ")",
              error);
}

NewFile::NewFile(PosixCalls& calls, std::string path) : calls_(calls), path_(std::move(path)) {
  fd_ = calls_.create(path_);
  if (fd_ >= 0) return;
  if (errno == EEXIST) {
    throw Error(ErrorCode::exists, path_ + " exists, another writer uses the same identity; open the store again");
  }
  fail_call("cannot create " + path_, errno);
}

NewFile::~NewFile() {
  if (fd_ >= 0) calls_.close(fd_);
  if (!kept_) calls_.unlink(path_);
}

void NewFile::write(std::span<const ConstBytes> pieces, bool durable, bool read_soon) {
  IoVector rest;
  rest.reserve(pieces.size());
  for (const ConstBytes piece : pieces) rest.add(piece);
  const std::uint64_t total_bytes = rest.total_bytes();
  begin(total_bytes, durable && !read_soon);
  transfer(std::move(rest), durable);
  complete(total_bytes, durable);
}

void NewFile::write(const Stream& stream, bool durable) {
  begin(stream.size_bytes, durable && !stream.read_soon);
  const auto next = stream.begin();
  for (ConstBytes piece = next(); !piece.empty(); piece = next()) {
    IoVector one;
    one.add(piece);
    transfer(std::move(one), durable);
  }
  check_streamed(stream, written_bytes_, path_);
  complete(stream.size_bytes, durable);
}

void NewFile::begin(std::uint64_t total_bytes, bool drops_cached) {
  if (total_bytes < kLargeBytes) return;
  drops_cached_ = drops_cached;
  // Detects a full device before the first byte is written, gives contiguous space, and is faster than to allocate page
  // by page.
  if (calls_.reserve(fd_, total_bytes) < 0 && (errno == ENOSPC || errno == EDQUOT)) {
    fail_call("cannot write " + path_, errno);
  }
}

void NewFile::transfer(IoVector rest, bool durable) {
  while (!rest.done()) {
    const std::span<const iovec> next = durable ? rest.next(kWriteBehindBytes) : rest.next();
    const ssize_t written = calls_.writev(fd_, next.data(), static_cast<int>(next.size()));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_call("cannot write " + path_, written < 0 ? errno : ENOSPC);
    rest.advance(static_cast<std::size_t>(written));
    written_bytes_ += static_cast<std::uint64_t>(written);
    // Otherwise a slow device is idle until all of it is copied. The last bytes are left to sync(). A hint: whatever it
    // fails with, sync() reports.
    if (!durable || written_bytes_ - started_bytes_ < kWriteBehindBytes) continue;
    calls_.start_writing(fd_, started_bytes_, written_bytes_ - started_bytes_);
    // Nothing waits for the device here. What it does not have yet is dropped at the end.
    if (drops_cached_ && started_bytes_ > 0) calls_.drop_cached(fd_, 0, started_bytes_);
    started_bytes_ = written_bytes_;
  }
}

void NewFile::complete(std::uint64_t total_bytes, bool durable) {
  if (const std::uint64_t kept_bytes = status().size_bytes; kept_bytes != total_bytes) {
    throw Error(ErrorCode::io, path_ + ": wrote " + std::to_string(total_bytes) + " bytes, the file system kept " +
                                   std::to_string(kept_bytes));
  }
  if (durable) sync();
  if (drops_cached_) calls_.drop_cached(fd_, 0, 0);
}

void NewFile::sync() {
  while (calls_.fdatasync(fd_) < 0) {
    if (errno != EINTR) fail_call("cannot sync " + path_, errno);
  }
}

void NewFile::close() {
  const int fd = std::exchange(fd_, -1);
  if (calls_.close(fd) < 0 && errno != EINTR) fail_call("cannot close " + path_, errno);
}

NewFile::Link NewFile::link_to(const std::string& target) {
  if (calls_.link(path_, target) == 0) return Link::made;
  const int error = errno;
  FileStatus status;
  const bool there = calls_.stat(path_, status) == 0;
  // Over NFS the reply to a successful link may get lost. The repeated request then finds the name taken.
  if (there && status.links == 2) return Link::made;
  if (error == EEXIST) return Link::exists;
  if (error == ENOENT && !there && errno == ENOENT) return Link::vanished;
  fail_call("cannot create " + target + " from " + path_, error);
}

void NewFile::rename_to(const std::string& target) {
  if (calls_.rename(path_, target) < 0) fail_call("cannot rename " + path_ + " to " + target, errno);
  kept_ = true;
}

FileStatus NewFile::status() const {
  FileStatus found;
  if (calls_.fstat(fd_, found) < 0) fail_call("cannot read the status of " + path_ + " (fstat)", errno);
  return found;
}

}  // namespace penstock::store
