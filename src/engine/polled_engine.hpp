// The engine as the threads see it that drive it: those that wait, and progress threads.
#pragma once

#include <cstdint>

#include "engine/engine_lock.hpp"
#include "engine/progress.hpp"
#include "engine/short_calls.hpp"

namespace penstock::engine {

/// Its public members take the lock, which Progress does not have.
class PolledEngine : public Pollable, protected ShortCalls {
 public:
  bool progress(Caller by) noexcept override;
  bool help() noexcept override;
  bool can_sleep(Caller by) noexcept override;
  bool needs_polling(Caller by) noexcept override;
  void check_peers(Caller by) noexcept override;
  void poke() noexcept override;
  Doorbell& bell() noexcept override { return own_bell; }
  bool threads_suffice() noexcept override;
  Doorbell& asleep_bell() noexcept override { return own_asleep_bell; }

 protected:
  PolledEngine(std::shared_ptr<Transport> by, const EngineOptions& given, Node on);
  ~PolledEngine() = default;

  /// Runs the function. If it throws, all operations fail.
  template <typename Function>
  bool guarded(Function function) noexcept {
    bool moved = true;
    try {
      moved = function();
    } catch (...) {
      fail_all_by_exception();
    }
    update_active();
    return moved;
  }
  /// After an operation that is over at once.
  void close_epochs() noexcept;
  void update_active();

  mutable EngineLock lock_{operations};

 private:
  /// In a handler of what was thrown.
  void fail_all_by_exception() noexcept;
};

}  // namespace penstock::engine
