// Runs operations of other libraries as pollables of the process, so that waiting works as for the engine's operations.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "comm/native.hpp"
#include "comm/started.hpp"
#include "engine/doorbell.hpp"
#include "engine/engine.hpp"
#include "engine/progress.hpp"

namespace penstock::comm {

/// One per communicator; its State owns it. Thread-safe. It owns `native`, which may be nullptr: then there are
/// external operations alone.
class NativeRuns final : public engine::Pollable, public std::enable_shared_from_this<NativeRuns> {
 public:
  /// `any_thread`: progress threads of this rank may call the library.
  NativeRuns(std::unique_ptr<Native> native, bool any_thread);
  ~NativeRuns();
  NativeRuns(const NativeRuns&) = delete;
  NativeRuns& operator=(const NativeRuns&) = delete;

  /// There are progress threads. Before the first operation.
  void set_has_workers(bool has_workers) { wants_thread = any_thread_ && has_workers; }
  const Native* native() const { return native_.get(); }
  /// Blocking. Other operations of this process make progress meanwhile.
  void run(const Collective& collective, ConstBytes input, Bytes output);
  std::shared_ptr<engine::Run> start(const Collective& collective, ConstBytes input, Bytes output);
  /// Starts the operation once its guard, an operation of the engine, is complete, and those that were given before it
  /// have started. If the guard fails, so does the operation, which is not started.
  std::shared_ptr<engine::Run> start_after(Started guard, std::unique_ptr<ExternalOperation> operation);

  bool progress(engine::Caller caller) noexcept override;
  bool can_sleep(engine::Caller) noexcept override { return true; }
  bool needs_polling(engine::Caller caller) noexcept override;
  void check_peers(engine::Caller) noexcept override {}
  engine::Doorbell& bell() noexcept override { return bell_; }

 private:
  class Run;

  /// Adds the operation once `start` has started it or given it a guard.
  template <typename Start>
  std::shared_ptr<engine::Run> add(std::unique_ptr<ExternalOperation> operation, const Start& start);

  const std::unique_ptr<Native> native_;
  const bool any_thread_;
  engine::Doorbell bell_;
  std::mutex mutex_;
  bool is_added_ = false;        ///< to the pollables of the process
  std::vector<Run*> in_flight_;  ///< in the order of their start
};

}  // namespace penstock::comm
