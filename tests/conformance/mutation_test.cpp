// Tests that the tests can fail: breaks the plans of every algorithm in every place. The verifier or the reference must
// detect each fault.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/reference.hpp"
#include "conformance/team.hpp"
#include "penstock/error.hpp"
#include "plan/names.hpp"
#include "plan/order.hpp"
#include "plan/tasks.hpp"

namespace penstock::conformance {
namespace {

constexpr std::uint64_t kElementBytes = 4;

struct Subject {
  Collective collective;
  std::vector<std::int32_t> nodes;
  std::vector<Plan> plans;
};

bool verifier_notices(const Subject& subject, const std::vector<Plan>& plans) {
  return !verify(plans, subject.nodes, kElementBytes).empty();
}

bool reference_notices(const Subject& subject, const std::vector<Plan>& plans) {
  if (subject.collective.kind == CollectiveKind::barrier && !synchronizes(plans)) return true;
  const int size = static_cast<int>(plans.size());
  const std::vector<plan::RankMemory> expected = memory_after(subject.collective, size);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    std::vector<plan::RankMemory> memory = memory_before(subject.collective, size);
    try {
      plan::simulate(plans, {.dtype = subject.collective.dtype, .op = subject.collective.op}, memory, seed);
    } catch (const Error&) {
      return true;
    }
    for (std::size_t rank = 0; rank < memory.size(); ++rank)
      if (memory[rank].output != expected[rank].output) return true;
  }
  return false;
}

bool is_between_ranks(const Step& step) { return plan::produces(step) || plan::consumes(step); }

// Removes the step. Its dependents inherit its dependencies.
Plan without(const Plan& plan, StepId gone) {
  Plan rest = plan;
  rest.steps.clear();
  rest.dependencies.clear();
  for (StepId id = 0; id < plan.steps.size(); ++id) {
    if (id == gone) continue;
    Step step = plan.steps[id];
    std::vector<StepId> after;
    for (const StepId earlier : plan::dependencies(plan, id)) {
      if (earlier == gone)
        for (const StepId inherited : plan::dependencies(plan, gone)) after.push_back(inherited);
      else
        after.push_back(earlier > gone ? earlier - 1 : earlier);
    }
    step.first_dependency = static_cast<std::uint32_t>(rest.dependencies.size());
    step.dependency_count = static_cast<std::uint32_t>(after.size());
    rest.dependencies.insert(rest.dependencies.end(), after.begin(), after.end());
    rest.steps.push_back(step);
  }
  return rest;
}

Plan without_dependency(const Plan& plan, StepId id, std::uint32_t index) {
  Plan rest = plan;
  // The kept dependencies are appended to the list, so the other steps' indexes stay valid.
  std::vector<StepId> kept;
  for (std::uint32_t i = 0; i < plan.steps[id].dependency_count; ++i)
    if (i != index) kept.push_back(plan::dependencies(plan, id)[i]);
  rest.steps[id].first_dependency = static_cast<std::uint32_t>(rest.dependencies.size());
  rest.steps[id].dependency_count = static_cast<std::uint32_t>(kept.size());
  rest.dependencies.insert(rest.dependencies.end(), kept.begin(), kept.end());
  return rest;
}

bool orders_the_same(const Plan& a, const Plan& b) {
  const plan::Order order_a(a);
  const plan::Order order_b(b);
  for (StepId second = 0; second < a.steps.size(); ++second)
    for (StepId first = 0; first < second; ++first)
      if (order_a.is_before(first, second) != order_b.is_before(first, second)) return false;
  return true;
}

class Mutation : public testing::TestWithParam<const Algorithm*> {
 protected:
  void SetUp() override {
    const int size = GetParam()->name == "recursive_doubling" ? 4 : 5;
    subject_.collective = {.kind = GetParam()->kind, .count = 11, .dtype = DType::int32};
    subject_.collective.algorithm = GetParam()->name;
    subject_.collective.segment_bytes = 16;
    if (subject_.collective.kind == CollectiveKind::barrier) subject_.collective.count = 0;
    subject_.nodes = place(fitting_placement(subject_.collective, size), size);
    subject_.plans = plan_all(subject_.collective, subject_.nodes);
    ASSERT_FALSE(verifier_notices(subject_, subject_.plans));
    ASSERT_FALSE(reference_notices(subject_, subject_.plans));
  }

  // Calls `mutate(plans, rank, step)` on a fresh copy for every step of every rank. It returns false if it does not
  // apply; otherwise `notices` must return true. Returns how often it applied.
  using Notice = std::function<bool(const Subject&, const std::vector<Plan>&)>;
  int everywhere(const std::string& fault, const std::function<bool(std::vector<Plan>&, std::size_t, StepId)>& mutate,
                 const Notice& notices) {
    int times = 0;
    for (std::size_t rank = 0; rank < subject_.plans.size(); ++rank)
      for (StepId id = 0; id < subject_.plans[rank].steps.size(); ++id) {
        std::vector<Plan> plans = subject_.plans;
        if (!mutate(plans, rank, id)) continue;
        ++times;
        EXPECT_TRUE(notices(subject_, plans)) << fault << ": rank " << rank << ", step " << id << ": "
                                              << plan::describe(subject_.plans[rank], subject_.plans[rank].steps[id]);
      }
    return times;
  }

  // Does the same for the shared tasks of each node. All ranks of a node have the same tasks.
  int every_task(const std::string& fault, const std::function<bool(Plan&, SharedTask&)>& mutate,
                 const Notice& notices) {
    int times = 0;
    for (const std::size_t first : first_ranks_of_nodes())
      for (std::size_t id = 0; id < subject_.plans[first].tasks.size(); ++id) {
        std::vector<Plan> plans = subject_.plans;
        bool applies = true;
        for (std::size_t rank = first; rank < plans.size(); ++rank)
          if (subject_.nodes[rank] == subject_.nodes[first])
            applies = applies && mutate(plans[rank], plans[rank].tasks[id]);
        if (!applies) continue;
        ++times;
        EXPECT_TRUE(notices(subject_, plans)) << fault << ": node of rank " << first << ", task " << id << ": "
                                              << plan::describe(subject_.plans[first], subject_.plans[first].tasks[id]);
      }
    return times;
  }

  std::vector<std::size_t> first_ranks_of_nodes() const {
    std::vector<std::size_t> first;
    for (std::size_t rank = 0; rank < subject_.nodes.size(); ++rank) {
      const auto same = [&](std::size_t other) { return subject_.nodes[other] == subject_.nodes[rank]; };
      if (std::none_of(first.begin(), first.end(), same)) first.push_back(rank);
    }
    return first;
  }

  // Without this check, a test that makes no fault would pass even with a broken verifier.
  void expect_made(const std::string& fault, int times, const std::set<std::string_view>& has_no_place_in) const {
    const std::string row = std::string(name(GetParam()->kind)) + "/" + std::string(GetParam()->name);
    EXPECT_EQ(times == 0, has_no_place_in.contains(row)) << fault << ": made " << times << " times in " << row;
  }

  static bool either_notices(const Subject& subject, const std::vector<Plan>& plans) {
    return verifier_notices(subject, plans) || reference_notices(subject, plans);
  }

  Subject subject_;
};

class TaskMutation : public Mutation {};

// The rows to which a fault does not apply.
using Rows = std::set<std::string_view>;
/// Rows that use only shared tasks.
const Rows kWithoutMessages{"bcast/tree",
                            "bcast/divided",
                            "reduce/tree",
                            "reduce/divided",
                            "allreduce/tree",
                            "allreduce/divided",
                            "gather/tree",
                            "gather/divided",
                            "scatter/tree",
                            "scatter/divided",
                            "allgather/divided",
                            "alltoall/divided",
                            "reduce_scatter_block/divided",
                            "scan/divided",
                            "exscan/divided",
                            "allgatherv/divided",
                            "reduce_scatter/divided"};
/// Rows whose steps may all run at once.
const Rows kWithoutDependencies{
    "bcast/tree",         "bcast/divided",         "reduce/tree",      "reduce/divided",
    "allreduce/tree",     "allreduce/divided",     "gather/linear",    "gather/tree",
    "gather/divided",     "scatter/linear",        "scatter/tree",     "scatter/divided",
    "allgather/divided",  "alltoall/pairwise",     "alltoall/divided", "reduce_scatter_block/divided",
    "exscan/divided",     "gatherv/linear",        "scatterv/linear",  "alltoallv/pairwise",
    "alltoallw/pairwise", "reduce_scatter/divided"};
const Rows kWithoutData{"barrier/dissemination", "barrier/hierarchical", "barrier/shared", "barrier/shared_rounds"};
/// Rows without data, and rows in which only tasks write and no rank has an input.
const Rows kWithoutInput{"barrier/dissemination", "barrier/hierarchical", "barrier/shared",
                         "barrier/shared_rounds", "bcast/tree",           "bcast/divided"};
/// Rows whose tasks may all run at once.
const Rows kTasksWithoutOrder{"bcast/node_shared",  "bcast/divided",         "reduce/node_shared",
                              "reduce/divided",     "allreduce/node_shared", "allreduce/divided",
                              "allgather/divided",  "alltoall/divided",      "reduce_scatter_block/divided",
                              "allgatherv/divided", "reduce_scatter/divided"};

TEST_P(Mutation, DroppedStep) {
  const int halves = everywhere(
      "one half of a pair dropped",
      [](std::vector<Plan>& plans, std::size_t rank, StepId id) {
        const bool applies = is_between_ranks(plans[rank].steps[id]);
        plans[rank] = without(plans[rank], id);
        return applies;
      },
      verifier_notices);
  expect_made("one half of a pair dropped", halves, kWithoutMessages);
  const int steps = everywhere(
      "dropped",
      [](std::vector<Plan>& plans, std::size_t rank, StepId id) {
        plans[rank] = without(plans[rank], id);
        return true;
      },
      either_notices);
  expect_made("dropped", steps, {});
}

// The accesses to memory show a lost dependency. Barriers are excluded: they access no memory, and some of their
// dependencies are redundant.
class MemoryMutation : public Mutation {};

TEST_P(MemoryMutation, LostDependency) {
  int times = 0;
  for (std::uint32_t index = 0; index < 8; ++index)
    times += everywhere(
        "dependency " + std::to_string(index) + " lost",
        [&](std::vector<Plan>& plans, std::size_t rank, StepId id) {
          const Step& step = plans[rank].steps[id];
          if (index >= step.dependency_count) return false;
          if (step.has_order_dependency && index + 1 == step.dependency_count) return false;
          plans[rank] = without_dependency(plans[rank], id, index);
          return !orders_the_same(plans[rank], subject_.plans[rank]);
        },
        verifier_notices);
  expect_made("dependency lost", times, kWithoutDependencies);
}

TEST_P(Mutation, DependencyOnALaterStep) {
  const int times = everywhere(
      "waits for itself",
      [](std::vector<Plan>& plans, std::size_t rank, StepId id) {
        Plan& plan = plans[rank];
        Step& step = plan.steps[id];
        if (step.dependency_count == 0) {
          step.first_dependency = static_cast<std::uint32_t>(plan.dependencies.size());
          step.dependency_count = 1;
          plan.dependencies.push_back(id);
        }
        plan.dependencies[step.first_dependency] = id;
        return true;
      },
      verifier_notices);
  expect_made("waits for itself", times, {});
}

TEST_P(Mutation, ShiftedRegion) {
  int times = 0;
  for (const bool of_target : {false, true}) {
    times += everywhere(
        of_target ? "target shifted" : "source shifted",
        [&](std::vector<Plan>& plans, std::size_t rank, StepId id) {
          Step& step = plans[rank].steps[id];
          const plan::Touches touches = plan::touches(step);
          if (of_target ? !touches.writes : !touches.reads && !touches.reads_remote) return false;
          Region& region = of_target ? step.to : step.from;
          if (region.size_bytes == 0) return false;
          region.offset_bytes += kElementBytes;
          return true;
        },
        either_notices);
    times += every_task(
        "task shifted",
        [&](Plan& plan, SharedTask& task) {
          plan.task_regions[task.first_region + (of_target ? task.source_count : 0u)].region.offset_bytes +=
              kElementBytes;
          return true;
        },
        either_notices);
  }
  expect_made("shifted", times, kWithoutData);
}

TEST_P(Mutation, ShorterMessage) {
  int times = everywhere(
      "shorter",
      [](std::vector<Plan>& plans, std::size_t rank, StepId id) {
        Step& step = plans[rank].steps[id];
        Region& region = step.kind == StepKind::recv ? step.to : step.from;
        const bool moves = is_between_ranks(step) || plan::touches(step).reads_remote;
        if (!moves || region.size_bytes == 0) return false;
        region.size_bytes -= 1;
        return true;
      },
      verifier_notices);
  times += every_task(
      "task shorter",
      [](Plan& plan, SharedTask& task) {
        plan.task_regions[task.first_region].region.size_bytes -= kElementBytes;
        return true;
      },
      verifier_notices);
  expect_made("shorter", times, kWithoutData);
}

TEST_P(Mutation, OtherPeerOrTag) {
  int times = everywhere(
      "another peer",
      [](std::vector<Plan>& plans, std::size_t rank, StepId id) {
        Step& step = plans[rank].steps[id];
        step.peer = (step.peer + 1) % static_cast<int>(plans.size());
        return is_between_ranks(step);
      },
      verifier_notices);
  for (const std::uint32_t tag : {999u, kMaxTag + 1})
    times += everywhere(
        "tag " + std::to_string(tag),
        [&](std::vector<Plan>& plans, std::size_t rank, StepId id) {
          plans[rank].steps[id].tag = tag;
          return is_between_ranks(plans[rank].steps[id]);
        },
        verifier_notices);
  expect_made("another peer or tag", times, kWithoutMessages);
}

TEST_P(Mutation, WrittenInput) {
  int times = everywhere(
      "writes the input",
      [](std::vector<Plan>& plans, std::size_t rank, StepId id) {
        Step& step = plans[rank].steps[id];
        if (!plan::touches(step).writes || step.to.size_bytes == 0) return false;
        step.to.buffer = Buffer::input;
        return true;
      },
      verifier_notices);
  times += every_task(
      "task writes the input",
      [&](Plan& plan, SharedTask& task) {
        RankRegion& target = plan.task_regions[task.first_region + task.source_count];
        target.region.buffer = Buffer::input;  // stands for the output if there is no input
        return subject_.plans[static_cast<std::size_t>(target.rank)].input_bytes > 0;
      },
      either_notices);
  expect_made("writes the input", times, kWithoutInput);
}

TEST_P(TaskMutation, LostTask) {
  const int times = every_task(
      "does nothing",
      [](Plan& plan, SharedTask& task) {
        for (const RankRegion& each : plan::targets(plan, task)) {
          const auto source = plan::sources(plan, task)[0];
          if (each == source) return false;
        }
        task.source_count = 1;
        task.target_count = 1;
        plan.task_regions[task.first_region + 1] = plan.task_regions[task.first_region];
        return true;
      },
      either_notices);
  expect_made("does nothing", times, {});
}

// The accesses to memory show it. Gather and scatter trees are excluded: they chain the tasks of a rank only so that a
// waiter can wait for one task.
TEST_P(TaskMutation, LostOrder) {
  if (subject_.collective.kind == CollectiveKind::gather || subject_.collective.kind == CollectiveKind::scatter) return;
  int times = 0;
  for (const std::size_t index : {0u, 1u})
    times += every_task(
        "dependency lost",
        [&](Plan&, SharedTask& task) {
          const bool applies = task.after[index] != SharedTask::kNone;
          // Both dependencies may lead to the same earlier tasks.
          const bool is_needed = task.after[1 - index] == SharedTask::kNone || task.source_count > 1;
          task.after[index] = SharedTask::kNone;
          return applies && is_needed;
        },
        verifier_notices);
  expect_made("dependency of a task lost", times, kTasksWithoutOrder);
}

TEST_P(TaskMutation, OfAnotherRank) {
  for (const bool of_target : {false, true}) {
    const int times = every_task(
        of_target ? "target of another rank" : "source of another rank",
        [&](Plan& plan, SharedTask& task) {
          RankRegion& region = plan.task_regions[task.first_region + (of_target ? task.source_count : 0u)];
          region.rank = (region.rank + 1) % plan.size;
          return true;
        },
        either_notices);
    expect_made("of another rank", times, {});
  }
}

TEST_P(TaskMutation, OfOneRankAlone) {
  int times = 0;
  for (std::size_t rank = 0; rank < subject_.plans.size(); ++rank) {
    std::vector<Plan> plans = subject_.plans;
    if (plans[rank].tasks.empty()) continue;
    plans[rank].tasks.pop_back();
    ++times;
    EXPECT_TRUE(verifier_notices(subject_, plans)) << "rank " << rank;
  }
  expect_made("of one rank alone", times, {});
}

bool has_tasks(const Algorithm* row) {
  static const std::set<std::string_view> names{"tree", "divided", "node_shared"};
  return names.contains(row->name);
}

std::vector<const Algorithm*> rows_with_tasks() {
  std::vector<const Algorithm*> chosen = rows([](CollectiveKind) { return true; });
  std::erase_if(chosen, [](const Algorithm* row) { return !has_tasks(row); });
  return chosen;
}

TEST_P(Mutation, KnowsWhichRowsHaveTasks) {
  const bool any =
      std::any_of(subject_.plans.begin(), subject_.plans.end(), [](const Plan& plan) { return !plan.tasks.empty(); });
  EXPECT_EQ(any, has_tasks(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Row, Mutation, testing::ValuesIn(rows([](CollectiveKind) { return true; })), row_name);
INSTANTIATE_TEST_SUITE_P(Row, TaskMutation, testing::ValuesIn(rows_with_tasks()), row_name);
INSTANTIATE_TEST_SUITE_P(Row, MemoryMutation,
                         testing::ValuesIn(rows([](CollectiveKind kind) { return kind != CollectiveKind::barrier; })),
                         row_name);

}  // namespace
}  // namespace penstock::conformance
