// Cuts the power before each change that a save makes. Afterwards every reported checkpoint must exist, and every
// existing checkpoint must be complete.
#include <gtest/gtest.h>

#include <mutex>

#include "unit/checkpoint/faulty_backend.hpp"
#include "unit/checkpoint/vector.hpp"

namespace penstock::checkpoint::test {
namespace {

using Level = CheckpointLevel;

constexpr int kCrashingRanks = 2;
constexpr std::uint64_t kSteps = 4;

/// The newest steps that some rank was told of before the power cut.
struct Promises {
  std::mutex mutex;
  std::uint64_t fast = 0;
  std::uint64_t drained = 0;
};

class Crash : public testing::TestWithParam<bool> {};

TEST_P(Crash, LeavesACompleteCheckpointWheneverItComes) {
  const bool burst_buffer = GetParam();
  bool survived = false;
  for (long at = 0; !survived; ++at) {
    SCOPED_TRACE("power fails before change " + std::to_string(at));
    ASSERT_LT(at, 200);
    const auto slow = memory();
    const auto fast = burst_buffer ? memory() : nullptr;
    const auto faults = std::make_shared<Faults>();
    World world;
    world.ranks = kCrashingRanks;
    world.options.keep = 1;
    world.options.chunk_bytes = 512;
    world.tiers = [&](int) {
      return Tiers{std::make_shared<FaultyBackend>(slow, faults),
                   fast ? std::make_shared<FaultyBackend>(fast, faults) : nullptr};
    };
    Promises promises;
    run_ranks(world, [&](Rank& rank) {
      rank.save(1, Vector(rank, 1).arrays).wait(Level::drained);
      rank.saver().finish();
      Peers& peers = rank.peers();
      agree(peers, "arming", [&] {
        if (peers.rank() == 0) {
          faults->changes = 0;
          faults->power_loss_at = at;
        }
        return Done{};
      });
      std::vector<CheckpointHandle> handles;
      for (std::uint64_t step = 2; step <= kSteps; ++step) {
        try {
          handles.push_back(rank.save(step, Vector(rank, step).arrays));
          // Only every second step waits, so the levels of neighbouring steps overlap.
          if (step % 2 == 0) handles.back().wait(Level::fast);
        } catch (const Error&) {
        }
      }
      try {
        rank.saver().finish();
      } catch (const Error&) {
      }
      const std::lock_guard lock(promises.mutex);
      for (const CheckpointHandle& handle : handles) {
        if (handle.level() >= Level::fast) promises.fast = std::max(promises.fast, handle.step());
        if (handle.level() >= Level::drained) promises.drained = std::max(promises.drained, handle.step());
      }
    });
    survived = faults->changes <= at;

    // The job restarts with another number of ranks, once without the burst buffer and once with it.
    world.ranks = 3;
    world.tiers = shared_tiers(slow);
    run_ranks(world, [&](Rank& rank) {
      const Restored restored = rank.restore();
      EXPECT_GE(restored.step, std::max<std::uint64_t>(promises.drained, 1));
      EXPECT_TRUE(restored.warnings.empty());
      expect_vector(restored, restored.step);
    });
    world.tiers = shared_tiers(slow, fast);
    run_ranks(world, [&](Rank& rank) {
      const Restored restored = rank.restore();
      EXPECT_GE(restored.step, std::max<std::uint64_t>(promises.fast, 1));
      EXPECT_TRUE(restored.warnings.empty());
      expect_vector(restored, restored.step);
      // The new job saves a step that the dead run may have begun, and removes what that run left.
      rank.save(restored.step + 1, Vector(rank, restored.step + 1).arrays).wait(Level::drained);
      rank.saver().finish();
      EXPECT_TRUE(rank.saver().warnings().empty());
      expect_vector(rank.restore(), restored.step + 1);
    });
    for (const auto& tier : {slow, fast}) {
      if (!tier) continue;
      for (const auto& [version, holding] : list_versions(*tier)) {
        EXPECT_TRUE(holding.manifest) << describe(version) << " has data without a manifest";
      }
      EXPECT_EQ(list_versions(*tier).size(), 1u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, Crash, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "WithBurstBuffer" : "Direct"; });

}  // namespace
}  // namespace penstock::checkpoint::test
