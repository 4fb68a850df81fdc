// What one thread needs to make samples.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <vector>

#include "dataset/chain.hpp"
#include "dataset/decoder.hpp"
#include "dataset/slot.hpp"
#include "penstock/dataset.hpp"
#include "penstock/error.hpp"

namespace penstock::dataset {

/// A batch that is being made. The pipeline's window and the threads that work on it share it. The pipeline's lock
/// protects all but the memory of its samples.
struct Work {
  std::uint64_t number = 0;  ///< of the batch, in the order in which they are opened
  std::uint64_t epoch = 0;
  std::uint64_t begin = 0;  ///< of the global batch
  Share share;
  std::vector<std::uint64_t> given;  ///< places of samples that were consumed before, in order
  DatasetState after;                ///< where the dataset stands once this batch is consumed
  std::shared_ptr<Slot> slot;
  std::vector<Sample> collected;  ///< the samples, if their form is not known beforehand
  struct Failure {
    std::uint64_t place;  ///< within the batch
    std::uint64_t index;
    std::uint64_t position;
    ErrorCode code;
    std::string message;
    std::string cause;
    bool ignored = false;
    bool replaced = false;  ///< another sample is in its place
    std::string reason() const { return cause.empty() ? message : message + ": " + cause; }
  };
  std::vector<Failure> failures;
  std::vector<std::uint64_t> dropped;  ///< places of samples that a map function does not keep
  std::uint64_t claimed = 0;
  std::uint64_t done = 0;
  std::uint64_t size_bytes = 0;    ///< an estimate, until it is complete
  std::uint64_t sample_bytes = 0;  ///< of its finished samples, until they are laid together
  bool announced = true;           ///< its source knows what it reads; no thread claims a sample before
  bool complete = false;
};

/// What a thread did for one sample.
struct SampleTimes {
  double read_s = 0;
  double decode_s = 0;
  double map_s = 0;
  std::uint64_t read_bytes = 0;
  double read_begin_s = 0;  ///< of the steady clock; equal to read_end_s if nothing was read
  double read_end_s = 0;
};

/// One try to make one sample. The thread that makes it and a consumer that waits for it share it.
class Attempt {
 public:
  using Clock = std::chrono::steady_clock;

  /// Under the pipeline's lock.
  void begin(std::shared_ptr<Work> work, std::uint64_t place, std::uint64_t number) {
    work_ = std::move(work);
    place_ = place;
    number_ = number;
    stage_ = 0;
    held_bytes = 0;
    kept_bytes = 0;
    computes = false;
    waited_s_ = 0;
    state_ = State::running;
    begin_ = Clock::now().time_since_epoch();
  }
  void end() {
    work_.reset();
    held_bytes = 0;
    kept_bytes = 0;
  }

  const std::shared_ptr<Work>& work() const { return work_; }
  std::uint64_t place() const { return place_; }
  /// 0, or how often a sample of this place failed before.
  std::uint64_t number() const { return number_; }
  /// Without the time that it waited for other calls of a map function.
  Clock::time_point begun() const { return Clock::time_point(begin_); }
  /// 0 for the read, n for the n-th stage.
  std::size_t stage() const { return stage_; }
  void enter(std::size_t stage) { stage_ = stage; }

  /// The thread asks before it writes to the batch. False: the sample was given up, and the batch may be gone.
  bool may_store() { return move_on(State::storing); }
  /// The consumer asks. False: the sample is about to be complete.
  bool give_up() { return move_on(State::given_up); }
  bool given_up() const { return state_ == State::given_up; }

  /// Takes a permit of the bound on parallel calls, which may be null. That time does not count.
  void enter_call(std::counting_semaphore<>* bound) {
    if (bound == nullptr) return;
    begin_wait();
    bound->acquire();
    permit_ = bound;
    end_wait();
    if (given_up()) leave_call();
  }
  /// Gives it back. A consumer that gives the attempt up does it for a function that may never return.
  void leave_call() {
    if (auto* permit = permit_.exchange(nullptr)) permit->release();
  }
  bool queued() const { return queued_; }

  /// Around a wait for others, which does not count.
  void begin_wait() {
    asked_ = Clock::now();
    queued_ = true;
  }
  void end_wait() {
    const auto waited = Clock::now() - asked_;
    begin_ = begin_.load() + waited;
    waited_s_ += std::chrono::duration<double>(waited).count();
    queued_ = false;
  }
  /// For the thread that makes the sample: the sum of its waits for others.
  double waited_s() const { return waited_s_; }

  // Under the pipeline's lock.
  std::uint64_t held_bytes = 0;  ///< memory that the sample takes now
  std::uint64_t kept_bytes = 0;  ///< of it, what its batch keeps
  bool computes = false;         ///< is one of the threads that use a core
  bool wants_to_compute = false;

 private:
  enum class State { running, storing, given_up };
  bool move_on(State to) {
    State expected = State::running;
    return state_.compare_exchange_strong(expected, to) || expected == to;
  }

  std::shared_ptr<Work> work_;
  std::uint64_t place_ = 0;
  std::uint64_t number_ = 0;
  std::atomic<std::size_t> stage_ = 0;
  std::atomic<State> state_ = State::running;
  std::atomic<std::counting_semaphore<>*> permit_ = nullptr;
  std::atomic<bool> queued_ = false;
  Clock::time_point asked_;
  double waited_s_ = 0;
  std::atomic<Clock::duration> begin_ = Clock::duration::zero();
};

constexpr const char* kLane = "loader";  ///< of traces

/// The limits on parallel calls, one per stage; null if a stage has none.
using CallLimits = std::vector<std::unique_ptr<std::counting_semaphore<>>>;

/// What samples take of the budget. The functions are empty if it does not limit that.
struct SampleBudget {
  /// The sample is read; what follows takes a core. Waits for one.
  std::function<void(Attempt&)> compute;
  /// The sample is about to take so many bytes in all: waits until they are in the budget, or no older sample is made.
  std::function<void(Attempt&, std::uint64_t bytes)> reserve;
  /// It takes so many bytes in all, and its batch keeps `kept` of them.
  std::function<void(Attempt&, std::uint64_t bytes, std::uint64_t kept)> hold;
  std::uint64_t scratch_bytes = 0;  ///< a buffer that is larger is not kept for the next sample
};

constexpr std::uint64_t kUnknownBytes = ~std::uint64_t{0};

/// Makes samples on one thread of a pipeline, which owns it. Keeps scratch memory from sample to sample.
class Worker {
 public:
  Worker(const Chain& chain, const std::optional<SampleForm>& fixed_form, const CallLimits& call_limits,
         const SampleBudget& budget)
      : chain_(chain), fixed_form_(fixed_form), call_limits_(call_limits), budget_(budget) {}

  struct Result {
    std::optional<Work::Failure> failure;
    bool dropped = false;
  };
  /// Makes one sample of a batch, in its place. Places of one batch may be filled by several threads at once. Throws
  /// nothing.
  Result make(Attempt& attempt, SampleTimes& times) noexcept;
  /// Memory that it keeps between samples.
  std::uint64_t scratch_bytes() const { return file_.capacity() + spare_.capacity() + sample_.data.capacity(); }

 private:
  bool make_or_throw(Attempt& attempt, SampleTimes& times, Sample& sample);
  ConstBytes read(Attempt& attempt, Sample& sample, SampleTimes& times);
  void decode(const DecodeOptions& options, ConstBytes encoded, const Sample& sample, Destination& destination,
              SampleTimes& times);
  void call(std::size_t stage, Attempt& attempt, Sample& sample, SampleTimes& times);
  void hold(Attempt& attempt, const Sample& sample, std::uint64_t kept);
  void trim();

  const Chain& chain_;
  const std::optional<SampleForm>& fixed_form_;
  const CallLimits& call_limits_;
  const SampleBudget& budget_;
  DecoderSet decoders_;
  std::vector<std::byte> file_;
  std::vector<std::byte> spare_;
  Sample sample_;
};

/// Which sample of an epoch takes the place of the one at `position` once `number` samples have failed there.
std::uint64_t replacement(std::uint64_t epoch, std::uint64_t position, std::uint64_t number, std::uint64_t samples);

}  // namespace penstock::dataset
