// One checkpoint in progress.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "checkpoint/deadline.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/staging.hpp"
#include "penstock/checkpoint.hpp"
#include "penstock/error.hpp"

namespace penstock::checkpoint {

/// The state of one checkpoint: of a save, or of a dead job's that is drained. The saver, its threads and the caller's
/// handles share it. Thread-safe, except for the members that are set before it is submitted or that its threads use.
class Job {
 public:
  // Set before the job is submitted.
  std::uint64_t sequence = 0;  ///< number of this save in the run
  std::uint64_t step = 0;
  std::vector<ArraySpec> arrays;
  std::string metadata;
  CheckpointMetrics metrics;
  std::uint64_t saved_at_us = 0;
  std::optional<std::chrono::milliseconds> timeout;  ///< of a wait without a limit of its own
  ConstBytes staged;
  const Staging* buffer = nullptr;      ///< holds it until it has settled in the first tier
  int buffers_fit = 0;                  ///< how many saves like this one the budget of staging holds; 0: unknown
  std::optional<Error> refused;         ///< why this rank cannot save; its arguments are invalid, for example
  std::shared_ptr<SharedCopies> later;  ///< copies that save() leaves to the background; empty: none
  int copy_threads = 1;
  double stall_s = 0;
  double waited_s = 0;  ///< for earlier checkpoints, part of stall_s

  // Used by the writer thread, then by the drainer thread.
  ObjectInfo own;
  std::uint64_t place_bytes = 0;  ///< where this rank's object lies in the blob of the run
  std::uint64_t end_bytes = 0;    ///< the end of the last rank's object there
  std::string manifest;           ///< on rank 0

  /// How many of the run's first saves had finished on every rank when this one began. Equal on all ranks; valid once
  /// settled(fast).
  std::uint64_t over_everywhere = 0;

  void reach(CheckpointLevel level) {
    update([&] { level_ = level; });
  }
  /// Before it is submitted: arrays are still to be copied.
  void begin_copying() { level_ = CheckpointLevel::copying; }
  void fail(const Error& error) {
    update([&] { error_ = error; });
  }
  /// Copies what is left, and waits for what others copy.
  void finish_copies() {
    if (!later || level() > CheckpointLevel::copying) return;
    later->finish(copy_threads);
    update([&] { level_ = std::max(level_, CheckpointLevel::staged); });
  }
  /// Marks that all ranks have begun this save.
  void begin() {
    update([&] { begun_ = true; });
  }
  /// Before another thread is given it: that one closes it, too.
  void share() {
    update([&] { ++users_; });
  }
  /// Marks that one of its threads will not use it any more.
  void close() {
    update([&] { --users_; });
  }

  void assign(const Attempt& attempt) {
    update([&] { attempt_ = attempt; });
  }

  Attempt attempt() const {
    return locked([&] { return attempt_; });
  }
  Version version() const { return attempt().version; }
  CheckpointLevel level() const {
    return locked([&] { return level_; });
  }
  bool failed() const {
    return locked([&] { return error_.has_value(); });
  }
  /// Whether all ranks have begun it, or it has failed.
  bool begun() const {
    return locked([&] { return begun_ || error_.has_value(); });
  }
  /// Whether no thread will use it any more.
  bool closed() const {
    return locked([&] { return users_ == 0; });
  }
  bool undelivered() const {
    return locked([&] { return error_.has_value() && !delivered_; });
  }
  /// Whether it has reached `level` or has failed.
  bool settled(CheckpointLevel level) const {
    return locked([&] { return level_ >= level || error_.has_value(); });
  }

  /// Whether it is settled, at `deadline` at the latest.
  bool wait_until_settled(CheckpointLevel level, Deadline deadline = {}) {
    return wait(deadline, [&] { return level_ >= level || error_.has_value(); });
  }
  void wait_until_staged() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return level_ >= CheckpointLevel::staged; });
  }
  /// Whether it has begun on all ranks or has failed, at `deadline` at the latest.
  bool wait_until_begun(Deadline deadline = {}) {
    return wait(deadline, [&] { return begun_ || error_.has_value(); });
  }
  /// Whether it is closed, at `deadline` at the latest.
  bool wait_until_closed(Deadline deadline = {}) {
    return wait(deadline, [&] { return users_ == 0; });
  }

  /// The error that kept it from `level`. It counts as delivered from then on.
  std::optional<Error> deliver_error(CheckpointLevel level) {
    const std::lock_guard lock(mutex_);
    if (level_ >= level || !error_) return std::nullopt;
    delivered_ = true;
    return error_;
  }
  /// Marks a later error as delivered: the caller knows it already.
  void count_as_delivered() {
    update([&] { delivered_ = true; });
  }
  /// Its error, if it has not been delivered yet.
  std::optional<Error> deliver_error_once() {
    const std::lock_guard lock(mutex_);
    if (!error_ || std::exchange(delivered_, true)) return std::nullopt;
    return error_;
  }

 private:
  template <class Condition>
  bool wait(Deadline deadline, Condition condition) {
    std::unique_lock lock(mutex_);
    if (deadline) return changed_.wait_until(lock, *deadline, condition);
    changed_.wait(lock, condition);
    return true;
  }
  template <class Change>
  void update(Change change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }
  template <class Read>
  std::invoke_result_t<Read> locked(Read read) const {
    const std::lock_guard lock(mutex_);
    return read();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Attempt attempt_;
  CheckpointLevel level_ = CheckpointLevel::staged;
  std::optional<Error> error_;
  bool delivered_ = false;
  bool begun_ = false;
  int users_ = 1;  ///< threads that have yet to close it
};

}  // namespace penstock::checkpoint
