#include "comm/native_runs.hpp"

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "penstock/error.hpp"
#include "penstock/trace.hpp"

namespace penstock::comm {
namespace {

using engine::Caller;
using engine::Progress;

/// A pollable without work: a thread that waits for it drives all others.
class Idle final : public engine::Pollable {
 public:
  bool progress(Caller) noexcept override { return false; }
  bool can_sleep(Caller) noexcept override { return true; }
  bool needs_polling(Caller) noexcept override { return false; }
  void check_peers(Caller) noexcept override {}
  engine::Doorbell& bell() noexcept override { return bell_; }

 private:
  engine::Doorbell bell_;
};

/// While it lives, a thread drives the other pollables, since the calling thread is blocked in the library. The peers
/// may need progress of other operations before they start this one.
class Meanwhile {
 public:
  Meanwhile() {
    if (!Progress::of_process().has_unpolled()) return;
    idle_.emplace();
    Progress::of_process().add(*idle_);
    try {
      thread_ = std::thread([this] { Progress::of_process().wait_for(*idle_, ended_); });
    } catch (...) {
      Progress::of_process().remove(*idle_);
      throw;
    }
  }
  ~Meanwhile() {
    if (!idle_) return;
    ended_.store(true, std::memory_order_seq_cst);
    idle_->bell().ring();
    thread_.join();
    Progress::of_process().remove(*idle_);
  }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

 private:
  std::optional<Idle> idle_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

/// Of an operation's span in a trace; lives as long as the process.
const char* traced_name(const Collective& collective) noexcept {
  try {
    if (trace::enabled()) return trace::intern(std::string(name(collective.kind)) + "/" + std::string(Native::kName));
  } catch (const std::exception&) {
    // Out of memory: the trace does not tell which operation it was.
  }
  return Native::kName.data();  // of a literal
}

}  // namespace

/// A started operation; also the caller's handle.
class NativeRuns::Run final : public engine::Run {
 public:
  Run(std::shared_ptr<NativeRuns> runs, std::unique_ptr<ExternalOperation> operation)
      : runs_(std::move(runs)), operation_(std::move(operation)) {}
  ~Run() override {
    if (Progress::in_forked_child()) {
      static_cast<void>(operation_.release());
      return;
    }
    Progress::of_process().wait_for(*runs_, finished_);
  }

  /// The rest needs the lock of NativeRuns.
  void start(const Collective& collective, std::uint64_t bytes) {
    traced_.emplace(traced_name(collective), "operation", bytes);
    operation_->start();
  }
  void start_after(Started guard) { guard_ = std::move(guard); }
  void is_listed() { finished_.store(false, std::memory_order_relaxed); }
  bool is_guarded() const { return guard_.run != nullptr; }

  bool test() override {
    Progress::require_own_process();
    if (!done()) Progress::of_process().drive(*runs_);
    if (!done()) return false;
    deliver();
    return true;
  }
  void wait() override {
    Progress::require_own_process();
    Progress::of_process().wait_for(*runs_, finished_);
    deliver();
  }
  bool done() const noexcept override { return finished_.load(std::memory_order_acquire); }

  /// True if the operation is over. `may_start`: those before it have started.
  bool look(bool may_start) noexcept {
    try {
      if (is_guarded() && (!may_start || !pass_guard())) return false;
      if (!operation_->test()) return false;
    } catch (const Error& error) {
      error_ = error;
    } catch (const std::exception& error) {
      error_ = Error(ErrorCode::internal, "an operation of another library could not be completed", -1, error.what());
    }
    guard_ = {};
    operation_.reset();
    traced_.reset();
    return true;
  }
  void finish() noexcept { finished_.store(true, std::memory_order_seq_cst); }

 private:
  // A test of the guard would drive the pollables of the process, this one with them. They are driven anyway.
  bool pass_guard() {
    if (!guard_.run->done() || (guard_.agreement != nullptr && !guard_.agreement->done())) return false;
    guard_.wait();  // throws what the ranks do not agree on
    guard_ = {};
    operation_->start();
    return true;
  }

  void deliver() {
    if (error_ && !delivered_.exchange(true)) throw *error_;
  }

  const std::shared_ptr<NativeRuns> runs_;
  Started guard_;  ///< until the operation has started
  std::unique_ptr<ExternalOperation> operation_;
  std::optional<Error> error_;
  std::optional<trace::Span> traced_;
  std::atomic<bool> finished_{true};
  std::atomic<bool> delivered_{false};
};

NativeRuns::NativeRuns(std::unique_ptr<Native> native, bool any_thread)
    : native_(std::move(native)), any_thread_(any_thread) {}

NativeRuns::~NativeRuns() {
  if (is_added_) Progress::of_process().remove(*this);
}

void NativeRuns::run(const Collective& collective, ConstBytes input, Bytes output) {
  if (!native_->may_block()) return start(collective, input, output)->wait();
  Progress::require_own_process();
  const trace::Span traced(traced_name(collective), "operation", input.size());
  const Meanwhile meanwhile;
  native_->run(collective, input, output);
}

template <typename Start>
std::shared_ptr<engine::Run> NativeRuns::add(std::unique_ptr<ExternalOperation> operation, const Start& start) {
  auto run = std::make_shared<Run>(shared_from_this(), std::move(operation));
  {
    const std::lock_guard lock(mutex_);
    in_flight_.reserve(in_flight_.size() + 1);
    start(*run);
    if (!is_added_) Progress::of_process().add(*this);
    is_added_ = true;
    in_flight_.push_back(run.get());
    run->is_listed();
    active.store(true, std::memory_order_seq_cst);
    polls_transport.store(true, std::memory_order_relaxed);
  }
  Progress::of_process().attention(*this);
  return run;
}

std::shared_ptr<engine::Run> NativeRuns::start(const Collective& collective, ConstBytes input, Bytes output) {
  Progress::require_own_process();
  return add(native_->prepare(collective, input, output), [&](Run& run) { run.start(collective, input.size()); });
}

std::shared_ptr<engine::Run> NativeRuns::start_after(Started guard, std::unique_ptr<ExternalOperation> operation) {
  Progress::require_own_process();
  return add(std::move(operation), [&](Run& run) { run.start_after(std::move(guard)); });
}

bool NativeRuns::progress(Caller caller) noexcept {
  if (Progress::in_forked_child() || (caller == Caller::progress_thread && !any_thread_)) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  bool moved = false;
  bool may_start = true;
  for (auto next = in_flight_.begin(); next != in_flight_.end();) {
    Run* const run = *next;
    if (!run->look(may_start)) {
      may_start = may_start && !run->is_guarded();
      ++next;
      continue;
    }
    next = in_flight_.erase(next);
    moved = true;
    run->finish();  // its owner may destroy it now
  }
  if (in_flight_.empty()) active.store(false, std::memory_order_seq_cst);
  if (moved) bell_.ring();
  return moved;
}

bool NativeRuns::needs_polling(Caller caller) noexcept {
  return active.load(std::memory_order_relaxed) && (caller == Caller::application || any_thread_);
}

}  // namespace penstock::comm
