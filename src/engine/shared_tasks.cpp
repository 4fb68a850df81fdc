#include "engine/shared_tasks.hpp"

#include <algorithm>
#include <bit>

#include "engine/progress.hpp"
#include "engine/task_runner.hpp"
#include "penstock/trace.hpp"

namespace penstock::engine {
namespace {

constexpr std::uint64_t bit(std::uint32_t group) { return std::uint64_t{1} << group; }

std::uint64_t address_of(const std::byte* memory) { return reinterpret_cast<std::uint64_t>(memory); }

}  // namespace

void SharedTasks::begin(Operation& operation) {
  if (tasks_of(operation).count() == 0) return;
  states_[operation] = {.is_published = true};
  ++operation.pins;
  published_.push_back(&operation);
}

void SharedTasks::post(Operation& operation, StepId step) {
  // Does not queue behind deferred steps: they may wait for the slot that this operation uses.
  if (!slot_is_free(operation)) return deferred_.push_back({&operation, step});
  enter(operation, step);
}

void SharedTasks::enter(Operation& operation, StepId step) {
  const CompiledTasks& tasks = tasks_of(operation);
  State& state = states_[operation];
  const std::uint32_t group = tasks.group_of_step(step);
  TaskTable::Entry& own = entry(operation, core_.self());
  if (state.entered_groups == 0) {
    const Plan& plan = operation.plan();
    const Bindings& bindings = operation.call.bindings;
    std::uint64_t input = address_of(bindings.input.data());
    std::uint64_t output = address_of(bindings.output.data());
    if (plan.input_bytes == 0)
      input = output + plan.stand_in_offset_bytes;
    else if (plan.output_bytes == 0)
      output = input + plan.stand_in_offset_bytes;
    own.address = {input, output, address_of(operation.scratch), core_.shared_offset(operation)};
    own.signature = operation.call.signature;
    own.entered.store(0, std::memory_order_relaxed);
    own.sequence_plus_1.store(operation.sequence + 1, std::memory_order_seq_cst);
  }
  state.entered_groups |= bit(group);
  own.left[group].store(tasks.own_count(group), std::memory_order_relaxed);
  own.entered.fetch_or(bit(group), std::memory_order_seq_cst);
  task_table_.change(operation.sequence);

  // Compares the signatures of all ranks that have entered. Of two ranks that differ, the later one sees the other and
  // reports it.
  for (std::uint32_t rank = 0; rank < ranks(); ++rank)
    if (task_table_.has_come(operation.sequence, rank) && entry(operation, rank).signature != operation.call.signature)
      return core_.fail_mismatch(operation, core_.node.ranks[rank], Core::kOtherCall);
  if (tasks.own_count(group) == 0) return core_.complete(operation, step);
  state.open_groups |= bit(group);
  std::uint32_t woken = 0;
  for (std::uint32_t task = 0; task < tasks.count() && woken < ranks(); ++task)
    if (tasks.group_of_task(task) == group && is_ready(operation, task)) wake_for(operation, task, ++woken);
}

bool SharedTasks::is_ready(const Operation& operation, std::uint32_t task) const {
  const std::uint64_t group = bit(tasks_of(operation).group_of_task(task));
  for (const std::uint32_t rank : tasks_of(operation).ranks(task)) {
    const TaskTable::Entry& other = entry(operation, rank);
    if (!task_table_.has_come(operation.sequence, rank) || other.signature != operation.call.signature ||
        (other.entered.load(std::memory_order_seq_cst) & group) == 0)
      return false;
  }
  return std::ranges::all_of(operation.plan().tasks[task].after, [&](std::uint32_t earlier) {
    return earlier == SharedTask::kNone || task_table_.is_done(operation.sequence, earlier);
  });
}

// Wakes a sleeper for a task that has become ready. Any thread of the node can run it, so one sleeper is enough; `turn`
// starts the search at a different rank for each task. A task on the application lane wakes the ranks that it touches.
void SharedTasks::wake_for(const Operation& operation, std::uint32_t task, std::uint32_t turn) {
  const auto wake = [&](std::uint32_t rank) {
    Doorbell& bell = core_.slot(rank).bell;
    if (bell.sleepers.load(std::memory_order_seq_cst) == 0) return false;
    bell.ring_always();
    return true;
  };
  if (operation.plan().tasks[task].lane == Lane::application) {
    for (const std::uint32_t rank : tasks_of(operation).ranks(task)) wake(rank);
    return;
  }
  for (std::uint32_t i = 0; i < ranks(); ++i)
    if (wake((core_.self() + turn + i) % ranks())) return;
}

// The next task that the caller may run. If tasks have no order, each rank starts at a different one, to avoid
// contention; with one task per rank it starts at its own.
std::optional<std::uint32_t> SharedTasks::find_task(const Operation& operation, Caller caller) const {
  const CompiledTasks& tasks = tasks_of(operation);
  State& state = states_[operation];
  const std::uint64_t version = std::uint64_t{task_table_.version(operation.sequence)} + 1;
  std::uint64_t& scanned = state.scanned[static_cast<std::size_t>(caller)];
  if (scanned == version) return std::nullopt;
  const std::uint32_t count = tasks.count();
  const auto shift = tasks.is_ordered() ? 0 : static_cast<std::uint32_t>(std::uint64_t{count} * core_.self() / ranks());
  for (std::uint32_t i = state.scan_from; i < count; ++i) {
    const std::uint32_t task = (i + shift) % count;
    if (task_table_.is_claimed(operation.sequence, task)) {
      if (i == state.scan_from) ++state.scan_from;
      continue;
    }
    if (caller == Caller::progress_thread && operation.plan().tasks[task].lane == Lane::application) continue;
    if (is_ready(operation, task)) return task;
  }
  scanned = version;
  return std::nullopt;
}

bool SharedTasks::claim(const Operation& operation, std::uint32_t task) {
  std::atomic<std::uint32_t>& running = entry(operation, core_.self()).running;
  running.fetch_add(1, std::memory_order_seq_cst);
  const bool is_safe =
      !operation.has_failed() && std::ranges::none_of(tasks_of(operation).ranks(task), [&](std::uint32_t rank) {
        return Failures::has(core_.slot(rank), operation.sequence);
      });
  if (is_safe && task_table_.claim(operation.sequence, task)) return true;
  running.fetch_sub(1, std::memory_order_seq_cst);
  return false;
}

bool SharedTasks::run(Locked& lock) {
  for (Operation* const operation : published_) {
    if (operation->has_failed()) continue;
    while (const auto task = find_task(*operation, core_.caller)) {
      if (claim(*operation, *task)) {
        run_task(*operation, *task, lock);
        return true;
      }
      if (!task_table_.is_claimed(operation->sequence, *task)) break;  // a rank has failed; its notice is on its way
    }
  }
  return false;
}

bool SharedTasks::run_front(Operation& operation, Locked& lock) {
  if (operation.has_failed() || !operation.is_running() || operation.is_finished()) return false;
  for (const std::uint32_t task : tasks_of(operation).front())
    if (!task_table_.is_claimed(operation.sequence, task) && is_ready(operation, task) && claim(operation, task)) {
      run_task(operation, task, lock);
      return true;
    }
  return false;
}

void SharedTasks::run_task(Operation& operation, std::uint32_t task, Locked& lock) {
  const Caller caller = core_.caller;
  // Progress threads do not listen to the bell of an engine that a waiting thread drives, so they are woken explicitly.
  if (core_.options.progress_threads > 0 && caller == Caller::application &&
      states_[operation].scan_from + 1 < tasks_of(operation).count())
    Progress::of_process().help_wanted();
  core_.run_unlocked(operation, lock, [&] {
    struct Running {
      std::atomic<std::uint32_t>& count;
      ~Running() { count.fetch_sub(1, std::memory_order_seq_cst); }
    } const running{entry(operation, core_.self()).running};
    move_data(operation, task, caller);
    finish_task(operation, task);
  });
  poll();
}

void SharedTasks::move_data(const Operation& operation, std::uint32_t id, Caller caller) const {
  const Plan& plan = operation.plan();
  const SharedTask& task = plan.tasks[id];
  thread_local std::vector<Place> places;
  places.clear();
  const std::size_t regions = std::size_t{task.source_count} + task.target_count;
  for (std::size_t i = task.first_region; i < task.first_region + regions; ++i) {
    const RankRegion& each = plan.task_regions[i];
    const std::uint32_t rank = core_.local(each.rank);
    const std::uint64_t begin = entry(operation, rank).address[static_cast<std::size_t>(each.region.buffer)];
    Place place{core_.node.process[rank], begin + each.region.offset_bytes, each.rank};
    if (each.region.buffer == Buffer::shared) place.address += address_of(core_.node.segment->ring(rank));
    if (each.region.buffer == Buffer::shared || place.process == core_.node.process[core_.self()]) place.process = 0;
    places.push_back(place);
  }
  const std::uint64_t bytes = plan.task_regions[task.first_region].region.size_bytes;
  const trace::Span span("task", caller == Caller::application ? "application" : "progress", bytes);
  const std::span<const Place> all(places);
  const TaskResult result =
      engine::run_task(operation.call.arithmetic, all.first(task.source_count), all.subspan(task.source_count), bytes);
  if (result.error != 0) core_.detector.throw_unreachable(operation, result.rank, result.error);
}

void SharedTasks::finish_task(const Operation& operation, std::uint32_t task) {
  const CompiledTasks& tasks = tasks_of(operation);
  const std::uint32_t done = task_table_.finish(operation.sequence, task);
  const std::uint32_t group = tasks.group_of_task(task);
  for (const std::uint32_t rank : tasks.ranks(task))
    if (entry(operation, rank).left[group].fetch_sub(1, std::memory_order_seq_cst) == 1) core_.slot(rank).bell.ring();
  if (!tasks.next(task).empty()) {
    task_table_.change(operation.sequence);
    std::uint32_t woken = 0;
    for (const std::uint32_t next : tasks.next(task))
      if (is_ready(operation, next)) wake_for(operation, next, ++woken);
  }
  if (done < tasks.count()) return;
  // Progress threads of ranks whose own part is over may wait for the end of the operation.
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) core_.slot(rank).bell.ring();
}

// With progress threads, a rank whose own part is over still runs tasks of the others, so the operation stays in its
// window. If a rank has died, its tasks never complete, so this ends.
bool SharedTasks::is_serving(const Operation& operation) const {
  return core_.options.progress_threads > 0 && !operation.has_failed() && !core_.detector.has_gone_ranks() &&
         task_table_.done_count(operation.sequence) < tasks_of(operation).count();
}

bool SharedTasks::poll() {
  if (published_.empty()) return false;
  bool moved = false;
  for (std::size_t i = 0; i < deferred_.size();) {
    const Publication publication = deferred_[i];
    if (!slot_is_free(*publication.operation)) {
      ++i;
      continue;
    }
    deferred_.erase(deferred_.begin() + static_cast<std::ptrdiff_t>(i));
    enter(*publication.operation, publication.step);
    moved = true;
  }
  for (std::size_t i = 0; i < published_.size();) {
    Operation& operation = *published_[i];
    State& state = states_[operation];
    for (std::uint64_t open = state.open_groups; open != 0 && !operation.has_failed(); open &= open - 1) {
      const auto group = static_cast<std::uint32_t>(std::countr_zero(open));
      if (entry(operation, core_.self()).left[group].load(std::memory_order_seq_cst) > 0) continue;
      state.open_groups &= ~bit(group);
      core_.complete(operation, tasks_of(operation).step_of_group(group));
      moved = true;
    }
    core_.finish_if_over(operation);
    if (leave(operation)) core_.operations.advance();
    if (i < published_.size() && published_[i] == &operation) ++i;
  }
  core_.drain();
  return moved;
}

bool SharedTasks::leave(Operation& operation) {
  State& state = states_[operation];
  // A thread may still be finishing a task of another rank.
  if (!state.is_published || !operation.is_finished() || operation.executing > 0 || is_serving(operation)) return false;
  state.is_published = false;
  --operation.pins;
  std::erase(published_, &operation);
  return true;
}

bool SharedTasks::is_touched(const Operation& operation) const {
  const State& state = states_[operation];
  if (!state.is_published || state.entered_groups == 0) return false;
  for (std::uint32_t rank = 0; rank < ranks(); ++rank)
    if (rank != core_.self() && entry(operation, rank).running.load(std::memory_order_seq_cst) > 0 &&
        core_.node.segment->is_alive(rank))
      return true;
  return false;
}

bool SharedTasks::has_work(Caller caller) const {
  return std::ranges::any_of(published_, [&](const Operation* operation) {
    if (operation->has_failed()) return false;
    if (operation->is_finished() && !is_serving(*operation)) return true;
    const TaskTable::Entry& own = entry(*operation, core_.self());
    for (std::uint64_t open = states_[*operation].open_groups; open != 0; open &= open - 1)
      if (own.left[static_cast<std::size_t>(std::countr_zero(open))].load(std::memory_order_seq_cst) == 0) return true;
    return find_task(*operation, caller).has_value();
  });
}

bool SharedTasks::needs_polling(Caller) const {
  // A failed operation waits, without a bell, until no rank uses this rank's memory.
  return !deferred_.empty() || std::ranges::any_of(published_, &Operation::has_failed);
}

void SharedTasks::cancel(Operation& operation) {
  std::erase_if(deferred_, [&](const Publication& publication) { return publication.operation == &operation; });
  states_[operation].open_groups = 0;
}

void SharedTasks::waits_for(const Operation& operation, std::vector<int>& peers) const {
  const State& state = states_[operation];
  if (!state.is_published) return;
  if (std::ranges::find(deferred_, &operation, &Publication::operation) != deferred_.end())
    core_.add_last(&RankSlot::completed_before, operation, peers);
  if (state.open_groups == 0) return;
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    const TaskTable::Entry& other = entry(operation, rank);
    bool is_missing = !task_table_.has_come(operation.sequence, rank) ||
                      (other.entered.load() & state.open_groups) != state.open_groups || other.running.load() > 0;
    for (std::uint64_t open = state.open_groups; open != 0 && !is_missing; open &= open - 1)
      is_missing = other.left[static_cast<std::size_t>(std::countr_zero(open))].load() > 0;
    if (is_missing) peers.push_back(core_.node.ranks[rank]);
  }
}

bool SharedTasks::has_heard(const Operation& operation, int peer) const {
  return states_[operation].open_groups != 0 && core_.is_local(peer) &&
         task_table_.has_come(operation.sequence, core_.local(peer));
}

}  // namespace penstock::engine
