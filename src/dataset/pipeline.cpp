#include "dataset/pipeline.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>

#include "dataset/worker.hpp"
#include "penstock/options.hpp"
#include "penstock/trace.hpp"

namespace penstock::dataset {

namespace {

/// Threads that are made while one lives take no signals: those belong to the host's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// A closing iterator waits this long for functions that can be interrupted, then kAfterInterrupt more.
constexpr std::chrono::milliseconds kPatience{5000};
constexpr std::chrono::milliseconds kAfterInterrupt{1000};

// After this many failed replacements in a row a place stays empty.
constexpr std::uint64_t kReplacements = 16;

// Batches are delivered out of order only until the state has this many entries, so that it stays small.
constexpr std::size_t kGivenMax = 1024;

// Records of skipped samples that are kept beside those of the last batch.
constexpr std::size_t kSkippedKept = 1000;

std::size_t thread_count(const Chain& chain, const host::SpareCores& cores) {
  constexpr std::int64_t kMost = 1024;
  std::int64_t count = cores.count;
  for (const std::int64_t asked : {options().io_threads, std::int64_t{chain.threads}, std::int64_t{chain.budget.cpus}})
    if (asked > 0) count = asked;
  return static_cast<std::size_t>(std::clamp<std::int64_t>(count, 1, kMost));
}

}  // namespace

std::shared_ptr<Pipeline> Pipeline::start(std::shared_ptr<const Chain> chain, const DatasetState& from) {
  auto pipeline = std::make_shared<Pipeline>(std::move(chain), from);
  {
    const std::lock_guard lock(pipeline->mutex_);
    const std::size_t count = thread_count(*pipeline->chain_, pipeline->cores_);
    // Buffers that a thread keeps are part of the budget: three, of an eighth at most together.
    pipeline->budget_.scratch_bytes = pipeline->chain_->budget.ram_bytes / (24 * count);
    try {
      for (std::size_t i = 0; i < count; ++i) pipeline->start_thread();
    } catch (const std::system_error& error) {
      // Fewer threads do the same work.
      if (pipeline->threads_.empty())
        throw Error(ErrorCode::io, "no thread can be started to read samples", -1, error.what());
    }
    pipeline->stats_.threads = pipeline->cpus_ = pipeline->threads_.size();
  }
  return {pipeline.get(), [pipeline](Pipeline*) { pipeline->close(); }};
}

Pipeline::Pipeline(std::shared_ptr<const Chain> chain, const DatasetState& from)
    : chain_(std::move(chain)),
      fixed_form_(chain_->fixed_form()),
      slots_(std::make_shared<SlotPool>(chain_->budget.ram_bytes > 0 ? 1
                                                                     : static_cast<std::size_t>(chain_->prefetch) + 2)),
      cores_(comm::spare_cores()),
      opening_{from.epoch, from.position, 0},
      end_epoch_(chain_->repeat == 0 ? ~std::uint64_t{0} : (from.epoch / chain_->repeat + 1) * chain_->repeat),
      from_skipped_(from.skipped),
      from_given_(from.given),
      consumed_(from) {
  if (fixed_form_) last_form_ = *fixed_form_;
  depth_ = static_cast<std::size_t>(chain_->prefetch);
  // A source that fetches what is announced has readers of its own.
  adapts_readers_ = chain_->threads == 0 && options().io_threads == 0 && !chain_->source->wants_announcements();
  if (adapts_readers_) budget_.compute = [this](Attempt& attempt) { compute(attempt); };
  if (chain_->budget.ram_bytes > 0) {
    budget_.reserve = [this](Attempt& attempt, std::uint64_t bytes) { reserve(attempt, bytes); };
    budget_.hold = [this](Attempt& attempt, std::uint64_t bytes, std::uint64_t kept) { hold(attempt, bytes, kept); };
  }
  for (const Stage& stage : chain_->stages) {
    const auto* map = std::get_if<MapStage>(&stage);
    call_limits_.push_back(
        map == nullptr || map->parallel == 0 ? nullptr : std::make_unique<std::counting_semaphore<>>(map->parallel));
  }
}

/// Under the lock.
void Pipeline::start_thread() {
  const SignalsBlocked blocked;
  Thread& self = threads_.emplace_back();
  try {
    self.thread = std::thread([keep = shared_from_this(), &self] {
      pthread_setname_np(pthread_self(), "penstock-loader");
      comm::confine(pthread_self(), keep->cores_);
      keep->run(self);
    });
  } catch (...) {
    threads_.pop_back();
    throw;
  }
  self.handle = static_cast<std::uint64_t>(self.thread.native_handle());
}

/// Threads that were given up may never end.
bool Pipeline::all_ended() const {
  return std::ranges::all_of(threads_, [](const Thread& thread) { return thread.ended || thread.attempt.given_up(); });
}

/// Under the lock, which it gives up meanwhile. Returns where the threads are that do not end.
std::vector<std::string> Pipeline::interrupt_all(std::unique_lock<std::mutex>& lock) {
  std::vector<Thread*> slow;
  for (Thread& thread : threads_)
    if (!thread.ended && !thread.attempt.given_up()) slow.push_back(&thread);
  // A thread that is in none of the program's functions now must not enter one later. So all are given up before one
  // that waits for its turn gets it.
  for (Thread* thread : slow)
    if (thread->attempt.work()) thread->attempt.give_up();
  for (Thread* thread : slow)
    if (thread->attempt.given_up()) thread->attempt.leave_call();
  lock.unlock();
  std::vector<std::string> places;
  if (chain_->calls.interrupt)
    for (const Thread* thread : slow) places.push_back(chain_->calls.interrupt(thread->handle));
  lock.lock();
  const auto ended = [](const Thread* thread) { return thread->ended; };
  if (thread_ended_.wait_for(lock, kAfterInterrupt, [&] { return std::ranges::all_of(slow, ended); })) places.clear();
  return places;
}

std::vector<std::string> Pipeline::close() {
  if (getpid() != process_) return {};
  std::unique_lock lock(mutex_);
  if (std::exchange(closed_, true)) return {};
  stopping_ = true;
  work_ready_.notify_all();
  batch_ready_.notify_all();
  memory_freed_.notify_all();
  core_freed_.notify_all();
  std::vector<std::string> left_behind;
  if (chain_->limits.time.count() > 0 || chain_->calls.interrupt) {
    const auto patience = chain_->limits.time.count() > 0 ? chain_->limits.time : kPatience;
    if (!thread_ended_.wait_for(lock, patience, [this] { return all_ended(); })) left_behind = interrupt_all(lock);
  } else {
    thread_ended_.wait(lock, [this] { return all_ended(); });
  }
  std::vector<std::thread> ended;
  for (Thread& thread : threads_) {
    if (!thread.thread.joinable()) continue;
    if (thread.ended)
      ended.push_back(std::move(thread.thread));
    else
      thread.thread.detach();
  }
  lock.unlock();
  for (std::thread& thread : ended) thread.join();
  return left_behind;
}

void Pipeline::check_process() const {
  if (getpid() == process_) return;
  throw Error(ErrorCode::unsupported,
              "this iterator belongs to process " + std::to_string(process_) +
                  ", and its threads do not exist in the " + "forked process " + std::to_string(getpid()) +
                  "; make an iterator in the child, or start child processes by spawn instead of fork");
}

bool Pipeline::can_open() const {
  if (all_opened_ || failure_) return false;
  if (window_.empty()) return chain_->prefetch > 0 || waiting_;
  const std::uint64_t limit = chain_->prefetch_max_bytes;
  if (window_.size() >= depth_) return false;
  if (limit > 0 && (batch_bytes_ == 0 || window_bytes_ + batch_bytes_ > limit)) return false;
  const std::uint64_t budget = chain_->budget.ram_bytes;
  if (budget == 0) return true;
  // A free slot is counted already.
  const std::uint64_t more = batch_bytes_ - std::min(batch_bytes_, slots_->free_bytes());
  return batch_bytes_ > 0 && held_bytes() + more <= budget;
}

/// Under the lock. Memory of samples and batches that were not delivered.
std::uint64_t Pipeline::held_bytes() const {
  std::uint64_t held = window_bytes_ + slots_->free_bytes();
  for (const auto& work : window_) held += work->sample_bytes;
  for (const Thread& thread : threads_)
    if (!thread.attempt.given_up()) held += std::max(thread.scratch_bytes, thread.attempt.held_bytes);
  return held;
}

/// Under the lock. The sample that is delivered first may always go on, so that the others are delivered at all.
bool Pipeline::may_hold(const Attempt& attempt, std::uint64_t bytes) const {
  if (stopping_ || attempt.given_up()) return true;
  if (bytes != kUnknownBytes && held_bytes() - attempt.held_bytes + bytes <= chain_->budget.ram_bytes) return true;
  // An older batch that has all its samples is delivered without this one. Until it is laid together, it takes twice
  // its memory.
  const auto is_laid_together = [&](const auto& work) {
    return work->number < attempt.work()->number && work->done == work->share.count && !work->complete;
  };
  if (std::ranges::any_of(window_, is_laid_together)) return false;
  const auto turn = [](const Attempt& a) { return std::pair(a.work()->number, a.place()); };
  return std::ranges::none_of(threads_, [&](const Thread& thread) {
    const Attempt& other = thread.attempt;
    return &other != &attempt && other.work() && !other.given_up() && turn(other) < turn(attempt);
  });
}

void Pipeline::reserve(Attempt& attempt, std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  if (bytes == kUnknownBytes && object_bytes_ > 0) bytes = object_bytes_;
  if (bytes != kUnknownBytes && bytes <= attempt.held_bytes) return;
  if (!may_hold(attempt, bytes)) {
    // The sample that may go on may need the core.
    const bool computes = attempt.computes;
    end_computing(attempt);
    attempt.begin_wait();
    memory_freed_.wait(lock, [&] { return may_hold(attempt, bytes); });
    attempt.end_wait();
    if (computes) begin_computing(attempt, lock);
  }
  if (bytes != kUnknownBytes) attempt.held_bytes = bytes;
  stats_.held_bytes = std::max(stats_.held_bytes, held_bytes());
}

void Pipeline::hold(Attempt& attempt, std::uint64_t bytes, std::uint64_t kept) {
  const std::lock_guard lock(mutex_);
  if (attempt.given_up()) return;
  attempt.held_bytes = bytes;
  attempt.kept_bytes = kept;
  if (!chain_->source->tells_sizes()) object_bytes_ = std::max(object_bytes_, bytes);
  stats_.held_bytes = std::max(stats_.held_bytes, held_bytes());
  memory_freed_.notify_all();
}

/// Under the lock. The sample that is delivered first goes first.
bool Pipeline::may_compute(const Attempt& attempt) const {
  if (stopping_ || attempt.given_up()) return true;
  if (computing_ >= cpus_) return false;
  const auto turn = [](const Attempt& a) { return std::pair(a.work()->number, a.place()); };
  return std::ranges::none_of(threads_, [&](const Thread& thread) {
    return thread.attempt.wants_to_compute && turn(thread.attempt) < turn(attempt);
  });
}

void Pipeline::compute(Attempt& attempt) {
  std::unique_lock lock(mutex_);
  begin_computing(attempt, lock);
}

void Pipeline::begin_computing(Attempt& attempt, std::unique_lock<std::mutex>& lock) {
  if (!may_compute(attempt)) {
    attempt.wants_to_compute = true;
    attempt.begin_wait();
    core_freed_.wait(lock, [&] { return may_compute(attempt); });
    attempt.end_wait();
    attempt.wants_to_compute = false;
    core_freed_.notify_all();  // the next in turn may have been waiting for this one
  }
  if (attempt.given_up()) return;
  attempt.computes = true;
  ++computing_;
}

void Pipeline::end_computing(Attempt& attempt) {
  if (!std::exchange(attempt.computes, false)) return;
  --computing_;
  core_freed_.notify_all();
}

/// Under the lock. The thread goes on to another sample, or is given up.
void Pipeline::end_attempt(Attempt& attempt) {
  end_computing(attempt);
  if (making_-- == cpus_ + readers_) work_ready_.notify_one();
}

/// Under the lock, after a sample was made. By Little's law, cpus_ threads are kept busy by as many readers as there
/// are reads in the time in which they make what was read. More than the reads of the window help nothing.
void Pipeline::adapt_readers(const SampleTimes& times) {
  if (!adapts_readers_) return;
  if (times.read_end_s > times.read_begin_s)
    reads_.finished(times.read_begin_s, times.read_end_s, std::max<std::uint64_t>(times.read_bytes, 1));
  constexpr std::uint64_t kSamplesOfThread = 4;
  if (++interval_.samples < kSamplesOfThread * (cpus_ + readers_)) return;
  const double compute_s = stats_.decode_s + stats_.map_s + stats_.collate_s;
  const double reading = stats_.read_s - interval_.read_s;
  const double computing = compute_s - interval_.compute_s;
  if (interval_.waited) {
    double readers = reads_.reads();
    if (computing * readers > static_cast<double>(cpus_) * reading)
      readers = static_cast<double>(cpus_) * reading / computing;
    // At most twice as many threads as before: what more of them bring is measured first.
    constexpr std::size_t kMost = 256;
    readers_ = std::min({static_cast<std::size_t>(readers + 0.5), cpus_ + 2 * readers_, kMost});
    const auto live = static_cast<std::size_t>(std::ranges::count_if(
        threads_, [](const Thread& thread) { return !thread.ended && !thread.attempt.given_up(); }));
    try {
      for (std::size_t i = live; i < cpus_ + readers_; ++i) start_thread();
    } catch (const std::system_error&) {
      readers_ = live > cpus_ ? live - cpus_ : 0;
    }
    work_ready_.notify_all();
  }
  stats_.readers = readers_;
  interval_ = {0, stats_.read_s, compute_s, false};
}

/// Under the lock, which it may give up meanwhile.
void Pipeline::adapt_prefetch(std::unique_lock<std::mutex>& lock) {
  if (!waiting_ || front_ready()) return;
  interval_.waited = true;
  if (!chain_->adapts_prefetch || window_.size() < depth_ || all_opened_) return;
  bool grows = was_full_ || (fully_claimed_ == window_.size() && retries_.empty());
  if (!grows && chain_->source->wants_announcements()) {
    lock.unlock();
    grows = chain_->source->wants_more();
    lock.lock();
  }
  if (!grows) return;
  constexpr std::size_t kMost = std::size_t{1} << 20;
  depth_ = std::min(2 * depth_, kMost);
  was_full_ = false;
  if (chain_->budget.ram_bytes == 0) slots_->keep(depth_ + 2);
  if (can_open()) work_ready_.notify_one();
}

void Pipeline::open() {
  const Sharding& sharding = *chain_->sharding;
  const std::uint64_t samples = chain_->order->size();
  const auto given = [this](std::uint64_t epoch, std::uint64_t position) {
    return !from_given_.empty() && contains(from_given_, epoch, position);
  };
  auto work = std::make_shared<Work>();
  for (bool needed = false; !needed;) {
    std::uint64_t end = sharding.end(opening_.position, samples);
    if (end == opening_.position && !all_opened_) {
      opening_ = {opening_.epoch + 1, 0, 0};
      end = sharding.end(0, samples);
      all_opened_ = opening_.epoch == end_epoch_ || end == 0;
    }
    if (all_opened_) return;
    work->epoch = opening_.epoch;
    work->begin = opening_.position;
    work->share = sharding.share(opening_.position, end);
    for (std::uint64_t at = opening_.position; at < end && !needed; ++at) needed = !given(opening_.epoch, at);
    opening_.position = end;
    if (sharding.end(end, samples) == end) opening_ = {opening_.epoch + 1, 0, 0};
    all_opened_ = opening_.epoch == end_epoch_;
  }
  for (std::uint64_t i = 0; i < work->share.count; ++i)
    if (given(work->epoch, work->share.first + i * work->share.stride)) work->given.push_back(i);
  work->dropped = work->given;
  work->done = work->given.size();
  work->after = opening_;
  work->number = opened_++;
  work->slot = slots_->take();
  Slot& slot = *work->slot;
  slot.ragged = chain_->undecoded() && !chain_->source->gives_objects();
  slot.form = fixed_form_.value_or(SampleForm{});
  slot.labels.resize(work->share.count);
  slot.indices.resize(work->share.count);
  if (slot.ragged) slot.pieces.resize(work->share.count);
  if (fixed_form_) {
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(fixed_form_->size_bytes(), work->share.count, &bytes)) throw std::bad_alloc();
    slot.reserve(bytes);
    work->size_bytes = bytes;
  } else {
    work->size_bytes = batch_bytes_;
    work->collected.resize(slot.ragged ? 0 : work->share.count);
  }
  work->complete = work->share.count == work->given.size();
  if (work->complete) {
    slot.labels.clear();
    slot.indices.clear();
    slot.pieces.clear();
    work->collected.clear();
  }
  work->announced = work->complete || !chain_->source->wants_announcements();
  batch_bytes_ = std::max(batch_bytes_, work->size_bytes);
  window_bytes_ += work->size_bytes;
  window_.push_back(std::move(work));
}

/// Tells the source what the newest batch reads, without the lock: the source may ask the program.
void Pipeline::announce(std::unique_lock<std::mutex>& lock) {
  if (window_.empty() || window_.back()->announced) return;
  const std::shared_ptr<Work> work = window_.back();
  lock.unlock();
  try {
    std::vector<std::uint64_t> indices;
    indices.reserve(work->share.count);
    for (std::uint64_t i = 0; i < work->share.count; ++i) {
      if (std::ranges::binary_search(work->given, i)) continue;
      const std::uint64_t index = chain_->order->at(work->epoch, work->share.first + i * work->share.stride);
      if (!chain_->cache || !chain_->cache->contains(index)) indices.push_back(index);
    }
    chain_->source->announce(indices);
  } catch (const std::exception&) {  // what is not announced is read when it is needed
  }
  lock.lock();
  work->announced = true;
}

void Pipeline::open_next(std::unique_lock<std::mutex>& lock) {
  try {
    open();
    announce(lock);
  } catch (const std::exception& error) {
    all_opened_ = true;
    open_failure_ = std::make_exception_ptr(
        Error(ErrorCode::no_space, "there is no memory for a batch; use smaller batches or prefetch fewer of them", -1,
              error.what()));
  }
  work_ready_.notify_all();
  batch_ready_.notify_one();
}

/// Under the lock. The oldest sample that no thread makes yet.
bool Pipeline::claim(Attempt& attempt) {
  if (!retries_.empty()) {
    Retry& retry = retries_.front();
    attempt.begin(std::move(retry.work), retry.place, retry.number);
    retries_.pop_front();
    return true;
  }
  for (; fully_claimed_ < window_.size(); ++fully_claimed_) {
    const std::shared_ptr<Work>& work = window_[fully_claimed_];
    if (!work->announced) return false;
    while (std::ranges::binary_search(work->given, work->claimed)) ++work->claimed;
    if (work->claimed == work->share.count) continue;
    attempt.begin(work, work->claimed++, 0);
    return true;
  }
  return false;
}

/// Under the lock. True if the batch has all its samples now.
bool Pipeline::settle(const std::shared_ptr<Work>& work, std::uint64_t place, std::uint64_t number,
                      Worker::Result result) {
  if (result.dropped) work->dropped.push_back(place);
  if (result.failure) {
    Work::Failure& failure = *result.failure;
    const bool again = failure.ignored && chain_->ignore.replace && number < kReplacements;
    failure.replaced = again;
    // A replacement that fails is recorded at its own place.
    if (number == 0 || !failure.ignored)
      work->failures.push_back(std::move(failure));
    else if (!again)
      work->dropped.push_back(place);
    if (again) {
      retries_.push_back({work, place, number + 1});
      work_ready_.notify_one();
      return false;
    }
  }
  return ++work->done == work->share.count;
}

/// Lays the samples of a batch together, without the lock.
void Pipeline::complete(Work& work, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  const auto fail = [&](ErrorCode code, const std::string& message, const std::string& cause) {
    work.failures.push_back({0, 0, work.share.first, code, message, cause, false, false});
  };
  const auto begin = Clock::now();
  const std::uint64_t estimate_bytes = work.size_bytes;
  try {
    const trace::Span span("collate", kLane);
    finish(work);
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::no_space, "is in a batch that needs more memory than there is; use smaller batches", {});
  } catch (const Error& error) {
    fail(error.code(), error.message(), error.cause());
  } catch (const std::exception& error) {
    fail(ErrorCode::invalid_argument, "is in a batch whose samples cannot be collated", error.what());
  }
  lock.lock();
  stats_.collate_s += std::chrono::duration<double>(Clock::now() - begin).count();
  window_bytes_ += work.size_bytes - estimate_bytes;
  work.sample_bytes = 0;
  memory_freed_.notify_all();
  batch_bytes_ = std::max(batch_bytes_, work.size_bytes);
  work.complete = true;
  was_full_ = was_full_ ||
              (window_.size() >= depth_ && std::ranges::all_of(window_, [](const auto& one) { return one->complete; }));
  batch_ready_.notify_one();
  if (can_open()) work_ready_.notify_one();
}

void Pipeline::run(Thread& self) {
  Worker worker(*chain_, fixed_form_, call_limits_, budget_);
  std::unique_lock lock(mutex_);
  for (;;) {
    bool claimed = false;
    const auto has_work = [&] {
      // What a source fetches ahead should not wait for threads that wait for it.
      if (stopping_ || (chain_->source->wants_announcements() && can_open())) return true;
      if (making_ < cpus_ + readers_ && claim(self.attempt)) return claimed = true;
      return can_open();
    };
    while (!has_work()) {
      adapt_prefetch(lock);
      if (has_work()) break;
      work_ready_.wait(lock);
    }
    if (stopping_) break;
    if (!claimed) {
      open_next(lock);
      continue;
    }
    ++making_;
    lock.unlock();
    SampleTimes times;
    Worker::Result result = worker.make(self.attempt, times);
    lock.lock();
    stats_.read_s += times.read_s;
    stats_.decode_s += times.decode_s;
    stats_.map_s += times.map_s;
    stats_.read_bytes += times.read_bytes;
    if (self.attempt.given_up()) break;  // another thread does its work
    end_attempt(self.attempt);
    adapt_readers(times);
    if (chain_->source->wants_announcements()) adapt_prefetch(lock);
    const std::shared_ptr<Work> work = self.attempt.work();
    if (budget_.hold) {
      work->sample_bytes += self.attempt.kept_bytes;
      self.scratch_bytes = worker.scratch_bytes();
      memory_freed_.notify_all();
    }
    self.attempt.end();
    if (settle(work, self.attempt.place(), self.attempt.number(), std::move(result))) complete(*work, lock);
  }
  self.ended = true;
  thread_ended_.notify_all();
}

/// When the consumer should look for samples that take too long.
std::optional<Pipeline::Clock::time_point> Pipeline::next_deadline() const {
  std::optional<Clock::time_point> first;
  if (chain_->limits.time.count() == 0) return first;
  for (const Thread& thread : threads_)
    if (thread.attempt.work() && !thread.attempt.given_up() && !thread.attempt.queued()) {
      const auto deadline = thread.attempt.begun() + chain_->limits.time;
      first = first ? std::min(*first, deadline) : deadline;
    }
  return first;
}

void Pipeline::give_up_overdue(std::unique_lock<std::mutex>& lock) {
  if (chain_->limits.time.count() == 0) return;
  struct Overdue {
    std::uint64_t handle;
    std::shared_ptr<Work> work;
    std::uint64_t place, number;
    std::size_t stage;
  };
  std::vector<Overdue> overdue;
  for (Thread& thread : threads_) {
    Attempt& attempt = thread.attempt;
    if (!attempt.work() || attempt.given_up() || attempt.queued()) continue;
    if (Clock::now() - attempt.begun() < chain_->limits.time || !attempt.give_up()) continue;
    attempt.leave_call();
    end_attempt(attempt);
    overdue.push_back({thread.handle, attempt.work(), attempt.place(), attempt.number(), attempt.stage()});
  }
  for (const Overdue& one : overdue) {
    const std::uint64_t position = one.work->share.first + one.place * one.work->share.stride;
    // Without the lock: the hook may wait for a thread that waits for the lock.
    lock.unlock();
    const std::string where = chain_->calls.interrupt ? chain_->calls.interrupt(one.handle) : std::string();
    const std::uint64_t index =
        chain_->order->at(one.work->epoch, replacement(one.work->epoch, position, one.number, chain_->order->size()));
    lock.lock();
    Work::Failure failure{one.place, index, position, ErrorCode::io, {}, where, chain_->ignores(one.stage), false};
    failure.message = std::string(one.stage == 0 ? "is not read" : "is not through its stages") +
                      " within the limit of " + std::to_string(chain_->limits.time.count()) + " ms per sample";
    try {
      start_thread();
    } catch (const std::system_error&) {  // the others go on
    }
    if (settle(one.work, one.place, one.number, {std::move(failure), false})) complete(*one.work, lock);
    memory_freed_.notify_all();
  }
}

/// Closes the gaps of missing samples. Lays the others together if their shape was not known beforehand.
void Pipeline::finish(Work& work) const {
  Slot& slot = *work.slot;
  const std::uint64_t count = work.share.count;
  std::vector<std::uint64_t> missing = work.dropped;
  for (const Work::Failure& failure : work.failures)
    if (!failure.replaced) missing.push_back(failure.place);
  std::ranges::sort(missing);
  std::ranges::sort(work.failures, {}, &Work::Failure::place);
  std::vector<std::uint64_t> kept;
  kept.reserve(count);
  auto gap = missing.begin();
  for (std::uint64_t i = 0; i < count; ++i) {
    if (gap != missing.end() && *gap == i)
      ++gap;
    else
      kept.push_back(i);
  }
  const bool objects = !work.collected.empty() && !kept.empty() && work.collected[kept.front()].object;
  if (!work.collected.empty() && !kept.empty()) {
    const Sample& first = work.collected[kept.front()];
    for (std::uint64_t i : kept) {
      const Sample& sample = work.collected[i];
      if (objects ? sample.object != nullptr : !sample.object && sample.form == first.form) continue;
      const auto name = [](const Sample& s) { return s.object ? std::string("an object") : s.form.describe(); };
      const std::uint64_t position = work.share.first + i * work.share.stride;
      work.failures.push_back({i,
                               slot.indices[i],
                               position,
                               ErrorCode::invalid_argument,
                               "is " + name(sample) + " in a batch of " + name(first) +
                                   "; give decode() a size, or let map() make all samples alike",
                               {},
                               false,
                               false});
      return;
    }
  }
  if (objects) {
    if (!chain_->calls.collate) throw Error(ErrorCode::invalid_argument, "is an object, and objects() was not called");
    std::vector<std::shared_ptr<void>> samples;
    samples.reserve(kept.size());
    for (std::uint64_t i : kept) samples.push_back(std::move(work.collected[i].object));
    ObjectCalls::Collated made = chain_->calls.collate(samples);
    slot.object = std::move(made.object);
    work.size_bytes = made.size_bytes;
    slot.form = {};
  } else if (!work.collected.empty() && !kept.empty()) {
    slot.form = work.collected[kept.front()].form;
    slot.reserve(slot.form.size_bytes() * kept.size());
    work.size_bytes = slot.form.size_bytes() * kept.size();
  }
  const std::uint64_t sample_bytes = slot.ragged || objects ? 0 : slot.form.size_bytes();
  for (std::uint64_t to = 0; to < kept.size(); ++to) {
    const std::uint64_t from = kept[to];
    if (!work.collected.empty() && !objects)
      std::memcpy(slot.data() + to * sample_bytes, work.collected[from].data.data(), sample_bytes);
    if (from == to) continue;
    slot.labels[to] = slot.labels[from];
    slot.indices[to] = slot.indices[from];
    if (slot.ragged)
      slot.pieces[to] = std::move(slot.pieces[from]);
    else if (work.collected.empty())
      std::memcpy(slot.data() + to * sample_bytes, slot.data() + from * sample_bytes, sample_bytes);
  }
  work.collected.clear();
  if (slot.ragged) {
    work.size_bytes = 0;
    for (std::uint64_t i = 0; i < kept.size(); ++i) work.size_bytes += slot.pieces[i].size();
  }
  if (missing.empty()) return;
  slot.labels.resize(kept.size());
  slot.indices.resize(kept.size());
  if (slot.ragged) slot.pieces.resize(kept.size());
}

/// The batch that is delivered next; the end if it is not complete.
std::deque<std::shared_ptr<Work>>::const_iterator Pipeline::ready() const {
  const auto last = chain_->in_order || consumed_.given.size() >= kGivenMax
                        ? std::min<std::ptrdiff_t>(1, std::ssize(window_))
                        : std::ssize(window_);
  const auto end = window_.begin() + last;
  const auto found = std::find_if(window_.begin(), end, [](const auto& work) { return work->complete; });
  return found == end ? window_.end() : found;
}

bool Pipeline::front_ready() const {
  if (failure_ || stopping_) return true;
  return window_.empty() ? all_opened_ : ready() != window_.end();
}

/// Under the lock. A batch that has left the window is consumed.
void Pipeline::advance(const Work& work) {
  std::vector<GivenSamples> given = std::move(consumed_.given);
  consumed_ = work.after;
  if (!chain_->in_order) {
    given.push_back({work.epoch, work.share.first, work.share.stride, work.share.count});
    consumed_ = opening_;
    if (!window_.empty()) consumed_ = {window_.front()->epoch, window_.front()->begin};
  }
  simplify(given, consumed_.epoch, consumed_.position);
  consumed_.given = std::move(given);
}

bool Pipeline::ready_within(std::chrono::milliseconds limit) {
  check_process();
  const auto begin = Clock::now();
  const auto end = begin + limit;
  const trace::Span span("wait for batch", "application");
  std::unique_lock lock(mutex_);
  waiting_ = true;
  if (can_open()) work_ready_.notify_one();
  adapt_prefetch(lock);
  // All threads may wait for what is fetched.
  while (chain_->source->wants_announcements() && !stopping_ && can_open()) {
    open_next(lock);
    adapt_prefetch(lock);
  }
  bool ready = front_ready();
  while (!ready && Clock::now() < end) {
    give_up_overdue(lock);
    // Samples that begin during the wait have no deadline yet. None of them is overdue before the limit has passed.
    auto until = end;
    if (const auto deadline = next_deadline()) until = std::min(until, *deadline);
    if (chain_->limits.time.count() > 0) until = std::min(until, Clock::now() + chain_->limits.time);
    ready = batch_ready_.wait_until(lock, until, [this] { return front_ready(); });
  }
  stats_.wait_s += std::chrono::duration<double>(Clock::now() - begin).count();
  return ready;
}

std::optional<Batch> Pipeline::next() {
  while (!ready_within(std::chrono::hours(1))) {
  }
  std::unique_lock lock(mutex_);
  waiting_ = false;
  if (stopping_) throw Error(ErrorCode::invalid_argument, "this iterator is closed; take a new one from the dataset");
  if (window_.empty() && !failure_) failure_ = open_failure_;
  if (failure_) std::rethrow_exception(failure_);
  if (window_.empty()) {
    consumed_ = opening_;
    return std::nullopt;
  }
  const auto place = ready();
  const std::shared_ptr<Work> work = *place;
  if (static_cast<std::size_t>(place - window_.begin()) < fully_claimed_) --fully_claimed_;
  window_.erase(place);
  window_bytes_ -= work->size_bytes;
  memory_freed_.notify_all();
  std::vector<std::string> names;
  if (!work->failures.empty()) {
    // Without the lock: the source may ask the program.
    lock.unlock();
    for (const Work::Failure& failure : work->failures) names.push_back(chain_->source->name(failure.index));
    lock.lock();
  }
  check_failures(*work, names);

  Slot& slot = *work->slot;
  if (slot.labels.empty() && slot.form.shape.empty()) slot.form = last_form_;
  last_form_ = slot.form;
  const std::uint64_t skipped = from_skipped_ + stats_.skipped;
  advance(*work);
  consumed_.skipped = consumed_.epoch == end_epoch_ ? 0 : skipped;
  stats_.samples += slot.labels.size();
  ++stats_.batches;
  if (can_open()) work_ready_.notify_one();
  return Batch(work->slot);
}

/// Keeps the record of ignored failures; throws for the first of the others.
void Pipeline::check_failures(const Work& work, const std::vector<std::string>& names) {
  const auto fail = [this](ErrorCode code, const std::string& message, const std::string& cause) {
    failure_ = std::make_exception_ptr(Error(code, message, -1, cause));
    std::rethrow_exception(failure_);
  };
  while (skipped_.size() > kSkippedKept) skipped_.pop_front();
  for (std::size_t i = 0; i < work.failures.size(); ++i) {
    const Work::Failure& failure = work.failures[i];
    const std::string& path = names[i];
    if (!failure.ignored) fail(failure.code, path + " " + failure.message, failure.cause);
    ++stats_.skipped;
    skipped_.push_back({path, failure.index, work.epoch, failure.position, failure.reason()});
    const std::uint64_t all = from_skipped_ + stats_.skipped;
    if (chain_->ignore.max >= 0 && all > static_cast<std::uint64_t>(chain_->ignore.max))
      fail(failure.code,
           std::to_string(all) + " samples cannot be used, more than the " + std::to_string(chain_->ignore.max) +
               " that ignore_errors() allows; the last is " + path + ", which " + failure.message,
           failure.cause);
  }
}

DatasetState Pipeline::state() const {
  check_process();
  const std::lock_guard lock(mutex_);
  return consumed_;
}

DatasetStats Pipeline::stats() const {
  check_process();
  const std::lock_guard lock(mutex_);
  DatasetStats stats = stats_;
  stats.prefetch = depth_;
  stats.elapsed_s = std::chrono::duration<double>(Clock::now() - begin_).count();
  return stats;
}

std::vector<SkippedSample> Pipeline::skipped(std::size_t first) const {
  check_process();
  const std::lock_guard lock(mutex_);
  const std::size_t gone = stats_.skipped - skipped_.size();
  if (first >= stats_.skipped) return {};
  return {skipped_.begin() + static_cast<std::ptrdiff_t>(std::max(first, gone) - gone), skipped_.end()};
}

}  // namespace penstock::dataset

namespace penstock {

std::uint64_t Batch::size() const { return slot_->labels.size(); }
bool Batch::ragged() const { return slot_->ragged; }
const SampleForm& Batch::form() const { return slot_->form; }

const std::shared_ptr<void>& Batch::object() const { return slot_->object; }

Bytes Batch::data() const {
  if (slot_->ragged || slot_->object || slot_->labels.empty()) return {};
  return {slot_->data(), slot_->form.size_bytes() * size()};
}

Bytes Batch::sample(std::uint64_t i) const {
  if (i >= size())
    throw Error(ErrorCode::invalid_argument,
                "there is no sample " + std::to_string(i) + " in a batch of " + std::to_string(size()));
  if (slot_->ragged) return slot_->pieces[i];
  return data().subspan(i * slot_->form.size_bytes(), slot_->form.size_bytes());
}

std::span<std::int64_t> Batch::labels() const { return slot_->labels; }
std::span<std::uint64_t> Batch::indices() const { return slot_->indices; }

std::optional<Batch> DatasetIterator::next() { return pipeline_->next(); }
bool DatasetIterator::ready_within(std::chrono::milliseconds limit) { return pipeline_->ready_within(limit); }
DatasetState DatasetIterator::state() const { return pipeline_->state(); }
DatasetStats DatasetIterator::stats() const { return pipeline_->stats(); }
std::vector<SkippedSample> DatasetIterator::skipped(std::size_t first) const { return pipeline_->skipped(first); }
std::vector<std::string> DatasetIterator::close() { return pipeline_->close(); }

}  // namespace penstock
