// Tests that the tests can fail: plans of every algorithm are broken in every single place, and it has to be noticed.
#include <gtest/gtest.h>

#include <functional>
#include <string>

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
  Collective what;
  std::vector<std::int32_t> nodes;
  std::vector<Plan> plans;
};

bool verifier_notices(const Subject& subject, const std::vector<Plan>& plans) {
  return !verify(plans, subject.nodes, kElementBytes).empty();
}

bool reference_notices(const Subject& subject, const std::vector<Plan>& plans) {
  if (subject.what.kind == CollectiveKind::barrier && !synchronizes(plans)) return true;
  const int size = static_cast<int>(plans.size());
  const std::vector<plan::RankMemory> expected = memory_after(subject.what, size);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    std::vector<plan::RankMemory> memory = memory_before(subject.what, size);
    try {
      plan::simulate(plans, {.dtype = subject.what.dtype, .op = subject.what.op}, memory, seed);
    } catch (const Error&) {
      return true;
    }
    for (std::size_t rank = 0; rank < memory.size(); ++rank)
      if (memory[rank].output != expected[rank].output) return true;
  }
  return false;
}

bool is_between_ranks(StepKind kind) { return plan::taker_of(kind) || plan::takes(kind); }

// Leaves the step out; what waited for it waits for what it waited for.
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
  // The others move to the end of the list, so that the remaining steps keep theirs.
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
    subject_.what = {.kind = GetParam()->kind, .count = 11, .dtype = DType::int32};
    subject_.what.algorithm = GetParam()->name;
    subject_.what.segment_bytes = 16;
    if (subject_.what.kind == CollectiveKind::barrier) subject_.what.count = 0;
    subject_.nodes = place(fitting_placement(subject_.what, size), size);
    subject_.plans = plan_all(subject_.what, subject_.nodes);
    ASSERT_FALSE(verifier_notices(subject_, subject_.plans));
    ASSERT_FALSE(reference_notices(subject_, subject_.plans));
  }

  // Calls `mutate(plans, rank, step)` on a fresh copy for every step of every rank. It returns false where it does not
  // apply. `notices` must then be true.
  using Notice = std::function<bool(const Subject&, const std::vector<Plan>&)>;
  void everywhere(const std::string& fault, const std::function<bool(std::vector<Plan>&, std::size_t, StepId)>& mutate,
                  const Notice& notices) {
    for (std::size_t rank = 0; rank < subject_.plans.size(); ++rank)
      for (StepId id = 0; id < subject_.plans[rank].steps.size(); ++id) {
        std::vector<Plan> plans = subject_.plans;
        if (!mutate(plans, rank, id)) continue;
        EXPECT_TRUE(notices(subject_, plans))
            << fault << ": rank " << rank << ", step " << id << ": " << plan::describe(subject_.plans[rank].steps[id]);
      }
  }

  // The same for the shared tasks, which all ranks have (of one node: the algorithms that have some).
  void every_task(const std::string& fault, const std::function<bool(Plan&, SharedTask&)>& mutate,
                  const Notice& notices) {
    for (std::size_t id = 0; id < subject_.plans[0].tasks.size(); ++id) {
      std::vector<Plan> plans = subject_.plans;
      bool applies = true;
      for (Plan& plan : plans) applies = applies && mutate(plan, plan.tasks[id]);
      if (!applies) continue;
      EXPECT_TRUE(notices(subject_, plans))
          << fault << ": task " << id << ": " << plan::describe(subject_.plans[0], subject_.plans[0].tasks[id]);
    }
  }

  static bool either_notices(const Subject& subject, const std::vector<Plan>& plans) {
    return verifier_notices(subject, plans) || reference_notices(subject, plans);
  }

  Subject subject_;
};

TEST_P(Mutation, DroppedStep) {
  everywhere(
      "one half of a pair dropped",
      [](std::vector<Plan>& plans, std::size_t rank, StepId id) {
        const bool applies = is_between_ranks(plans[rank].steps[id].kind);
        plans[rank] = without(plans[rank], id);
        return applies;
      },
      verifier_notices);
  everywhere(
      "dropped",
      [](std::vector<Plan>& plans, std::size_t rank, StepId id) {
        plans[rank] = without(plans[rank], id);
        return true;
      },
      either_notices);
}

// Memory shows what a lost dependency breaks. Not in a barrier: it has none, and some of its orders are redundant.
class MemoryMutation : public Mutation {};

TEST_P(MemoryMutation, LostDependency) {
  for (std::uint32_t index = 0; index < 8; ++index)
    everywhere(
        "dependency " + std::to_string(index) + " lost",
        [&](std::vector<Plan>& plans, std::size_t rank, StepId id) {
          if (index >= plans[rank].steps[id].dependency_count) return false;
          plans[rank] = without_dependency(plans[rank], id, index);
          return !orders_the_same(plans[rank], subject_.plans[rank]);
        },
        verifier_notices);
}

TEST_P(Mutation, DependencyOnALaterStep) {
  everywhere(
      "waits for itself",
      [](std::vector<Plan>& plans, std::size_t rank, StepId id) {
        const Step& step = plans[rank].steps[id];
        if (step.dependency_count == 0) return false;
        plans[rank].dependencies[step.first_dependency] = id;
        return true;
      },
      verifier_notices);
}

TEST_P(Mutation, ShiftedRegion) {
  for (const bool of_target : {false, true})
    everywhere(
        of_target ? "target shifted" : "source shifted",
        [&](std::vector<Plan>& plans, std::size_t rank, StepId id) {
          Step& step = plans[rank].steps[id];
          const plan::Touches touches = plan::touches(step.kind);
          if (of_target ? !touches.writes : !touches.reads && !touches.reads_remote) return false;
          Region& region = of_target ? step.to : step.from;
          if (region.size_bytes == 0) return false;
          region.offset_bytes += kElementBytes;
          return true;
        },
        either_notices);
}

TEST_P(Mutation, ShorterMessage) {
  everywhere(
      "shorter",
      [](std::vector<Plan>& plans, std::size_t rank, StepId id) {
        Step& step = plans[rank].steps[id];
        Region& region = step.kind == StepKind::recv ? step.to : step.from;
        if (!is_between_ranks(step.kind) || region.size_bytes == 0) return false;
        region.size_bytes -= 1;
        return true;
      },
      verifier_notices);
}

TEST_P(Mutation, OtherPeerOrTag) {
  everywhere(
      "another peer",
      [](std::vector<Plan>& plans, std::size_t rank, StepId id) {
        Step& step = plans[rank].steps[id];
        step.peer = (step.peer + 1) % static_cast<int>(plans.size());
        return is_between_ranks(step.kind);
      },
      verifier_notices);
  for (const std::uint32_t tag : {999u, kMaxTag + 1})
    everywhere(
        "tag " + std::to_string(tag),
        [&](std::vector<Plan>& plans, std::size_t rank, StepId id) {
          plans[rank].steps[id].tag = tag;
          return is_between_ranks(plans[rank].steps[id].kind);
        },
        verifier_notices);
}

TEST_P(Mutation, WrittenInput) {
  everywhere(
      "writes the input",
      [](std::vector<Plan>& plans, std::size_t rank, StepId id) {
        Step& step = plans[rank].steps[id];
        if (!plan::touches(step.kind).writes || step.to.size_bytes == 0) return false;
        step.to.buffer = Buffer::input;
        return true;
      },
      verifier_notices);
}

TEST_P(Mutation, LostTask) {
  every_task(
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
}

// Memory shows it, but not in the trees of growing buffers, which put the tasks of a rank in a row to wait for one.
TEST_P(Mutation, LostOrderOfTasks) {
  if (subject_.what.kind == CollectiveKind::gather || subject_.what.kind == CollectiveKind::scatter) return;
  for (const std::size_t index : {0u, 1u})
    every_task(
        "dependency lost",
        [&](Plan&, SharedTask& task) {
          const bool applies = task.after[index] != SharedTask::kNone;
          // Both may lead to the same earlier tasks.
          const bool is_needed = task.after[1 - index] == SharedTask::kNone || task.source_count > 1;
          task.after[index] = SharedTask::kNone;
          return applies && is_needed;
        },
        verifier_notices);
}

TEST_P(Mutation, ShiftedTaskRegion) {
  for (const bool of_target : {false, true})
    every_task(
        "shifted",
        [&](Plan& plan, SharedTask& task) {
          plan.task_regions[task.first_region + (of_target ? task.source_count : 0u)].region.offset_bytes +=
              kElementBytes;
          return true;
        },
        either_notices);
}

TEST_P(Mutation, TaskOfOneRankAlone) {
  if (subject_.plans[0].tasks.empty()) return;
  for (std::size_t rank = 0; rank < subject_.plans.size(); ++rank) {
    std::vector<Plan> plans = subject_.plans;
    plans[rank].tasks.pop_back();
    EXPECT_TRUE(verifier_notices(subject_, plans)) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Row, Mutation, testing::ValuesIn(rows([](CollectiveKind) { return true; })), row_name);
INSTANTIATE_TEST_SUITE_P(Row, MemoryMutation,
                         testing::ValuesIn(rows([](CollectiveKind kind) { return kind != CollectiveKind::barrier; })),
                         row_name);

}  // namespace
}  // namespace penstock::conformance
