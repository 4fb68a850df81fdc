// The threads that make batches.
#pragma once

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/spare_cores.hpp"
#include "dataset/chain.hpp"
#include "dataset/slot.hpp"
#include "dataset/worker.hpp"
#include "penstock/dataset.hpp"
#include "penstock/error.hpp"
#include "penstock/read_window.hpp"

namespace penstock::dataset {

/// Threads claim samples one by one, in order, from the batches inside the prefetch window; the consumer takes finished
/// batches from its front. So a slow sample delays its own batch only, and the order never depends on the threads.
///
/// A thread that exceeds the time limit of its sample is abandoned: the consumer completes the sample as failed,
/// another thread takes over, and the first one ends if its function ever returns. So the threads share the ownership
/// of the pipeline.
class Pipeline : public std::enable_shared_from_this<Pipeline> {
 public:
  /// The last owner of what this returns closes the pipeline.
  static std::shared_ptr<Pipeline> start(std::shared_ptr<const Chain> chain, const DatasetState& from);

  Pipeline(std::shared_ptr<const Chain> chain, const DatasetState& from);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  std::optional<Batch> next();
  bool ready_within(std::chrono::milliseconds limit);
  DatasetState state() const;
  DatasetStats stats() const;
  std::vector<SkippedSample> skipped(std::size_t first) const;
  std::vector<std::string> close();

 private:
  using Clock = std::chrono::steady_clock;
  struct Thread {
    std::thread thread;
    std::uint64_t handle = 0;  ///< its pthread_t
    Attempt attempt;
    std::uint64_t scratch_bytes = 0;  ///< that it keeps between samples
    bool ended = false;
  };
  struct Retry {
    std::shared_ptr<Work> work;
    std::uint64_t place;
    std::uint64_t number;
  };

  void start_thread();
  void run(Thread& self);
  bool can_open() const;
  void open();
  void open_next(std::unique_lock<std::mutex>& lock);
  void announce(std::unique_lock<std::mutex>& lock);
  bool claim(Attempt& attempt);
  bool settle(const std::shared_ptr<Work>& work, std::uint64_t place, std::uint64_t number, Worker::Result result);
  void complete(Work& work, std::unique_lock<std::mutex>& lock);
  void finish(Work& work) const;
  void give_up_overdue(std::unique_lock<std::mutex>& lock);
  std::optional<Clock::time_point> next_deadline() const;
  bool all_ended() const;
  std::vector<std::string> interrupt_all(std::unique_lock<std::mutex>& lock);
  std::deque<std::shared_ptr<Work>>::const_iterator ready() const;
  bool front_ready() const;
  void advance(const Work& work);
  std::uint64_t held_bytes() const;
  bool may_hold(const Attempt& attempt, std::uint64_t bytes) const;
  void reserve(Attempt& attempt, std::uint64_t bytes);
  void hold(Attempt& attempt, std::uint64_t bytes, std::uint64_t kept);
  bool may_compute(const Attempt& attempt) const;
  void compute(Attempt& attempt);
  void begin_computing(Attempt& attempt, std::unique_lock<std::mutex>& lock);
  void end_computing(Attempt& attempt);
  void end_attempt(Attempt& attempt);
  void adapt_readers(const SampleTimes& times);
  void adapt_prefetch(std::unique_lock<std::mutex>& lock);
  void check_failures(const Work& work, const std::vector<std::string>& names);
  void check_process() const;

  const std::shared_ptr<const Chain> chain_;
  const std::optional<SampleForm> fixed_form_;
  const std::shared_ptr<SlotPool> slots_;
  const pid_t process_ = getpid();
  const Clock::time_point begin_ = Clock::now();
  CallLimits call_limits_;
  const host::SpareCores cores_;
  SampleBudget budget_;

  mutable std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable batch_ready_;
  std::condition_variable thread_ended_;
  std::condition_variable memory_freed_;
  std::condition_variable core_freed_;
  std::deque<std::shared_ptr<Work>> window_;
  std::size_t fully_claimed_ = 0;  ///< of the window's first batches
  std::deque<Retry> retries_;
  std::uint64_t window_bytes_ = 0;
  std::uint64_t batch_bytes_ = 0;   ///< of the largest batch so far
  std::uint64_t object_bytes_ = 0;  ///< of the largest sample of unknown size so far
  std::uint64_t opened_ = 0;        ///< batches
  std::size_t depth_ = 0;           ///< batches ahead
  bool was_full_ = false;           ///< all of them were complete since the depth changed
  bool adapts_readers_ = false;
  std::size_t cpus_ = 1;       ///< threads that may use a core at a time
  std::size_t computing_ = 0;  ///< that do
  std::size_t readers_ = 0;    ///< threads beyond cpus_
  std::size_t making_ = 0;     ///< samples that threads make now
  ReadWindow reads_;
  struct {
    std::uint64_t samples = 0;
    double read_s = 0;
    double compute_s = 0;
    bool waited = false;     ///< the program, for a batch
  } interval_;               ///< since the readers were last adapted
  DatasetState opening_;     ///< the next batch to open
  std::uint64_t end_epoch_;  ///< where it ends
  bool all_opened_ = false;
  bool waiting_ = false;
  bool stopping_ = false;
  bool closed_ = false;

  const std::uint64_t from_skipped_;
  const std::vector<GivenSamples> from_given_;
  DatasetState consumed_;
  std::exception_ptr failure_;       ///< given to the consumer
  std::exception_ptr open_failure_;  ///< comes after the batches of the window
  SampleForm last_form_;
  std::deque<SkippedSample> skipped_;  ///< the last ones
  DatasetStats stats_;

  std::list<Thread> threads_;
};

}  // namespace penstock::dataset
