// The progress thread: works while the application computes, sleeps while nothing is in flight, survives fork().
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <barrier>
#include <chrono>

#include "plans.hpp"
#include "ranks.hpp"
#include "workers.hpp"

namespace penstock::engine {
namespace {

using std::chrono::milliseconds;

RanksOptions threaded(std::vector<std::int32_t> nodes) {
  RanksOptions options = ranks_of(std::move(nodes));
  options.engine.progress_threads = 1;
  return options;
}

class ProgressThread : public testing::TestWithParam<std::vector<std::int32_t>> {};
INSTANTIATE_TEST_SUITE_P(, ProgressThread, testing::Values(one_node(2), std::vector<std::int32_t>{0, 1}));

TEST_P(ProgressThread, CompletesOperationsWhileNobodyWaits) {
  run_ranks(threaded(GetParam()), [](Engine& engine, int rank) {
    for (const std::uint64_t elems : {2u, 100000u}) {
      std::vector<std::uint32_t> in(elems, 1);
      std::vector<std::uint32_t> out(elems);
      const auto run = engine.start(allreduce_plan(rank, 2, elems * 4), {bytes_of(in), bytes_of(out)}, kAddUint32, 0);
      for (int i = 0; i < 5000 && !run->done(); ++i) std::this_thread::sleep_for(milliseconds(1));
      EXPECT_TRUE(run->done());
      EXPECT_EQ(out[elems - 1], 2u);
    }
  });
}

TEST_P(ProgressThread, LeavesTheApplicationLaneToTheApplication) {
  std::barrier looked(2);
  run_ranks(threaded(GetParam()), [&looked](Engine& engine, int rank) {
    std::vector<std::uint32_t> in(100000, 1);
    std::vector<std::uint32_t> out(100000);
    const auto run =
        engine.start(allreduce_plan(rank, 2, 400000, Lane::application), {bytes_of(in), bytes_of(out)}, kAddUint32, 0);
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_FALSE(run->done());
    looked.arrive_and_wait();
    run->wait();
    EXPECT_EQ(out[99999], 2u);
  });
}

TEST_P(ProgressThread, SleepsWhileNothingIsInFlight) {
  // All ranks idle, engines alive: the thread must not run at all.
  auto transports = make_local_transports(GetParam());
  std::vector<std::shared_ptr<Engine>> engines(2);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      EngineOptions options;
      options.progress_threads = 1;
      engines[rank] = Engine::create(std::move(transports[rank]), options);
      std::vector<std::uint32_t> in(4, 1);
      std::vector<std::uint32_t> out(4);
      engines[rank]
          ->start(allreduce_plan(static_cast<int>(rank), 2, 16), {bytes_of(in), bytes_of(out)}, kAddUint32, 0)
          ->wait();
    });
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(count_of_workers(1), 1u) << "no progress thread";
  EXPECT_EQ(wakeups(), 0);
}

TEST(Fork, TheChildIsToldAndDoesNotHang) {
  run_ranks(threaded({0}), [](Engine& engine, int) {
    std::vector<std::uint32_t> in(4, 1);
    std::vector<std::uint32_t> out(4);
    const auto plan = allreduce_plan(0, 1, 16);
    engine.start(plan, {bytes_of(in), bytes_of(out)}, kAddUint32, 0)->wait();
    const pid_t child = fork_beside_workers();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        engine.start(plan, {bytes_of(in), bytes_of(out)}, kAddUint32, 0);
      } catch (const Error& error) {
        ::_exit(error.code() == ErrorCode::unsupported ? 0 : 1);
      }
      ::_exit(2);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    engine.start(plan, {bytes_of(in), bytes_of(out)}, kAddUint32, 0)->wait();
    EXPECT_EQ(out[3], 1u);
  });
}

TEST(Waiting, CostsNoCpuTime) {
  run_ranks(ranks_of(one_node(2)), [](Engine& engine, int rank) {
    std::vector<std::uint32_t> in(4, 1);
    std::vector<std::uint32_t> out(4);
    if (rank == 1) std::this_thread::sleep_for(milliseconds(300));
    timespec before{};
    timespec after{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    engine.start(allreduce_plan(rank, 2, 16), {bytes_of(in), bytes_of(out)}, kAddUint32, 0)->wait();
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    const double seconds =
        static_cast<double>(after.tv_sec - before.tv_sec) + static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-9;
    EXPECT_LT(seconds, 0.1);
  });
}

}  // namespace
}  // namespace penstock::engine
