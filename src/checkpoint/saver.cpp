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

void wait_until_settled(Job& job, CheckpointLevel level, Relay* relay) {
  if (relay != nullptr) relay->serve({[&] { return job.settled(level); }, job.sequence + 1});
  job.wait_until_settled(level);
}

Saver::Saver(Tiers tiers, Channels channels, const CheckpointerOptions& options, const SaverTuning& tuning)
    : tiers_(std::move(tiers)),
      channels_(std::move(channels)),
      options_(options),
      copy_threads_(copy_threads(channels_.ranks_here)),
      partners_(options.partner_copies ? std::optional(partners_of(channels_.node_of_rank, channels_.writer->rank()))
                                       : std::nullopt),
      staging_(static_cast<std::size_t>(options.staging_buffers)),
      drain_{{},
             RateLimit(options.drain_bytes_per_s / channels_.writer->size(), tuning.clock),
             [this] { copying_.give_way(); },
             tuning.piece_bytes} {}

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
  const std::shared_ptr<Job> settled = settle_earlier();
  auto job = std::make_shared<Job>();
  job->step = step;
  job->saved_at_us = static_cast<std::uint64_t>(std::max<std::int64_t>(
      1, std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
             .count()));
  std::optional<Error> failure;
  if (settled) failure = undelivered(*settled);
  if (failure) {
    job->refused = Error(ErrorCode::peer_failed, "save() delivered the error of an earlier checkpoint instead",
                         channels_.writer->rank());
  } else {
    failure = attempt(name_of(*job), channels_.writer->rank(), [&] {
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
      stage(*job, arrays);
    });
    job->refused = failure;
  }
  if (failure) job->count_as_delivered();
  // A rank that cannot save reports it in the agreement, in which the others wait for it.
  job->stall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  submit(job);
  if (failure) throw *failure;
  return job;
}

/// Waits until a staging buffer is free, that is, until the save as many calls ago as there are buffers has settled in
/// the first tier. Returns that save, if there is one. Its outcome is equal on all ranks, so all of them throw it from
/// the same call; that of later saves may be known on some ranks only.
std::shared_ptr<Job> Saver::settle_earlier() {
  for (const std::shared_ptr<Job>& job : jobs()) {
    if (job->sequence + staging_.size() != saves_) continue;
    const trace::Span span("wait for an earlier checkpoint", "application");
    wait_until_settled(*job, CheckpointLevel::fast, channels_.relay.get());
    return job;
  }
  return nullptr;
}

/// Those that no save holds.
std::vector<int> Saver::free_buffers() const {
  std::set<int> held;
  for (const std::shared_ptr<Job>& job : jobs()) {
    if (!job->settled(CheckpointLevel::fast)) held.insert(job->buffer);
  }
  std::vector<int> free;
  for (int buffer = 0; buffer < options_.staging_buffers; ++buffer) {
    if (!held.contains(buffer)) free.push_back(buffer);
  }
  return free;
}

/// The first error that all ranks know and that has not been thrown. Which saves all ranks know was agreed when the
/// settled checkpoint began, so every rank checks the same ones.
std::optional<Error> Saver::undelivered(const Job& settled) {
  std::optional<Error> first;
  const std::lock_guard lock(mutex_);
  std::erase_if(jobs_, [&](const std::shared_ptr<Job>& job) {
    if (job->sequence > settled.sequence) return false;
    const bool known_everywhere = job->sequence < settled.over_everywhere || job->level() == CheckpointLevel::staged;
    if (!known_everywhere) return false;
    if (!first) first = job->deliver_error_once();
    return job->closed() && !job->undelivered() && job.get() != &settled;
  });
  return first;
}

void Saver::finish() {
  const std::vector<std::shared_ptr<Job>> all = jobs();
  const auto closed = [](const std::vector<std::shared_ptr<Job>>& some) {
    return std::all_of(some.begin(), some.end(), [](const auto& job) { return job->closed(); });
  };
  if (channels_.relay) channels_.relay->serve({[&] { return closed(all) && closed(resumed()); }, saves_});
  for (const auto& job : all) job->wait_until_closed();
  // Known by now: the first save has found them.
  for (const auto& job : resumed()) job->wait_until_closed();
  std::optional<Error> first;
  for (const auto& job : all) {
    std::optional<Error> error = job->deliver_error_once();
    if (error && !first) first = std::move(error);
  }
  if (first) throw *first;
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
  if (buffers < 1 || buffers > options_.staging_buffers) {
    throw Error(ErrorCode::invalid_argument, "reserve: buffers is " + std::to_string(buffers) + "; expected 1 to " +
                                                 std::to_string(options_.staging_buffers) + ", the staging_buffers");
  }
  settle_earlier();
  std::vector<int> free = free_buffers();
  free.resize(std::min(free.size(), static_cast<std::size_t>(buffers)));
  for (const int buffer : free) staging_[static_cast<std::size_t>(buffer)].reserve(local_bytes);
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

void Saver::stage(Job& job, const std::vector<CheckpointArray>& arrays) {
  const std::vector<std::uint64_t> offsets = object_offsets(job.arrays, channels_.writer->rank());
  const std::uint64_t total_bytes = offsets.back();
  const trace::Span span("stage checkpoint", "application", total_bytes);
  job.buffer = free_buffers().at(0);
  Staging& staging = staging_[static_cast<std::size_t>(job.buffer)];
  staging.reserve(total_bytes);
  const Bytes memory = staging.first(total_bytes);
  std::vector<Copy> copies;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].local.empty()) continue;
    std::fill(memory.begin() + static_cast<std::ptrdiff_t>(end),
              memory.begin() + static_cast<std::ptrdiff_t>(offsets[i]), std::byte{0});
    copies.push_back({arrays[i].local, memory.data() + offsets[i]});
    end = offsets[i] + arrays[i].local.size();
  }
  const Precedence::Hold hold(copying_);
  copy_all(copies, copy_threads_);
  job.staged = memory;
}

void Saver::submit(const std::shared_ptr<Job>& job) {
  {
    const std::lock_guard lock(mutex_);
    job->sequence = saves_++;
    jobs_.push_back(job);
  }
  if (channels_.relay) channels_.relay->count_save();
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
  std::uint64_t staging_bytes = 0;
  for (const Staging& staging : staging_) staging_bytes += staging.size_bytes();
  text += "staging memory: " + std::to_string(staging_bytes) + " bytes, filled by " + std::to_string(copy_threads_) +
          " thread(s)\n";
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
