// Drains of checkpoints that dead jobs have left in burst buffers.
#include <gtest/gtest.h>

#include <mutex>

#include "unit/checkpoint/faulty_backend.hpp"
#include "unit/checkpoint/vector.hpp"

namespace penstock::checkpoint::test {
namespace {

using Level = CheckpointLevel;

constexpr std::int64_t kLeftElements = 3000;  // more than a record of a blob holds itself

/// A slow tier, and burst buffers of nodes. The first job dies before it drains any of its last checkpoints.
struct Left {
  bool in_blob = false;
  std::shared_ptr<store::Backend> slow = memory();
  std::vector<std::shared_ptr<store::Backend>> fast;

  explicit Left(bool blob, int nodes = 1) : in_blob(blob) {
    for (int node = 0; node < nodes; ++node) fast.push_back(memory());
  }

  Tiers tiers(const std::shared_ptr<store::Backend>& to, int node) const {
    return (in_blob ? blob_and_folder : folders)(to, fast[static_cast<std::size_t>(node)]);
  }

  World world(int ranks) const {
    World world;
    world.ranks = ranks;
    world.options.chunk_bytes = 512;
    for (int rank = 0; rank < ranks; ++rank) world.nodes.push_back(rank % static_cast<int>(fast.size()));
    world.tiers = [this, nodes = world.nodes](int rank) { return tiers(slow, nodes[static_cast<std::size_t>(rank)]); };
    return world;
  }

  /// Saves `drained`, then `undrained`.
  void save(int ranks, const std::vector<std::uint64_t>& drained, const std::vector<std::uint64_t>& undrained,
            bool partner_copies = false) const {
    World world = this->world(ranks);
    world.options.burst_buffer = "memory:";
    world.options.partner_copies = partner_copies;
    world.options.undrained_max = 8;
    const auto faults = std::make_shared<Faults>();
    world.tiers = [this, faults, nodes = world.nodes](int rank) {
      return tiers(std::make_shared<FaultyBackend>(slow, faults), nodes[static_cast<std::size_t>(rank)]);
    };
    run_ranks(world, [&](Rank& rank) {
      for (const std::uint64_t step : drained)
        rank.save(step, Vector(rank, step, kLeftElements).arrays).wait(Level::drained);
      agree(rank.peers(), "failing", [&] {
        faults->on_change = [](const std::string&, const store::Backend&, const std::string&, Faults::When) {
          throw Error(ErrorCode::io, "the slow tier is away");
        };
        return Done{};
      });
      for (const std::uint64_t step : undrained) {
        for (bool saved = false; !saved;) {
          try {
            rank.save(step, Vector(rank, step, kLeftElements).arrays).wait(Level::fast);
            saved = true;
          } catch (const Error& error) {
            // That of an earlier drain.
            EXPECT_NE(error.message().find("away"), std::string::npos) << error.message();
          }
        }
      }
      EXPECT_THROW(rank.saver().finish(), Error);
    });
  }

  void expect_in_slow(const std::vector<std::uint64_t>& steps) const {
    const Tiers slow_only = in_blob ? blob_and_folder(slow, nullptr) : folders(slow, nullptr);
    EXPECT_EQ(complete_steps(*slow_only.slow), steps);
    World world = this->world(2);
    world.tiers = [slow_only](int) { return slow_only; };
    run_ranks(world, [&](Rank& rank) {
      for (const std::uint64_t step : steps) {
        RestoreOptions options;
        options.step = step;
        const Restored restored = rank.restore(options);
        expect_vector(restored, step, kLeftElements);
        EXPECT_TRUE(restored.warnings.empty()) << restored.warnings.front();
      }
    });
  }
};

class Resume : public testing::TestWithParam<bool> {};

TEST_P(Resume, AnyNumberOfRanksDrainsWhatADeadJobHasLeft) {
  for (const int ranks : {1, 2, 3}) {
    for (const bool relayed : {false, true}) {
      SCOPED_TRACE(std::to_string(ranks) + (relayed ? " ranks, relayed" : " ranks"));
      const Left left(GetParam());
      left.save(2, {10}, {20, 30});
      left.expect_in_slow({10});
      World world = left.world(ranks);
      world.relayed = relayed;
      run_ranks(world, [&](Rank& rank) {
        const std::size_t drains = rank.saver().resume_drains();
        EXPECT_LE(drains, 2u);
        rank.saver().finish();
        EXPECT_EQ(rank.saver().resume_drains(), 0u);
        EXPECT_TRUE(rank.saver().warnings().empty()) << rank.saver().warnings().front();
      });
      left.expect_in_slow({10, 20, 30});
      EXPECT_EQ(complete_steps(left.fast[0]), std::vector<std::uint64_t>{30});
      // There is nothing left for the next one. The last save of the run follows them in order.
      run_ranks(world, [&](Rank& rank) {
        EXPECT_EQ(rank.saver().resume_drains(), 0u);
        expect_vector(rank.restore(), 30, kLeftElements);
        rank.save(40, Vector(rank, 40, kLeftElements).arrays).wait(Level::drained);
        rank.saver().finish();
        EXPECT_TRUE(rank.saver().warnings().empty());
      });
      left.expect_in_slow({10, 20, 30, 40});
    }
  }
}

TEST_P(Resume, TheFirstSaveDoesSoTheNewestFirstAndBeforeItsOwn) {
  const Left left(GetParam());
  left.save(2, {10}, {20, 30, 25});
  World world = left.world(3);
  const auto faults = std::make_shared<Faults>();
  std::mutex mutex;
  std::vector<std::string> published;
  faults->on_change = [&](const std::string& operation, const store::Backend&, const std::string& key,
                          Faults::When when) {
    if (operation != "put" || when == Faults::When::before) return;
    const bool made = left.in_blob ? key.find("/tags/") != std::string::npos : key.ends_with(".manifest.json");
    const std::lock_guard lock(mutex);
    if (made) published.push_back(key.substr(key.find("step-")));
  };
  world.tiers = [&](int) { return left.tiers(std::make_shared<FaultyBackend>(left.slow, faults), 0); };
  run_ranks(world, [&](Rank& rank) {
    rank.save(26, Vector(rank, 26, kLeftElements).arrays).wait(Level::drained);
    rank.saver().finish();
    EXPECT_TRUE(rank.saver().warnings().empty());
    expect_vector(rank.restore(), 26, kLeftElements);
  });
  left.expect_in_slow({10, 20, 25, 26, 30});
  // Step 25 has superseded 30, which comes last. The names say which job has drained them.
  const std::vector<std::string> expected =
      left.in_blob
          ? std::vector<std::string>{"step-25.1-3", "step-20.1-1", "step-30.1-2", "step-26.2-0"}
          : std::vector<std::string>{
                "step-00000000000000000025.1-3-2.manifest.json", "step-00000000000000000020.1-1-2.manifest.json",
                "step-00000000000000000030.1-2-2.manifest.json", "step-00000000000000000026.2-0.manifest.json"};
  EXPECT_EQ(published, expected);
}

TEST_P(Resume, WhatNoRuleKeepsIsNotDrained) {
  const Left left(GetParam());
  left.save(2, {10}, {20, 30});
  World world = left.world(2);
  world.options.keep = 1;
  run_ranks(world, [&](Rank& rank) {
    rank.saver().resume_drains();
    rank.saver().finish();
    EXPECT_TRUE(rank.saver().warnings().empty());
  });
  left.expect_in_slow({30});
  EXPECT_EQ(complete_steps(left.fast[0]), std::vector<std::uint64_t>{30});
}

TEST_P(Resume, DamageIsAWarningAndTheOthersAreDrained) {
  const Left left(GetParam());
  left.save(2, {10}, {20, 30});
  const std::string key = data_key(Version{30, 1, 2}, 1);
  std::vector<std::byte> bytes = store::read_all(*left.fast[0], key);
  bytes[700] ^= std::byte{1};
  left.fast[0]->remove(key);
  const ConstBytes piece = bytes;
  left.fast[0]->put_if_absent(key, std::span(&piece, 1));
  run_ranks(left.world(1), [&](Rank& rank) {
    rank.saver().resume_drains();
    rank.saver().finish();
    ASSERT_EQ(rank.saver().warnings().size(), 1u);
    const std::string warning = rank.saver().warnings()[0];
    EXPECT_NE(warning.find("step 30, which job 1 has left"), std::string::npos) << warning;
    EXPECT_NE(warning.find("checksum"), std::string::npos) << warning;
    // A save does not fail because of it.
    rank.save(25, Vector(rank, 25, kLeftElements).arrays).wait(Level::drained);
    rank.saver().finish();
  });
  left.expect_in_slow({10, 20, 25});
}

TEST_P(Resume, APartnersCopyIsDrainedIfTheFirstIsDamagedOrLost) {
  for (const bool lost : {false, true}) {
    Left left(GetParam(), 2);
    left.save(2, {10}, {20}, true);
    if (lost) {
      left.fast[1] = memory();
    } else {
      for (const int object : {0, 1}) {
        // One copy of each object.
        const std::string key = data_key(Version{20, 1, 1}, object);
        left.fast[0]->remove(key);
        const ConstBytes nothing;
        left.fast[0]->put_if_absent(key, std::span(&nothing, 1));
      }
    }
    run_ranks(left.world(2), [&](Rank& rank) {
      rank.saver().resume_drains();
      rank.saver().finish();
      EXPECT_TRUE(rank.saver().warnings().empty()) << rank.saver().warnings().front();
    });
    left.expect_in_slow({10, 20});
  }
}

TEST_P(Resume, WhatNoNodeHasStaysUndrained) {
  Left left(GetParam(), 2);
  left.save(2, {10}, {20});
  left.fast[1] = memory();
  run_ranks(left.world(2), [&](Rank& rank) {
    rank.saver().resume_drains();
    rank.saver().finish();
    ASSERT_EQ(rank.saver().warnings().size(), 1u);
    EXPECT_NE(rank.saver().warnings()[0].find("the object of rank 1"), std::string::npos);
  });
  left.expect_in_slow({10});
}

TEST_P(Resume, ItCountsInTheBurstBuffersLimit) {
  const Left left(GetParam());
  left.save(1, {10}, {20, 30});
  World world = left.world(1);
  world.options.undrained_max = 1;
  const auto faults = std::make_shared<Faults>();
  std::size_t undrained = 0;
  faults->on_change = [&](const std::string& operation, const store::Backend&, const std::string& key,
                          Faults::When when) {
    if (operation != "put" || when == Faults::When::after || key != data_key(Version{40, 2, 0}, 0)) return;
    const std::set<Version> slow = [&] {
      std::set<Version> versions;
      for (const auto& [version, holding] : left.tiers(left.slow, 0).slow->list()) versions.insert(version);
      return versions;
    }();
    for (const auto& [version, holding] : list_versions(*left.fast[0])) undrained += slow.contains(version) ? 0 : 1;
  };
  world.tiers = [&](int) {
    Tiers tiers = left.tiers(left.slow, 0);
    tiers.fast = folder_tier(std::make_shared<FaultyBackend>(left.fast[0], faults));
    return tiers;
  };
  run_ranks(world, [&](Rank& rank) {
    rank.save(40, Vector(rank, 40, kLeftElements).arrays).wait(Level::drained);
    rank.saver().finish();
    EXPECT_TRUE(rank.saver().warnings().empty());
  });
  EXPECT_EQ(undrained, 0u);
}

TEST_P(Resume, NotWhatAUserHasRemoved) {
  const Left left(GetParam());
  left.save(1, {10}, {20});
  left.tiers(left.slow, 0).slow->mark_removed({20, 1, 1});
  run_ranks(left.world(1), [&](Rank& rank) { EXPECT_EQ(rank.saver().resume_drains(), 0u); });
  left.expect_in_slow({10});
}

/// A dead job's unfinished drain is in the way of nobody, and what two jobs have drained goes as a whole.
TEST_P(Resume, SeveralJobsMayHaveBegun) {
  const Left left(GetParam());
  left.save(2, {10}, {20});
  for (const int dies_after : {3, 5, 7}) {
    const auto faults = std::make_shared<Faults>();
    faults->power_loss_at = dies_after;
    World world = left.world(2);
    world.tiers = [&](int) { return left.tiers(std::make_shared<FaultyBackend>(left.slow, faults), 0); };
    run_ranks(world, [&](Rank& rank) {
      try {
        rank.saver().resume_drains();
        rank.saver().finish();
      } catch (const Error&) {
      }
    });
  }
  World world = left.world(2);
  run_ranks(world, [&](Rank& rank) {
    rank.saver().resume_drains();
    rank.saver().finish();
    EXPECT_TRUE(rank.saver().warnings().empty());
  });
  left.expect_in_slow({10, 20});
  world.options.keep = 1;
  run_ranks(world, [&](Rank& rank) {
    rank.save(30, Vector(rank, 30, kLeftElements).arrays).wait(Level::drained);
    rank.saver().finish();
    EXPECT_TRUE(rank.saver().warnings().empty());
  });
  left.expect_in_slow({30});
  if (left.in_blob) return;
  for (const auto& [version, attempts] : list_attempts(*left.slow)) {
    for (const auto& [job, holding] : attempts) {
      EXPECT_TRUE(holding.complete() || (holding.ranks.empty() && !holding.manifest))
          << describe(version) << " by job " << job;
    }
  }
}

/// A job that was stopped in a drain wakes up while a newer one, which has drained the same, removes it.
TEST(ResumeInAFolder, WhatIsRemovedCannotBeCompleted) {
  const Left left(false);
  left.save(1, {10}, {20});
  const Version version{20, 1, 1};
  const auto faults = std::make_shared<Faults>();
  World world = left.world(1);
  world.options.keep = 1;
  world.tiers = [&](int) { return left.tiers(std::make_shared<FaultyBackend>(left.slow, faults), 0); };
  run_ranks(world, [&](Rank& rank) {
    rank.saver().resume_drains();
    rank.saver().finish();
    const std::vector<std::byte> manifest = store::read_all(*left.slow, manifest_key(Attempt(version, 2)));
    left.slow->put_if_absent(data_key(version, 0), {});
    faults->on_change = [&](const std::string& operation, const store::Backend&, const std::string& key,
                            Faults::When when) {
      if (operation != "remove" || when == Faults::When::after || key != data_key(version, 0)) return;
      const ConstBytes piece = manifest;
      EXPECT_TRUE(left.slow->put_if_absent(manifest_key(version), std::span(&piece, 1)));
    };
    rank.save(30, Vector(rank, 30, kLeftElements).arrays).wait(Level::drained);
    rank.saver().finish();
    EXPECT_TRUE(rank.saver().warnings().empty());
  });
  EXPECT_TRUE(left.slow->exists(manifest_key(version)));
  left.expect_in_slow({30});
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, Resume, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "InABlob" : "InAFolder"; });

}  // namespace
}  // namespace penstock::checkpoint::test
