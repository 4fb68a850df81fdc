// If /dev/shm is full, an operation fails with an error on all ranks, or uses another path. No signal kills a rank, and
// no rank hangs.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "conformance/forked_ranks.hpp"
#include "conformance/reference.hpp"
#include "conformance/team.hpp"
#include "engine/engine.hpp"
#include "engine/flags.hpp"
#include "make_engine.hpp"
#include "penstock/error.hpp"

namespace penstock::conformance {
namespace {

constexpr int kRanks = 4;
constexpr int kPoor = 2;
// As many as the fast path keeps, so that a long plan takes the place of one that no other short plan takes as well.
constexpr std::size_t kPlans = 8;
constexpr std::size_t kLongPlans = 12;
constexpr std::uint64_t kLongCount = 1000;  // bytes that do not fit beside a flag

/// Gives the calling process a private /dev/shm of that size.
bool have_own_dev_shm(const std::string& size) {
  if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", "/dev/shm", "tmpfs", 0, ("size=" + size).c_str()) == 0;
}

constexpr const char* kNoOwnDevShm = "this system lets no process have a /dev/shm of its own";
bool lets_have_own_dev_shm() {
  return run_forked({0}, [](ForkedRank&) { return std::string(have_own_dev_shm("64k") ? "yes" : "no"); })[0].text ==
         "yes";
}

/// One letter for an operation: o(k), n(o space), p(eer failed), or the text of any other error.
std::string letter_of(const std::function<void()>& operation) {
  try {
    operation();
    return "o";
  } catch (const Error& error) {
    if (error.code() == ErrorCode::no_space && error.rank() < 0) return "n";
    return error.code() == ErrorCode::peer_failed && error.rank() == kPoor ? "p" : error.what();
  }
}

/// Returns one letter for each operation.
std::string body(ForkedRank& self, const std::string& size, bool single_copy) {
  if (self.rank == kPoor && !have_own_dev_shm(size)) return "no /dev/shm of its own";
  engine::EngineOptions options;
  options.stall_timeout_ms = 0;
  options.progress_threads = 1;  // sends what is queued for a free cell after the rank's call returns
  options.single_copy = single_copy;
  const auto engine = engine::make_engine(self.make_transport(), options);
  std::string outcomes;
  const auto run = [&](const Algorithm& row, std::uint64_t count) {
    Collective collective{.kind = row.kind, .count = count, .dtype = DType::int32, .algorithm = std::string(row.name)};
    if (row.kind == CollectiveKind::barrier) collective.count = 0;
    if (!fits(row, collective, engine->team())) return;
    const auto plan =
        std::make_shared<const Plan>(plan_collective(engine->team(), request_of(collective, self.rank, kRanks)));
    std::vector<std::byte> input(plan->input_bytes);
    std::vector<std::byte> output(plan->output_bytes);
    outcomes += letter_of([&] { engine->run(plan, {input, output}, {.dtype = DType::int32, .op = ReduceOp::sum}, 7); });
  };
  const auto all = rows([](CollectiveKind kind) {
    return kind == CollectiveKind::barrier || kind == CollectiveKind::bcast || kind == CollectiveKind::allreduce ||
           kind == CollectiveKind::alltoall;
  });
  for (const std::uint64_t count : {1, 1000, 30'000})
    for (const Algorithm* const row : all) run(*row, count);
  self.barrier(kRanks);
  return outcomes;
}

TEST(FullMemory, IsAnErrorOfTheOperationThatNeedsIt) {
  if (!lets_have_own_dev_shm()) GTEST_SKIP() << kNoOwnDevShm;
  bool has_failed = false;
  for (const bool single_copy : {true, false})
    for (const char* const size : {"4k", "16k", "64k", "512k"}) {
      SCOPED_TRACE(std::string("size ") + size + (single_copy ? ", single copy" : ""));
      const std::vector<Outcome> outcomes = run_forked(std::vector<std::int32_t>(kRanks, 0),
                                                       [&](ForkedRank& self) { return body(self, size, single_copy); });
      const std::string& poor = outcomes[kPoor].text;
      has_failed |= poor.find('n') != std::string::npos;
      EXPECT_EQ(poor.find_first_not_of("on"), std::string::npos) << poor;
      for (int rank = 0; rank < kRanks; ++rank) {
        const std::string& text = outcomes[static_cast<std::size_t>(rank)].text;
        ASSERT_EQ(text.size(), poor.size()) << "rank " << rank << ": " << text;
        if (rank == kPoor) continue;
        for (std::size_t i = 0; i < text.size(); ++i) {
          EXPECT_TRUE(text[i] == 'o' || (text[i] == 'p' && poor[i] == 'n'))
              << "rank " << rank << ", operation " << i << ": " << text << " where the poor has " << poor;
        }
      }
    }
  EXPECT_TRUE(has_failed);
}

/// With each size of /dev/shm all of so many operations succeed but the failing ones, if the memory is too small.
void expect_only_fail(std::initializer_list<const char*> sizes, std::size_t operations,
                      const std::vector<std::size_t>& failing,
                      std::string (*body_of)(ForkedRank&, const std::string&)) {
  if (!lets_have_own_dev_shm()) GTEST_SKIP() << kNoOwnDevShm;
  bool has_failed = false;
  for (const char* const size : sizes) {
    SCOPED_TRACE(std::string("size ") + size);
    const std::vector<Outcome> outcomes =
        run_forked(std::vector<std::int32_t>(kRanks, 0), [&](ForkedRank& self) { return body_of(self, size); });
    const std::string all(operations, 'o');
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::string& text = outcomes[static_cast<std::size_t>(rank)].text;
      std::string expected = all;
      if (text != all)
        for (const std::size_t i : failing) expected[i] = rank == kPoor ? 'n' : 'p';
      has_failed |= text != all;
      EXPECT_EQ(text, expected) << "rank " << rank;
    }
  }
  EXPECT_TRUE(has_failed);
}

/// The root of short broadcasts is so far ahead that it defers some, of which one has data that do not fit beside a
/// flag. Returns one letter for each, as body().
std::string deferred_body(ForkedRank& self, const std::string& size) {
  if (self.rank == kPoor && !have_own_dev_shm(size)) return "no /dev/shm of its own";
  engine::EngineOptions options;
  options.stall_timeout_ms = 0;
  const auto engine = engine::make_engine(self.make_transport(), options);
  std::vector<std::uint64_t> counts(engine::Flags::kEntries + 2, 4);
  counts.insert(counts.end(), {kLongCount, 4});
  std::vector<std::shared_ptr<engine::Run>> runs;
  std::vector<std::vector<std::byte>> data;
  if (self.rank != kPoor) self.barrier(kRanks);
  for (const std::uint64_t count : counts) {
    const Collective collective{.kind = CollectiveKind::bcast, .count = count, .root = kPoor, .algorithm = "shared"};
    const auto plan = std::make_shared<const Plan>(plan_collective(engine->team(), collective));
    data.emplace_back(plan->output_bytes);
    runs.push_back(engine->start(plan, {{}, data.back()}, {}, 7));
  }
  if (self.rank == kPoor) self.barrier(kRanks);
  std::string outcomes;
  for (const auto& run : runs) outcomes += letter_of([&] { run->wait(); });
  self.barrier(kRanks);
  return outcomes;
}

TEST(FullMemory, IsAnErrorOfTheDeferredOperationThatNeedsIt) {
  expect_only_fail({"16k", "24k", "32k"}, engine::Flags::kEntries + 4, {engine::Flags::kEntries + 2}, deferred_body);
}

/// Blocking broadcasts, of which some have data that do not fit beside a flag. The fast path keeps some plans that ran
/// lately, and finds out there that the memory is missing. Returns one letter for each, as body().
std::string fast_body(ForkedRank& self, const std::string& size) {
  if (self.rank == kPoor && !have_own_dev_shm(size)) return "no /dev/shm of its own";
  engine::EngineOptions options;
  options.stall_timeout_ms = 0;
  const auto engine = engine::make_engine(self.make_transport(), options);
  std::string outcomes;
  const auto plan_of = [&](std::uint64_t count) {
    const Collective collective{.kind = CollectiveKind::bcast, .count = count, .root = kPoor, .algorithm = "shared"};
    return std::make_shared<const Plan>(plan_collective(engine->team(), collective));
  };
  const auto run = [&](const std::shared_ptr<const Plan>& plan) {
    std::vector<std::byte> data(plan->output_bytes);
    outcomes += letter_of([&] { engine->run(plan, {{}, data}, {}, 7); });
    self.barrier(kRanks);
  };
  std::vector<std::shared_ptr<const Plan>> plans;
  for (std::size_t i = 0; i < kPlans; ++i) plans.push_back(plan_of(4));
  std::vector<std::shared_ptr<const Plan>> long_plans;
  for (std::size_t i = 0; i < kLongPlans; ++i) long_plans.push_back(plan_of(kLongCount));
  for (const auto& plan : plans) run(plan);
  for (const auto& long_plan : long_plans) {
    run(long_plan);
    for (const auto& plan : plans) run(plan);
  }
  return outcomes;
}

TEST(FullMemory, IsForgottenByOtherPlans) {
  std::vector<std::size_t> failing;
  for (std::size_t i = 0; i < kLongPlans; ++i) failing.push_back(kPlans + i * (kPlans + 1));
  expect_only_fail({"12k", "16k", "20k", "24k", "28k", "32k"}, kPlans + kLongPlans * (kPlans + 1), failing, fast_body);
}

}  // namespace
}  // namespace penstock::conformance
