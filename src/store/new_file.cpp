#include "store/new_file.hpp"

#include <limits.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "penstock/error.hpp"

namespace penstock::store {

namespace {

constexpr std::uint64_t kReservedBytes = 1 << 20;

}  // namespace

void fail_call(const std::string& what, int error) {
  const ErrorCode code = error == ENOSPC || error == EDQUOT ? ErrorCode::no_space : ErrorCode::io;
  const std::string advice = code == ErrorCode::no_space ? "; free space or raise the quota, then repeat" : "";
  throw Error(code, what + advice, -1, std::string(std::strerror(error)) + " (errno " + std::to_string(error) + ")");
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

void NewFile::write(std::span<const ConstBytes> pieces) {
  std::vector<iovec> rest;
  rest.reserve(pieces.size());
  std::uint64_t total_bytes = 0;
  for (const ConstBytes piece : pieces) {
    total_bytes += piece.size();
    if (piece.empty()) continue;
    // A writev takes a const buffer through a non-const pointer.
    auto* const data = const_cast<std::byte*>(piece.data());
    // Kernels are slow on vectors of many small pieces, and the rows of a tile often lie end to end in memory.
    if (!rest.empty() && static_cast<std::byte*>(rest.back().iov_base) + rest.back().iov_len == data) {
      rest.back().iov_len += piece.size();
    } else {
      rest.push_back({data, piece.size()});
    }
  }
  // Space in one piece, known to be there before the first byte is written; and page by page would take longer.
  if (total_bytes >= kReservedBytes && calls_.reserve(fd_, total_bytes) < 0 && (errno == ENOSPC || errno == EDQUOT)) {
    fail_call("cannot write " + path_, errno);
  }
  std::size_t first = 0;
  while (first < rest.size()) first = write_some(rest, first);
  if (const std::uint64_t kept_bytes = status().size_bytes; kept_bytes != total_bytes) {
    throw Error(ErrorCode::io, path_ + ": wrote " + std::to_string(total_bytes) + " bytes, the file system kept " +
                                   std::to_string(kept_bytes));
  }
}

void NewFile::sync() {
  if (calls_.fdatasync(fd_) < 0) fail_call("cannot sync " + path_, errno);
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
  // Over NFS the answer to a link that succeeded can get lost; the repeated request then finds the name taken.
  if (there && status.links == 2) return Link::made;
  if (error == EEXIST) return Link::exists;
  if (error == ENOENT && !there && errno == ENOENT) return Link::vanished;
  fail_call("cannot create " + target + " from " + path_, error);
}

FileStatus NewFile::status() const {
  FileStatus found;
  if (calls_.fstat(fd_, found) < 0) fail_call("cannot look at " + path_, errno);
  return found;
}

std::size_t NewFile::write_some(std::vector<iovec>& rest, std::size_t first) {
  std::size_t count = 0;
  std::size_t asked_bytes = 0;
  while (first + count < rest.size() && count < IOV_MAX && asked_bytes < kTransferBytes) {
    asked_bytes += rest[first + count++].iov_len;
  }
  ssize_t written = calls_.writev(fd_, &rest[first], static_cast<int>(count));
  if (written < 0 && errno == EINTR) return first;
  if (written < 0) fail_call("cannot write " + path_, errno);
  if (written == 0) fail_call("cannot write " + path_, ENOSPC);
  while (written > 0) {
    iovec& piece = rest[first];
    const auto step = std::min(static_cast<std::size_t>(written), piece.iov_len);
    piece.iov_base = static_cast<std::byte*>(piece.iov_base) + step;
    piece.iov_len -= step;
    written -= static_cast<ssize_t>(step);
    if (piece.iov_len == 0) ++first;
  }
  return first;
}

}  // namespace penstock::store
