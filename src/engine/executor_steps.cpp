#include <algorithm>
#include <system_error>
#include <utility>

#include "engine/borrow.hpp"
#include "engine/executor.hpp"
#include "engine/single_copy.hpp"
#include "penstock/trace.hpp"
#include "plan/arithmetic.hpp"
#include "plan/copy.hpp"
#include "plan/fold.hpp"
#include "plan/streaming.hpp"

namespace penstock::engine {
namespace {

constexpr std::uint64_t kInlineBytes = 4096;           // smaller steps cost less than handing them out
constexpr std::uint64_t kLongCellBytes = 32 << 10;     // how shorter ones are written makes no difference that shows
constexpr std::uint64_t kLargeOutputBytes = 16 << 20;  // of half the length, what is streamed takes longer
constexpr std::uint64_t kStreamedRunBytes = 4096;

const char* lane_name(Lane lane) { return lane == Lane::progress ? "progress" : "application"; }

}  // namespace

void Executor::complete(Operation& operation, StepId step) {
  --operation.steps_left;
  for (const StepId next : operation.compiled->dependents(step))
    if (--operation.waiting_for[next] == 0) ready_.push({&operation, next});
  if (operation.steps_left == 0) finish_if_over(operation);
}

void Executor::drain_ready() {
  while (!ready_.empty()) {
    const Ready next = ready_.pop();
    try {
      issue(*next.operation, next.step);
    } catch (const Error& error) {
      fail(*next.operation, error, true);
    }
  }
}

void Executor::issue(Operation& operation, StepId step) {
  const Step& what = operation.plan->steps[step];
  switch (what.kind) {
    case StepKind::send:
    case StepKind::lend: return post_send(operation, step);
    case StepKind::expose: {
      if (operation.by_flags) {
        show(operation, what);
        return complete(operation, step);
      }
      Header header = header_for(operation, MessageKind::expose, what.tag);
      header.address = operation.shared_offset;
      if (what.peer == rank_)
        arrive(header, {});
      else
        send_control(what.peer, header, &operation);
      if (!operation.failed) complete(operation, step);
      return;
    }
    case StepKind::share: return share(operation, step);
    case StepKind::recv:
    case StepKind::await:
    case StepKind::borrow:
      operation.flags[step] |= Operation::posted;
      if (StoredMessage* message = std::exchange(operation.arrived[step], nullptr)) {
        deliver(operation, step, message->header, {message->payload, message->payload_bytes});
        forget(message);
      }
      return;
    default:
      if (operation.shown && what.to.buffer == Buffer::shared) return complete(operation, step);
      // An operation of the user's must not run under the lock: it may need another one, such as Python's.
      if (std::max(what.from.size_bytes, what.to.size_bytes) <= kInlineBytes && may_run(what.lane) &&
          !(operation.arithmetic.user && (what.kind == StepKind::reduce || what.kind == StepKind::fold))) {
        compute(operation, step);
        complete(operation, step);
      } else {
        tasks_[index_of(what.lane)].push({&operation, step, false, {}});
      }
  }
}

ConstBytes Executor::source(const Operation& operation, const Region& region) const {
  if (region.buffer == Buffer::input) return operation.bindings.input.subspan(region.offset_bytes, region.size_bytes);
  return target(operation, region);
}

Bytes Executor::target(const Operation& operation, const Region& region) const {
  switch (region.buffer) {
    case Buffer::scratch: return {operation.scratch + region.offset_bytes, region.size_bytes};
    case Buffer::shared: return {operation.shared + region.offset_bytes, region.size_bytes};
    default: return operation.bindings.output.subspan(region.offset_bytes, region.size_bytes);
  }
}

// What a `read` or `unpack` takes from its peer.
ConstBytes Executor::shared_of_peer(const Operation& operation, const Step& step) const {
  if (step.peer == rank_) return {operation.shared + step.from.offset_bytes, step.from.size_bytes};
  const std::uint32_t peer = local(step.peer);
  if (operation.plan->by_flags)
    return {flags_->of(peer, operation.sequence).data + step.from.offset_bytes, step.from.size_bytes};
  const std::uint64_t base = operation.peer_shared_offset[peer];
  if (base == ~std::uint64_t{0})
    throw Error(ErrorCode::internal,
                "the plan '" + operation.plan->algorithm + "' reads the shared buffer of rank " +
                    std::to_string(step.peer) + " before an await of it",
                rank_);
  return {node_.segment->arena(peer) + base + step.from.offset_bytes, step.from.size_bytes};
}

void Executor::copy(const Operation& operation, const Step& step, Bytes to, ConstBytes from) {
  if (plan::copy_as_string(to.data(), from.data(), to.size())) return;
  if (stores(operation, step, to) == plan::Stores::past_caches)
    plan::stream_bytes(to.data(), from.data(), to.size());
  else
    plan::copy_bytes(to.data(), from.data(), to.size());
}

// What far readers get goes through memory: they would wait longer for each line from the caches of this core, and this
// core for theirs. So does what no cache will hold: an ordinary store first reads the line that it overwrites.
plan::Stores Executor::stores(const Operation& operation, const Step& step, Bytes to) {
  const bool past_caches = step.to.buffer == Buffer::shared
                               ? to.size() >= kLongCellBytes && distance_.is_far(to)
                               : step.to.buffer == Buffer::output &&
                                     operation.bindings.output.size() >= kLargeOutputBytes &&
                                     to.size() >= kStreamedRunBytes;
  return past_caches ? plan::Stores::past_caches : plan::Stores::by_size;
}

// With or without the lock: touches nothing but the step's memory.
void Executor::compute(Operation& operation, StepId step) {
  const Step& what = operation.plan->steps[step];
  const Bytes to = target(operation, what.to);
  const char* lane = lane_name(what.lane);
  switch (what.kind) {
    case StepKind::copy: {
      const trace::Span span("copy", lane, to.size());
      return copy(operation, what, to, source(operation, what.from));
    }
    case StepKind::reduce: {
      const trace::Span span("reduce", lane, to.size());
      return plan::reduce(operation.arithmetic, source(operation, what.from), to);
    }
    case StepKind::fold: {
      const trace::Span span("fold", lane, what.from.size_bytes);
      return plan::fold(operation.arithmetic, plan::parts_of(source(operation, what.from), what.to.size_bytes), to);
    }
    case StepKind::transform: {
      const trace::Span span("transform", lane, to.size());
      return plan::transform(operation.arithmetic, plan::element_types(operation.arithmetic, what),
                             std::span(operation.plan->blocks).subspan(what.first_block, what.block_count), what.scaled,
                             source(operation, what.from), to, stores(operation, what, to));
    }
    case StepKind::read: {
      const trace::Span span("read", lane, to.size());
      return copy(operation, what, to, shared_of_peer(operation, what));
    }
    case StepKind::unpack: {
      const trace::Span span("unpack", lane, what.from.size_bytes);
      return plan::transform(operation.arithmetic, plan::element_types(operation.arithmetic, what),
                             std::span(operation.plan->blocks).subspan(what.first_block, what.block_count), what.scaled,
                             shared_of_peer(operation, what), to);
    }
    default: return;
  }
}

// True when the message has been copied; false when its sender has failed meanwhile, whose notice will come.
bool Executor::copy_from_peer(const Task& task) {
  const Step& what = task.operation->plan->steps[task.step];
  const trace::Span span("recv", lane_name(what.lane), task.rts.bytes);
  const int peer = static_cast<int>(task.rts.source);
  const pid_t process = node_.process[local(peer)];
  const Bytes to = target(*task.operation, what.to);
  const int error = what.kind == StepKind::borrow ? borrow(*task.operation->plan, what, task.operation->arithmetic,
                                                           {process, task.rts.address}, to)
                                                  : read_memory(process, task.rts.address, to);
  // The sender's memory is the message's only until its operation is over, and it shows a failure before that.
  if (peer_has_failed(peer, task.rts.sequence)) return false;
  if (error == 0) return true;
  if (!node_.segment->is_alive(local(peer)))
    throw Error(ErrorCode::peer_failed,
                "rank " + std::to_string(peer) + " has gone while rank " + std::to_string(rank_) +
                    " read a message from its memory: its process ended",
                peer);
  throw Error(ErrorCode::io,
              "rank " + std::to_string(rank_) + " could not read a message of rank " + std::to_string(peer) +
                  " from its memory; PENSTOCK_SINGLE_COPY=off avoids that",
              rank_, std::generic_category().message(error));
}

bool Executor::run_task(std::unique_lock<std::mutex>& lock, Lane lane) {
  Fifo<Task>& tasks = tasks_[index_of(lane)];
  if (tasks.empty()) return false;
  const Task task = tasks.pop();
  Operation& owner = *task.operation;
  ++owner.executing;
  const Caller caller = caller_;
  if (wants_thread && !tasks_[index_of(Lane::progress)].empty()) Progress::of_process().help_wanted();
  lock.unlock();
  std::optional<Error> error;
  bool done = true;
  try {
    if (task.single_copy)
      done = copy_from_peer(task);
    else
      compute(owner, task.step);
  } catch (const Error& thrown) {
    error = thrown;
  } catch (const std::exception& thrown) {
    error.emplace(ErrorCode::internal, "a step failed", rank_, thrown.what());
  }
  lock.lock();
  caller_ = caller;
  --owner.executing;
  if (error && !owner.failed) fail(owner, *error, true);
  if (owner.failed) {
    finish_if_over(owner);
    return true;
  }
  if (!done) return true;
  if (task.single_copy) {
    Header fin = header_for(owner, MessageKind::fin);
    fin.sender_transfer = task.rts.sender_transfer;
    send_control(static_cast<int>(task.rts.source), fin, &owner);
  }
  complete(owner, task.step);
  drain_ready();
  // Whoever sleeps in wait() runs the application lane.
  if (caller_ == Caller::progress_thread && !tasks_[index_of(Lane::application)].empty()) bell().ring();
  return true;
}

bool Executor::help() noexcept {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  caller_ = Caller::progress_thread;
  bool moved = false;
  try {
    moved = run_task(lock, Lane::progress) || run_shared_task(lock);
  } catch (const std::exception& error) {
    fail_all(Error(ErrorCode::internal, "progress failed", rank_, error.what()));
  }
  update_active();
  return moved;
}

}  // namespace penstock::engine
