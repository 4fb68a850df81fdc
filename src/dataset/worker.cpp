#include "dataset/worker.hpp"

#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "penstock/trace.hpp"

namespace penstock::dataset {

namespace {

constexpr const char* kLane = "loader";

/// Adds the time of its life to a counter.
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

class Permit {
 public:
  explicit Permit(std::counting_semaphore<>* limit) : limit_(limit) {
    if (limit_ != nullptr) limit_->acquire();
  }
  ~Permit() {
    if (limit_ != nullptr) limit_->release();
  }
  Permit(const Permit&) = delete;
  Permit& operator=(const Permit&) = delete;

 private:
  std::counting_semaphore<>* limit_;
};

}  // namespace

std::optional<Work::Failure> Worker::make(Work& work, std::uint64_t place, SampleTimes& times) noexcept {
  const auto fail = [&](ErrorCode code, const std::string& message, const std::string& cause, bool ignored) {
    return Work::Failure{place, code, message, cause, ignored};
  };
  std::size_t stage = 0;
  // Stage 0 is the read, which is covered wherever ignore_errors() stands.
  const auto covered = [&] { return chain_.ignored_stages && stage <= *chain_.ignored_stages; };
  try {
    make_or_throw(work, place, times, stage);
    return std::nullopt;
  } catch (const Error& error) {
    return fail(error.code(), error.message(), error.cause(), covered());
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::no_space, "out of memory", {}, false);
  } catch (const std::exception& error) {
    return fail(ErrorCode::invalid_argument, "the map function failed", error.what(), covered());
  } catch (...) {
    return fail(ErrorCode::invalid_argument, "the map function failed with something that is no std::exception", {},
                covered());
  }
}

void Worker::decode(const DecodeOptions& options, ConstBytes encoded, Destination& destination, SampleTimes& times) {
  const Stopwatch time(times.decode_s);
  const trace::Span span("decode", kLane, encoded.size());
  decoders_.decode(encoded, options, destination);
}

void Worker::make_or_throw(Work& work, std::uint64_t place, SampleTimes& times, std::size_t& stage) {
  const std::uint64_t position = work.share.first + place * work.share.stride;
  const std::uint64_t index = chain_.order->at(work.epoch, position);
  Slot& slot = *work.slot;
  slot.indices[place] = index;
  slot.labels[place] = sample_.label = chain_.source->label(index);
  sample_.index = index;
  sample_.epoch = work.epoch;

  ConstBytes current;
  std::size_t made = 0;
  const std::shared_ptr<const Sample> cached = chain_.cache ? chain_.cache->find(index) : nullptr;
  if (cached) {
    sample_ = *cached;
    sample_.epoch = work.epoch;
    current = sample_.data;
    made = chain_.cached_stages;
  } else {
    {
      const Stopwatch time(times.read_s);
      const trace::Span span("read", kLane);
      current = chain_.source->read(index, file_);
    }
    times.read_bytes += current.size();
    sample_.form = {DType::uint8, {current.size()}};
  }
  const auto own = [&] {
    if (current.data() == sample_.data.data() && current.size() == sample_.data.size()) return;
    sample_.data.assign(current.begin(), current.end());
    current = sample_.data;
  };
  const auto remember = [&] {
    if (!chain_.cache || cached || made != chain_.cached_stages) return;
    own();
    chain_.cache->insert(std::make_shared<const Sample>(sample_));
  };

  if (made == 0) remember();
  const std::uint64_t sample_bytes = fixed_form_ ? fixed_form_->size_bytes() : 0;
  const Bytes target(fixed_form_ ? slot.data() + place * sample_bytes : nullptr, sample_bytes);
  for (; made < chain_.stages.size();) {
    stage = made + 1;
    if (const auto* options = std::get_if<DecodeOptions>(&chain_.stages[made])) {
      const bool last = made + 1 == chain_.stages.size();
      const bool cached_here = chain_.cache && chain_.cached_stages == made + 1;
      if (last && fixed_form_ && !cached_here) {
        Destination destination(target, *fixed_form_);
        decode(*options, current, destination, times);
        return;
      }
      Destination destination(spare_);
      decode(*options, current, destination, times);
      std::swap(sample_.data, spare_);
      sample_.form = destination.form();
    } else {
      own();
      const auto& map = std::get<MapStage>(chain_.stages[made]);
      const Permit permit(map.limit.get());
      const Stopwatch time(times.map_s);
      const trace::Span span("map", kLane);
      map.function(sample_);
      if (sample_.data.size() != sample_.form.size_bytes())
        throw Error(ErrorCode::invalid_argument, "the map function left " + std::to_string(sample_.data.size()) +
                                                     " bytes for " + sample_.form.describe());
      slot.labels[place] = sample_.label;
    }
    current = sample_.data;
    ++made;
    remember();
  }

  slot.labels[place] = sample_.label;
  if (fixed_form_) {
    std::memcpy(target.data(), current.data(), target.size());
  } else if (chain_.undecoded()) {
    slot.pieces[place].assign(current.begin(), current.end());
  } else {
    own();
    work.collected[place].form = sample_.form;
    work.collected[place].data.swap(sample_.data);
  }
}

}  // namespace penstock::dataset
