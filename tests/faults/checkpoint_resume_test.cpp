// A job dies with checkpoints in its burst buffer alone. While the next one drains them, the power fails before each
// change, or the job is stopped there and a third one takes over. What was reported durable is never lost, and in the
// end all of it is drained.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>

#include "store/collect.hpp"
#include "takes_all.hpp"
#include "unit/checkpoint/faulty_backend.hpp"
#include "unit/checkpoint/vector.hpp"

namespace penstock::checkpoint::test {
namespace {

using Level = CheckpointLevel;

constexpr std::int64_t kLeftByTheDead = 3000;  // more than a record of a blob holds itself

class ResumeFaults : public testing::TestWithParam<bool> {
 protected:
  Tiers tiers(const std::shared_ptr<store::Backend>& to, const std::shared_ptr<store::Backend>& buffer) const {
    return (GetParam() ? blob_and_folder : folders)(to, buffer);
  }

  World world(int ranks) {
    World world;
    world.ranks = ranks;
    world.options.chunk_bytes = 512;
    world.options.keep = keep;
    world.tuning.piece_bytes = 4 * world.options.chunk_bytes;
    world.tiers = [this](int) { return tiers(slow, fast); };
    return world;
  }

  World faulty(int ranks) {
    World world = this->world(ranks);
    world.tiers = [this](int) {
      return tiers(std::make_shared<FaultyBackend>(slow, faults), std::make_shared<FaultyBackend>(fast, faults));
    };
    return world;
  }

  /// Step 10 is drained, 20 and 30 are not.
  void leave() {
    slow = memory();
    fast = memory();
    faults = std::make_shared<Faults>();
    const auto& broken = faults;
    run_ranks(faulty(2), [&](Rank& rank) {
      rank.save(10, vector_of(rank, 10).arrays).wait(Level::drained);
      rank.saver().finish();
      agree(rank.peers(), "breaking", [&] {
        if (rank.rank() == 0) {
          broken->on_change = [this](const std::string&, const store::Backend& backend, const std::string&,
                                     Faults::When) {
            if (&backend == slow.get()) throw Error(ErrorCode::io, "the slow tier is away");
          };
        }
        return Done{};
      });
      rank.save(20, vector_of(rank, 20).arrays).wait(Level::fast);
      CheckpointHandle last = [&] {
        try {
          return rank.save(30, vector_of(rank, 30).arrays);
        } catch (const Error&) {
          return rank.save(30, vector_of(rank, 30).arrays);
        }
      }();
      last.wait(Level::fast);
      EXPECT_THROW(rank.saver().finish(), Error);
    });
    faults = std::make_shared<Faults>();
  }

  static Vector vector_of(const Rank& rank, std::uint64_t step) {
    Vector vector(rank, step, kLeftByTheDead);
    vector.with_frozen();
    return vector;
  }

  void expect_restored(World& world, const std::vector<std::uint64_t>& steps) {
    run_ranks(world, [&](Rank& rank) {
      expect_vector(rank.restore(), 30, kLeftByTheDead);
      for (const std::uint64_t step : steps) {
        RestoreOptions options;
        options.step = step;
        const Restored restored = rank.restore(options);
        expect_vector(restored, step, kLeftByTheDead);
        EXPECT_TRUE(restored.warnings.empty()) << restored.warnings.front();
      }
    });
  }

  /// The last job drains what is left.
  void expect_all_drained() {
    World after = world(1);
    run_ranks(after, [&](Rank& rank) {
      rank.saver().resume_drains();
      rank.saver().finish();
      EXPECT_TRUE(rank.saver().warnings().empty()) << rank.saver().warnings().front();
    });
    World slow_only = world(2);
    slow_only.tiers = [this](int) { return tiers(slow, nullptr); };
    expect_restored(slow_only, {20, 30});
    // When the line has passed all of them, nothing is left of any attempt.
    run_ranks(after, [&](Rank& rank) {
      for (const std::uint64_t step : {40, 50}) rank.save(step, vector_of(rank, step).arrays).wait(Level::drained);
      rank.saver().finish();
      EXPECT_TRUE(rank.saver().warnings().empty());
    });
    EXPECT_EQ(complete_steps(fast), std::vector<std::uint64_t>{50});
    EXPECT_EQ(complete_steps(*tiers(slow, nullptr).slow), (std::vector<std::uint64_t>{40, 50}));
    if (GetParam()) {
      CheckReport report;
      store::check_blob(*store::BlobState::open(slow, kRun), report);
      EXPECT_TRUE(report.problems.empty()) << report.problems.at(0);
      return;
    }
    for (const auto& backend : {slow, fast}) {
      for (const auto& [version, attempts] : list_attempts(*backend)) {
        for (const auto& [job, holding] : attempts) {
          EXPECT_TRUE(holding.complete() || (holding.ranks.empty() && !holding.manifest))
              << describe(version) << " by job " << job;
        }
      }
    }
  }

  int keep = 2;
  std::shared_ptr<store::Backend> slow;
  std::shared_ptr<store::Backend> fast;
  std::shared_ptr<Faults> faults;
};

TEST_P(ResumeFaults, PowerFailsBeforeAnyChange) {
  bool survived = false;
  for (long at = 0; !survived; at += fewer_if_sanitized(2)) {
    SCOPED_TRACE("power fails before change " + std::to_string(at));
    ASSERT_LT(at, 1000);
    leave();
    faults->power_loss_at = at;
    run_ranks(faulty(3), [&](Rank& rank) {
      try {
        rank.saver().resume_drains();
        rank.saver().finish();
      } catch (const Error&) {
      }
    });
    survived = faults->changes <= at;
    World after = world(2);
    expect_restored(after, {20, 30});
    expect_all_drained();
    if (HasFailure()) return;
  }
}

/// The second job goes on after the third has drained all and removed it from the burst buffer.
TEST_P(ResumeFaults, ANewerJobTakesOverBeforeAnyChange) {
  const long stride = fewer_if_sanitized(3);
  for (const long dies_after : {-1L, 0L, 1L, 2L}) {
    std::atomic<bool> stopped = true;
    for (long at = (dies_after + 1) % stride; stopped; at += stride) {
      SCOPED_TRACE("stopped before change " + std::to_string(at) + ", then " + std::to_string(dies_after) + " changes");
      ASSERT_LT(at, 1000);
      leave();
      std::atomic<long> left{at};
      stopped = false;
      faults->on_change = [&](const std::string&, const store::Backend&, const std::string&, Faults::When when) {
        if (when == Faults::When::after || left-- != 0) return;
        stopped = true;
        run_ranks(world(1), [&](Rank& rank) {
          rank.saver().resume_drains();
          rank.saver().finish();
          EXPECT_TRUE(rank.saver().warnings().empty()) << rank.saver().warnings().front();
        });
        if (dies_after >= 0) faults->power_loss_at = faults->changes + dies_after;
      };
      std::barrier drained(2);
      run_ranks(faulty(2), [&](Rank& rank) {
        bool has_drained = false;
        try {
          rank.saver().resume_drains();
          rank.saver().finish();
          has_drained = true;
          drained.arrive_and_wait();  // the other rank may still be about to be stopped
          if (stopped) {
            rank.save(99, vector_of(rank, 99).arrays).wait(Level::fast);
            // Only a job that was stopped before it took the place over is the newer one.
          }
        } catch (const Error&) {
          if (!has_drained) drained.arrive_and_drop();
        }
      });
      faults->on_change = [](const std::string&, const store::Backend&, const std::string&, Faults::When) {};
      World slow_only = world(2);
      slow_only.tiers = [this](int) { return tiers(slow, nullptr); };
      run_ranks(slow_only, [&](Rank& rank) {
        for (const std::uint64_t step : {20, 30}) {
          RestoreOptions options;
          options.step = step;
          // Step 99 of a job that was the newer one after all counts for `keep`.
          const std::vector<std::uint64_t> held = complete_steps(*rank.saver().tiers().slow);
          if (step == 20 && std::find(held.begin(), held.end(), 99u) != held.end()) continue;
          const Restored restored = rank.restore(options);
          expect_vector(restored, step, kLeftByTheDead);
          EXPECT_TRUE(restored.warnings.empty()) << restored.warnings.front();
        }
      });
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, ResumeFaults, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "InABlob" : "InAFolder"; });

}  // namespace
}  // namespace penstock::checkpoint::test
