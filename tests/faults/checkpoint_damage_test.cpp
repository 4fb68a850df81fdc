// Flips bits, truncates and removes objects. A restore reads damaged data from another tier, else the last good step,
// and reports the damage.
#include <gtest/gtest.h>

#include "unit/checkpoint/faulty_backend.hpp"
#include "unit/checkpoint/vector.hpp"

namespace penstock::checkpoint::test {
namespace {

using Level = CheckpointLevel;
using Change = std::function<void(std::vector<std::byte>&)>;

void damage(store::Backend& backend, const std::string& key, const Change& change) {
  std::vector<std::byte> data = store::read_all(backend, key);
  change(data);
  ASSERT_TRUE(backend.remove(key));
  const ConstBytes piece = data;
  ASSERT_TRUE(backend.put_if_absent(key, std::span(&piece, 1)));
}

Change flip(std::size_t byte) {
  return [byte](std::vector<std::byte>& data) { data.at(byte) ^= std::byte{0x10}; };
}
Change truncate(std::size_t bytes) {
  return [bytes](std::vector<std::byte>& data) { data.resize(bytes); };
}

class Damage : public testing::Test {
 protected:
  static constexpr std::size_t kChunkBytes = 256;
  static constexpr std::size_t kRanks = 2;
  static constexpr std::size_t kDataBytes = 2000;  // of each rank
  static constexpr std::size_t kObjectBytes = kDataBytes + 8 * 16;

  /// Steps 1 and 2 are in the slow tier. Step 2 is also in the burst buffer.
  Damage() {
    world.ranks = kRanks;
    world.options.chunk_bytes = kChunkBytes;
    world.tiers = shared_tiers(slow, fast);
    run_ranks(world, [](Rank& rank) {
      for (std::uint64_t step = 1; step <= 2; ++step) rank.save(step, Vector(rank, step).arrays).wait(Level::drained);
      rank.saver().finish();
    });
    world.ranks = 3;
  }

  void expect_restored(std::uint64_t step, const std::string& warning) {
    run_ranks(world, [&](Rank& rank) {
      const Restored restored = rank.restore();
      expect_vector(restored, step);
      if (warning.empty()) {
        EXPECT_TRUE(restored.warnings.empty()) << restored.warnings[0];
        return;
      }
      ASSERT_FALSE(restored.warnings.empty());
      EXPECT_NE(restored.warnings[0].find(warning), std::string::npos) << restored.warnings[0];
    });
  }

  const std::shared_ptr<store::Backend> slow = memory();
  const std::shared_ptr<store::Backend> fast = memory();
  const std::string newest = data_key({2, 1, 1}, 1);
  World world;
};

TEST_F(Damage, NoneIsNoWarning) { expect_restored(2, ""); }

TEST_F(Damage, InTheBurstBufferIsReadFromTheSlowTier) {
  damage(*fast, newest, flip(700));
  expect_restored(2, newest + ", 256 bytes at offset 512: checksum");
}

TEST_F(Damage, OfTheBurstBuffersDigestsIsReadFromTheSlowTier) {
  damage(*fast, newest, flip(kDataBytes + 3));
  expect_restored(2, "128 bytes at offset 2000: checksum");
}

TEST_F(Damage, InBothTiersAtDifferentPlacesIsNone) {
  damage(*fast, newest, flip(700));
  damage(*slow, newest, flip(1500));
  expect_restored(2, "read from");
}

TEST_F(Damage, AnywhereInTheSlowTierFallsBackToTheLastGoodStep) {
  fast->remove(newest);
  Random random(3);
  std::vector<std::byte> intact = store::read_all(*slow, newest);
  for (int trial = 0; trial < 20; ++trial) {
    const auto byte = static_cast<std::size_t>(between(random, 0, kObjectBytes - 1));
    SCOPED_TRACE(byte);
    damage(*slow, newest, flip(byte));
    expect_restored(1, "passed over");
    damage(*slow, newest, [&](std::vector<std::byte>& data) { data = intact; });
  }
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kDataBytes, kObjectBytes - 1}) {
    damage(*slow, newest, truncate(bytes));
    expect_restored(1, "passed over");
    damage(*slow, newest, [&](std::vector<std::byte>& data) { data = intact; });
  }
  slow->remove(newest);
  expect_restored(1, "no object " + newest);
}

TEST_F(Damage, OfAManifestIsMadeGoodByTheOtherTierOrPassedOver) {
  damage(*fast, manifest_key({2, 1, 1}), flip(40));
  expect_restored(2, "");
  damage(*slow, manifest_key({2, 1, 1}), flip(40));
  expect_restored(1, "manifest: checksum");
}

TEST_F(Damage, OfEverythingIsAnErrorThatSaysAll) {
  fast->remove(newest);
  damage(*slow, newest, flip(0));
  damage(*slow, data_key({1, 1, 0}, 0), truncate(100));
  run_ranks(world, [&](Rank& rank) {
    try {
      rank.restore();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
      EXPECT_NE(error.message().find(newest), std::string::npos) << error.message();
      EXPECT_NE(error.message().find(data_key({1, 1, 0}, 0)), std::string::npos) << error.message();
    }
  });
}

/// Damages an object of the burst buffer between its write and its drain.
class Rotting final : public Peers {
 public:
  Rotting(store::Backend& where, std::string key, Change change)
      : where_(where), key_(std::move(key)), change_(std::move(change)) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void allgather(ConstBytes mine, Bytes all) override {
    std::memcpy(all.data(), mine.data(), mine.size());
    // The drain starts when the manifest is there, so the object must be damaged before.
    if (done_ || !where_.exists(key_)) return;
    done_ = true;
    damage(where_, key_, change_);
  }
  void broadcast(Bytes, int) override {}
  void shift(ConstBytes, int, Bytes, int) override {}

 private:
  store::Backend& where_;
  const std::string key_;
  const Change change_;
  bool done_ = false;
};

TEST_F(Damage, AnywhereBeforeTheDrainFailsTheDrain) {
  constexpr std::size_t kAllBytes = 2 * kDataBytes;  // one rank saves all
  for (const auto tiers : {folders, blob_and_folder}) {
    const bool in_blob = tiers == blob_and_folder;
    for (std::size_t byte = 10; byte < kAllBytes + 16 * kAllBytes / kChunkBytes; byte += 300) {
      SCOPED_TRACE(byte);
      const auto other_slow = memory();
      const auto other_fast = memory();
      const auto faults = std::make_shared<Faults>();
      int pieces = 0;
      faults->on_change = [&](const std::string& operation, const store::Backend&, const std::string& key,
                              Faults::When when) {
        const bool in_slow = operation == "piece" || (in_blob && operation == "put" && key.find("/data/") != key.npos);
        if (in_slow && when == Faults::When::after) ++pieces;
      };
      Channels channels;
      channels.writer = std::make_shared<Rotting>(*other_fast, data_key({3, 1, 0}, 0), flip(byte));
      channels.drainer = single_process();
      // Two buffers of two chunks: what is damaged shows while earlier pieces have been written.
      world.tuning.piece_bytes = 2 * kChunkBytes;
      Saver saver(tiers(std::make_shared<FaultyBackend>(other_slow, faults), other_fast), channels, world.options,
                  world.tuning);
      const Layout layout = Layout::whole({1000});
      const std::vector<std::byte> data = local_part(layout, 0, 4, 3);
      const auto job = saver.save(3, {{"v", DType::float32, layout, data}}, "");
      try {
        saver.finish();
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::corrupt);
        EXPECT_NE(error.message().find("draining the checkpoint of step 3"), std::string::npos) << error.message();
        EXPECT_NE(error.message().find(data_key({3, 1, 0}, 0)), std::string::npos) << error.message();
      }
      EXPECT_EQ(job->level(), Level::fast);
      if (!in_blob && byte < kAllBytes) {
        EXPECT_EQ(pieces, static_cast<int>(byte / (2 * kChunkBytes)));
      }
      const Tiers left = tiers(other_slow, nullptr);
      EXPECT_TRUE(complete_steps(*left.slow).empty());
      EXPECT_TRUE(in_blob || list_versions(*other_slow).empty());
      for (const std::string& key : other_slow->list("blobs")) EXPECT_EQ(key.find("/data/"), key.npos) << key;
    }
  }
}

TEST_F(Damage, ADrainThatFailedLeavesTheNextOneAlone) {
  const auto other_slow = memory();
  const auto other_fast = memory();
  Channels channels;
  channels.writer = std::make_shared<Rotting>(*other_fast, data_key({3, 1, 0}, 0), flip(2500));
  channels.drainer = single_process();
  world.tuning.piece_bytes = 2 * kChunkBytes;
  Saver saver(folders(other_slow, other_fast), channels, world.options, world.tuning);
  const Layout layout = Layout::whole({1000});
  const std::vector<std::byte> data = local_part(layout, 0, 4, 3);
  const auto first = saver.save(3, {{"v", DType::float32, layout, data}}, "");
  EXPECT_THROW(saver.finish(), Error);
  const std::vector<std::byte> more = local_part(layout, 0, 4, 4);
  const auto second = saver.save(4, {{"v", DType::float32, layout, more}}, "");
  EXPECT_NO_THROW(saver.finish());
  EXPECT_EQ(first->level(), Level::fast);
  EXPECT_EQ(second->level(), Level::drained);
  EXPECT_EQ(complete_steps(other_slow), std::vector<std::uint64_t>{4});
}

TEST_F(Damage, WrongLayoutsAreErrorsNotDamage) {
  run_ranks(world, [&](Rank& rank) {
    const auto expect_refused = [&](const RestoreOptions& options, const std::string& text) {
      try {
        rank.restore(options);
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_NE(error.message().find(text), std::string::npos) << error.message();
      }
    };
    RestoreOptions options;
    options.layouts.emplace("w", Layout::whole({1000}));
    expect_refused(options, "no array 'w' was saved, only 'v'");
    options.layouts.clear();
    options.layouts.emplace("v", Layout::whole({10, 100}));
    expect_refused(options, "saved with the shape (1000); the requested layout has (10, 100)");
    options.layouts.clear();
    options.layouts.emplace("v", Layout::even({1000}, 4));
    expect_refused(options, "on 4 ranks; expected at most 3");
    options.layouts.clear();
    options.step = 9;
    try {
      rank.restore(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::not_found);
      EXPECT_NE(error.message().find("no complete checkpoint of step 9 at memory:"), std::string::npos);
    }
  });
}

}  // namespace
}  // namespace penstock::checkpoint::test
