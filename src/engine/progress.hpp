// Who drives the engines of this process: the threads that wait, and one progress thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/doorbell.hpp"

namespace penstock::engine {

/// The thread that makes progress: it decides which lanes may run, and whether the transport may be used.
enum class Caller { application, progress_thread };

/// What can be driven: an engine.
class Served {
 public:
  /// Does what can be done now; false when nothing moved. Any thread, several at once.
  virtual bool progress(Caller caller) noexcept = 0;
  /// Runs one ready step of the progress lane, for a waiting thread that has more than it can do.
  virtual bool help() noexcept = 0;
  /// Whether nothing can be done before the bell rings; a sleeper asks after it has raised the bell's `sleepers`.
  virtual bool can_sleep(Caller caller) noexcept = 0;
  /// Whether something may happen without the bell: a transport, or memory that peers give back silently.
  virtual bool needs_polling(Caller caller) noexcept = 0;
  /// Called now and then while a thread waits for long.
  virtual void check_peers() noexcept = 0;
  /// Called by threads of the application that found nothing to do, see Transport::poke.
  virtual void poke() noexcept = 0;
  virtual Doorbell& bell() noexcept = 0;

  std::atomic<bool> active{false};  ///< something is in flight
  std::atomic<int> waiters{0};      ///< threads in wait_for(), which drive it themselves
  std::atomic<int> users{0};        ///< threads of others that are inside; remove() waits for them
  bool wants_thread = false;        ///< the progress thread drives it; constant while added

 protected:
  ~Served() = default;
};

/// The engines of this process. Waiting threads sleep on the bells of everything that they drive; so does the progress
/// thread, which exists while an engine wants it and something has been in flight.
class Progress {
 public:
  static Progress& of_process();

  void add(Served& served);
  /// On return nobody else is inside `served` any more.
  void remove(Served& served);
  /// `served` has become active, or a waiting thread has left it active: somebody else may have to care now.
  void attention(Served& served) noexcept;

  /// Steps of the progress lane are waiting while the caller works on another one.
  void help_wanted() noexcept { thread_attention_.ring(); }

  /// One round of progress for `home` and, when that has nothing to do, for everything that no other thread drives.
  void drive(Served& home) noexcept;
  /// Drives `home`, and everything active that no other thread drives, until `finished`.
  void wait_for(Served& home, const std::atomic<bool>& finished) noexcept;

  /// True in a child of fork(), where the progress thread and the peers' trust are gone.
  static bool in_forked_child() noexcept;

 private:
  Progress();
  void thread_loop() noexcept;
  void start_thread();
  /// The active ones that the caller drives besides `home`; each has a user more until release().
  void hold(std::vector<Served*>& held, Caller caller, const Served* home);
  static void release(std::vector<Served*>& held);
  void sleep(Served* home, const std::vector<Served*>& held, Caller caller, const std::atomic<bool>* finished,
             int sleeps);

  std::mutex mutex_;
  std::vector<Served*> all_;
  std::size_t wanting_thread_ = 0;
  std::thread thread_;
  bool stop_ = false;
  std::atomic<bool> thread_runs_{false};
  std::atomic<std::size_t> count_{0};
  Doorbell attention_;         ///< for waiting threads: the set of what they should drive has changed
  Doorbell thread_attention_;  ///< the same for the progress thread
};

}  // namespace penstock::engine
