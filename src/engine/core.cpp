#include "engine/core.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "engine/progress.hpp"
#include "penstock/trace.hpp"

namespace penstock::engine {
namespace {

long online_cores() {
  static const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);  // reads a file
  return cores;
}

std::string traced_name(const Plan& plan) {
  if (plan.application_levels == 0) return plan.algorithm;
  return plan.algorithm + " S=" + std::to_string(plan.application_levels);
}

}  // namespace

Core::Core(std::shared_ptr<Transport> by, const EngineOptions& given, Node on)
    : node(std::move(on)),
      options(given),
      rank(node.team.rank),
      has_remote(node.ranks.size() < node.team.node_of_rank.size() && node.team.size() > 1),
      shares_cores(static_cast<long>(node.ranks.size()) > online_cores()),
      transport(std::move(by)),
      operations(node.segment.get()),
      detector(*this),
      notices(*this),
      own_bell(node.segment ? node.segment->slot(node.segment->local_rank()).bell : private_bell_) {}

std::uint64_t Core::completed_by_all() const {
  std::uint64_t completed = operations.base();
  for (std::uint32_t peer = 0; peer < node.ranks.size(); ++peer)
    completed = std::min(completed, slot(peer).completed_before.load(std::memory_order_acquire));
  return completed;
}

void Core::add_last(std::atomic<std::uint64_t> RankSlot::*reached, const Operation& operation,
                    std::vector<int>& peers) const {
  const auto of = [&](std::uint32_t peer) { return (slot(peer).*reached).load(std::memory_order_acquire); };
  std::uint64_t least = operation.sequence;
  for (std::uint32_t peer = 0; peer < node.ranks.size(); ++peer) least = std::min(least, of(peer));
  for (std::uint32_t peer = 0; peer < node.ranks.size(); ++peer)
    if (of(peer) == least && least < operation.sequence) peers.push_back(node.ranks[peer]);
}

std::string Core::describe(const Operation& operation) const {
  std::string text = "operation " + std::to_string(operation.sequence);
  if (operation.call.plan) text += " (" + operation.plan().algorithm + ")";
  return text;
}

Header Core::header(std::uint64_t sequence, MessageKind kind) const {
  Header header;
  header.sequence = sequence;
  header.source = static_cast<std::uint32_t>(rank);
  header.kind = kind;
  return header;
}

Header Core::header_for(const Operation& operation, MessageKind kind, std::uint32_t tag) const {
  Header header = this->header(operation.sequence, kind);
  header.signature = operation.call.signature;
  header.tag = tag;
  return header;
}

void Core::launch(Operation& operation) {
  const Plan& plan = operation.plan();
  const CompiledPlan& compiled = *operation.call.compiled;
  const Bytes given = operation.call.bindings.scratch;
  operation.scratch = given.empty() ? buffers.take(plan.scratch_bytes) : given.data();
  operation.waiting_for = compiled.dependency_counts();
  operation.steps_left = plan.steps.size();
  operation.stage = Operation::Stage::running;
  begin(operation);
  for (const StepId step : compiled.roots()) {
    if (operation.has_failed()) break;
    run_ready({&operation, step});
  }
  drain();
}

void Core::launch_rest(Operation& operation, std::uint32_t has_run, std::uint32_t is_posted, bool goes_on) {
  const CompiledPlan& compiled = *operation.call.compiled;
  const auto steps = static_cast<StepId>(operation.plan().steps.size());
  operation.waiting_for = compiled.dependency_counts();
  operation.steps_left = steps;
  operation.stage = Operation::Stage::running;
  begin(operation);
  if (!goes_on) return;
  const auto is_in = [](std::uint32_t bits, StepId step) { return (bits >> step & 1) != 0; };
  for (StepId step = 0; step < steps; ++step) {
    if (!is_in(has_run, step)) continue;
    --operation.steps_left;
    for (const StepId next : compiled.dependents(step)) --operation.waiting_for[next];
  }
  for (StepId step = 0; step < steps; ++step)
    if (!is_in(has_run | is_posted, step) && operation.waiting_for[step] == 0) ready_.push({&operation, step});
  drain();
}

void Core::drain() {
  while (!ready_.empty()) run_ready(ready_.pop());
}

void Core::run_ready(const Ready& ready) {
  try {
    issue(*ready.operation, ready.step);
  } catch (const Error& error) {
    fail(*ready.operation, error);
  }
}

void Core::finish_if_over(Operation& operation) {
  if (operation.stage == Operation::Stage::expected || operation.is_finished()) return;
  if (!operation.has_failed() && (!operation.is_running() || operation.steps_left > 0)) return;
  if (operation.executing > 0 || operation.in_flight > 0) return;
  if (operation.has_failed() && is_touched(operation)) return;
  const Call& call = operation.call;
  if (call.plan) {
    if (call.begin_ns != 0 && trace::enabled())
      trace::detail::record({trace::intern(traced_name(*call.plan)), "operation", call.begin_ns,
                             trace::detail::now_ns(), call.plan->input_bytes, 0});
    if (call.bindings.scratch.empty()) buffers.give_back(operation.scratch, call.plan->scratch_bytes);
    if (!node.segment) buffers.give_back(operation.shared, call.plan->shared_bytes);
  }
  operation.scratch = operation.shared = nullptr;
  operations.finish(operation);
  ring_waiting();
  end(operation);
  operations.advance();
}

bool Core::run_work(Locked& lock, Lane lane) {
  Fifo<Work>& queue = work_[static_cast<std::size_t>(lane)];
  if (queue.empty()) return false;
  const Work work = queue.pop();
  if (options.progress_threads > 0 && has_work(Lane::progress)) Progress::of_process().help_wanted();
  bool result = false;
  if (!run_unlocked(*work.operation, lock, [&] { result = work.worker->run(work); })) return true;
  work.worker->finish(work, result);
  drain();
  if (caller == Caller::progress_thread && has_work(Lane::application)) ring_waiting();
  return true;
}

void Core::fail(Operation& operation, const Error& error, bool tell_all, int partner) {
  if (operation.has_failed() || operation.is_finished()) return;
  operation.error = error;
  const bool is_death = dynamic_cast<const PeerGone*>(&error) != nullptr;
  if (is_death) detector.note_death(error.rank(), operation.sequence);
  const auto is_its = [&](const auto& entry) { return entry.operation == &operation; };
  ready_.remove_if(is_its);
  for (Fifo<Work>& queue : work_) queue.remove_if(is_its);
  cancel(operation);
  try {
    if (tell_all) notices.tell(operation, is_death, partner);
  } catch (const std::bad_alloc&) {
    // Peers of this node find this failure below, others when they wait for this rank's messages.
  }
  // After the notices: who finds it here has been sent the notice, if there was a cell for it.
  if (tell_all && node.segment) FailuresForAll::add(own_slot(), operation.sequence);
  finish_if_over(operation);
}

void Core::fail(Operation& operation, const std::exception_ptr& thrown, const char* what) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    fail(operation, error);
  } catch (const std::exception& error) {
    fail(operation, Error(ErrorCode::internal, what, rank, error.what()));
  } catch (...) {
    fail(operation, Error(ErrorCode::internal, what, rank, "an exception that is not a std::exception"));
  }
}

void Core::fail_mismatch(Operation& operation, int peer, const std::string& what) {
  // Ranks that learned of a death in different operations may call different operations afterwards. Report the death.
  if (const int gone = detector.find_dead(); gone >= 0)
    return fail(operation, FailureDetector::gone_error(gone, describe(operation)));
  // What came may be a piece of a block whose length the peer has told.
  const std::string lengths = differing_lengths(operation, peer);
  fail(operation, notices.mismatch(peer, describe(operation), lengths.empty() ? what : lengths), true, peer);
}

std::string Core::other_length(int peer, std::optional<std::uint64_t> sent_bytes, std::uint64_t expected_bytes) const {
  const std::string sent = sent_bytes ? std::to_string(*sent_bytes) + " bytes" : "more";
  return "rank " + std::to_string(peer) + " sent " + sent + " where rank " + std::to_string(rank) + " expected " +
         std::to_string(expected_bytes) + " bytes";
}

void Core::fail_all(const Error& error) noexcept {
  operations.for_each_unfinished([&](Operation& each) { fail(each, error); });
  if (!transport_broken) return;
  operations.for_each_unfinished([&](Operation& each) {
    each.in_flight = 0;
    finish_if_over(each);
  });
}

}  // namespace penstock::engine
