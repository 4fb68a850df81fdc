// Plans give their results over shared memory, between nodes, and over both, with and without progress threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <string>

#include "make_engine.hpp"
#include "plans.hpp"
#include "ranks.hpp"

namespace penstock::engine {
namespace {

using std::chrono::milliseconds;

struct RunSetting {
  const char* name;
  std::vector<std::int32_t> nodes;
  EngineOptions engine;
  bool any_thread = true;
};

std::vector<RunSetting> settings() {
  const EngineOptions copied_twice{.single_copy = false};
  const EngineOptions tiny{.eager_bytes = 0, .shared_bytes = 256 << 10, .single_copy = false};
  EngineOptions threaded;
  threaded.progress_threads = 1;
  EngineOptions threaded_tiny = tiny;
  threaded_tiny.progress_threads = 1;
  return {
      {"one_rank", {0}, {}},
      {"one_node", one_node(4), {}},
      {"one_node_copied_twice", one_node(4), copied_twice},
      {"one_node_tiny_cells", one_node(3), tiny},
      {"one_node_thread", one_node(4), threaded},
      {"no_shared_memory", one_node(3), {.shared_memory = false}},
      {"nodes_of_one", {0, 1, 2}, {}},
      {"nodes_of_3_and_4", {1, 0, 1, 0, 0, 1, 0}, {}},
      {"nodes_of_3_and_4_thread", {1, 0, 1, 0, 0, 1, 0}, threaded_tiny},
      {"nodes_funneled", {0, 0, 1, 1}, {}, false},
      {"nodes_funneled_thread", {0, 0, 1, 1}, threaded, false},
  };
}

std::string name_of(const testing::TestParamInfo<RunSetting>& setting) { return setting.param.name; }

class PlanRuns : public testing::TestWithParam<RunSetting> {
 protected:
  RanksOptions ranks() const {
    return {.nodes = GetParam().nodes, .engine = GetParam().engine, .transport = {.any_thread = GetParam().any_thread}};
  }
  int size() const { return static_cast<int>(GetParam().nodes.size()); }
};

TEST_P(PlanRuns, AlltoallOfManySizes) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    for (const std::uint64_t elems : {0u, 1u, 2u, 100u, 4096u, 5000u, 70000u}) {
      const auto plan = alltoall_plan(rank, size(), elems * 4);
      std::vector<std::uint32_t> in(elems * static_cast<std::size_t>(size()));
      for (std::size_t i = 0; i < in.size(); ++i)
        in[i] = static_cast<std::uint32_t>(i * 7 + static_cast<std::size_t>(rank));
      std::vector<std::uint32_t> out(in.size(), 0);
      engine.start(plan, {bytes_of(in), bytes_of(out)}, {}, elems)->wait();
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t peer = i / elems;
        const std::size_t sent = static_cast<std::size_t>(rank) * elems + i % elems;
        ASSERT_EQ(out[i], static_cast<std::uint32_t>(sent * 7 + peer)) << "at " << i << " of " << elems;
      }
    }
  });
}

TEST_P(PlanRuns, RandomPlansWaitedForInAnyOrder) {
  constexpr int kOperations = 8;
  std::vector<RandomPlans> cases;
  for (int i = 0; i < kOperations; ++i)
    cases.emplace_back(size(), 40, 5, i % 3 == 0 ? 8 : i % 3 == 1 ? 3000 : 20000, static_cast<std::uint32_t>(i));
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const auto me = static_cast<std::size_t>(rank);
    std::mt19937 random(static_cast<std::uint32_t>(rank));
    for (int round = 0; round < 3; ++round) {
      std::vector<std::vector<std::uint32_t>> outputs;
      std::vector<std::shared_ptr<engine::Run>> runs;
      for (const RandomPlans& one : cases) outputs.emplace_back(one.inputs[me].size(), 0);
      for (int i = 0; i < kOperations; ++i) {
        const RandomPlans& one = cases[static_cast<std::size_t>(i)];
        if (random() % 4 == 0) std::this_thread::sleep_for(milliseconds(random() % 3));
        runs.push_back(engine.start(one.plans[me],
                                    {bytes_of(one.inputs[me]), bytes_of(outputs[static_cast<std::size_t>(i)])},
                                    kAddUint32, static_cast<std::uint64_t>(i)));
      }
      std::vector<std::size_t> order(runs.size());
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t i : order) {
        if (random() % 2)
          runs[i]->wait();
        else
          while (!runs[i]->test()) std::this_thread::yield();
        EXPECT_TRUE(runs[i]->done());
        ASSERT_EQ(outputs[i], cases[i].outputs[me]) << "operation " << i << " on rank " << rank;
      }
    }
  });
}

TEST_P(PlanRuns, ManySmallOperationsAfterALateRank) {
  constexpr int kOperations = 300;
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    if (rank == size() - 1) std::this_thread::sleep_for(milliseconds(30));
    const auto plan = allreduce_plan(rank, size(), 64);
    std::vector<std::vector<std::uint32_t>> in;
    std::vector<std::vector<std::uint32_t>> out(kOperations, std::vector<std::uint32_t>(16));
    std::vector<std::shared_ptr<engine::Run>> runs;
    for (std::uint32_t i = 0; i < kOperations; ++i) in.emplace_back(16, i + static_cast<std::uint32_t>(rank));
    for (std::size_t i = 0; i < kOperations; ++i)
      runs.push_back(engine.start(plan, {bytes_of(in[i]), bytes_of(out[i])}, kAddUint32, i));
    for (std::size_t i = 0; i < kOperations; ++i) {
      runs[i]->wait();
      const auto n = static_cast<std::uint32_t>(size());
      ASSERT_EQ(out[i][7], n * static_cast<std::uint32_t>(i) + n * (n - 1) / 2);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, PlanRuns, testing::ValuesIn(settings()), name_of);

TEST_P(PlanRuns, MoreLongMessagesThanAreAnnouncedAtATime) {
  constexpr std::uint32_t kCount = 100;
  constexpr std::uint64_t kElems = 20000;
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const auto plan = messages_plan(rank, size(), kCount, kElems * 4);
    std::vector<std::uint32_t> in(kCount * kElems);
    std::vector<std::uint32_t> out(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint32_t>(i * 3 + static_cast<unsigned>(rank));
    engine.start(plan, {bytes_of(in), bytes_of(out)}, {}, 0)->wait();
    const auto previous = static_cast<std::uint32_t>((rank + size() - 1) % size());
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], i * 3 + previous) << i;
  });
}

TEST(SharedBuffers, AreReusedOnlyWhenAllRanksHaveReadThem) {
  constexpr int kSize = 4;
  constexpr std::uint64_t kElems = 20000;
  run_ranks(ranks_of(one_node(kSize)), [&](Engine& engine, int rank) {
    const std::uint64_t bytes = kElems * 4;
    ASSERT_GT(engine.shared_limit_bytes(), bytes);
    const auto plan = shared_allgather_plan(rank, kSize, bytes);
    constexpr std::size_t kOperations = 60;  // together many times the size of the ring
    std::vector<std::vector<std::uint32_t>> in;
    std::vector<std::vector<std::uint32_t>> out(kOperations, std::vector<std::uint32_t>(kElems * kSize));
    std::vector<std::shared_ptr<engine::Run>> runs;
    for (std::uint32_t i = 0; i < kOperations; ++i) in.emplace_back(kElems, i * 10 + static_cast<std::uint32_t>(rank));
    for (std::size_t i = 0; i < kOperations; ++i) {
      if (rank == 1 && i % 7 == 0) std::this_thread::sleep_for(milliseconds(1));
      runs.push_back(engine.start(plan, {bytes_of(in[i]), bytes_of(out[i])}, {}, 0));
    }
    for (std::size_t i = kOperations; i-- > 0;) {
      runs[i]->wait();
      for (std::size_t k = 0; k < out[i].size(); ++k)
        ASSERT_EQ(out[i][k], i * 10 + k / kElems) << "operation " << i << " at " << k;
    }
  });
}

TEST(SharedBuffers, ALargerOneThanThereIsIsRefusedOnAllRanks) {
  run_ranks(ranks_of(one_node(2)), [](Engine& engine, int rank) {
    const auto plan = shared_allgather_plan(rank, 2, engine.shared_limit_bytes() + 64);
    std::vector<std::byte> in(plan->input_bytes);
    std::vector<std::byte> out(plan->output_bytes);
    EXPECT_THROW(engine.start(plan, {in, out}, {}, 0)->wait(), Error);
    std::vector<std::uint32_t> a{1};
    std::vector<std::uint32_t> b{0};
    engine.start(allreduce_plan(rank, 2, 4), {bytes_of(a), bytes_of(b)}, kAddUint32, 0)->wait();
    EXPECT_EQ(b[0], 2u);
  });
}

TEST(Communicators, OverlapFromSeveralThreads) {
  constexpr std::size_t kComms = 3;
  constexpr int kSize = 3;
  for (const int threads : {0, 1}) {
    std::vector<std::thread> all;
    for (std::size_t comm = 0; comm < kComms; ++comm)
      all.emplace_back([comm, threads] {
        RanksOptions options = ranks_of(comm == 1 ? std::vector<std::int32_t>{0, 1, 0} : one_node(kSize));
        options.engine.progress_threads = threads;
        run_ranks(options, [&](Engine& engine, int rank) {
          const auto plan = allreduce_plan(rank, kSize, 40000, comm == 2 ? Lane::application : Lane::progress);
          for (std::uint32_t i = 0; i < 50; ++i) {
            std::vector<std::uint32_t> in(10000, i + static_cast<std::uint32_t>(rank));
            std::vector<std::uint32_t> out(10000, 0);
            const auto run = engine.start(plan, {bytes_of(in), bytes_of(out)}, kAddUint32, i);
            run->wait();
            ASSERT_EQ(out[9999], 3 * i + 3);
          }
        });
      });
    for (std::thread& thread : all) thread.join();
  }
}

// Each rank waits for one communicator's operation while the other communicator still needs it: a wait must drive both.
TEST(Communicators, AreWaitedForInOppositeOrder) {
  std::vector<std::unique_ptr<Transport>> first = make_local_transports(one_node(2));
  std::vector<std::unique_ptr<Transport>> second = make_local_transports({0, 1});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      const auto me = static_cast<std::size_t>(rank);
      const auto a = make_engine(std::move(first[me]), {});
      const auto b = make_engine(std::move(second[me]), {});
      for (int round = 0; round < 20; ++round) {
        const std::uint64_t elems = 100000;
        std::vector<std::uint32_t> in(elems, 1);
        std::vector<std::uint32_t> out_a(elems);
        std::vector<std::uint32_t> out_b(elems);
        const auto plan = allreduce_plan(rank, 2, elems * 4, Lane::application);
        const auto run_a = a->start(plan, {bytes_of(in), bytes_of(out_a)}, kAddUint32, 0);
        const auto run_b = b->start(plan, {bytes_of(in), bytes_of(out_b)}, kAddUint32, 0);
        (rank == 0 ? run_a : run_b)->wait();
        (rank == 0 ? run_b : run_a)->wait();
        EXPECT_EQ(out_a.back() + out_b.front(), 4u);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace penstock::engine
