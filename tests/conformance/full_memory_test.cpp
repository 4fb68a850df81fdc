// If /dev/shm is full, an operation fails with an error on all ranks, or uses another path. No signal kills a rank, and
// no rank hangs.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <string>
#include <vector>

#include "conformance/forked_ranks.hpp"
#include "conformance/reference.hpp"
#include "conformance/team.hpp"
#include "engine/engine.hpp"
#include "penstock/error.hpp"

namespace penstock::conformance {
namespace {

constexpr int kRanks = 4;
constexpr int kPoor = 2;

/// Gives the calling process a private /dev/shm of that size.
bool have_own_dev_shm(const std::string& size) {
  if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", "/dev/shm", "tmpfs", 0, ("size=" + size).c_str()) == 0;
}

/// Returns one letter for each operation: o(k), n(o space), p(eer failed), or the text of any other error.
std::string body(ForkedRank& self, const std::string& size, bool single_copy) {
  if (self.rank == kPoor && !have_own_dev_shm(size)) return "no /dev/shm of its own";
  engine::EngineOptions options;
  options.stall_timeout_ms = 0;
  options.progress_threads = 1;  // sends what is queued for a free cell after the rank's call returns
  options.single_copy = single_copy;
  const auto engine = engine::Engine::create(self.make_transport(), options);
  std::string outcomes;
  const auto run = [&](const Algorithm& row, std::uint64_t count) {
    Collective collective{.kind = row.kind, .count = count, .dtype = DType::int32, .algorithm = std::string(row.name)};
    if (row.kind == CollectiveKind::barrier) collective.count = 0;
    if (!fits(row, collective, engine->team())) return;
    const auto plan =
        std::make_shared<const Plan>(plan_collective(engine->team(), request_of(collective, self.rank, kRanks)));
    std::vector<std::byte> input(plan->input_bytes);
    std::vector<std::byte> output(plan->output_bytes);
    try {
      engine->run(plan, {input, output}, {.dtype = DType::int32, .op = ReduceOp::sum}, 7);
      outcomes += 'o';
    } catch (const Error& error) {
      outcomes += error.code() == ErrorCode::no_space && error.rank() < 0           ? "n"
                  : error.code() == ErrorCode::peer_failed && error.rank() == kPoor ? "p"
                                                                                    : error.what();
    }
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
  const auto tried = run_forked({0}, [](ForkedRank&) -> std::string { return have_own_dev_shm("64k") ? "yes" : "no"; });
  if (tried[0].text != "yes") GTEST_SKIP() << "this system lets no process have a /dev/shm of its own";
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

}  // namespace
}  // namespace penstock::conformance
