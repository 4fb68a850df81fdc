// The memory that a save copies into. It is kept between saves, because the first touch of a page takes many times as
// long as the copy.
#pragma once

#include <cstdint>
#include <span>

#include "penstock/types.hpp"

namespace penstock::checkpoint {

/// Memory that grows as needed and is kept until this object ends. One thread at a time.
class Staging {
 public:
  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Allocates this many bytes and touches them. Growing loses the contents. Throws Error(no_space) if there is no
  /// memory.
  void reserve(std::uint64_t size_bytes);

  Bytes first(std::uint64_t size_bytes) { return {memory_, size_bytes}; }
  std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* memory_ = nullptr;
  std::uint64_t size_bytes_ = 0;
};

/// One copy of copy_all(). The caller owns both sides.
struct Copy {
  ConstBytes from;
  std::byte* to;
};

/// Runs the copies on up to this many threads, including the caller's.
void copy_all(std::span<const Copy> copies, int threads);

/// Number of threads that may copy, for one of `ranks_here` processes that share this machine's cores.
int copy_threads(int ranks_here);

}  // namespace penstock::checkpoint
