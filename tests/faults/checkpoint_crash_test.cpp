// Cuts the power before each change that a save makes. Afterwards every reported checkpoint must exist, and every
// existing checkpoint must be complete.
#include <gtest/gtest.h>

#include <mutex>

#include "store/collect.hpp"
#include "takes_all.hpp"
#include "unit/checkpoint/faulty_backend.hpp"
#include "unit/checkpoint/vector.hpp"

namespace penstock::checkpoint::test {
namespace {

using Level = CheckpointLevel;

constexpr int kCrashingRanks = 2;
constexpr std::int64_t kElements = 3000;  // more than a record of a blob holds itself

/// The newest saves that some rank was told of before the power cut.
struct Promises {
  std::mutex mutex;
  std::size_t fast = 0;
  std::size_t drained = 0;
};

struct SavedSteps {
  const char* name;
  bool in_blob;  ///< the slow tier
  bool burst_buffer;
  int staging_buffers;
  std::vector<std::uint64_t> steps;  ///< in the order of the saves; the first one is complete before the power cut
  int compress_level = 0;
};

void PrintTo(const SavedSteps& saved, std::ostream* out) { *out << saved.name; }

/// All bytes are equal: they compress, as the others do not.
std::vector<std::byte> flat_of(std::size_t number, std::int64_t elements) {
  return std::vector<std::byte>(static_cast<std::size_t>(elements) * 4, static_cast<std::byte>(number));
}

/// The data of each save follow from its place in the run.
CheckpointHandle save(Rank& rank, const SavedSteps& saved, std::size_t number) {
  Vector vector(rank, number, kElements);
  const std::vector<std::byte> flat = flat_of(number, vector.layout.local_size_elems(rank.rank()));
  vector.with_frozen();
  if (saved.compress_level > 0) vector.arrays.push_back({"flat", DType::float32, vector.layout, flat});
  return rank.save(saved.steps[number], vector.arrays);
}

/// Which save of the run this is.
std::size_t number_of(const Restored& restored, const SavedSteps& saved) {
  for (std::size_t number = 0; number < saved.steps.size(); ++number) {
    if (restored.step == saved.steps[number] &&
        copy_of(restored.arrays.at(0)) == local_part(Layout::whole({kElements}), 0, 4, number) &&
        copy_of(restored.arrays.at(1)) == local_part(Layout::whole({kElements}), 0, 4, kFrozenSeed) &&
        (saved.compress_level == 0 || copy_of(restored.arrays.at(2)) == flat_of(number, kElements)))
      return number;
  }
  throw Error(ErrorCode::internal, "step " + std::to_string(restored.step) + " holds nothing that was saved");
}

void expect_sound(const std::shared_ptr<store::Backend>& backend) {
  CheckReport report;
  store::check_blob(*store::BlobState::open(backend, kRun), report);
  EXPECT_TRUE(report.problems.empty()) << report.problems.at(0);
}

class Crash : public testing::TestWithParam<SavedSteps> {};

TEST_P(Crash, LeavesACompleteCheckpointWheneverItComes) {
  const SavedSteps& saved = GetParam();
  const bool burst_buffer = saved.burst_buffer;
  const auto tiers = [&](const std::shared_ptr<store::Backend>& slow_backend,
                         const std::shared_ptr<store::Backend>& fast_backend) {
    Tiers result = folders(slow_backend, fast_backend);
    if (saved.in_blob) result.slow = blob_tier(slow_backend, kRun, saved.compress_level);
    return result;
  };
  bool survived = false;
  for (long at = 0; !survived; at += fewer_if_sanitized(2)) {
    SCOPED_TRACE("power fails before change " + std::to_string(at));
    ASSERT_LT(at, 1000);
    const auto slow = memory();
    const auto fast = burst_buffer ? memory() : nullptr;
    const auto faults = std::make_shared<Faults>();
    World world;
    world.ranks = kCrashingRanks;
    world.options.keep = 1;
    world.options.staging_buffers = saved.staging_buffers;
    world.options.chunk_bytes = 512;
    world.tuning.piece_bytes = 4 * world.options.chunk_bytes;  // so the power also fails between the pieces of a drain
    world.tiers = [&](int) {
      return tiers(std::make_shared<FaultyBackend>(slow, faults),
                   fast ? std::make_shared<FaultyBackend>(fast, faults) : nullptr);
    };
    Promises promises;
    run_ranks(world, [&](Rank& rank) {
      save(rank, saved, 0).wait(Level::drained);
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
      std::vector<std::size_t> numbers;
      for (std::size_t number = 1; number < saved.steps.size(); ++number) {
        try {
          handles.push_back(save(rank, saved, number));
          numbers.push_back(number);
          // Only every second save waits, so the levels of neighbouring ones overlap.
          if (number % 2 == 1) handles.back().wait(Level::fast);
        } catch (const Error&) {
        }
      }
      try {
        rank.saver().finish();
      } catch (const Error&) {
      }
      const std::lock_guard lock(promises.mutex);
      for (std::size_t i = 0; i < handles.size(); ++i) {
        if (handles[i].level() >= Level::fast) promises.fast = std::max(promises.fast, numbers[i]);
        if (handles[i].level() >= Level::drained) promises.drained = std::max(promises.drained, numbers[i]);
      }
    });
    survived = faults->changes <= at;
    if (survived && saved.compress_level > 0) {
      const std::vector<std::string> objects = slow->list(store::BlobState::open(slow, kRun)->key("data"));
      EXPECT_FALSE(objects.empty());
      // A third of what each rank writes at first is flat, and takes next to nothing.
      constexpr std::uint64_t kPlainBytes = 3 * 4 * kElements / kCrashingRanks;
      for (const std::string& key : objects) EXPECT_LT(slow->size_bytes(key), kPlainBytes * 3 / 4) << key;
    }

    // The job restarts with another number of ranks, once without the burst buffer and once with it.
    world.ranks = 3;
    world.tiers = [&](int) { return tiers(slow, nullptr); };
    run_ranks(world, [&](Rank& rank) {
      const Restored restored = rank.restore();
      EXPECT_GE(number_of(restored, saved), promises.drained);
      EXPECT_TRUE(restored.warnings.empty());
    });
    world.tiers = [&](int) { return tiers(slow, fast); };
    run_ranks(world, [&](Rank& rank) {
      const Restored restored = rank.restore();
      EXPECT_GE(number_of(restored, saved), promises.fast);
      EXPECT_TRUE(restored.warnings.empty());
      // The new job saves a step that the dead run may have begun. When it has passed all steps, nothing of that run is
      // left.
      for (const std::uint64_t step : {restored.step + 1, std::uint64_t{100}}) {
        rank.save(step, Vector(rank, step, kElements).with_frozen().arrays).wait(Level::drained);
        rank.saver().finish();
        EXPECT_TRUE(rank.saver().warnings().empty());
        expect_vector(rank.restore(), step, kElements);
      }
    });
    const Tiers left = tiers(slow, fast);
    for (const auto& tier : {left.slow, left.fast}) {
      if (!tier) continue;
      for (const auto& [version, holding] : tier->list()) {
        EXPECT_TRUE(holding.complete() || (holding.abandoned && holding.ranks.empty() && !holding.manifest))
            << describe(version) << " is neither complete nor gone";
      }
      EXPECT_EQ(complete_steps(*tier), std::vector<std::uint64_t>{100});
    }
    if (saved.in_blob) expect_sound(slow);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, Crash,
                         testing::Values(SavedSteps{"Direct", false, false, 1, {1, 2, 3, 4}},
                                         SavedSteps{"WithBurstBuffer", false, true, 1, {1, 2, 3, 4}},
                                         SavedSteps{"GoesBackDirect", false, false, 2, {4, 6, 5, 6}},
                                         SavedSteps{"GoesBackWithBurstBuffer", false, true, 2, {4, 6, 5, 6}},
                                         SavedSteps{"InABlob", true, false, 1, {1, 2, 3, 4}},
                                         SavedSteps{"InABlobWithBurstBuffer", true, true, 1, {1, 2, 3, 4}},
                                         SavedSteps{"GoesBackInABlob", true, false, 2, {4, 6, 5, 6}},
                                         SavedSteps{"InABlobCompressed", true, false, 1, {1, 2, 3, 4}, 3}),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace penstock::checkpoint::test
