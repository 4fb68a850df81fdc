// Shared tasks: any number of the node's threads run them concurrently. After a failure no task uses a rank's memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <string>

#include "engine/task_runner.hpp"
#include "engine/task_table.hpp"
#include "penstock/collective.hpp"
#include "ranks.hpp"
#include "yields_counted.hpp"

namespace penstock::engine {
namespace {

using std::chrono::milliseconds;

const Arithmetic kSumInt64{.dtype = DType::int64, .op = ReduceOp::sum};

std::shared_ptr<const Plan> plan_of(const Engine& engine, CollectiveKind kind, const char* algorithm,
                                    std::uint64_t count, int split = 0) {
  Collective collective{.kind = kind, .count = count, .dtype = DType::int64};
  collective.algorithm = algorithm;
  collective.split = split;
  return std::make_shared<const Plan>(plan_collective(engine.team(), collective));
}

class SharedTasks : public testing::TestWithParam<int> {
 protected:
  RanksOptions ranks(int size) const {
    RanksOptions options = ranks_of(one_node(size));
    options.engine.progress_threads = GetParam();
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(ProgressThreads, SharedTasks, testing::Values(0, 1, 3));

TEST_P(SharedTasks, MoreOperationsThanTheTaskTableHasSlots) {
  constexpr int kOperations = 5 * static_cast<int>(TaskTable::kSlots);
  constexpr int kRanks = 4;
  run_ranks(ranks(kRanks), [&](Engine& engine, int rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<std::vector<std::int64_t>> in(kOperations), out(kOperations);
    std::vector<std::shared_ptr<engine::Run>> runs;
    for (int i = 0; i < kOperations; ++i) {
      const std::uint64_t count = i % 3 == 0 ? 20'000 : 300;
      in[static_cast<std::size_t>(i)].assign(count, rank + i);
      out[static_cast<std::size_t>(i)].assign(count, -1);
      runs.push_back(engine.start(
          plan_of(engine, CollectiveKind::allreduce, i % 2 == 0 ? "tree" : "divided", count, i % 4),
          {bytes_of(in[static_cast<std::size_t>(i)]), bytes_of(out[static_cast<std::size_t>(i)])}, kSumInt64, 9));
    }
    std::vector<std::size_t> order(kOperations);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      runs[i]->wait();
      const auto expected = static_cast<std::int64_t>(kRanks * static_cast<int>(i) + kRanks * (kRanks - 1) / 2);
      EXPECT_EQ(std::ranges::count(out[i], expected), std::ssize(out[i])) << "operation " << i << " of rank " << rank;
    }
  });
}

TEST_P(SharedTasks, ALateRankDelaysOnlyItsOwnGroup) {
  constexpr int kRanks = 8;  // bcast/divided forms groups of ranks 1 to 4 and 5 to 7
  std::atomic<int> arrived{0};
  run_ranks(ranks(kRanks), [&](Engine& engine, int rank) {
    std::vector<std::int64_t> data(30'000, rank == 0 ? 7 : 0);
    if (rank == 7)
      while (arrived.load() < 4) std::this_thread::sleep_for(milliseconds(1));
    const auto run =
        engine.start(plan_of(engine, CollectiveKind::bcast, "divided", data.size()), {{}, bytes_of(data)}, {}, 3);
    run->wait();
    EXPECT_EQ(std::ranges::count(data, 7), std::ssize(data));
    if (rank >= 1 && rank <= 4) ++arrived;
  });
}

TEST_P(SharedTasks, DifferentCallsFailOnBothSides) {
  run_ranks(ranks(4), [&](Engine& engine, int rank) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::int64_t> in(5000, 1);
      std::vector<std::int64_t> out(5000, 0);
      const auto plan = plan_of(engine, CollectiveKind::allreduce, "divided", 5000);
      const auto run = engine.start(plan, {bytes_of(in), bytes_of(out)}, kSumInt64, rank == round % 4 ? 100u : 200u);
      EXPECT_THROW(run->wait(), Error) << "rank " << rank << ", round " << round;
      std::fill(out.begin(), out.end(), 0);
      engine.start(plan, {bytes_of(in), bytes_of(out)}, kSumInt64, 300)->wait();
      ASSERT_EQ(out[4999], 4) << "rank " << rank << ", round " << round;
    }
  });
}

TEST_P(SharedTasks, AFailureGivesMemoryBackToItsOwner) {
  run_ranks(ranks(4), [&](Engine& engine, int rank) {
    std::mt19937 random(static_cast<unsigned>(rank) + 5);
    for (int round = 0; round < 30; ++round) {
      const auto plan = plan_of(engine, CollectiveKind::allreduce, round % 2 == 0 ? "divided" : "tree", 40'000);
      if (rank == round % 4) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        engine.fail_next("given up");
      } else {
        auto in = std::make_unique<std::vector<std::int64_t>>(40'000, 1);
        auto out = std::make_unique<std::vector<std::int64_t>>(40'000, 0);
        const auto run = engine.start(plan, {bytes_of(*in), bytes_of(*out)}, kSumInt64, 4);
        EXPECT_THROW(run->wait(), Error);
        // The sanitizers detect a task that still uses this memory.
        in.reset();
        out.reset();
      }
      std::vector<std::int64_t> in(100, 1);
      std::vector<std::int64_t> out(100, 0);
      engine
          .start(plan_of(engine, CollectiveKind::allreduce, "divided", 100), {bytes_of(in), bytes_of(out)}, kSumInt64,
                 5)
          ->wait();
      ASSERT_EQ(out[99], 4) << "rank " << rank << ", round " << round;
    }
  });
}

TEST_P(SharedTasks, ARankThatGoesFailsTheOthers) {
  run_ranks(ranks(3), [&](Engine& engine, int rank) {
    if (rank == 1) return;
    std::vector<std::int64_t> in(5000, 1);
    std::vector<std::int64_t> out(5000, 0);
    const auto run = engine.start(plan_of(engine, CollectiveKind::allreduce, "divided", 5000),
                                  {bytes_of(in), bytes_of(out)}, kSumInt64, 4);
    try {
      run->wait();
      ADD_FAILURE() << "rank " << rank << " completed without rank 1";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_failed) << error.what();
    }
  });
}

// Each rank publishes tasks twice, before and after the exchange between nodes. An operation that has its slot must not
// publish its second task group behind the first one of an operation that waits for a free slot.
TEST_P(SharedTasks, LaterSharesOfAnOperationNeedNoSlot) {
  constexpr int kOperations = 2 * static_cast<int>(TaskTable::kSlots);
  RanksOptions two_nodes = ranks_of({0, 0, 1, 1});
  two_nodes.engine.progress_threads = GetParam();
  run_ranks(two_nodes, [&](Engine& engine, int rank) {
    const auto plan = plan_of(engine, CollectiveKind::allreduce, "node_shared", 2000);
    std::vector<std::int64_t> in(2000, rank);
    std::vector<std::vector<std::int64_t>> out(kOperations, std::vector<std::int64_t>(2000, -1));
    std::vector<std::shared_ptr<engine::Run>> runs;
    for (auto& result : out) runs.push_back(engine.start(plan, {bytes_of(in), bytes_of(result)}, kSumInt64, 9));
    for (std::size_t i = 0; i < runs.size(); ++i) {
      runs[i]->wait();
      EXPECT_EQ(std::ranges::count(out[i], 6), std::ssize(out[i])) << "operation " << i << " of rank " << rank;
    }
  });
}

// start() does not wait for ranks that have not arrived; test() and wait() do.
TEST_P(SharedTasks, AreNotWaitedForInStart) {
  RanksOptions options = ranks(2);
  options.engine.progress_cores = 1;
  run_ranks(options, [&](Engine& engine, int rank) {
    std::vector<std::int64_t> in(200'000, rank);
    std::vector<std::int64_t> out(in.size());
    const auto plan = plan_of(engine, CollectiveKind::allreduce, "tree", in.size(), 1);
    ASSERT_GT(plan->application_levels, 0);
    const int yields_before = count_yields();
    const auto run = engine.start(plan, {bytes_of(std::as_const(in)), bytes_of(out)}, kSumInt64, 9);
    EXPECT_EQ(count_yields(), yields_before);
    run->wait();
    EXPECT_EQ(std::ranges::count(out, 1), std::ssize(out));
  });
}

TEST(TaskRunner, CombinesInTheOrderOfTheSources) {
  std::vector<float> a{1e8F, 1.0F}, b{-1e8F, 2.0F}, c{1.0F, 4.0F}, sum(2);
  const auto place = [](std::vector<float>& values) {
    return Place{0, reinterpret_cast<std::uint64_t>(values.data()), 0};
  };
  const std::vector<Place> sources{place(a), place(b), place(c)};
  const std::vector<Place> targets{place(a), place(sum)};
  const Arithmetic arithmetic{.dtype = DType::float32, .op = ReduceOp::sum};
  EXPECT_EQ(run_task(arithmetic, sources, targets, 8).error, 0);
  EXPECT_EQ(sum[0], 1e8F + (-1e8F + 1.0F));
  EXPECT_EQ(sum[1], 7.0F);
  EXPECT_EQ(a, sum);
}

// The sum may be built in a target. Sources and targets in all combinations of own memory and memory that only the
// kernel reaches, and targets that are sources.
TEST(TaskRunner, CombinesWhereverTheTargetsAre) {
  constexpr std::size_t kElements = 40'000;  // several blocks
  constexpr std::size_t kRanks = 3;
  const Arithmetic arithmetic{.dtype = DType::float32, .op = ReduceOp::sum};
  for (const std::size_t sources_of : {2u, 3u})
    for (unsigned far = 0; far < 1u << kRanks; ++far)
      for (unsigned in_place = 0; in_place < 1u << kRanks; ++in_place) {
        std::vector<std::vector<float>> inputs(kRanks), outputs(kRanks, std::vector<float>(kElements, -1.0F));
        for (std::size_t rank = 0; rank < kRanks; ++rank)
          for (std::size_t i = 0; i < kElements; ++i)
            inputs[rank].push_back(rank == 2 ? static_cast<float>(i) : rank == 1 ? -1e8F : 1e8F);
        std::vector<float> expected;
        for (std::size_t i = 0; i < kElements; ++i)
          expected.push_back(sources_of == 2 ? inputs[0][i] + inputs[1][i]
                                             : inputs[0][i] + (inputs[1][i] + inputs[2][i]));
        const auto place = [&](std::vector<float>& values, std::size_t rank) {
          return Place{(far >> rank & 1) != 0 ? ::getpid() : 0, reinterpret_cast<std::uint64_t>(values.data()),
                       static_cast<std::int32_t>(rank)};
        };
        std::vector<Place> sources, targets;
        for (std::size_t rank = 0; rank < sources_of; ++rank) {
          sources.push_back(place(inputs[rank], rank));
          targets.push_back(place((in_place >> rank & 1) != 0 ? inputs[rank] : outputs[rank], rank));
        }
        ASSERT_EQ(run_task(arithmetic, sources, targets, kElements * sizeof(float)).error, 0);
        for (std::size_t rank = 0; rank < sources_of; ++rank)
          EXPECT_EQ((in_place >> rank & 1) != 0 ? inputs[rank] : outputs[rank], expected)
              << "rank " << rank << " of " << sources_of << ", far " << far << ", in place " << in_place;
      }
}

TEST(TaskRunner, ReportsWhoseMemoryIsGone) {
  std::vector<float> here(4);
  const Place own{0, reinterpret_cast<std::uint64_t>(here.data()), 3};
  const Place nowhere{::getpid(), 16, 5};
  const TaskResult read = run_task({}, std::vector{nowhere}, std::vector{own}, 16);
  EXPECT_NE(read.error, 0);
  EXPECT_EQ(read.rank, 5);
  const TaskResult written = run_task({}, std::vector{own}, std::vector{nowhere}, 16);
  EXPECT_NE(written.error, 0);
  EXPECT_EQ(written.rank, 5);
}

}  // namespace
}  // namespace penstock::engine
