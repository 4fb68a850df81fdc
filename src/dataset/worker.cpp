#include "dataset/worker.hpp"

#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "base/hash.hpp"
#include "penstock/trace.hpp"

namespace penstock::dataset {

namespace {

/// Adds its lifetime to a counter.
class Stopwatch {
 public:
  explicit Stopwatch(double& total_s) : total_s_(total_s), begin_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() { total_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& total_s_;
  std::chrono::steady_clock::time_point begin_;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Of a read, without its waits for memory.
class ReadTime {
 public:
  ReadTime(const Attempt& attempt, SampleTimes& times)
      : attempt_(attempt), times_(times), waited_before_s_(attempt.waited_s()) {
    times.read_begin_s = seconds_now();
  }
  ~ReadTime() {
    times_.read_end_s = seconds_now();
    times_.read_begin_s += attempt_.waited_s() - waited_before_s_;
    times_.read_s += times_.read_end_s - times_.read_begin_s;
  }
  ReadTime(const ReadTime&) = delete;
  ReadTime& operator=(const ReadTime&) = delete;

 private:
  const Attempt& attempt_;
  SampleTimes& times_;
  const double waited_before_s_;
};

class Call {
 public:
  Call(Attempt& attempt, std::counting_semaphore<>* bound) : attempt_(attempt) { attempt_.enter_call(bound); }
  ~Call() { attempt_.leave_call(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  Attempt& attempt_;
};

thread_local const Attempt* made_here = nullptr;  // what sample_is_given_up() is about

}  // namespace

std::uint64_t replacement(std::uint64_t epoch, std::uint64_t position, std::uint64_t number, std::uint64_t samples) {
  if (number == 0) return position;
  return base::mix(base::mix(base::mix(base::kSeed, epoch), position), number) % samples;
}

Worker::Result Worker::make(Attempt& attempt, SampleTimes& times) noexcept {
  const Work& work = *attempt.work();
  Sample& sample = sample_;
  sample.epoch = work.epoch;
  sample.position = work.share.first + attempt.place() * work.share.stride;
  sample.index = 0;
  sample.keep = true;
  const auto fail = [&](ErrorCode code, const std::string& message, const std::string& cause) {
    return Result{Work::Failure{attempt.place(), sample.index, sample.position, code, message, cause,
                                chain_.ignores(attempt.stage()), false},
                  false};
  };
  made_here = &attempt;
  struct End {
    Worker& worker;
    ~End() {
      made_here = nullptr;
      worker.trim();
    }
  } const end{*this};
  try {
    return {std::nullopt, !make_or_throw(attempt, times, sample)};
  } catch (const Error& error) {
    return fail(error.code(), error.message(), error.cause());
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::no_space, "needs more memory than there is", {});
  } catch (const std::length_error&) {
    return fail(ErrorCode::no_space, "needs more memory than there is", {});
  } catch (const std::exception& error) {
    return fail(ErrorCode::invalid_argument, "makes its stage fail", error.what());
  } catch (...) {
    return fail(ErrorCode::invalid_argument, "makes its stage fail with something that is not a std::exception", {});
  }
}

ConstBytes Worker::read(Attempt& attempt, Sample& sample, SampleTimes& times) {
  const auto reserve = [&](std::uint64_t bytes) { budget_.reserve(attempt, bytes); };
  if (budget_.reserve && !chain_.source->tells_sizes()) reserve(kUnknownBytes);
  const ReadTime time(attempt, times);
  const trace::Span span("read", kLane);
  sample.object = chain_.source->object(sample.index);
  if (sample.object) return {};
  ReadLimits limits{chain_.limits.bytes};
  if (budget_.reserve && chain_.source->tells_sizes()) limits.before_allocation = reserve;
  const ConstBytes bytes = chain_.source->read(sample.index, limits, file_);
  times.read_bytes += bytes.size();
  sample.form = {DType::uint8, {bytes.size()}};
  return bytes;
}

void Worker::decode(const DecodeOptions& options, ConstBytes encoded, const Sample& sample, Destination& destination,
                    SampleTimes& times) {
  const Stopwatch time(times.decode_s);
  const trace::Span span("decode", kLane, encoded.size());
  if (sample.object) throw Error(ErrorCode::invalid_argument, "is an object, which cannot be decoded");
  decoders_.decode(encoded, options, {chain_.limits.pixels, sample.epoch, sample.index, sample.position}, destination);
}

void Worker::call(std::size_t stage, Attempt& attempt, Sample& sample, SampleTimes& times) {
  const Call call(attempt, call_limits_[stage].get());
  if (attempt.given_up()) {  // while it waited for its turn
    sample.keep = false;
    return;
  }
  const Stopwatch time(times.map_s);
  const trace::Span span("map", kLane);
  std::get<MapStage>(chain_.stages[stage]).function(sample);
  if (sample.keep && !sample.object && sample.data.size() != sample.form.size_bytes())
    throw Error(ErrorCode::invalid_argument, "has " + std::to_string(sample.data.size()) + " bytes for " +
                                                 sample.form.describe() + " after its map function");
}

/// The budget learns what a function of the program has made.
void Worker::hold(Attempt& attempt, const Sample& sample, std::uint64_t kept) {
  if (!budget_.hold) return;
  const std::uint64_t object = sample.object && chain_.calls.size_bytes ? chain_.calls.size_bytes(sample.object) : 0;
  const std::uint64_t bytes = sample.object ? object : sample.data.size();
  budget_.hold(attempt, bytes, kept == kUnknownBytes ? bytes : kept);
}

void Worker::trim() {
  if (!budget_.hold) return;
  for (std::vector<std::byte>* buffer : {&file_, &spare_, &sample_.data})
    if (buffer->capacity() > budget_.scratch_bytes) std::vector<std::byte>().swap(*buffer);
}

/// False if the batch goes without the sample.
bool Worker::make_or_throw(Attempt& attempt, SampleTimes& times, Sample& sample) {
  Work& work = *attempt.work();
  const std::uint64_t place = attempt.place();
  sample.index =
      chain_.order->at(work.epoch, replacement(work.epoch, sample.position, attempt.number(), chain_.order->size()));
  sample.label = chain_.source->label(sample.index);

  ConstBytes current;
  std::size_t made = 0;
  const std::shared_ptr<const Sample> cached = chain_.cache ? chain_.cache->find(sample.index, chain_.calls) : nullptr;
  if (cached) {
    sample.form = cached->form;
    sample.data = cached->data;
    sample.object = cached->object && chain_.calls.copy ? chain_.calls.copy(cached->object) : cached->object;
    sample.label = cached->label;
    current = sample.data;
    made = chain_.cached_stages;
  } else {
    current = read(attempt, sample, times);
    if (sample.object) hold(attempt, sample, 0);
  }
  const auto own = [&] {
    if (sample.object || (current.data() == sample.data.data() && current.size() == sample.data.size())) return;
    sample.data.assign(current.begin(), current.end());
    current = sample.data;
  };
  const auto remember = [&] {
    if (!chain_.cache || cached || made != chain_.cached_stages || !sample.keep) return;
    own();
    auto copy = std::make_shared<Sample>(sample);
    if (copy->object && chain_.calls.copy) copy->object = chain_.calls.copy(copy->object);
    chain_.cache->insert(std::move(copy), chain_.calls);
  };

  if (budget_.compute && made < chain_.stages.size()) budget_.compute(attempt);
  if (made == 0) remember();
  Slot& slot = *work.slot;
  const std::uint64_t sample_bytes = fixed_form_ ? fixed_form_->size_bytes() : 0;
  const Bytes target(fixed_form_ ? slot.data() + place * sample_bytes : nullptr, sample_bytes);
  bool stored = false;
  while (made < chain_.stages.size()) {
    attempt.enter(made + 1);
    if (attempt.given_up()) return false;
    if (const auto* options = std::get_if<DecodeOptions>(&chain_.stages[made])) {
      const bool cached_here = chain_.cache && chain_.cached_stages == made + 1;
      if (fixed_form_ && made + 1 == chain_.stages.size() && !cached_here) {
        if (!attempt.may_store()) return false;
        Destination destination(target, *fixed_form_);
        decode(*options, current, sample, destination, times);
        stored = true;
        break;
      }
      std::function<void(std::uint64_t)> before_allocation;
      if (budget_.reserve)
        before_allocation = [&](std::uint64_t bytes) { budget_.reserve(attempt, current.size() + bytes); };
      Destination destination(spare_, std::move(before_allocation));
      decode(*options, current, sample, destination, times);
      std::swap(sample.data, spare_);
      sample.form = destination.form();
    } else {
      own();
      call(made, attempt, sample, times);
      if (!sample.keep) return false;
      hold(attempt, sample, 0);
    }
    current = sample.data;
    ++made;
    remember();
  }

  if (!attempt.may_store()) return false;
  slot.indices[place] = sample.index;
  slot.labels[place] = sample.label;
  if (stored) return true;
  if (fixed_form_) {
    std::memcpy(target.data(), current.data(), target.size());
  } else if (slot.ragged) {
    if (sample.object) throw Error(ErrorCode::invalid_argument, "is an object in a batch of files");
    if (current.data() == file_.data()) {
      file_.resize(current.size());
      slot.pieces[place] = std::move(file_);
      file_.clear();
    } else {
      slot.pieces[place].assign(current.begin(), current.end());
    }
    if (budget_.hold) budget_.hold(attempt, current.size(), current.size());
  } else {
    own();
    hold(attempt, sample, kUnknownBytes);
    work.collected[place].form = sample.form;
    work.collected[place].data.swap(sample.data);
    work.collected[place].object = std::move(sample.object);
  }
  return true;
}

}  // namespace penstock::dataset

namespace penstock {

bool sample_is_given_up() noexcept { return dataset::made_here != nullptr && dataset::made_here->given_up(); }

}  // namespace penstock
