#include <algorithm>
#include <bit>
#include <chrono>
#include <system_error>

#include <sched.h>

#include "engine/executor.hpp"
#include "engine/task_runner.hpp"
#include "penstock/trace.hpp"

namespace penstock::engine {
namespace {

// How long start() waits for peers that have to come before the front of a split tree can run: MPI promises that a
// non-blocking call does not depend on others, so what cannot run in this time runs in test and wait.
constexpr std::chrono::microseconds kFrontPatience{1000};

constexpr std::uint64_t bit(std::uint32_t set) { return std::uint64_t{1} << set; }

std::uint64_t address_of(const std::byte* memory) { return reinterpret_cast<std::uint64_t>(memory); }

}  // namespace

bool Executor::slot_is_free(std::uint64_t sequence) const {
  if (sequence < Board::kSlots) return true;
  for (std::uint32_t rank = 0; rank < node_.ranks.size(); ++rank)
    if (node_.segment->slot(rank).completed_before.load(std::memory_order_acquire) <= sequence - Board::kSlots)
      return false;
  return true;
}

void Executor::share(Operation& operation, StepId step) {
  operation.flags[step] |= Operation::posted;
  // Not behind those that are held: they may wait for the slot that this operation has.
  if (!slot_is_free(operation.sequence)) return held_shares_.push_back({&operation, step});
  enter(operation, step);
}

void Executor::enter(Operation& operation, StepId step) {
  const CompiledTasks& tasks = operation.compiled->tasks();
  const std::uint32_t set = tasks.set_of_step(step);
  Board::Entry& entry = board_->entry(operation.sequence, self());
  if (operation.entered_sets == 0) {
    const Plan& plan = *operation.plan;
    std::uint64_t input = address_of(operation.bindings.input.data());
    std::uint64_t output = address_of(operation.bindings.output.data());
    if (plan.input_bytes == 0)
      input = output + plan.stand_in_offset_bytes;
    else if (plan.output_bytes == 0)
      output = input + plan.stand_in_offset_bytes;
    entry.address = {input, output, address_of(operation.scratch), operation.shared_offset};
    entry.signature = operation.signature;
    entry.entered.store(0, std::memory_order_relaxed);
    entry.sequence.store(operation.sequence, std::memory_order_seq_cst);
  }
  operation.entered_sets |= bit(set);
  entry.left[set].store(tasks.own_count(set), std::memory_order_relaxed);
  entry.entered.fetch_or(bit(set), std::memory_order_seq_cst);
  board_->change(operation.sequence);

  for (std::uint32_t rank = 0; rank < node_.ranks.size(); ++rank) {
    const Board::Entry& other = board_->entry(operation.sequence, rank);
    if (other.sequence.load(std::memory_order_seq_cst) != operation.sequence || other.signature == operation.signature)
      continue;
    Header header;
    header.source = static_cast<std::uint32_t>(node_.ranks[rank]);
    return fail_mismatch(operation, header, "they called different operations, or with different arguments");
  }
  if (tasks.own_count(set) == 0) return complete(operation, step);
  operation.open_sets |= bit(set);
  std::uint32_t woken = 0;
  for (std::uint32_t task = 0; task < tasks.count() && woken < node_.ranks.size(); ++task)
    if (tasks.set_of_task(task) == set && is_ready(operation, task)) {
      wake_for(operation, task, ++woken);
    }
}

// A rank that called something else has not come to this operation: of two such ranks at least one sees the other when
// it enters, and tells everybody.
bool Executor::has_entered(const Operation& operation, std::uint32_t task, std::uint32_t local_rank) const {
  const Board::Entry& entry = board_->entry(operation.sequence, local_rank);
  return entry.sequence.load(std::memory_order_seq_cst) == operation.sequence &&
         entry.signature == operation.signature &&
         (entry.entered.load(std::memory_order_seq_cst) & bit(operation.compiled->tasks().set_of_task(task))) != 0;
}

bool Executor::is_ready(const Operation& operation, std::uint32_t task) const {
  for (const std::uint32_t rank : operation.compiled->tasks().ranks(task))
    if (!has_entered(operation, task, rank)) return false;
  for (const std::uint32_t earlier : operation.plan->tasks[task].after)
    if (earlier != SharedTask::kNone && !board_->is_done(operation.sequence, earlier)) return false;
  return true;
}

// One sleeper is enough for a task that any thread may take, another one for each task; what is left to applications
// needs one of them.
void Executor::wake_for(const Operation& operation, std::uint32_t task, std::uint32_t turn) {
  const auto count = static_cast<std::uint32_t>(node_.ranks.size());
  const auto wake = [&](std::uint32_t rank) {
    Doorbell& bell = node_.segment->slot(rank).bell;
    if (bell.sleepers.load(std::memory_order_seq_cst) == 0) return false;
    bell.ring_always();
    return true;
  };
  if (operation.plan->tasks[task].lane == Lane::application) {
    for (const std::uint32_t rank : operation.compiled->tasks().ranks(task)) wake(rank);
    return;
  }
  for (std::uint32_t i = 0; i < count; ++i)
    if (wake((self() + turn + i) % count)) return;
}

// The next task that the caller may run now. Tasks without an order are begun at another place by each rank, so that
// they rarely reach for the same one, and for blocks of the ranks it is the own one.
std::optional<std::uint32_t> Executor::find_task(Operation& operation, Caller caller) const {
  const CompiledTasks& tasks = operation.compiled->tasks();
  const std::uint64_t version = std::uint64_t{board_->version(operation.sequence)} + 1;
  std::uint64_t& scanned = operation.scanned[static_cast<std::size_t>(caller)];
  if (scanned == version) return std::nullopt;
  const std::uint32_t count = tasks.count();
  const auto shift =
      tasks.is_ordered() ? 0 : static_cast<std::uint32_t>(std::uint64_t{count} * self() / node_.ranks.size());
  for (std::uint32_t i = operation.scan_from; i < count; ++i) {
    const std::uint32_t task = (i + shift) % count;
    if (board_->is_claimed(operation.sequence, task)) {
      if (i == operation.scan_from) ++operation.scan_from;
      continue;
    }
    if (caller == Caller::progress_thread && operation.plan->tasks[task].lane == Lane::application) continue;
    if (is_ready(operation, task)) return task;
  }
  scanned = version;
  return std::nullopt;
}

bool Executor::begin_task(const Operation& operation, std::uint32_t task) {
  std::atomic<std::uint32_t>& running = board_->entry(operation.sequence, self()).running;
  running.fetch_add(1, std::memory_order_seq_cst);
  bool is_safe = !operation.failed;
  for (const std::uint32_t rank : operation.compiled->tasks().ranks(task))
    is_safe = is_safe && !peer_has_failed(node_.ranks[rank], operation.sequence);
  if (is_safe && board_->claim(operation.sequence, task)) return true;
  running.fetch_sub(1, std::memory_order_seq_cst);
  return false;
}

bool Executor::run_shared_task(std::unique_lock<std::mutex>& lock) {
  for (std::size_t i = 0; i < sharing_.size(); ++i) {
    Operation& operation = *sharing_[i];
    if (operation.failed) continue;
    while (const auto task = find_task(operation, caller_)) {
      if (begin_task(operation, *task)) {
        run_task_of(operation, *task, lock);
        return true;
      }
      if (!board_->is_claimed(operation.sequence, *task)) break;  // a rank has failed; its notice will come
    }
  }
  return false;
}

void Executor::run_task_of(Operation& operation, std::uint32_t task, std::unique_lock<std::mutex>& lock) {
  ++operation.executing;
  const Caller caller = caller_;
  // A progress thread does not listen to the bell of an engine whose own thread waits.
  if (wants_thread && caller == Caller::application && operation.scan_from + 1 < operation.compiled->tasks().count())
    Progress::of_process().help_wanted();
  lock.unlock();
  std::optional<Error> error;
  try {
    move_data(operation, task, caller);
    finish_task(operation, task);
  } catch (const Error& thrown) {
    error = thrown;
  } catch (const std::exception& thrown) {
    error.emplace(ErrorCode::internal, "a shared task failed", rank_, thrown.what());
  }
  board_->entry(operation.sequence, self()).running.fetch_sub(1, std::memory_order_seq_cst);
  lock.lock();
  caller_ = caller;
  --operation.executing;
  if (error && !operation.failed) fail(operation, *error, true);
  poll_shares();
  finish_if_over(operation);
}

void Executor::move_data(const Operation& operation, std::uint32_t id, Caller caller) const {
  const Plan& plan = *operation.plan;
  const SharedTask& task = plan.tasks[id];
  thread_local std::vector<Place> places;
  places.clear();
  const std::size_t regions = std::size_t{task.source_count} + task.target_count;
  for (std::size_t i = task.first_region; i < task.first_region + regions; ++i) {
    const RankRegion& each = plan.task_regions[i];
    const std::uint32_t rank = local(each.rank);
    const std::uint64_t begin =
        board_->entry(operation.sequence, rank).address[static_cast<std::size_t>(each.region.buffer)];
    Place place{node_.process[rank], begin + each.region.offset_bytes, each.rank};
    if (each.region.buffer == Buffer::shared) place.address += address_of(node_.segment->arena(rank));
    if (each.region.buffer == Buffer::shared || place.process == node_.process[self()]) place.process = 0;
    places.push_back(place);
  }
  const std::uint64_t bytes = plan.task_regions[task.first_region].region.size_bytes;
  const trace::Span span("task", caller == Caller::application ? "application" : "progress", bytes);
  const std::span<const Place> all(places);
  const TaskResult result =
      engine::run_task(operation.arithmetic, all.first(task.source_count), all.subspan(task.source_count), bytes);
  if (result.error == 0) return;
  if (!node_.segment->is_alive(local(result.rank)))
    throw Error(ErrorCode::peer_failed,
                "rank " + std::to_string(result.rank) + " has gone in " + describe(operation) + ": its process ended",
                result.rank);
  throw Error(ErrorCode::io,
              "rank " + std::to_string(rank_) + " could not reach the memory of rank " + std::to_string(result.rank) +
                  "; PENSTOCK_SINGLE_COPY=off avoids that",
              rank_, std::generic_category().message(result.error));
}

void Executor::finish_task(const Operation& operation, std::uint32_t task) {
  const CompiledTasks& tasks = operation.compiled->tasks();
  const std::uint32_t done = board_->finish(operation.sequence, task);
  const std::uint32_t set = tasks.set_of_task(task);
  for (const std::uint32_t rank : tasks.ranks(task))
    if (board_->entry(operation.sequence, rank).left[set].fetch_sub(1, std::memory_order_seq_cst) == 1)
      node_.segment->slot(rank).bell.ring();
  if (!tasks.next(task).empty()) {
    board_->change(operation.sequence);
    std::uint32_t woken = 0;
    for (const std::uint32_t next : tasks.next(task))
      if (is_ready(operation, next)) wake_for(operation, next, ++woken);
  }
  if (done < tasks.count()) return;
  // Progress threads may wait for the end of an operation that is over for their own rank.
  for (std::uint32_t rank = 0; rank < node_.ranks.size(); ++rank) node_.segment->slot(rank).bell.ring();
}

// A rank whose own part is over still serves the others where it has a progress thread: its operation stays known.
bool Executor::is_serving(const Operation& operation) const {
  return wants_thread && !operation.failed &&
         board_->done_count(operation.sequence) < operation.compiled->tasks().count();
}

bool Executor::poll_shares() {
  bool moved = false;
  for (std::size_t i = 0; i < held_shares_.size();) {
    const Ready held = held_shares_[i];
    if (!slot_is_free(held.operation->sequence)) {
      ++i;
      continue;
    }
    held_shares_.erase(held_shares_.begin() + static_cast<std::ptrdiff_t>(i));
    enter(*held.operation, held.step);
    moved = true;
  }
  for (std::size_t i = 0; i < sharing_.size();) {
    Operation& operation = *sharing_[i];
    const CompiledTasks& tasks = operation.compiled->tasks();
    for (std::uint64_t open = operation.open_sets; open != 0 && !operation.failed; open &= open - 1) {
      const auto set = static_cast<std::uint32_t>(std::countr_zero(open));
      if (board_->entry(operation.sequence, self()).left[set].load(std::memory_order_seq_cst) > 0) continue;
      operation.open_sets &= ~bit(set);
      operation.flags[tasks.step_of_set(set)] |= Operation::matched;
      complete(operation, tasks.step_of_set(set));
      moved = true;
    }
    finish_if_over(operation);
    leave_sharing(operation);
    if (i < sharing_.size() && sharing_[i] == &operation) ++i;
  }
  drain_ready();
  return moved;
}

void Executor::leave_sharing(Operation& operation) {
  if (!operation.sharing || !operation.finished.load(std::memory_order_relaxed)) return;
  // A thread may still be at the end of a task that it ran for others.
  if (operation.executing > 0 || is_serving(operation)) return;
  operation.sharing = false;
  std::erase(sharing_, &operation);
  advance_window();
}

bool Executor::others_touch(const Operation& operation) const {
  if (operation.entered_sets == 0) return false;
  for (std::uint32_t rank = 0; rank < node_.ranks.size(); ++rank)
    if (rank != self() && board_->entry(operation.sequence, rank).running.load(std::memory_order_seq_cst) > 0 &&
        node_.segment->is_alive(rank))
      return true;
  return false;
}

bool Executor::has_shared_work(Caller caller) const {
  for (Operation* operation : sharing_) {
    if (operation->failed) continue;
    if (operation->finished.load(std::memory_order_relaxed) && !is_serving(*operation)) return true;
    const Board::Entry& entry = board_->entry(operation->sequence, self());
    for (std::uint64_t open = operation->open_sets; open != 0; open &= open - 1)
      if (entry.left[static_cast<std::size_t>(std::countr_zero(open))].load(std::memory_order_seq_cst) == 0)
        return true;
    if (find_task(*operation, caller)) return true;
  }
  return false;
}

void Executor::run_front(Operation& operation) {
  const auto deadline = std::chrono::steady_clock::now() + kFrontPatience;
  while (!operation.finished.load(std::memory_order_acquire)) {
    bool moved = false;
    {
      std::unique_lock lock(mutex_);
      if (operation.failed || !operation.running) return;
      caller_ = Caller::application;
      bool is_done = true;
      for (const std::uint32_t task : operation.compiled->tasks().front()) {
        if (board_->is_claimed(operation.sequence, task)) {
          is_done = is_done && board_->is_done(operation.sequence, task);
          continue;
        }
        is_done = false;
        if (!is_ready(operation, task) || !begin_task(operation, task)) continue;
        run_task_of(operation, task, lock);
        moved = true;
        break;
      }
      if (is_done) return;
    }
    if (moved) continue;
    if (std::chrono::steady_clock::now() > deadline) return;
    ::sched_yield();
  }
}

void Executor::add_missing_sharers(const Operation& operation, std::vector<int>& peers) const {
  if (operation.open_sets == 0) return;
  for (std::uint32_t rank = 0; rank < node_.ranks.size(); ++rank) {
    if (rank == self()) continue;
    const Board::Entry& entry = board_->entry(operation.sequence, rank);
    bool is_missing = entry.sequence.load(std::memory_order_seq_cst) != operation.sequence ||
                      (entry.entered.load() & operation.open_sets) != operation.open_sets || entry.running.load() > 0;
    for (std::uint64_t open = operation.open_sets; open != 0 && !is_missing; open &= open - 1)
      is_missing = entry.left[static_cast<std::size_t>(std::countr_zero(open))].load() > 0;
    if (is_missing) peers.push_back(node_.ranks[rank]);
  }
}

}  // namespace penstock::engine
