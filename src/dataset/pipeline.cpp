#include "dataset/pipeline.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
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

std::size_t thread_count(const Chain& chain) {
  if (chain.threads > 0) return static_cast<std::size_t>(chain.threads);
  return static_cast<std::size_t>(std::clamp<std::int64_t>(options().io_threads, 1, 1024));
}

}  // namespace

Pipeline::Pipeline(std::shared_ptr<const Chain> chain, const DatasetState& from)
    : chain_(std::move(chain)),
      fixed_form_(chain_->fixed_form()),
      slots_(std::make_shared<SlotPool>(static_cast<std::size_t>(chain_->prefetch) + 2)),
      opening_(from),
      end_epoch_(chain_->repeat == 0 ? ~std::uint64_t{0} : (from.epoch / chain_->repeat + 1) * chain_->repeat),
      consumed_(from) {
  if (fixed_form_) last_form_ = *fixed_form_;
  const SignalsBlocked blocked;
  const std::size_t count = thread_count(*chain_);
  threads_.reserve(count);
  try {
    for (std::size_t i = 0; i < count; ++i)
      threads_.emplace_back([this] {
        pthread_setname_np(pthread_self(), "penstock-loader");
        Worker worker(*chain_, fixed_form_);
        run(worker);
      });
  } catch (const std::system_error& error) {
    if (!threads_.empty()) return;  // fewer threads do the same work
    throw Error(ErrorCode::io, "no thread can be started to read samples", -1, error.what());
  }
}

Pipeline::~Pipeline() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Pipeline::can_open() const {
  const std::size_t limit = chain_->prefetch > 0 ? static_cast<std::size_t>(chain_->prefetch) : (waiting_ ? 1 : 0);
  return !all_opened_ && !failure_ && window_.size() < limit;
}

void Pipeline::open() {
  const Sharding& sharding = *chain_->sharding;
  const std::uint64_t samples = chain_->order->size();
  std::uint64_t end = sharding.end(opening_.position, samples);
  if (end == opening_.position) {
    opening_ = {opening_.epoch + 1, 0};
    end = sharding.end(0, samples);
    if (opening_.epoch == end_epoch_ || end == 0) {
      all_opened_ = true;
      return;
    }
  }
  auto work = std::make_unique<Work>();
  work->epoch = opening_.epoch;
  work->share = sharding.share(opening_.position, end);
  opening_.position = end;
  if (sharding.end(end, samples) == end) opening_ = {opening_.epoch + 1, 0};
  all_opened_ = opening_.epoch == end_epoch_;
  work->after = opening_;
  work->slot = slots_->take();
  Slot& slot = *work->slot;
  slot.ragged = chain_->undecoded();
  slot.form = fixed_form_.value_or(SampleForm{});
  slot.labels.resize(work->share.count);
  slot.indices.resize(work->share.count);
  if (slot.ragged) slot.pieces.resize(work->share.count);
  if (fixed_form_) {
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(fixed_form_->size_bytes(), work->share.count, &bytes)) throw std::bad_alloc();
    slot.reserve(bytes);
  } else {
    work->collected.resize(slot.ragged ? 0 : work->share.count);
  }
  work->complete = work->share.count == 0;
  window_.push_back(std::move(work));
}

Work* Pipeline::claimable() {
  for (; fully_claimed_ < window_.size(); ++fully_claimed_) {
    Work& work = *window_[fully_claimed_];
    if (work.claimed < work.share.count) return &work;
  }
  return nullptr;
}

void Pipeline::run(Worker& worker) {
  std::unique_lock lock(mutex_);
  for (;;) {
    Work* work = nullptr;
    work_ready_.wait(lock, [&] { return stopping_ || (work = claimable()) != nullptr || can_open(); });
    if (stopping_) return;
    if (work == nullptr) {
      try {
        open();
      } catch (const std::exception& error) {
        all_opened_ = true;
        open_failure_ = std::make_exception_ptr(
            Error(ErrorCode::no_space, "there is no memory for a batch; use smaller batches or prefetch fewer of them",
                  -1, error.what()));
      }
      work_ready_.notify_all();
      batch_ready_.notify_one();
      continue;
    }
    const std::uint64_t place = work->claimed++;
    lock.unlock();
    SampleTimes times;
    std::optional<Work::Failure> failure = worker.make(*work, place, times);
    lock.lock();
    stats_.read_s += times.read_s;
    stats_.decode_s += times.decode_s;
    stats_.map_s += times.map_s;
    stats_.read_bytes += times.read_bytes;
    if (failure) work->failures.push_back(std::move(*failure));
    if (++work->done < work->share.count) continue;
    lock.unlock();
    try {
      finish(*work);
    } catch (const std::bad_alloc&) {
      work->failures.push_back({0, ErrorCode::no_space, "is in a batch that finds no memory", {}, false});
    }
    lock.lock();
    work->complete = true;
    batch_ready_.notify_one();
  }
}

/// Closes the gaps of failed samples, and lays the samples of a batch together whose form was not known beforehand.
void Pipeline::finish(Work& work) const {
  Slot& slot = *work.slot;
  const std::uint64_t count = work.share.count;
  std::ranges::sort(work.failures, {}, &Work::Failure::place);
  std::vector<std::uint64_t> kept;
  kept.reserve(count);
  auto failure = work.failures.begin();
  for (std::uint64_t i = 0; i < count; ++i) {
    if (failure != work.failures.end() && failure->place == i)
      ++failure;
    else
      kept.push_back(i);
  }
  if (!work.collected.empty() && !kept.empty()) {
    slot.form = work.collected[kept.front()].form;
    for (std::uint64_t i : kept) {
      if (work.collected[i].form == slot.form) continue;
      work.failures.push_back({i,
                               ErrorCode::invalid_argument,
                               "is " + work.collected[i].form.describe() + " in a batch of " + slot.form.describe() +
                                   "; give decode() a size, or let map() make all samples alike",
                               {},
                               false});
      return;
    }
    slot.reserve(slot.form.size_bytes() * kept.size());
  }
  const std::uint64_t sample_bytes = slot.ragged ? 0 : slot.form.size_bytes();
  for (std::uint64_t to = 0; to < kept.size(); ++to) {
    const std::uint64_t from = kept[to];
    if (!work.collected.empty())
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
  if (work.failures.empty()) return;
  slot.labels.resize(kept.size());
  slot.indices.resize(kept.size());
  if (slot.ragged) slot.pieces.resize(kept.size());
}

bool Pipeline::front_ready() const {
  if (failure_) return true;
  return window_.empty() ? all_opened_ : window_.front()->complete;
}

bool Pipeline::ready_within(std::chrono::milliseconds limit) {
  const auto begin = std::chrono::steady_clock::now();
  const trace::Span span("wait for batch", "application");
  std::unique_lock lock(mutex_);
  waiting_ = true;
  if (can_open()) work_ready_.notify_one();
  const bool ready = batch_ready_.wait_for(lock, limit, [this] { return front_ready(); });
  stats_.wait_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return ready;
}

std::optional<Batch> Pipeline::next() {
  while (!ready_within(std::chrono::hours(1))) {
  }
  const std::unique_lock lock(mutex_);
  waiting_ = false;
  if (window_.empty() && !failure_) failure_ = open_failure_;
  if (failure_) std::rethrow_exception(failure_);
  if (window_.empty()) {
    consumed_ = opening_;
    return std::nullopt;
  }
  const std::unique_ptr<Work> work = std::move(window_.front());
  window_.pop_front();
  if (fully_claimed_ > 0) --fully_claimed_;
  check_failures(*work);

  Slot& slot = *work->slot;
  if (slot.labels.empty() && slot.form.shape.empty()) slot.form = last_form_;
  last_form_ = slot.form;
  consumed_ = work->after;
  stats_.samples += slot.labels.size();
  ++stats_.batches;
  if (can_open()) work_ready_.notify_one();
  return Batch(work->slot);
}

/// Keeps the record of ignored failures; throws for the first of the others.
void Pipeline::check_failures(const Work& work) {
  const auto fail = [this](ErrorCode code, const std::string& message, const std::string& cause) {
    failure_ = std::make_exception_ptr(Error(code, message, -1, cause));
    std::rethrow_exception(failure_);
  };
  for (const Work::Failure& failure : work.failures) {
    const std::uint64_t position = work.share.first + failure.place * work.share.stride;
    const std::uint64_t index = chain_->order->at(work.epoch, position);
    const std::string path = chain_->source->name(index);
    if (!failure.ignored) fail(failure.code, path + " " + failure.message, failure.cause);
    ++stats_.skipped;
    skipped_.push_back({path, index, work.epoch, position, failure.reason()});
    if (chain_->ignore_limit >= 0 && stats_.skipped > static_cast<std::uint64_t>(chain_->ignore_limit))
      fail(failure.code,
           std::to_string(stats_.skipped) + " samples cannot be used, more than the " +
               std::to_string(chain_->ignore_limit) + " that ignore_errors() allows; the last is " + path + ", which " +
               failure.message,
           failure.cause);
  }
}

DatasetState Pipeline::state() const {
  const std::lock_guard lock(mutex_);
  return consumed_;
}

DatasetStats Pipeline::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::vector<SkippedSample> Pipeline::skipped() const {
  const std::lock_guard lock(mutex_);
  return skipped_;
}

}  // namespace penstock::dataset

namespace penstock {

std::uint64_t Batch::size() const { return slot_->labels.size(); }
bool Batch::ragged() const { return slot_->ragged; }
const SampleForm& Batch::form() const { return slot_->form; }

Bytes Batch::data() const {
  if (slot_->ragged || slot_->labels.empty()) return {};
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
std::vector<SkippedSample> DatasetIterator::skipped() const { return pipeline_->skipped(); }

}  // namespace penstock
