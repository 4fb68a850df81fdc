// Several progress threads in one process: their number, their placement, and that they progress all engines.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "host/cpu_set.hpp"
#include "make_engine.hpp"
#include "plans.hpp"
#include "ranks.hpp"
#include "workers.hpp"

namespace penstock::engine {
namespace {

host::CpuSet cpus_of_thread(pid_t thread) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  host::CpuSet cpus;
  if (::sched_getaffinity(thread, sizeof mask, &mask) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &mask)) cpus.add(cpu);
  return cpus;
}

/// A communicator of two ranks of this thread. It has run an operation.
class Pair {
 public:
  explicit Pair(const EngineOptions& options) {
    auto transports = make_local_transports({0, 0});
    std::thread other([&] { engines_[1] = make_engine(std::move(transports[1]), options); });
    engines_[0] = make_engine(std::move(transports[0]), options);
    other.join();
    const auto runs = start();
    for (const auto& run : runs) run->wait();
    check();
  }

  /// Runs an operation to its end without wait() or test().
  void run_alone() {
    const auto runs = start();
    EXPECT_TRUE(test::eventually([&runs] { return runs[0]->done() && runs[1]->done(); }));
    check();
  }

  Engine& operator[](std::size_t rank) { return *engines_[rank]; }

 private:
  static constexpr std::uint64_t kElems = 1000;

  std::vector<std::shared_ptr<Run>> start() {
    std::vector<std::shared_ptr<Run>> runs;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      in_[rank].assign(kElems, 3);
      out_[rank].assign(kElems, 0);
      const auto plan = allreduce_plan(static_cast<int>(rank), 2, kElems * 4);
      runs.push_back(engines_[rank]->start(plan, {bytes_of(in_[rank]), bytes_of(out_[rank])}, kAddUint32, 0));
    }
    return runs;
  }
  void check() const {
    for (const auto& out : out_) EXPECT_EQ(out.back(), 6u);
  }

  std::array<std::shared_ptr<Engine>, 2> engines_;
  std::array<std::vector<std::uint32_t>, 2> in_;
  std::array<std::vector<std::uint32_t>, 2> out_;
};

TEST(Workers, AreAsManyAsTheLargestClaim) {
  EXPECT_EQ(count_of_workers(0), 0u);
  const auto none = std::make_unique<Pair>(EngineOptions{});
  EXPECT_EQ(count_of_workers(0), 0u) << "switched off";
  auto two = std::make_unique<Pair>(EngineOptions{.progress_threads = 2});
  EXPECT_EQ(count_of_workers(2), 2u);
  auto three = std::make_unique<Pair>(EngineOptions{.progress_threads = 3});
  EXPECT_EQ(count_of_workers(3), 3u);
  const auto one = std::make_unique<Pair>(EngineOptions{.progress_threads = 1});
  EXPECT_EQ(count_of_workers(3), 3u);
  three.reset();
  EXPECT_EQ(count_of_workers(2), 2u);
  one->run_alone();
  two->run_alone();
  two.reset();
  EXPECT_EQ(count_of_workers(1), 1u);
  one->run_alone();
  const auto late = std::make_unique<Pair>(EngineOptions{.progress_threads = 3});
  EXPECT_EQ(count_of_workers(3), 3u);
  one->run_alone();
  late->run_alone();
}

TEST(Workers, EndWithTheirEngines) {
  std::make_unique<Pair>(EngineOptions{.progress_threads = 3});
  EXPECT_EQ(count_of_workers(0), 0u);
}

TEST(Workers, RunWhereTheyArePlaced) {
  const host::CpuSet all = host::cpus_of_process(::getpid());
  const std::int32_t first = all.cpus().front();
  auto placed = std::make_unique<Pair>(EngineOptions{.progress_threads = 2, .progress_cpus = {first, -1}});
  host::CpuSet alone;
  alone.add(first);
  ASSERT_EQ(count_of_workers(2), 2u);
  std::multiset<std::string> found;
  for (const test::Thread& worker : workers()) found.insert(cpus_of_thread(worker.id).text());
  EXPECT_EQ(found, (std::multiset<std::string>{alone.text(), all.text()}));

  const auto larger = std::make_unique<Pair>(EngineOptions{.progress_threads = 3, .progress_cpus = {-1, -1, first}});
  placed.reset();
  ASSERT_EQ(count_of_workers(3), 3u);
  found.clear();
  for (const test::Thread& worker : workers()) found.insert(cpus_of_thread(worker.id).text());
  EXPECT_EQ(found, (std::multiset<std::string>{alone.text(), all.text(), all.text()})) << "placed anew";
}

TEST(Workers, RunAnywhereWhenTheirCpuIsRefused) {
  const auto engine =
      std::make_unique<Pair>(EngineOptions{.progress_threads = 1, .progress_cpus = {host::CpuSet::kMaxCpus - 1}});
  ASSERT_EQ(count_of_workers(1), 1u);
  EXPECT_EQ(cpus_of_thread(workers()[0].id), host::cpus_of_process(::getpid()));
}

TEST(Workers, AreNotBoundToTheCpuOfTheThreadThatStartsThem) {
  const host::CpuSet all = host::cpus_of_process(::getpid());
  std::thread([&all] {
    host::CpuSet first;
    first.add(all.cpus().front());
    ASSERT_TRUE(host::bind_thread(::pthread_self(), first));
    const auto engine = std::make_unique<Pair>(EngineOptions{.progress_threads = 1});
    ASSERT_EQ(count_of_workers(1), 1u);
    EXPECT_EQ(cpus_of_thread(workers()[0].id), all);
  }).join();
}

TEST(Workers, LeaveSignalsToTheApplication) {
  const auto engine = std::make_unique<Pair>(EngineOptions{.progress_threads = 2});
  ASSERT_EQ(count_of_workers(2), 2u);
  for (const test::Thread& worker : workers()) {
    const std::uint64_t blocked = std::stoull(worker.blocked_signals, nullptr, 16);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM})
      EXPECT_NE(blocked >> (signal - 1) & 1, 0u) << signal;
  }
}

TEST(Workers, SleepWhileNothingIsInFlight) {
  const auto engine = std::make_unique<Pair>(EngineOptions{.progress_threads = 3});
  const auto other = std::make_unique<Pair>(EngineOptions{.progress_threads = 1});
  engine->run_alone();
  ASSERT_EQ(count_of_workers(3), 3u);
  EXPECT_TRUE(test::come_to_rest(host::kWorkerName));
}

TEST(Workers, WakeForEveryOperation) {
  // Each start finds the workers asleep or about to sleep. If a wakeup is lost, they sleep for a day.
  const auto engine = std::make_unique<Pair>(EngineOptions{.progress_threads = 3});
  const auto other = std::make_unique<Pair>(EngineOptions{.progress_threads = 3});
  for (int i = 0; i < 100; ++i) {
    (i % 2 == 0 ? *engine : *other).run_alone();
    std::this_thread::sleep_for(std::chrono::microseconds(17 * i));
  }
}

TEST(Workers, SurviveAForkOfTheProcess) {
  const auto engine = std::make_unique<Pair>(EngineOptions{.progress_threads = 3});
  const pid_t child = test::fork_beside_threads(host::kWorkerName);
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::vector<std::uint32_t> in(4, 1);
    std::vector<std::uint32_t> out(4);
    try {
      (*engine)[0].start(allreduce_plan(0, 2, 16), {bytes_of(in), bytes_of(out)}, kAddUint32, 0);
    } catch (const Error& error) {
      ::_exit(error.code() == ErrorCode::unsupported ? 0 : 1);
    }
    ::_exit(2);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  engine->run_alone();
}

/// Runs thousands of operations on several engines concurrently, while communicators are made and freed.
TEST(Workers, ServeManyEnginesUnderStress) {
  constexpr int kRounds = 300;
  std::atomic<bool> over{false};
  std::thread coming_and_going([&over] {
    for (int threads = 0; !over.load(); threads = (threads + 1) % 5)
      Pair({.progress_threads = 1 + threads}).run_alone();
  });
  std::vector<std::thread> worlds;
  for (int world = 0; world < 3; ++world)
    worlds.emplace_back([world] {
      RanksOptions options = ranks_of(world == 2 ? std::vector<std::int32_t>{0, 0, 1} : one_node(2));
      options.engine.progress_threads = 3;
      const int size = static_cast<int>(options.nodes.size());
      run_ranks(options, [size](Engine& engine, int rank) {
        const std::vector<std::uint64_t> elems{1, 100, 9000};
        std::vector<std::shared_ptr<const Plan>> plans;
        for (const std::uint64_t n : elems) plans.push_back(allreduce_plan(rank, size, n * 4));
        for (int round = 0; round < kRounds; ++round) {
          std::vector<std::vector<std::uint32_t>> ins;
          std::vector<std::vector<std::uint32_t>> outs;
          std::vector<std::shared_ptr<engine::Run>> runs;
          for (const std::uint64_t n : elems) {
            ins.emplace_back(n, static_cast<std::uint32_t>(round + rank));
            outs.emplace_back(n);
          }
          for (std::size_t i = 0; i < plans.size(); ++i)
            runs.push_back(engine.start(plans[i], {bytes_of(ins[i]), bytes_of(outs[i])}, kAddUint32, i));
          for (std::size_t i = runs.size(); i-- > 0;) runs[i]->wait();
          const auto sum = static_cast<std::uint32_t>(size * round + size * (size - 1) / 2);
          for (std::size_t i = 0; i < outs.size(); ++i) ASSERT_EQ(outs[i].back(), sum) << "round " << round;
        }
      });
    });
  for (std::thread& world : worlds) world.join();
  over.store(true);
  coming_and_going.join();
  EXPECT_EQ(count_of_workers(0), 0u);
}

}  // namespace
}  // namespace penstock::engine
