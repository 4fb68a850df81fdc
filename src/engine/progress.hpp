// Who drives the engines of this process: the threads that wait, and its progress threads (workers).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/doorbell.hpp"
#include "engine/progress_threads.hpp"

namespace penstock::engine {

/// The thread that makes progress: it decides which lanes may run, and whether the transport may be used.
enum class Caller { application, progress_thread };

/// What can be driven: an engine.
class Pollable {
 public:
  /// Does what can be done now; false when nothing moved. Any thread, several at once.
  virtual bool progress(Caller caller) noexcept = 0;
  /// Runs one ready step of the progress lane, for a waiting thread that has more than it can do.
  virtual bool help() noexcept = 0;
  /// Whether nothing can be done before the bell rings; a sleeper asks after it has raised the bell's `sleepers`.
  virtual bool can_sleep(Caller caller) noexcept = 0;
  /// Whether something may happen without the bell: a transport, or memory that peers give back silently.
  virtual bool needs_polling(Caller caller) noexcept = 0;
  /// Called now and then while something is in flight: finds the ranks that have died, and fails what waits for them.
  virtual void check_peers(Caller caller) noexcept = 0;
  /// Called by threads of the application that found nothing to do, see Transport::poke.
  virtual void poke() noexcept = 0;
  virtual Doorbell& bell() noexcept = 0;

  std::atomic<bool> active{false};  ///< something is in flight
  /// All that is awaited takes long, long messages over a slow link: looking often would only take time from those that
  /// compute, or that move the data.
  std::atomic<bool> slow{false};
  std::atomic<bool> polls_transport{false};  ///< looking for work is a system call: better not many times in a row
  std::atomic<int> waiters{0};               ///< threads in wait_for(), which drive it themselves
  std::atomic<int> users{0};                 ///< threads of others that are inside; remove() waits for them
  /// When its peers were checked last, on the steady clock, or when what is in flight was first found waiting; 0: not
  /// found waiting since something was started while nothing was in flight.
  std::atomic<std::int64_t> checked_ns{0};
  std::int64_t checked_at_start_ns = 0;       ///< see Progress::completed_in_start()
  std::atomic<std::uint32_t> busy_rounds{0};  ///< calls of progress() in which something moved
  bool wants_thread = false;                  ///< the progress threads drive it; constant while added

 protected:
  ~Pollable() = default;
};

/// The engines of this process. Waiting threads sleep on the bells of everything that they drive; so do the progress
/// threads, which start when something is in flight for the first time. Every progress thread serves every engine that
/// wants them.
class Progress {
 public:
  static Progress& of_process();

  void add(Pollable& pollable);
  /// On return nobody else is inside `pollable` any more.
  void remove(Pollable& pollable);
  /// The process has as many progress threads as the largest claim that is held: the n-th runs on the n-th CPU of that
  /// claim, or, where that is negative, wherever the process may. The claim ends with the last copy of the result,
  /// which then waits for threads that nobody else claims.
  [[nodiscard]] std::shared_ptr<const void> claim_threads(std::vector<std::int32_t> cpus) {
    return threads_.claim(std::move(cpus));
  }

  /// `pollable` has become active, or a waiting thread has left it active: somebody else may have to care now.
  void attention(Pollable& pollable) noexcept;

  /// Steps of the progress lane are waiting while the caller works on another one.
  void help_wanted() noexcept {
    generation_.fetch_add(1, std::memory_order_seq_cst);
    thread_attention_.ring();
  }

  /// An operation was over when it had been started. A rank that calls only such operations never waits, and must hear
  /// of those that have gone all the same. By the thread that starts operations.
  static void completed_in_start(Pollable& pollable) noexcept;

  /// One round of progress for `home` and, when that has nothing to do, for everything that no other thread drives.
  void drive(Pollable& home) noexcept;
  /// Drives `home`, and everything active that no other thread drives, until `finished`.
  void wait_for(Pollable& home, const std::atomic<bool>& finished) noexcept;

  /// Whether something is in flight that makes progress only while a thread waits or tests.
  bool has_unpolled();

  /// True in a child of fork(), where the progress threads and the peers' trust are gone.
  static bool in_forked_child() noexcept;

 private:
  Progress();
  void thread_loop(const std::atomic<bool>& stop) noexcept;
  /// The active ones that the caller drives besides `home`; each has a user more until release().
  void acquire(std::vector<Pollable*>& acquired, Caller caller, const Pollable* home);
  static void release(std::vector<Pollable*>& acquired);
  static void check_peers_if_due(Pollable& pollable, Caller caller) noexcept;
  static bool progress_and_check(Pollable& pollable, Caller caller) noexcept;
  struct Sleeper {
    Caller caller;
    Pollable* home = nullptr;
    const std::vector<Pollable*>& acquired;
    const std::atomic<bool>& ended;  ///< the wait, or the thread
    std::uint64_t generation;        ///< before `held` was made
  };
  void sleep(const Sleeper& sleeper, int sleeps);
  void ring_all() noexcept;

  std::mutex mutex_;
  std::vector<Pollable*> all_;
  std::atomic<std::size_t> count_{0};         ///< of all_
  std::atomic<std::uint64_t> generation_{0};  ///< rises with whatever a thread should see before it sleeps
  Doorbell attention_;                        ///< for waiting threads: the set of what they should drive has changed
  Doorbell thread_attention_;                 ///< the same for the progress threads
  ProgressThreads threads_;                   ///< the last: they use the rest
};

}  // namespace penstock::engine
