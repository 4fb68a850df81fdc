#include "checkpoint/saver.hpp"
#include "penstock/checkpoint.hpp"

namespace penstock {

std::string_view name(CheckpointLevel level) {
  switch (level) {
    case CheckpointLevel::copying: return "copying";
    case CheckpointLevel::staged: return "staged";
    case CheckpointLevel::fast: return "fast";
    case CheckpointLevel::drained: break;
  }
  return "drained";
}

CheckpointHandle::CheckpointHandle(std::shared_ptr<checkpoint::Relay> relay, std::shared_ptr<checkpoint::Job> job)
    : relay_(std::move(relay)), job_(std::move(job)) {}

std::uint64_t CheckpointHandle::step() const { return job_->step; }
CheckpointLevel CheckpointHandle::level() const { return job_->level(); }
bool CheckpointHandle::failed() const { return job_->failed(); }
double CheckpointHandle::stall_s() const { return job_->stall_s; }
double CheckpointHandle::waited_s() const { return job_->waited_s; }

void CheckpointHandle::wait(CheckpointLevel level, std::optional<std::chrono::milliseconds> limit) {
  const checkpoint::Deadline deadline = checkpoint::deadline_in(limit ? limit : job_->timeout);
  job_->finish_copies();
  if (level <= CheckpointLevel::staged) return;
  if (!checkpoint::wait_until_settled(*job_, level, relay_.get(), deadline)) {
    throw checkpoint::timed_out(step(), level);
  }
  if (const std::optional<Error> error = job_->deliver_error(level)) throw *error;
}

}  // namespace penstock
