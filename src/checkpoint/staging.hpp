// The memory that a save copies into. It is kept between saves, because the first touch of a page takes many times as
// long as the copy.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
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

/// While a save copies, the threads that write earlier ones leave it the cores and the rate of the memory. Thread-safe.
class Precedence {
 public:
  /// A save has precedence while this exists.
  class Hold {
   public:
    explicit Hold(Precedence& precedence) : precedence_(precedence) { precedence_.change(+1); }
    ~Hold() { precedence_.change(-1); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    Precedence& precedence_;
  };

  /// Waits while somebody has precedence.
  void give_way();

 private:
  void change(int by);

  std::mutex mutex_;
  std::condition_variable changed_;
  int holders_ = 0;
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
