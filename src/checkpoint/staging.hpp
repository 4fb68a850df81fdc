// The memory that a save copies into. It is kept between saves, because the first touch of a page takes many times as
// long as the copy.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <span>
#include <vector>

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
  /// Gives the memory back.
  void release();

  Bytes first(std::uint64_t size_bytes) { return {memory_, size_bytes}; }
  std::uint64_t size_bytes() const { return size_bytes_; }
  /// What reserve() was asked for: without the rest of the last page.
  std::uint64_t asked_bytes() const { return asked_bytes_; }

 private:
  std::byte* memory_ = nullptr;
  std::uint64_t size_bytes_ = 0;
  std::uint64_t asked_bytes_ = 0;
};

/// How much memory the staging buffers of one rank may take.
struct StagingLimits {
  std::uint64_t budget_bytes = 0;  ///< of all buffers; 0: follows from the state and the free memory
  int buffers = 0;                 ///< without a budget: how many states; 0: two
  int ranks_here = 1;              ///< that share the free memory
  std::function<std::uint64_t()> free_memory_bytes;
};

/// The staging buffers of one rank, under a budget. Without one, a second buffer and further ones are taken only where
/// this rank's share of the free memory holds twice the state. One thread at a time. `held`: the buffers in use.
class StagingPool {
 public:
  using Held = std::set<const Staging*>;

  explicit StagingPool(StagingLimits limits) : limits_(std::move(limits)) {}

  /// Throws Error(invalid_argument) if the budget will never hold so much.
  void check(std::uint64_t size_bytes) const;
  /// Whether the budget has room for a buffer of this size now. Always if none is held.
  bool has_room(std::uint64_t size_bytes, const Held& held) const;
  /// A buffer of at least this size that is not held. For sizes that there is room for. Throws Error(no_space).
  Staging& take(std::uint64_t size_bytes, const Held& held);
  /// How many buffers of this size the budget holds: at least one, at most kMostBuffers.
  int buffers_for(std::uint64_t size_bytes) const;

  std::uint64_t size_bytes() const;
  std::uint64_t budget_bytes() const { return limits_.budget_bytes; }

  /// A failure is told this many saves later at the latest.
  static constexpr int kMostBuffers = 8;

 private:
  int default_buffers() const { return limits_.buffers > 0 ? limits_.buffers : 2; }
  std::uint64_t share_of_free_memory() const;

  const StagingLimits limits_;
  std::deque<Staging> buffers_;  // of which addresses are kept
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

/// Copies that several threads do together, in pieces by turns. Thread-safe.
class SharedCopies {
 public:
  explicit SharedCopies(std::vector<Copy> copies);

  /// Copies one more piece. False if none is left; others may still be copying theirs.
  bool copy_piece();
  /// Copies what is left on up to this many threads, and waits for the pieces of others.
  void finish(int threads);
  bool done() const { return done_pieces_ == pieces_; }

 private:
  void copy(std::uint64_t piece) const;

  const std::vector<Copy> copies_;
  std::vector<std::uint64_t> begins_;  // of each copy, counted through all of them
  std::uint64_t total_bytes_ = 0;
  std::uint64_t pieces_ = 0;
  bool streams_ = false;
  std::atomic<std::uint64_t> next_piece_{0};
  std::atomic<std::uint64_t> done_pieces_{0};
};

/// Runs the copies on up to this many threads, including the caller's.
void copy_all(std::span<const Copy> copies, int threads);

/// Number of threads that may copy, for one of `ranks_here` processes that share this machine's cores.
int copy_threads(int ranks_here);

}  // namespace penstock::checkpoint
