#include "checkpoint/saver.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "penstock/trace.hpp"

namespace penstock::checkpoint {

namespace {

constexpr std::size_t kMaxWarnings = 1000;

std::string name_of(const Job& job) { return "checkpoint of step " + std::to_string(job.step); }

}  // namespace

bool wait_until_settled(Job& job, CheckpointLevel level, Relay* relay, Deadline deadline) {
  if (relay != nullptr) relay->serve({[&] { return job.settled(level) || has_passed(deadline); }, job.sequence + 1});
  return job.wait_until_settled(level, deadline);
}

Saver::Saver(Tiers tiers, Channels channels, const CheckpointerOptions& options, const SaverTuning& tuning)
    : tiers_(std::move(tiers)),
      channels_(std::move(channels)),
      options_(options),
      copy_threads_(copy_threads(channels_.ranks_here)),
      partners_(options.partner_copies ? std::optional(partners_of(channels_.node_of_rank, channels_.writer->rank()))
                                       : std::nullopt),
      staging_({options.staging_bytes, options.staging_buffers, channels_.ranks_here, tuning.free_memory_bytes}),
      on_backpressure_(tuning.on_backpressure),
      on_background_copy_(tuning.on_background_copy),
      drain_{{},
             RateLimit(options.drain_bytes_per_s / channels_.writer->size(), tuning.clock),
             [this] { copying_.give_way(); },
             tuning.piece_bytes},
      most_staged_(options.staging_buffers) {}

Saver::~Saver() {
  try {
    finish();
  } catch (const std::exception&) {
    // A caller that wants errors calls finish().
  }
  writer_.finish();
}

std::shared_ptr<Job> Saver::save(std::uint64_t step, const std::vector<CheckpointArray>& arrays,
                                 std::string_view metadata, const CheckpointMetrics& metrics,
                                 const std::optional<Error>& wrong) {
  const auto begin = std::chrono::steady_clock::now();
  auto job = std::make_shared<Job>();
  job->step = step;
  job->timeout = options_.timeout;
  job->saved_at_us = static_cast<std::uint64_t>(std::max<std::int64_t>(
      1, std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
             .count()));
  std::vector<std::uint64_t> offsets;
  const std::optional<Error> invalid = attempt(name_of(*job), channels_.writer->rank(), [&] {
    if (wrong) throw *wrong;
    check(arrays);
    for (const CheckpointArray& array : arrays) job->arrays.push_back({array.name, array.dtype, array.layout});
    job->metadata = metadata;
    for (const auto& [metric, value] : metrics) {
      if (!std::isfinite(value)) {
        throw Error(ErrorCode::invalid_argument, "the metric '" + metric + "' is not finite; leave it out");
      }
    }
    job->metrics = metrics;
    offsets = object_offsets(job->arrays, channels_.writer->rank());
    staging_.check(offsets.back());
  });
  std::shared_ptr<Job> settled;
  const std::optional<Error> late = attempt(name_of(*job), channels_.writer->rank(), [&] {
    settled =
        wait_for_earlier(*job, invalid ? std::nullopt : std::optional(offsets.back()), deadline_in(options_.timeout));
  });
  std::optional<Error> failure;
  if (settled) failure = undelivered(*settled);
  if (late) {
    job->refused = failure = late;
  } else if (failure) {
    job->refused = Error(ErrorCode::peer_failed, "save() delivered the error of an earlier checkpoint instead",
                         channels_.writer->rank());
  } else {
    failure =
        invalid ? invalid : attempt(name_of(*job), channels_.writer->rank(), [&] { stage(*job, arrays, offsets); });
    job->refused = failure;
  }
  if (failure) job->count_as_delivered();
  // A rank that cannot save reports it in the agreement, in which the others wait for it.
  job->stall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  submit(job);
  if (failure) throw *failure;
  return job;
}

std::shared_ptr<Job> Saver::with_sequence(std::uint64_t sequence) const {
  for (const std::shared_ptr<Job>& job : jobs()) {
    if (job->sequence == sequence) return job;
  }
  return nullptr;
}

/// The save that has to settle in the first tier before the next one: that as many calls ago as may be under way. Its
/// outcome is equal on all ranks, so all of them throw it from the same call; that of later saves may be known on some
/// ranks only.
std::shared_ptr<Job> Saver::settling() const {
  const auto most = static_cast<std::uint64_t>(std::max(most_staged_, 1));
  return saves_ < most ? nullptr : with_sequence(saves_ - most);
}

StagingPool::Held Saver::held() const {
  StagingPool::Held held;
  for (const std::shared_ptr<Job>& job : jobs()) {
    if (job->buffer != nullptr && !job->settled(CheckpointLevel::fast)) held.insert(job->buffer);
  }
  return held;
}

/// Waits until the save that settling() names has settled, and the budget has room for `size_bytes`. Returns that save,
/// if there is one. Throws Error(timed_out).
std::shared_ptr<Job> Saver::wait_for_earlier(Job& job, std::optional<std::uint64_t> size_bytes, Deadline deadline) {
  if (saves_ == 0) return nullptr;
  const auto in_time = [&](bool done, const Job& other) {
    if (done) return;
    throw Error(ErrorCode::timed_out,
                name_of(job) + " is not saved: the one of step " + std::to_string(other.step) +
                    " is not durable in the first tier within the time given; it goes on in the background");
  };
  if (most_staged_ == 0) {
    // The ranks agree in the background when a save begins, before anything is written.
    if (const std::shared_ptr<Job> previous = with_sequence(saves_ - 1)) {
      if (channels_.relay) {
        channels_.relay->serve({[&] { return previous->begun() || has_passed(deadline); }, saves_});
      }
      in_time(previous->wait_until_begun(deadline), *previous);
    }
    most_staged_ = agreed_buffers_;
  }
  const std::shared_ptr<Job> earlier = settling();
  const auto is_ready = [&] {
    if (earlier && !earlier->settled(CheckpointLevel::fast)) return false;
    return !size_bytes || staging_.has_room(*size_bytes, held());
  };
  const bool waits = !is_ready();
  const auto begin = std::chrono::steady_clock::now();
  std::optional<trace::Span> span;
  if (waits) {
    span.emplace("wait for an earlier checkpoint", "application");
    on_backpressure_();
  }
  if (channels_.relay) {
    channels_.relay->serve({[&] { return is_ready() || has_passed(deadline); }, saves_});
  }
  if (waits) ++waits_;
  if (earlier) in_time(earlier->wait_until_settled(CheckpointLevel::fast, deadline), *earlier);
  for (const std::shared_ptr<Job>& other : jobs()) {
    if (!size_bytes || staging_.has_room(*size_bytes, held())) break;
    in_time(other->wait_until_settled(CheckpointLevel::fast, deadline), *other);
  }
  if (waits) {
    job.waited_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    waited_s_ += job.waited_s;
  }
  return earlier;
}

/// The first error that all ranks know and that has not been thrown. Which saves all ranks know was agreed when the
/// settled checkpoint began, so every rank checks the same ones.
std::optional<Error> Saver::undelivered(const Job& settled) {
  std::optional<Error> first;
  const std::lock_guard lock(mutex_);
  std::erase_if(jobs_, [&](const std::shared_ptr<Job>& job) {
    if (job->sequence > settled.sequence) return false;
    const bool known_everywhere = job->sequence < settled.over_everywhere || job->level() <= CheckpointLevel::staged;
    if (!known_everywhere) return false;
    if (!first) first = job->deliver_error_once();
    return job->closed() && !job->undelivered() && job.get() != &settled;
  });
  return first;
}

void Saver::finish(Deadline deadline) {
  const std::vector<std::shared_ptr<Job>> all = jobs();
  const auto closed = [](const std::vector<std::shared_ptr<Job>>& some) {
    return std::all_of(some.begin(), some.end(), [](const auto& job) { return job->closed(); });
  };
  if (channels_.relay) {
    const auto done = [&] { return (closed(all) && closed(resumed())) || has_passed(deadline); };
    channels_.relay->serve({done, saves_});
  }
  const auto wait_for = [&](const std::vector<std::shared_ptr<Job>>& some) {
    for (const auto& job : some) {
      if (!job->wait_until_closed(deadline)) throw timed_out(job->step, CheckpointLevel::drained);
    }
  };
  wait_for(all);
  wait_for(resumed());  // known by now: the first save has found them
  std::optional<Error> first;
  for (const auto& job : all) {
    std::optional<Error> error = job->deliver_error_once();
    if (error && !first) first = std::move(error);
  }
  if (first) throw *first;
}

void Saver::settle(std::uint64_t step, Deadline deadline) {
  std::vector<std::shared_ptr<Job>> some = jobs();
  std::erase_if(some, [&](const auto& job) { return job->step != step; });
  if (channels_.relay) {
    const auto closed = [&] {
      return std::all_of(some.begin(), some.end(), [](const auto& job) { return job->closed(); });
    };
    channels_.relay->serve({[&] { return closed() || has_passed(deadline); }, saves_});
  }
  for (const auto& job : some) {
    if (!job->wait_until_closed(deadline)) throw timed_out(step, CheckpointLevel::drained);
  }
}

std::size_t Saver::resume_drains() {
  const std::string what = "resuming drains";
  const auto begun = std::make_shared<Job>();
  writer_.submit([this, begun, what] {
    const std::optional<Error> failure = attempt(what, channels_.writer->rank(), [&] {
      if (generation_ != 0) return;
      std::uint64_t seen = 0;
      for (const std::uint64_t one : agree(*channels_.writer, what, [&] { return seen_generation(); })) {
        seen = std::max(seen, one);
      }
      take_over(seen, what);
    });
    if (failure) begun->fail(*failure);
    begun->close();
  });
  if (channels_.relay) channels_.relay->serve({[&] { return begun->closed(); }, saves_});
  begun->wait_until_closed();
  if (const std::optional<Error> failure = begun->deliver_error_once()) throw *failure;
  const std::vector<std::shared_ptr<Job>> all = resumed();
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [](const auto& job) { return !job->settled(CheckpointLevel::drained); }));
}

void Saver::reserve(std::uint64_t local_bytes, int buffers) {
  const int most = options_.staging_buffers > 0 ? options_.staging_buffers : StagingPool::kMostBuffers;
  if (buffers < 1 || buffers > most) {
    throw Error(ErrorCode::invalid_argument, "reserve: buffers is " + std::to_string(buffers) + "; expected 1 to " +
                                                 std::to_string(most) + ", the staging_buffers");
  }
  staging_.check(local_bytes);
  StagingPool::Held taken = held();
  for (int buffer = 0; buffer < buffers && staging_.has_room(local_bytes, taken); ++buffer)
    taken.insert(&staging_.take(local_bytes, taken));
}

void Saver::check(const std::vector<CheckpointArray>& arrays) const {
  const auto refuse = [](const std::string& message) { throw Error(ErrorCode::invalid_argument, message); };
  std::set<std::string_view> names;
  for (const CheckpointArray& array : arrays) {
    if (array.name.empty()) refuse("an array has no name");
    if (!names.insert(array.name).second) refuse("two arrays are called '" + array.name + "'");
    if (array.layout.ranks() > channels_.writer->size()) {
      refuse("array '" + array.name + "' has a layout on " + std::to_string(array.layout.ranks()) + " ranks, but " +
             std::to_string(channels_.writer->size()) + " save it");
    }
    const std::uint64_t expected_bytes = local_bytes({array.name, array.dtype, array.layout}, channels_.writer->rank());
    if (array.local.size() != expected_bytes) {
      refuse("array '" + array.name + "' has " + std::to_string(array.local.size()) + " bytes on rank " +
             std::to_string(channels_.writer->rank()) + ", its layout says " + std::to_string(expected_bytes));
    }
  }
}

void Saver::stage(Job& job, const std::vector<CheckpointArray>& arrays, const std::vector<std::uint64_t>& offsets) {
  const std::uint64_t total_bytes = offsets.back();
  const trace::Span span("stage checkpoint", "application", total_bytes);
  Staging& buffer = staging_.take(total_bytes, held());
  job.buffer = &buffer;
  job.buffers_fit = staging_.buffers_for(total_bytes);
  const Bytes memory = buffer.first(total_bytes);
  std::vector<Copy> copies;
  std::vector<Copy> later;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].local.empty()) continue;
    std::fill(memory.begin() + static_cast<std::ptrdiff_t>(end),
              memory.begin() + static_cast<std::ptrdiff_t>(offsets[i]), std::byte{0});
    (arrays[i].copied_later ? later : copies).push_back({arrays[i].local, memory.data() + offsets[i]});
    end = offsets[i] + arrays[i].local.size();
  }
  const Precedence::Hold hold(copying_);
  copy_all(copies, copy_threads_);
  job.staged = memory;
  if (later.empty()) return;
  job.later = std::make_shared<SharedCopies>(std::move(later));
  job.copy_threads = copy_threads_;
  job.begin_copying();
}

void Saver::submit(const std::shared_ptr<Job>& job) {
  {
    const std::lock_guard lock(mutex_);
    job->sequence = saves_++;
    jobs_.push_back(job);
  }
  if (channels_.relay) channels_.relay->count_save();
  if (job->later) {
    if (!copier_) copier_.emplace();
    copier_->submit([this, job] {
      // One thread, so that the program keeps the other cores. Whoever waits for the copies helps.
      do {
        on_background_copy_();
        copying_.give_way();
      } while (job->later->copy_piece());
      job->finish_copies();
    });
  }
  writer_.submit([this, job] { write(job); });
}

std::vector<std::shared_ptr<Job>> Saver::jobs() const {
  const std::lock_guard lock(mutex_);
  return jobs_;
}

std::vector<std::shared_ptr<Job>> Saver::resumed() const {
  const std::lock_guard lock(mutex_);
  return resumed_;
}

void Saver::warn(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (warnings_.size() < kMaxWarnings) warnings_.push_back(text);
}

std::vector<std::string> Saver::warnings() const {
  const std::lock_guard lock(mutex_);
  return warnings_;
}

std::string Saver::report() const {
  std::string text = "slow tier: " + tiers_.slow->title() + "\n";
  text += "burst buffer: " + (tiers_.fast ? tiers_.fast->title() : std::string("none")) + "\n";
  text += "staging memory: " + std::to_string(staging_.size_bytes()) + " bytes" +
          (staging_.budget_bytes() > 0 ? " of at most " + std::to_string(staging_.budget_bytes()) : "") +
          ", filled by " + std::to_string(copy_threads_) + " thread(s)\n";
  if (most_staged_ > 0) {
    text += "saves under way in the first tier: at most " + std::to_string(most_staged_) + "\n";
  }
  if (waits_ > 0) {
    text += "backpressure: " + std::to_string(waits_) + " of " + std::to_string(saves_) + " saves waited " +
            std::to_string(waited_s_) + " s in all for an earlier one to be durable in the first tier\n";
  }
  if (tiers_.fast && drain_.limit.bytes_per_s() > 0) {
    text += "drain: at most " + std::to_string(std::llround(drain_.limit.bytes_per_s())) +
            " bytes/s on this rank, for which it has waited " + std::to_string(drain_.limit.waited_s()) + " s\n";
  }
  text += channels_.relay ? "agreement: inside save(), wait() and finish(), because MPI was initialised without "
                            "MPI_THREAD_MULTIPLE\n"
                          : "agreement: in the background\n";
  return text;
}

}  // namespace penstock::checkpoint
