#include "engine/executor.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "penstock/trace.hpp"

namespace penstock::engine {
namespace {

constexpr std::chrono::microseconds kUnasked{500};  // between looks for what nobody waits for

std::string traced_name(const Plan& plan) {
  if (plan.application_levels == 0) return plan.algorithm;
  return plan.algorithm + " S=" + std::to_string(plan.application_levels);
}

/// What is freed is used again, by MPI for a later communicator, and there data could arrive that is still on its way.
void keep_for_ever(std::unique_ptr<Transport> transport) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::unique_ptr<Transport>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(transport));
}

/// The caller's handle to an operation.
class OperationRun final : public Run {
 public:
  OperationRun(std::shared_ptr<Executor> executor, Operation* operation)
      : executor_(std::move(executor)), operation_(operation) {}

  ~OperationRun() override {
    if (Progress::in_forked_child()) return;
    Progress::of_process().wait_for(*executor_, operation_->finished);
    executor_->drop(operation_);
  }

  bool test() override {
    if (Progress::in_forked_child()) throw_forked();
    if (!done()) Progress::of_process().drive(*executor_);
    if (!done()) return false;
    deliver();
    return true;
  }

  void wait() override {
    if (Progress::in_forked_child()) throw_forked();
    Progress::of_process().wait_for(*executor_, operation_->finished);
    deliver();
  }

  bool done() const noexcept override { return operation_->finished.load(std::memory_order_acquire); }

  [[noreturn]] static void throw_forked() {
    throw Error(ErrorCode::unsupported,
                "this communicator belongs to the parent process; a child of fork() cannot "
                "use it: start the child's own program (spawn), or fork before MPI_Init");
  }

 private:
  void deliver() {
    if (operation_->error && !operation_->delivered.exchange(true)) throw *operation_->error;
  }

  const std::shared_ptr<Executor> executor_;
  Operation* const operation_;
};

}  // namespace

std::shared_ptr<Engine> Engine::create(std::unique_ptr<Transport> transport, const EngineOptions& options) {
  Node node = Node::set_up(*transport, options);
  return std::make_shared<Executor>(std::move(transport), options, std::move(node));
}

Executor::Executor(std::unique_ptr<Transport> transport, const EngineOptions& options, Node node)
    : transport_(std::move(transport)), options_(options), node_(std::move(node)), rank_(node_.team.rank) {
  is_crowded_ = static_cast<long>(node_.ranks.size()) > ::sysconf(_SC_NPROCESSORS_ONLN);
  if (node_.segment != nullptr) {
    cells_.emplace(*node_.segment);
    arena_.emplace(node_.segment->layout().arena_bytes);
    flags_.emplace(*node_.segment);
    if (node_.team.single_copy) board_.emplace(node_.segment->board(), node_.segment->layout().ranks);
    backlog_.resize(node_.ranks.size());
    gone_.resize(node_.ranks.size(), false);
  }
  if (node_.ranks.size() < node_.team.node_of_rank.size() && node_.team.size() > 1)
    remote_.emplace(*transport_, static_cast<RemoteEvents&>(*this),
                    std::max<std::uint64_t>(remote_eager_bytes(), kNoticeTextBytes), node_.communicator);
  wants_thread = options_.progress_threads > 0;
  Progress::of_process().add(*this);
}

Executor::~Executor() {
  Progress::of_process().remove(*this);
  if (Progress::in_forked_child()) {
    static_cast<void>(transport_.release());  // its library belongs to the parent
    return;
  }
  try {
    if (cells_) pump();
    const bool quiet = !remote_ || transport_broken_ || remote_->close();
    if (!quiet) keep_for_ever(std::move(transport_));
  } catch (...) {
    // Nobody is left to be told.
  }
}

Doorbell& Executor::bell() noexcept {
  return node_.segment != nullptr ? node_.segment->slot(node_.segment->local_rank()).bell : own_bell_;
}

std::shared_ptr<Run> Executor::start(std::shared_ptr<const Plan> plan, const Bindings& bindings,
                                     const Arithmetic& arithmetic, std::uint64_t signature) {
  if (Progress::in_forked_child()) OperationRun::throw_forked();
  std::unique_lock lock(mutex_);
  caller_ = Caller::application;
  Operation& started = operation(next_sequence_);
  auto run = std::make_shared<OperationRun>(shared_from_this(), &started);
  ++next_sequence_;
  ++unfinished_;
  started.started = started.has_run = true;
  started.signature = signature;
  started.bindings = bindings;
  started.arithmetic = arithmetic;
  if (trace::enabled()) started.begin_ns = trace::detail::now_ns();
  try {
    started.compiled = plans_.get(plan, node_.team, node_.shared_limit_bytes);
    if (bindings.input.size() < plan->input_bytes || bindings.output.size() < plan->output_bytes)
      throw Error(ErrorCode::invalid_argument,
                  "the plan '" + plan->algorithm + "' needs " + std::to_string(plan->input_bytes) +
                      " bytes of input and " + std::to_string(plan->output_bytes) + " of output, given " +
                      std::to_string(bindings.input.size()) + " and " + std::to_string(bindings.output.size()),
                  rank_);
    if (!bindings.scratch.empty() && bindings.scratch.size() < plan->scratch_bytes)
      throw Error(ErrorCode::invalid_argument,
                  "the plan '" + plan->algorithm + "' needs " + std::to_string(plan->scratch_bytes) +
                      " bytes of scratch memory, given " + std::to_string(bindings.scratch.size()),
                  rank_);
    started.plan = std::move(plan);
    if (!started.failed) begin(started);
  } catch (const Error& error) {
    fail(started, error, true);
  } catch (const std::exception& error) {
    fail(started, Error(ErrorCode::internal, "could not start the operation", rank_, error.what()), true);
  }
  finish_if_over(started);
  update_active();
  const bool has_workers = node_.team.progress_cores > 0;
  const bool has_tasks = started.running && started.compiled->tasks().count() > 0;
  // Without workers nobody else runs the rest of the tree meanwhile.
  const bool has_front = has_tasks && has_workers && !started.compiled->tasks().front().empty();
  lock.unlock();
  if (has_front) run_front(started);
  // What workers can do is not done at the expense of the caller's time.
  if (!run->done() && !wants_thread && !(has_tasks && has_workers)) progress(Caller::application);
  if (active.load(std::memory_order_relaxed)) Progress::of_process().attention(*this);
  return run;
}

Operation& Executor::operation(std::uint64_t sequence) {
  const std::size_t index = static_cast<std::size_t>(sequence - base_sequence_);
  while (window_.size() <= index) window_.push(nullptr);
  Operation*& entry = window_[index];
  if (entry == nullptr) {
    if (idle_operations_.empty()) {
      operations_.push_back(std::make_unique<Operation>());
      idle_operations_.push_back(operations_.back().get());
    }
    entry = idle_operations_.back();
    idle_operations_.pop_back();
    entry->sequence = sequence;
    entry->in_window = true;
  }
  return *entry;
}

void Executor::begin(Operation& operation) {
  if (operation.plan->by_flags) {
    operation.by_flags = true;
    operation.shown = shown_for_ == operation.sequence + 1;
    flagged_.push_back(&operation);
  }
  const bool shows = operation.by_flags || operation.plan->shared_bytes > 0;
  if (shows && (!held_.empty() || !take_shared(operation))) {
    held_.push(&operation);
    return;
  }
  launch(operation);
  drain_ready();
}

bool Executor::take_shared(Operation& operation) {
  if (operation.by_flags) {
    if (!flags_->is_free(operation.sequence, gone_)) return false;
    operation.shared = flags_->of(self(), operation.sequence).data;
    return true;
  }
  const std::uint64_t bytes = operation.plan->shared_bytes;
  if (!arena_) {
    operation.shared = buffers_.take(bytes);
    return true;
  }
  std::uint64_t completed = base_sequence_;
  for (std::uint32_t i = 0; i < node_.ranks.size(); ++i)
    completed = std::min(completed, node_.segment->slot(i).completed_before.load(std::memory_order_acquire));
  arena_->free_before(completed);
  const auto offset = arena_->take(operation.sequence, bytes);
  if (!offset) return false;
  operation.shared_offset = *offset;
  operation.shared = node_.segment->arena(node_.segment->local_rank()) + *offset;
  return true;
}

void Executor::launch(Operation& operation) {
  const Plan& plan = *operation.plan;
  const Bytes given = operation.bindings.scratch;
  operation.scratch = given.empty() ? buffers_.take(plan.scratch_bytes) : given.data();
  operation.waiting_for = operation.compiled->dependency_counts();
  operation.flags.assign(plan.steps.size(), 0);
  operation.arrived.assign(plan.steps.size(), nullptr);
  if (operation.compiled->reads_peers()) operation.peer_shared_offset.assign(node_.ranks.size(), ~std::uint64_t{0});
  operation.steps_left = plan.steps.size();
  operation.running = true;
  operation.leaves_node = operation.compiled->leaves_node();
  if (operation.leaves_node) ++leaving_;
  if (operation.compiled->tasks().count() > 0) {
    operation.sharing = true;
    sharing_.push_back(&operation);
  }
  operation.announced.clear();
  operation.announce_from = 0;
  operation.announced_ahead = 0;
  if (remote_) announce_sends(operation);
  for (const StepId step : operation.compiled->roots()) ready_.push({&operation, step});
  StoredMessage* message = std::exchange(operation.early_first, nullptr);
  operation.early_last = nullptr;
  while (message != nullptr) {
    StoredMessage* next = std::exchange(message->next, nullptr);
    if (operation.failed)
      forget(message);
    else
      match(operation, message->header, {message->payload, message->payload_bytes}, message);
    message = next;
  }
}

bool Executor::progress(Caller caller) noexcept {
  if (Progress::in_forked_child()) return false;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  caller_ = caller;
  bool moved = false;
  try {
    moved = poll();
    if (caller == Caller::progress_thread && !tasks_[index_of(Lane::application)].empty()) bell().ring();
    moved |= run_task(lock, Lane::progress);
    if (caller == Caller::application) moved |= run_task(lock, Lane::application);
    moved |= run_shared_task(lock);
  } catch (const Error& error) {
    transport_broken_ = true;
    fail_all(error);
    moved = true;
  } catch (const std::exception& error) {
    fail_all(Error(ErrorCode::internal, "progress failed", rank_, error.what()));
    moved = true;
  }
  update_active();
  return moved;
}

bool Executor::poll() {
  bool moved = false;
  if (cells_) {
    moved |= poll_cells();
    drain_ready();
    if (backlog_count_ > 0 || !streams_.empty()) moved |= pump();
  }
  if (remote_ && !transport_broken_ && (caller_ == Caller::application || transport_->any_thread()) && is_its_turn()) {
    moved |= remote_->progress();
    drain_ready();
  }
  if (!flagged_.empty()) moved |= poll_flags();
  if (!sharing_.empty() || !held_shares_.empty()) moved |= poll_shares();
  while (!held_.empty() && take_shared(*held_.front())) {
    launch(*held_.pop());
    drain_ready();
    moved = true;
  }
  return moved;
}

// Looking at the transport is a system call for most, and takes the core from the ranks of the node that have messages
// to wait for. What others may send unasked, news of failures and early messages, can wait for a moment.
bool Executor::is_its_turn() {
  if (expects_remote()) return true;
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < kUnasked) return false;
  looked_ = now;
  return true;
}

bool Executor::can_sleep(Caller caller) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::ranges::any_of(flagged_, [&](const Operation* each) { return find_shown(*each) != CompiledPlan::kNone; }))
    return false;
  return (!cells_ || cells_->empty()) && tasks_[index_of(Lane::progress)].empty() && !has_shared_work(caller) &&
         (caller == Caller::progress_thread || tasks_[index_of(Lane::application)].empty());
}

bool Executor::needs_polling(Caller caller) noexcept {
  const std::lock_guard lock(mutex_);
  if (backlog_count_ > 0 || !streams_.empty() || !held_.empty() || !held_shares_.empty()) return true;
  // A failed operation waits in silence until nobody works on this rank's memory any more.
  if (std::ranges::any_of(sharing_, [](const Operation* operation) { return operation->failed; })) return true;
  return remote_ && !transport_broken_ && expects_remote() &&
         (caller == Caller::application || transport_->any_thread());
}

void Executor::poke() noexcept {
  if (Progress::in_forked_child() || remote_) return;  // between nodes, progress() calls the transport all the time
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) transport_->poke();
}

void Executor::update_active() {
  const bool now =
      unfinished_ > 0 || backlog_count_ > 0 || !sharing_.empty() || (remote_ && !transport_broken_ && remote_->busy());
  if (active.load(std::memory_order_relaxed) != now) active.store(now, std::memory_order_seq_cst);
  slow.store(remote_ && remote_->is_slow(), std::memory_order_relaxed);
  polls_transport.store(remote_ && expects_remote(), std::memory_order_relaxed);
}

void Executor::finish_if_over(Operation& operation) {
  if (!operation.started || operation.finished.load(std::memory_order_relaxed)) return;
  if (!operation.failed && (!operation.running || operation.steps_left > 0)) return;
  if (operation.executing > 0 || operation.remote_pending > 0) return;
  if (operation.failed && others_touch(operation)) return;
  if (operation.begin_ns != 0 && trace::enabled() && operation.plan)
    trace::detail::record({trace::intern(traced_name(*operation.plan)), "operation", operation.begin_ns,
                           trace::detail::now_ns(), operation.plan->input_bytes, 0});
  if (operation.plan) {
    if (operation.bindings.scratch.empty()) buffers_.give_back(operation.scratch, operation.plan->scratch_bytes);
    if (!arena_) buffers_.give_back(operation.shared, operation.plan->shared_bytes);
  }
  operation.scratch = operation.shared = nullptr;
  history_[operation.sequence % history_.size()] = {operation.sequence, operation.signature, operation.failed};
  --unfinished_;
  if (std::exchange(operation.leaves_node, false)) --leaving_;
  const bool has_run = operation.has_run;
  operation.finished.store(true, std::memory_order_seq_cst);
  if (has_run) bell().ring();
  leave_flags(operation);
  leave_sharing(operation);
  advance_window();
}

void Executor::advance_window() {
  while (!window_.empty() && window_.front() != nullptr && !window_.front()->sharing &&
         window_.front()->finished.load(std::memory_order_relaxed)) {
    Operation* first = window_.pop();
    ++base_sequence_;
    first->in_window = false;
    if (!first->has_run) recycle(*first);
  }
  if (node_.segment != nullptr)
    node_.segment->slot(node_.segment->local_rank()).completed_before.store(base_sequence_, std::memory_order_release);
}

void Executor::drop(Operation* operation) noexcept {
  const std::lock_guard lock(mutex_);
  operation->has_run = false;
  if (!operation->in_window) recycle(*operation);
}

void Executor::recycle(Operation& operation) {
  operation.plan.reset();
  operation.compiled.reset();
  operation.error.reset();
  operation.bindings = {};
  operation.started = operation.running = operation.failed = operation.shown = false;
  operation.shared_offset = 0;
  operation.steps_left = 0;
  operation.probes_sent = 0;
  operation.silence_mark = ~std::uint64_t{0};
  operation.silence_told = false;
  operation.entered_sets = operation.open_sets = 0;
  operation.scan_from = 0;
  operation.scanned = {};
  operation.begin_ns = 0;
  operation.finished.store(false, std::memory_order_relaxed);
  operation.delivered.store(false, std::memory_order_relaxed);
  idle_operations_.push_back(&operation);
}

std::string Executor::report() const {
  std::string text = "transport: " + transport_->description() + "\n";
  for (const std::string& fact : node_.facts) text += fact + "\n";
  {
    const std::lock_guard lock(mutex_);
    if (silences_ > 0)
      text += "silence: in " + std::to_string(silences_) + " operations; last: " + last_silence_ + "\n";
  }
  if (!wants_thread)
    text += "progress: in start, test and wait only\n";
  else if (remote_ && !transport_->any_thread())
    text +=
        "progress: by threads, for shared memory only: the transport may not be used by other threads; "
        "between nodes progress happens in start, test and wait\n";
  else
    text += "progress: by threads, asleep while nothing is in flight\n";
  return text;
}

}  // namespace penstock::engine
