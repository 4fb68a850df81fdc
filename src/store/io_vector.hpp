// Pieces of memory for preadv and writev, and how many of their bytes are transferred. A call may transfer fewer bytes
// than asked for.
#pragma once

#include <limits.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::store {

/// Refers to memory of the caller. Not thread-safe.
class IoVector {
 public:
  void reserve(std::size_t count) { pieces_.reserve(count); }

  void add(ConstBytes piece) {
    total_bytes_ += piece.size();
    if (piece.empty()) return;
    // An iovec has a non-const pointer for writev, too.
    auto* const data = const_cast<std::byte*>(piece.data());
    // The kernel is slow on vectors of many small pieces. Rows of a tile often lie end to end in memory.
    if (!pieces_.empty() && end_of(pieces_.back()) == data) {
      pieces_.back().iov_len += piece.size();
    } else {
      pieces_.push_back({data, piece.size()});
    }
  }

  std::uint64_t total_bytes() const { return total_bytes_; }
  bool done() const { return first_ == pieces_.size(); }

  /// The remaining pieces, as many as one call can take, up to about `most_bytes`: Linux transfers at most 2 GiB minus
  /// a page per call. Valid until the next call.
  std::span<const iovec> next(std::size_t most_bytes = std::size_t{1} << 30) {
    const std::span<const iovec> rest = std::span(pieces_).subspan(first_);
    if (!rest.empty() && rest[0].iov_len > most_bytes) {
      part_ = {rest[0].iov_base, most_bytes};
      return std::span(&part_, 1);
    }
    std::size_t count = 0;
    std::size_t bytes = 0;
    while (count < rest.size() && count < IOV_MAX && bytes < most_bytes) bytes += rest[count++].iov_len;
    return rest.first(count);
  }

  /// Counts `bytes` as transferred.
  void advance(std::size_t bytes) {
    while (bytes > 0) {
      iovec& piece = pieces_[first_];
      const std::size_t step = std::min(bytes, piece.iov_len);
      piece.iov_base = static_cast<std::byte*>(piece.iov_base) + step;
      piece.iov_len -= step;
      bytes -= step;
      if (piece.iov_len == 0) ++first_;
    }
  }

 private:
  static std::byte* end_of(const iovec& piece) { return static_cast<std::byte*>(piece.iov_base) + piece.iov_len; }

  std::vector<iovec> pieces_;
  iovec part_{};
  std::size_t first_ = 0;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace penstock::store
