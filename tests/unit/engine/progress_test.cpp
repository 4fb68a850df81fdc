// The progress thread works while the application computes, sleeps while nothing is in flight, and survives fork().
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/progress.hpp"
#include "eventually.hpp"
#include "kernels/arithmetic.hpp"
#include "make_engine.hpp"
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
      EXPECT_TRUE(test::eventually([&run] { return run->done(); }));
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

// As the thread that completes futures of PyTorch: what it did would take time from a computation.
TEST_P(ProgressThread, DoesTheWorkOfThreadsThatSleepInWaits) {
  run_ranks(threaded(GetParam()), [](Engine& engine, int rank) {
    Progress::sleep_in_waits();  // this rank's thread
    const std::thread::id waiting = std::this_thread::get_id();
    std::atomic<int> here{0}, elsewhere{0};
    const auto combine = [&](ConstBytes from, Bytes to) {
      ++(std::this_thread::get_id() == waiting ? here : elsewhere);
      kernels::reduce(kAddUint32, from, to);
    };
    Arithmetic arithmetic = kAddUint32;
    arithmetic.user = std::make_shared<const UserOp>(UserOp{combine, 4});
    constexpr int kOperations = 20;
    std::vector<std::uint32_t> in(100000, 1);
    std::vector<std::uint32_t> out(100000);
    const auto plan = allreduce_plan(rank, 2, 400000);
    for (int i = 0; i < kOperations; ++i) engine.start(plan, {bytes_of(in), bytes_of(out)}, arithmetic, 0)->wait();
    EXPECT_EQ(out[99999], 2u);
    EXPECT_EQ(here, 0);
    if (rank == 0) {
      EXPECT_GE(elsewhere, kOperations);  // the others only move data
    }
  });
}

TEST_P(ProgressThread, WakesThreadsThatSleepInWaitsForTheApplicationLane) {
  run_ranks(threaded(GetParam()), [](Engine& engine, int rank) {
    Progress::sleep_in_waits();
    std::vector<std::uint32_t> in(100000, 1);
    std::vector<std::uint32_t> out(100000);
    const auto plan = allreduce_plan(rank, 2, 400000, Lane::application);
    for (int i = 0; i < 20; ++i) engine.start(plan, {bytes_of(in), bytes_of(out)}, kAddUint32, 0)->wait();
    EXPECT_EQ(out[99999], 2u);
  });
}

TEST_P(ProgressThread, SleepsWhileNothingIsInFlight) {
  // All ranks are idle and the engines exist: the thread must not run at all.
  auto transports = make_local_transports(GetParam());
  std::vector<std::shared_ptr<Engine>> engines(2);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      EngineOptions options;
      options.progress_threads = 1;
      engines[rank] = make_engine(std::move(transports[rank]), options);
      std::vector<std::uint32_t> in(4, 1);
      std::vector<std::uint32_t> out(4);
      engines[rank]
          ->start(allreduce_plan(static_cast<int>(rank), 2, 16), {bytes_of(in), bytes_of(out)}, kAddUint32, 0)
          ->wait();
    });
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(count_of_workers(1), 1u) << "no progress thread";
  EXPECT_TRUE(test::come_to_rest(host::kWorkerName));
}

// A thread that waits drives its engine itself: to wake another one would take time from both.
TEST(Blocking, StartsNoProgressThread) {
  ASSERT_EQ(count_of_workers(0), 0u);
  run_ranks(threaded({0}), [](Engine& engine, int) {
    std::vector<std::uint32_t> in(100000, 1);  // not completed by the start
    std::vector<std::uint32_t> out(100000);
    const auto plan = allreduce_plan(0, 1, 400000);
    engine.run(plan, {bytes_of(in), bytes_of(out)}, kAddUint32, 0);
    EXPECT_EQ(out[99999], 1u);
    EXPECT_EQ(workers().size(), 0u);
    const auto run = engine.start(plan, {bytes_of(in), bytes_of(out)}, kAddUint32, 0);
    EXPECT_EQ(count_of_workers(1), 1u);
    run->wait();
  });
}

TEST(Fork, TheChildIsToldAndDoesNotHang) {
  run_ranks(threaded({0}), [](Engine& engine, int) {
    std::vector<std::uint32_t> in(4, 1);
    std::vector<std::uint32_t> out(4);
    const auto plan = allreduce_plan(0, 1, 16);
    engine.start(plan, {bytes_of(in), bytes_of(out)}, kAddUint32, 0)->wait();
    const pid_t child = test::fork_beside_threads(host::kWorkerName);
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

/// The number of voluntary context switches of a thread of this process.
long sleeps_of(pid_t thread) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("voluntary_ctxt_switches:")) return std::stol(line.substr(line.find(':') + 1));
  return 0;
}

double seconds_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Rank 1 starts after rank 0 has slept kSleeps times, so rank 0 sleeps during its wait. If it spun or yielded, it would
// never reach that number.
TEST(Waiting, CostsNoCpuTime) {
  constexpr long kSleeps = 100;
  std::atomic<pid_t> waiting{0};
  run_ranks(ranks_of(one_node(2)), [&waiting](Engine& engine, int rank) {
    std::vector<std::uint32_t> in(4, 1);
    std::vector<std::uint32_t> out(4);
    if (rank == 0) waiting = ::gettid();
    if (rank == 1) {
      while (waiting == 0) std::this_thread::yield();
      const long before = sleeps_of(waiting);
      EXPECT_TRUE(test::eventually([&] { return sleeps_of(waiting) >= before + kSleeps; }));
    }
    const double cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    const double begin = seconds_of(CLOCK_MONOTONIC);
    engine.start(allreduce_plan(rank, 2, 16), {bytes_of(in), bytes_of(out)}, kAddUint32, 0)->wait();
    if (rank == 0) {
      EXPECT_LT(seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu, (seconds_of(CLOCK_MONOTONIC) - begin) / 3);
    }
  });
}

/// An engine that always makes progress, as if ranks that run ahead sent without end.
class Busy final : public Pollable {
 public:
  bool progress(Caller) noexcept override {
    if (std::chrono::steady_clock::now() > give_up_) checked = true;
    return true;
  }
  bool help() noexcept override { return true; }
  bool can_sleep(Caller) noexcept override { return false; }
  bool needs_polling(Caller) noexcept override { return true; }
  void check_peers(Caller) noexcept override {
    is_told = true;
    checked = true;
  }
  void poke() noexcept override {}
  Doorbell& bell() noexcept override { return bell_; }

  std::atomic<bool> checked{false};
  bool is_told = false;

 private:
  Doorbell bell_;
  const std::chrono::steady_clock::time_point give_up_ = std::chrono::steady_clock::now() + test::kHung;
};

TEST(Progress, ChecksPeersThoughSomethingAlwaysMovesInWait) {
  Busy engine;
  Progress::of_process().wait_for(engine, engine.checked);
  EXPECT_TRUE(engine.is_told);
}

TEST(Progress, ChecksPeersThoughSomethingAlwaysMovesInALoopOfTests) {
  Busy engine;
  while (!engine.checked) Progress::of_process().drive(engine);
  EXPECT_TRUE(engine.is_told);
}

/// An engine that waits for a transport, which brings nothing.
class Fruitless final : public Pollable {
 public:
  explicit Fruitless(std::int64_t its_nap_ns = 0) {
    wants_thread = true;
    active = true;
    background_nap_ns = its_nap_ns;
    Progress::of_process().add(*this);
    worker_ = Progress::of_process().claim_threads({-1});
    Progress::of_process().attention(*this);
  }
  ~Fruitless() {
    active = false;
    Progress::of_process().remove(*this);
  }
  Fruitless(const Fruitless&) = delete;
  Fruitless& operator=(const Fruitless&) = delete;

  bool progress(Caller) noexcept override {
    ++polls_;
    return false;
  }
  bool help() noexcept override { return false; }
  bool can_sleep(Caller) noexcept override {
    const int sleeps = ++sleeps_;
    if (sleeps == 1) polls_before_first = polls_.load();
    if (sleeps == kFirst) polls_before = polls_.load();
    if (sleeps == kFirst + kCounted) polls_in_counted = polls_.load() - polls_before;
    return true;
  }
  bool needs_polling(Caller) noexcept override { return true; }
  void check_peers(Caller) noexcept override {}
  void poke() noexcept override {}
  Doorbell& bell() noexcept override { return bell_; }

  static constexpr int kFirst = 10;
  static constexpr int kCounted = 50;
  std::atomic<int> polls_before_first{0};
  std::atomic<int> polls_before{0};
  std::atomic<int> polls_in_counted{0};

 private:
  std::atomic<int> polls_{0};
  std::atomic<int> sleeps_{0};
  Doorbell bell_;
  std::shared_ptr<const void> worker_;
};

TEST(Progress, AWorkerThatFindsNothingPollsTwicePerSleep) {
  Fruitless engine;
  ASSERT_TRUE(test::eventually([&] { return engine.polls_in_counted > 0; }));
  EXPECT_LE(engine.polls_in_counted, 3 * Fruitless::kCounted);
}

TEST(Progress, AWorkerSleepsAtOnceIfTheNextEventIsFarAway) {
  Fruitless engine(1'000'000'000);
  ASSERT_TRUE(test::eventually([&] { return engine.polls_before_first > 0; }));
  EXPECT_LE(engine.polls_before_first, 10);
}

}  // namespace
}  // namespace penstock::engine
