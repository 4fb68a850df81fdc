// A plan: what one rank does in one operation, as data.
//
// A planner is a pure function of (team, rank, arguments) that returns a Plan. It never calls MPI and never looks at
// the clock, so one process can plan for every rank and run all plans in the simulated executor. The engine decides
// when and where the steps run.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/arithmetic.hpp"
#include "penstock/export.hpp"
#include "penstock/types.hpp"

namespace penstock {

/// The buffers that a plan's regions refer to. Sizes in bytes are fields of the Plan.
enum class Buffer : std::uint16_t {
  input,    ///< the caller's send buffer; never written
  output,   ///< the caller's receive buffer
  scratch,  ///< private to this rank and this run of the plan
  shared,   ///< this rank's part of the node's shared memory. Unchanged until all ranks of the node have completed this
            ///< run of the plan
};

/// A contiguous range of one buffer.
struct Region {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  Buffer buffer = Buffer::input;

  friend bool operator==(const Region&, const Region&) = default;
};

/// Which cores run a step: those of communication, or those of the application (inside start, test and wait).
enum class Lane : std::uint8_t { progress, application };

using StepId = std::uint32_t;

enum class StepKind : std::uint8_t {
  send,           ///< `from` goes to `peer` under `tag`; complete when `from` may be reused
  recv,           ///< `to` is filled with the message of `peer` under `tag`
  signal,         ///< tells `peer` (same node) under `tag` that the dependencies are complete; a release fence.
                  ///< With a `to` in shared memory (by flags): also how many bytes this rank has for it, see
                  ///< kToldLengthBytes
  wait,           ///< waits for the `signal` of `peer` under `tag`; an acquire fence. With a `from` in shared memory:
                  ///< the length that `peer` tells must be that of `from`
  compute,        ///< the `computation` of `from`, which lies in `source`, and `to`
  publish_tasks,  ///< this rank's memory is ready for the tasks of `task_group`. Complete when all of them that touch
                  ///< this rank's memory are; any core may run them
};

enum class Computation : std::uint8_t {
  copy,           ///< to = from
  reduce,         ///< to = from (op) to, element by element, as MPI_Reduce_local
  reduce_sorted,  ///< to = the blocks of `from`, each as long as `to`, sorted by value and then combined: the result
                  ///< does not depend on the order of the blocks
  transform,      ///< the blocks [first_block, first_block + block_count), see Block
};

/// Where the `from` of a `compute` step lies.
enum class StepSource : std::uint8_t {
  local,         ///< in a buffer of this rank
  peer_shared,   ///< in the `shared` buffer of `peer` (same node), after a `wait` for `peer`
  peer_private,  ///< in the memory of `peer` (same node, needs Team::single_copy): what it sends under `tag`. The step
                 ///< takes the place of the `recv`, and reads a long message where it lies. Of a `transform` only
};

/// A region of a buffer of one rank. If a rank has no input, its output stands for it, and the other way round: see
/// Plan::stand_in_offset_bytes. So MPI_IN_PLACE at the root does not change the plans of the other ranks.
struct RankRegion {
  Region region{};
  std::int32_t rank = 0;

  friend bool operator==(const RankRegion&, const RankRegion&) = default;
};

/// Work on the memory of several ranks of one node that any core of the node may run. It can run once each of these
/// ranks has published it. Every target = source 0 (op) (source 1 (op) (...)), element by element; one source: a copy.
/// All regions have the same size. A target may be equal to a source.
struct SharedTask {
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  std::uint32_t first_region = 0;  ///< into Plan::task_regions: the sources, then the targets
  std::uint16_t source_count = 0;
  std::uint16_t target_count = 0;
  std::array<std::uint32_t, 2> after{kNone, kNone};  ///< earlier tasks that must be complete
  std::uint32_t segment = 0;
  std::uint16_t level = 0;     ///< as Step::level
  Lane lane = Lane::progress;  ///< application: only threads in start, test and wait run it
};

/// The tasks that one `publish_tasks` step publishes, in Plan::tasks.
struct TaskGroup {
  std::uint32_t first_task = 0;
  std::uint32_t task_count = 0;

  bool contains(std::size_t task) const { return task - first_task < task_count; }
};

inline constexpr std::uint32_t kMaxTag = (1u << 16) - 1;
inline constexpr std::uint64_t kFlaggedBytes = 2048;  ///< see Plan::by_flags
/// The memory of a length that a signal tells, at the offset of its region in its rank's shared buffer. The size of the
/// region is the length. The wait states it too: ranks that disagree fail, as by a message of another size.
inline constexpr std::uint64_t kToldLengthBytes = 8;

struct Step {
  Region from{};
  Region to{};
  std::int32_t peer = -1;
  std::uint32_t tag = 0;  ///< distinguishes messages between the same two ranks within the plan; at most kMaxTag
  std::uint32_t first_dependency = 0;  ///< into Plan::dependencies
  std::uint32_t dependency_count = 0;
  std::uint32_t first_block = 0;  ///< into Plan::blocks
  std::uint32_t block_count = 0;
  std::uint32_t task_group = 0;  ///< of a `publish_tasks`: into Plan::task_groups
  std::uint32_t segment = 0;     ///< pipeline segment, for the passes and the trace
  std::uint16_t level = 0;       ///< level of the tree, 1 at the root; 0 if there is no tree
  StepKind kind = StepKind::compute;
  Computation computation = Computation::copy;
  StepSource source = StepSource::local;
  Lane lane = Lane::progress;
  bool scaled = false;  ///< of a `transform`: apply op, alpha and beta; otherwise a plain copy
  /// The last dependency only keeps cores or links from serving later work first: no memory and no message needs it.
  bool has_order_dependency = false;
};
static_assert(sizeof(Step) == 88);  // plans of simulated jobs have millions of steps

/// This rank's steps. A dependency has a smaller StepId than the step that waits for it. So the order of `steps` is a
/// legal order, and a plan has no cycle.
struct Plan {
  std::string algorithm;  ///< for example "allreduce/ring"
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::uint64_t input_bytes = 0;
  std::uint64_t output_bytes = 0;
  std::uint64_t scratch_bytes = 0;
  std::uint64_t shared_bytes = 0;
  /// With input_bytes == 0: the offset in the output that stands for the input of tasks. With output_bytes == 0: the
  /// offset in the input that stands for their output.
  std::uint64_t stand_in_offset_bytes = 0;
  std::uint16_t tree_levels = 0;         ///< height of the tree that `level` counts, equal on all ranks; 0: no tree
  std::uint16_t application_levels = 0;  ///< how many of them, from the leaves on, run on Lane::application
  /// A short exchange inside a node, equal on all ranks. One flag beside a rank's shared buffer tells peers how many
  /// rounds it has published; the tag of a signal or wait is its round. Such a plan has no tasks, and at most
  /// kFlaggedBytes of data in shared memory. No rank writes its output before its last wait. See plan/rules.hpp.
  /// If it has messages too, they go as those of other plans.
  bool by_flags = false;
  std::vector<Step> steps;
  std::vector<StepId> dependencies;
  std::vector<Block> blocks;
  std::vector<SharedTask> tasks;  ///< the same on all ranks of a node
  std::vector<TaskGroup> task_groups;
  std::vector<RankRegion> task_regions;  ///< the same on all ranks of a node
};

/// Appends steps to a plan. All planners use it.
class PlanBuilder {
 public:
  using After = std::initializer_list<StepId>;
  static constexpr StepId kNone = std::numeric_limits<StepId>::max();  ///< ignored in a list of dependencies

  PlanBuilder(std::string algorithm, int rank, int size) {
    plan_.algorithm = std::move(algorithm);
    plan_.rank = rank;
    plan_.size = size;
  }

  /// Sets the level and the segment of the steps that follow.
  PlanBuilder& at(std::uint16_t level, std::uint32_t segment = 0) {
    level_ = level;
    segment_ = segment;
    return *this;
  }

  /// The steps that follow wait for this one too, see Step::has_order_dependency; kNone: for no further one.
  PlanBuilder& in_order_after(StepId step) {
    order_after_ = step;
    return *this;
  }

  StepId send(Region from, int peer, std::uint32_t tag, std::span<const StepId> after) {
    return add({.from = from, .peer = peer, .tag = tag, .kind = StepKind::send}, after);
  }
  StepId recv(Region to, int peer, std::uint32_t tag, std::span<const StepId> after) {
    return add({.to = to, .peer = peer, .tag = tag, .kind = StepKind::recv}, after);
  }
  StepId copy(Region from, Region to, std::span<const StepId> after) {
    return add({.from = from, .to = to, .computation = Computation::copy}, after);
  }
  StepId reduce(Region from, Region to, std::span<const StepId> after) {
    return add({.from = from, .to = to, .computation = Computation::reduce}, after);
  }
  StepId reduce_sorted(Region from, Region to, std::span<const StepId> after) {
    return add({.from = from, .to = to, .computation = Computation::reduce_sorted}, after);
  }
  StepId transform(Region from, Region to, std::span<const Block> blocks, bool scaled, std::span<const StepId> after) {
    return transform({.from = from, .to = to, .scaled = scaled}, blocks, after);
  }
  /// A copy from the peer's shared buffer.
  StepId read(Region from, int peer, Region to, std::span<const StepId> after) {
    return add({.from = from, .to = to, .peer = peer, .source = StepSource::peer_shared}, after);
  }
  /// A transform from the peer's shared buffer.
  StepId unpack(Region from, int peer, Region to, std::span<const Block> blocks, std::span<const StepId> after) {
    return transform({.from = from, .to = to, .peer = peer, .source = StepSource::peer_shared, .scaled = true}, blocks,
                     after);
  }
  /// A transform of what the peer sends.
  StepId remote_read(std::uint64_t size_bytes, int peer, std::uint32_t tag, Region to, std::span<const Block> blocks,
                     std::span<const StepId> after) {
    const Region from{0, size_bytes, Buffer::scratch};  // messages have the element type of scratch memory
    return transform(
        {.from = from, .to = to, .peer = peer, .tag = tag, .source = StepSource::peer_private, .scaled = true}, blocks,
        after);
  }
  StepId signal(int peer, std::uint32_t tag, std::span<const StepId> after) {
    return add({.peer = peer, .tag = tag, .kind = StepKind::signal}, after);
  }
  StepId wait(int peer, std::uint32_t tag, std::span<const StepId> after) {
    return add({.peer = peer, .tag = tag, .kind = StepKind::wait}, after);
  }

  /// They tell and check a length, see kToldLengthBytes.
  StepId signal_length(Region length, int peer, std::uint32_t tag, std::span<const StepId> after) {
    return add({.to = length, .peer = peer, .tag = tag, .kind = StepKind::signal}, after);
  }
  StepId wait_length(Region length, int peer, std::uint32_t tag, std::span<const StepId> after) {
    return add({.from = length, .peer = peer, .tag = tag, .kind = StepKind::wait}, after);
  }

  /// Adds a task to the plan and returns its index. publish_tasks() publishes tasks that have been added.
  std::uint32_t task(const SharedTask& task, std::span<const RankRegion> sources, std::span<const RankRegion> targets) {
    SharedTask& added = plan_.tasks.emplace_back(task);
    added.first_region = static_cast<std::uint32_t>(plan_.task_regions.size());
    added.source_count = static_cast<std::uint16_t>(sources.size());
    added.target_count = static_cast<std::uint16_t>(targets.size());
    plan_.task_regions.insert(plan_.task_regions.end(), sources.begin(), sources.end());
    plan_.task_regions.insert(plan_.task_regions.end(), targets.begin(), targets.end());
    return static_cast<std::uint32_t>(plan_.tasks.size() - 1);
  }
  StepId publish_tasks(std::uint32_t first_task, std::uint32_t task_count, std::span<const StepId> after) {
    plan_.task_groups.push_back({first_task, task_count});
    const auto group = static_cast<std::uint32_t>(plan_.task_groups.size() - 1);
    return add({.task_group = group, .kind = StepKind::publish_tasks}, after);
  }

  StepId send(Region from, int peer, std::uint32_t tag, After after = {}) { return send(from, peer, tag, span(after)); }
  StepId recv(Region to, int peer, std::uint32_t tag, After after = {}) { return recv(to, peer, tag, span(after)); }
  StepId copy(Region from, Region to, After after = {}) { return copy(from, to, span(after)); }
  StepId reduce(Region from, Region to, After after = {}) { return reduce(from, to, span(after)); }
  StepId signal(int peer, std::uint32_t tag, After after = {}) { return signal(peer, tag, span(after)); }
  StepId wait(int peer, std::uint32_t tag, After after = {}) { return wait(peer, tag, span(after)); }
  StepId read(Region from, int peer, Region to, After after = {}) { return read(from, peer, to, span(after)); }

  /// Reserves scratch memory, aligned to 64 bytes.
  Region scratch(std::uint64_t size_bytes) { return reserve(plan_.scratch_bytes, size_bytes, Buffer::scratch); }
  Region shared(std::uint64_t size_bytes) { return reserve(plan_.shared_bytes, size_bytes, Buffer::shared); }

  const Plan& so_far() const { return plan_; }

  PlanBuilder& tree_levels(int levels) {
    plan_.tree_levels = static_cast<std::uint16_t>(levels);
    return *this;
  }
  PlanBuilder& by_flags() {
    plan_.by_flags = true;
    return *this;
  }

  Plan finish(std::uint64_t input_bytes, std::uint64_t output_bytes) && {
    plan_.input_bytes = input_bytes;
    plan_.output_bytes = output_bytes;
    return std::move(plan_);
  }

 private:
  static std::span<const StepId> span(After after) { return {after.begin(), after.size()}; }

  static Region reserve(std::uint64_t& used_bytes, std::uint64_t size_bytes, Buffer buffer) {
    const Region region{used_bytes, size_bytes, buffer};
    used_bytes += (size_bytes + 63) / 64 * 64;
    return region;
  }

  StepId transform(Step step, std::span<const Block> blocks, std::span<const StepId> after) {
    step.computation = Computation::transform;
    step.first_block = static_cast<std::uint32_t>(plan_.blocks.size());
    step.block_count = static_cast<std::uint32_t>(blocks.size());
    plan_.blocks.insert(plan_.blocks.end(), blocks.begin(), blocks.end());
    return add(step, after);
  }

  StepId add(Step step, std::span<const StepId> after) {
    step.level = level_;
    step.segment = segment_;
    step.first_dependency = static_cast<std::uint32_t>(plan_.dependencies.size());
    for (const StepId id : after)
      if (id != kNone) plan_.dependencies.push_back(id);
    const auto first = plan_.dependencies.begin() + step.first_dependency;
    step.has_order_dependency =
        order_after_ != kNone && std::find(first, plan_.dependencies.end(), order_after_) == plan_.dependencies.end();
    if (step.has_order_dependency) plan_.dependencies.push_back(order_after_);
    step.dependency_count = static_cast<std::uint32_t>(plan_.dependencies.size()) - step.first_dependency;
    plan_.steps.push_back(step);
    return static_cast<StepId>(plan_.steps.size() - 1);
  }

  Plan plan_;
  std::uint16_t level_ = 0;
  std::uint32_t segment_ = 0;
  StepId order_after_ = kNone;
};

class Tuning;
class ChoiceByCost;

/// The ranks that take part, and the node of each. Nodes are numbered from 0 by first appearance. Ranks of one node
/// share memory; a rank that cannot counts as a node of its own.
struct Team {
  std::int32_t rank = 0;
  std::vector<std::int32_t> node_of_rank;  ///< one entry per rank
  bool single_copy = true;                 ///< ranks of a node can read and write each other's memory
  std::int32_t progress_cores = 0;         ///< communication cores per node: the minimum over the nodes
  std::uint64_t shared_limit_bytes = std::uint64_t{1} << 20;  ///< the largest possible Plan::shared_bytes
  std::shared_ptr<const Tuning> tuning{};                     ///< measured choices, equal on all ranks; or nullptr
  /// Chooses for this team on a known machine, equal on all ranks; or nullptr.
  std::shared_ptr<const ChoiceByCost> by_cost{};
  /// The third level, one entry per rank. Ranks whose cores share a last-level cache and a NUMA node are in one domain.
  /// Domains of different nodes have different numbers. Empty if the nodes have one domain each, or it is unknown.
  std::vector<std::int32_t> domain_of_rank{};
  /// Ranks of several nodes take turns on cores (emulated nodes, containers), as measured, or since a kernel has fewer
  /// CPUs for its ranks than ranks; equal on all ranks.
  bool shares_cores = false;
  /// The longest message that every rank takes into shared memory at once, without its receiver. The least of all
  /// ranks, as the caches are; equal on all ranks.
  std::uint64_t message_bytes = std::uint64_t{16} << 10;
  std::uint64_t core_cache_bytes = std::uint64_t{2} << 20;   ///< of the second level
  std::uint64_t last_cache_bytes = std::uint64_t{32} << 20;  ///< of the last level

  std::int32_t size() const { return static_cast<std::int32_t>(node_of_rank.size()); }
  bool same_node(int a, int b) const {
    return node_of_rank[static_cast<std::size_t>(a)] == node_of_rank[static_cast<std::size_t>(b)];
  }
};

/// Size of the elements in each buffer. The sizes differ if transforms convert (Arithmetic::input_dtype).
struct ElementBytes {
  std::uint64_t input;
  std::uint64_t wire;  ///< scratch, shared memory and messages
  std::uint64_t output;

  // NOLINTNEXTLINE(google-explicit-constructor): one size is the usual case
  constexpr ElementBytes(std::uint64_t all) : input(all), wire(all), output(all) {}
  constexpr ElementBytes(std::uint64_t of_input, std::uint64_t of_output)
      : input(of_input), wire(of_input < of_output ? of_input : of_output), output(of_output) {}

  constexpr std::uint64_t of(Buffer buffer) const {
    return buffer == Buffer::input ? input : buffer == Buffer::output ? output : wire;
  }
};

/// Checks the plans of all ranks against each other; plans[r] is the plan of rank r. It checks that
/// - each send has one recv, or compute from the peer's private memory, of the same size, each signal one wait
/// - tags are unique per pair of ranks, and at most kMaxTag
/// - dependencies point backwards; regions and blocks lie inside their buffers; the input is never written
/// - two steps that touch the same memory, one of them writing, have an order. The same holds for a step that reads a
///   peer's shared buffer and a step of the owner (ordered by signal and wait), for two tasks, and for a task and a
///   step that may run while the memory is published
/// - shared memory is used inside a node only; tasks are equal on all ranks of a node
/// - no order of execution deadlocks, whether sends are buffered or synchronous
/// Returns one sentence per finding, the first 100; none means correct. `element_bytes` is the element size of reduce
/// and transform, if known. Local, any thread.
PENSTOCK_API std::vector<std::string> verify(std::span<const Plan> plans, std::span<const std::int32_t> node_of_rank,
                                             ElementBytes element_bytes = 1);

/// One line per step, for people.
PENSTOCK_API std::string to_text(const Plan& plan);
/// A Graphviz digraph of all ranks: a cluster per rank, dependencies solid, messages and signals dashed.
PENSTOCK_API std::string to_dot(std::span<const Plan> plans);
/// One JSON object; its keys are the names of the fields of Plan and Step.
PENSTOCK_API std::string to_json(const Plan& plan);

}  // namespace penstock
