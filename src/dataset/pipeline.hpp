// The threads that make batches.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "dataset/chain.hpp"
#include "dataset/slot.hpp"
#include "penstock/dataset.hpp"
#include "penstock/error.hpp"

namespace penstock::dataset {

class Worker;

/// A batch that is being made.
struct Work {
  std::uint64_t epoch = 0;
  Share share;
  DatasetState after;  ///< where the dataset stands once this batch is consumed
  std::shared_ptr<Slot> slot;
  std::vector<Sample> collected;  ///< the samples, where their form is not known beforehand
  struct Failure {
    std::uint64_t place;  ///< within the batch
    ErrorCode code;
    std::string message;
    std::string cause;
    bool ignored;
    std::string reason() const { return cause.empty() ? message : message + ": " + cause; }
  };
  std::vector<Failure> failures;
  std::uint64_t claimed = 0;
  std::uint64_t done = 0;
  bool complete = false;
};

/// What a thread did for one sample.
struct SampleTimes {
  double read_s = 0;
  double decode_s = 0;
  double map_s = 0;
  std::uint64_t read_bytes = 0;
};

/// Threads claim samples one by one, in order, from the batches inside the prefetch window; the consumer takes finished
/// batches from its front. So a slow sample delays its own batch only, and order never depends on the threads.
class Pipeline {
 public:
  Pipeline(std::shared_ptr<const Chain> chain, const DatasetState& from);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  std::optional<Batch> next();
  bool ready_within(std::chrono::milliseconds limit);
  DatasetState state() const;
  DatasetStats stats() const;
  std::vector<SkippedSample> skipped() const;

 private:
  void run(Worker& worker);
  bool can_open() const;
  void open();
  Work* claimable();
  void finish(Work& work) const;
  bool front_ready() const;
  void check_failures(const Work& work);

  const std::shared_ptr<const Chain> chain_;
  const std::optional<SampleForm> fixed_form_;
  const std::shared_ptr<SlotPool> slots_;

  mutable std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable batch_ready_;
  std::deque<std::unique_ptr<Work>> window_;
  std::size_t fully_claimed_ = 0;  ///< of the window's first batches
  DatasetState opening_;           ///< the next batch to open
  std::uint64_t end_epoch_;        ///< where it ends
  bool all_opened_ = false;
  bool waiting_ = false;
  bool stopping_ = false;

  DatasetState consumed_;
  std::exception_ptr failure_;       ///< given to the consumer
  std::exception_ptr open_failure_;  ///< comes after the batches of the window
  SampleForm last_form_;
  std::vector<SkippedSample> skipped_;
  DatasetStats stats_;

  std::vector<std::thread> threads_;
};

}  // namespace penstock::dataset
