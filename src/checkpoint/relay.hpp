// Runs collectives of background threads on the application's thread, if MPI lets only that thread call it. The
// background threads post them here; the application's thread runs them inside save(), wait() and finish().
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "checkpoint/peers.hpp"

namespace penstock::checkpoint {

/// Shared by the saver, its threads' channels and the handles. post() is called by the background threads, all else by
/// the application's thread.
class Relay {
 public:
  Relay(std::shared_ptr<Peers> peers, int channels);

  /// The Peers that background thread `channel` uses instead of the communicator. Must not outlive the relay.
  std::shared_ptr<Peers> channel(int channel);

  /// A condition that a rank waits for, and the number of saves after which it can hold.
  struct Condition {
    std::function<bool()> satisfied;
    std::uint64_t saves = 0;
  };

  /// Runs posted collectives in rounds: ranks exchange what their threads have posted, and run what all have posted.
  /// Returns when `satisfied` holds on every rank. It ignores ranks whose condition needs a save that some rank has yet
  /// to begin: after a failure that only some ranks saw, their calls no longer match. Collective, on the application's
  /// thread.
  void serve(const Condition& condition);

  /// Counts a save that this rank begins.
  void count_save() { ++saves_; }

 private:
  class Channel;
  struct Slot {
    std::function<void()> collective;  ///< empty: none posted
    std::exception_ptr failure;
  };

  void post(int channel, std::function<void()> collective);

  const std::shared_ptr<Peers> peers_;
  std::mutex mutex_;
  std::condition_variable served_;
  std::vector<Slot> slots_;
  std::uint64_t saves_ = 0;  // used by the application's thread
};

}  // namespace penstock::checkpoint
