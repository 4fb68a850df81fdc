// Collectives of background threads where the MPI library lets only the application's thread call it: the threads
// post them here, and the application's thread runs them inside save(), wait() and finish().
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

class Relay {
 public:
  Relay(std::shared_ptr<Peers> peers, int channels);

  /// What the background thread `channel` calls instead of the communicator. Must not outlive the relay.
  std::shared_ptr<Peers> channel(int channel);

  /// What a rank waits for, and after how many saves it can come true.
  struct Wish {
    std::function<bool()> satisfied;
    std::uint64_t saves = 0;
  };

  /// Runs posted collectives, in rounds: the ranks tell each other what their threads wait for, and what all of them
  /// wait for runs. Returns when `satisfied` holds on every rank, those left out whose wish needs a save that this or
  /// another rank has yet to begin: after a failure that only some ranks saw, their calls no longer fall together.
  /// Collective, by the application's thread.
  void serve(const Wish& wish);

  /// This rank has begun another save.
  void count_save() { ++saves_; }

 private:
  class Channel;
  struct Slot {
    std::function<void()> collective;  ///< empty: nothing posted
    std::exception_ptr failure;
  };

  void post(int channel, std::function<void()> collective);

  const std::shared_ptr<Peers> peers_;
  std::mutex mutex_;
  std::condition_variable served_;
  std::vector<Slot> slots_;
  std::uint64_t saves_ = 0;  // the application's thread's
};

}  // namespace penstock::checkpoint
