// Counters that processes share, and the collection of dead processes' counters.
#include "store/counter.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include "penstock/error.hpp"
#include "unit/store/schemes.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock::store {
namespace {

class Counters : public testing::TestWithParam<std::string> {
 protected:
  Counters() : backend_(open_backend(test_url(GetParam(), directory_), {.durable = false})) {}
  std::shared_ptr<Backend> backend() const { return backend_; }

 private:
  const TemporaryDirectory directory_;
  const std::shared_ptr<Backend> backend_;
};

TEST_P(Counters, GiveEveryAdditionARangeOfItsOwn) {
  constexpr int kThreads = 4, kAdditions = 60;
  const std::string name = Counter::new_name();
  std::vector<std::vector<std::uint64_t>> starts(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      Counter counter(backend(), name, 1000);
      for (int i = 0; i < kAdditions; ++i) starts[thread].push_back(counter.add(3));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::uint64_t> all;
  for (const auto& mine : starts) {
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    all.insert(mine.begin(), mine.end());
  }
  ASSERT_EQ(all.size(), static_cast<std::size_t>(kThreads * kAdditions));
  EXPECT_EQ(*all.begin(), 1000u);
  EXPECT_EQ(*all.rbegin(), 1000u + 3 * (kThreads * kAdditions - 1));
  Counter counter(backend(), name, 1000);
  EXPECT_EQ(counter.value(), 1000u + 3 * kThreads * kAdditions);
  counter.clean();
  EXPECT_TRUE(backend()->list("counters").empty());
  counter.restart(7);
  EXPECT_EQ(counter.add(1), 7u);
}

TEST_P(Counters, OfTheDeadAreCollectedAndThoseOfTheLivingAreNot) {
  const std::string name = Counter::new_name();
  Counter mine(backend(), name, 0);
  Counter other(backend(), name, 0);
  mine.add(5);
  other.add(5);
  GcReport report;
  collect_counters(*backend(), std::chrono::hours(1), report);
  EXPECT_EQ(report.objects_removed, 0u);
  EXPECT_EQ(mine.add(5), 10u);
  collect_counters(*backend(), std::chrono::seconds(0), report);
  EXPECT_EQ(report.objects_removed, 3u);
  // No counter continues after its entries are collected, even if it made the newest entry.
  for (Counter* counter : {&mine, &other}) {
    try {
      counter->add(1);
      FAIL() << "a counter went on that a gc had given up";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io) << error.what();
    }
  }
  mine.restart(20);
  EXPECT_EQ(mine.add(1), 20u);
}

INSTANTIATE_TEST_SUITE_P(All, Counters, testing::ValuesIn(test_schemes()),
                         [](const auto& scheme) { return scheme.param; });

}  // namespace
}  // namespace penstock::store
