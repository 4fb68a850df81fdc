// What the threads of a process drive.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/doorbell.hpp"

namespace penstock::engine {

/// The kind of thread that makes progress. It determines which lanes may run, and whether the transport may be called.
enum class Caller { application, progress_thread };

/// Something that makes progress when polled: an engine, or the native collectives of a communicator.
class Pollable {
 public:
  /// Makes progress; false if nothing moved. Any thread, several at once.
  virtual bool progress(Caller caller) noexcept = 0;
  /// Runs one ready step of the progress lane, to help a waiting thread.
  virtual bool help() noexcept { return false; }
  /// Whether there is nothing to do until the bell rings. A sleeper asks after it has raised the bell's `sleepers`.
  virtual bool can_sleep(Caller caller) noexcept = 0;
  /// Whether work can appear without the bell: from a transport, or because peers release memory.
  virtual bool needs_polling(Caller caller) noexcept = 0;
  /// Called periodically while something is in flight: finds ranks that have died and fails what waits for them.
  virtual void check_peers(Caller caller) noexcept = 0;
  /// Application threads that find nothing to do call it, see Transport::poke.
  virtual void poke() noexcept {}
  virtual Doorbell& bell() noexcept = 0;
  /// Whether progress threads can do all that is to be done.
  virtual bool threads_suffice() noexcept { return false; }
  /// For threads that leave it to progress threads: rings when an operation has finished, and when threads_suffice()
  /// has become false. Peers do not ring it, so it wakes nobody for nothing.
  virtual Doorbell& asleep_bell() noexcept { return bell(); }

  std::atomic<bool> active{false};  ///< something is in flight
  /// Only long messages are in flight: how long they need no poll, as measured. More polls would take time from threads
  /// that compute or move data. Otherwise 0.
  std::atomic<std::int64_t> nap_ns{0};
  /// The same while no thread waits for it, so that the end of a message may be found a little later.
  std::atomic<std::int64_t> background_nap_ns{0};
  /// Steady clock: until then the long messages in flight should be on their way, as measured. 0: none is in flight.
  std::atomic<std::int64_t> transfer_until_ns{0};
  std::atomic<bool> polls_transport{false};  ///< polling is a system call, so it is not repeated in a tight loop
  std::atomic<bool> polls_yield{false};      ///< these polls let other threads have the core
  std::atomic<int> waiters{0};               ///< threads in wait_for() for it, which drive it
  std::atomic<int> users{0};                 ///< other threads inside of it; remove() waits for them
  /// Steady clock: when its peers were checked last, or when it was first found waiting. 0: not found waiting since it
  /// became active.
  std::atomic<std::int64_t> checked_ns{0};
  std::int64_t checked_at_start_ns = 0;       ///< see Progress::completed_in_start()
  std::atomic<std::uint32_t> busy_rounds{0};  ///< calls of progress() in which something moved
  bool wants_thread = false;                  ///< progress threads drive it; constant between add() and remove()
  bool is_crowded = false;                    ///< its ranks share cores; constant as wants_thread

 protected:
  ~Pollable() = default;
};

}  // namespace penstock::engine
