// Memory that a save copies into: kept from save to save, because the first touch of fresh pages costs many times
// the copy itself.
#pragma once

#include <cstdint>
#include <span>

#include "penstock/types.hpp"

namespace penstock::checkpoint {

class Staging {
 public:
  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Makes room for that many bytes and touches all of it. Contents are lost when it grows. Throws
  /// Error(no_space) when there is no memory.
  void reserve(std::uint64_t size_bytes);

  Bytes first(std::uint64_t size_bytes) { return {memory_, size_bytes}; }
  std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* memory_ = nullptr;
  std::uint64_t size_bytes_ = 0;
};

struct Copy {
  ConstBytes from;
  std::byte* to;
};

/// Runs the copies with up to that many threads, the caller's included.
void copy_all(std::span<const Copy> copies, int threads);

/// How many threads may copy for one of `ranks_here` processes that share this machine's cores.
int copy_threads(int ranks_here);

}  // namespace penstock::checkpoint
