// Checkpoints in the blob of a run: what is particular to them.
#include <gtest/gtest.h>

#include "checkpoint/blob_header.hpp"
#include "checkpoint/object.hpp"
#include "store/blob_state.hpp"
#include "store/collect.hpp"
#include "unit/checkpoint/faulty_backend.hpp"
#include "unit/checkpoint/vector.hpp"

namespace penstock::checkpoint::test {
namespace {

using Level = CheckpointLevel;
using store::BlobState;

constexpr std::int64_t kLength = 64 * 1024;  // of a vector; its elements take 4 bytes

class InBlob : public testing::Test {
 protected:
  InBlob() {
    world.ranks = 2;
    world.options.chunk_bytes = 4096;
    world.tiers = [this](int) { return blob_and_folder(std::make_shared<FaultyBackend>(slow, faults)); };
  }

  Blob blob(const char* name = kRun) const { return Blob(BlobState::open(slow, name)); }

  std::vector<LogEntry> log() const { return blob().log(); }

  void expect_sound(const char* name = kRun) const {
    CheckReport report;
    store::check_blob(*BlobState::open(slow, name), report);
    EXPECT_TRUE(report.problems.empty()) << report.problems.at(0);
  }

  std::vector<std::string> data_objects() const {
    std::vector<std::string> keys = slow->list("places");
    std::erase_if(keys, [](const std::string& key) { return key.find("/data/") == std::string::npos; });
    return keys;
  }

  /// Flips a bit in every part of a rank that is there, but in no manifest.
  void flip_all() const {
    for (const std::string& key : data_objects()) {
      std::vector<std::byte> data = store::read_all(*slow, key);
      if (data.size() < kLength) continue;
      data.at(data.size() / 3) ^= std::byte{4};
      slow->remove(key);
      const ConstBytes piece = data;
      ASSERT_TRUE(slow->put_if_absent(key, std::span(&piece, 1)));
    }
  }

  /// Saves float32 values that are equal on all steps but for [changed, changed + count).
  static void save(Rank& rank, std::uint64_t step, std::int64_t changed, std::int64_t count,
                   std::int64_t length = kLength) {
    const Layout layout = Layout::even({length}, rank.ranks());
    const std::vector<std::byte> data = content(layout, rank.rank(), step, changed, count);
    rank.save(step, {{"v", DType::float32, layout, data}}).wait(Level::drained);
    rank.saver().finish();
  }

  static std::vector<std::byte> content(const Layout& layout, int rank, std::uint64_t step, std::int64_t changed,
                                        std::int64_t count) {
    std::vector<std::byte> data = local_part(layout, rank, 4, kFrozenSeed);
    const std::vector<std::byte> other = local_part(layout, rank, 4, step);
    for (const LayoutBlock& block : layout.local_blocks(rank)) {
      const std::int64_t begin = std::max(changed, block.global_start[0]);
      const std::int64_t end = std::min(changed + count, block.global_start[0] + block.shape[0]);
      for (std::int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<std::size_t>(block.local_offset_elems + i - block.global_start[0]) * 4;
        std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(at), 4, data.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    return data;
  }

  static void expect_content(const Restored& restored, std::uint64_t step, std::int64_t changed, std::int64_t count,
                             std::int64_t length = kLength) {
    EXPECT_EQ(restored.step, step);
    EXPECT_EQ(copy_of(restored.arrays.at(0)), content(Layout::whole({length}), 0, step, changed, count));
  }

  static Restored restore_step(Rank& rank, std::uint64_t step) {
    RestoreOptions options;
    options.step = step;
    return rank.restore(options);
  }

  const std::shared_ptr<store::Backend> slow = memory();
  const std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  World world;
};

TEST_F(InBlob, OneVersionPerSaveAndOnePerJob) {
  for (std::uint64_t job = 0; job < 2; ++job) {
    run_ranks(world, [&](Rank& rank) {
      for (std::uint64_t save_number = 1; save_number <= 2; ++save_number)
        save(rank, 10 * job + save_number, 0, kLength);
    });
  }
  EXPECT_EQ(blob().latest(), 6u);
  std::vector<std::string> tags;
  for (const Tag& tag : blob().tags()) tags.push_back(tag.name + " = " + std::to_string(tag.version));
  EXPECT_EQ(tags, (std::vector<std::string>{"step-1.1-0 = 2", "step-11.2-0 = 5", "step-12.2-1 = 6", "step-2.1-1 = 3"}));
  expect_sound();
}

TEST_F(InBlob, ChunksAreComparedByContentWhateverTheLevel) {
  // Small integers: they compress.
  const Layout layout = Layout::whole({1 << 20});
  std::vector<std::byte> data(1 << 22);
  Random random(3);
  for (std::size_t i = 0; i < data.size(); i += 4) data[i] = static_cast<std::byte>(between(random, 0, 9));
  world.ranks = 1;
  const auto stored_bytes = [&] {
    std::uint64_t total_bytes = 0;
    for (const std::string& key : data_objects()) total_bytes += slow->size_bytes(key);
    return total_bytes;
  };
  std::uint64_t before_bytes = 0;
  std::uint64_t step = 0;
  for (const int level : {3, 0, 9, 1}) {
    world.tiers = [this, level](int) { return Tiers{blob_tier(slow, kRun, level), nullptr}; };
    run_ranks(world, [&](Rank& rank) {
      rank.save(++step, {{"v", DType::float32, layout, data}}).wait(Level::drained);
      rank.saver().finish();
      EXPECT_EQ(copy_of(rank.restore().arrays.at(0)), data);
    });
    if (step == 1) {
      EXPECT_LT(stored_bytes(), data.size() / 3);
    } else {
      EXPECT_LT(stored_bytes() - before_bytes, data.size() / 50) << "level " << level;
    }
    before_bytes = stored_bytes();
  }
  flip_all();
  run_ranks(world, [&](Rank& rank) { EXPECT_THROW(rank.restore(), Error); });
  CheckReport report;
  store::check_blob(*BlobState::open(slow, kRun), report);
  EXPECT_FALSE(report.problems.empty());
  // The next save writes what it finds damaged.
  run_ranks(world, [&](Rank& rank) {
    rank.save(++step, {{"v", DType::float32, layout, data}}).wait(Level::drained);
    rank.saver().finish();
    EXPECT_EQ(copy_of(rank.restore().arrays.at(0)), data);
  });
}

TEST_F(InBlob, AManifestIsReadableText) {
  run_ranks(world, [](Rank& rank) { save(rank, 3, 0, kLength); });
  const Snapshot snapshot = blob().snapshot();
  std::string text(kHeaderBytes, '\0');
  const ReadRegion head{0, std::as_writable_bytes(std::span(text))};
  snapshot.read(std::span(&head, 1));
  EXPECT_EQ(text.substr(0, 49), R"({"penstock": "checkpoints", "format": 1, "job": 1)");
  const BlobHeader header = BlobHeader::parse(text);
  text.resize(header.manifest_bytes);
  const ReadRegion manifest{header.manifest_place_bytes, std::as_writable_bytes(std::span(text))};
  snapshot.read(std::span(&manifest, 1));
  EXPECT_EQ(Manifest::parse(text).version, (Version{3, 1, 0}));
  EXPECT_EQ(Manifest::parse(text).objects.at(1).place_bytes % kPlaceAlignment, 0u);
}

TEST_F(InBlob, OnlyChangedChunksAreWritten) {
  world.options.chunk_bytes = 1024;
  world.ranks = 1;
  constexpr std::int64_t kMany = 1 << 20;
  constexpr std::int64_t kTwentieth = kMany / 20;
  run_ranks(world, [](Rank& rank) {
    save(rank, 1, 0, 0, kMany);
    save(rank, 2, 12'345, kTwentieth, kMany);
    save(rank, 3, 12'345, kTwentieth, kMany);
    expect_content(rank.restore(), 3, 12'345, kTwentieth, kMany);
    expect_content(restore_step(rank, 1), 1, 0, 0, kMany);
    expect_content(restore_step(rank, 2), 2, 12'345, kTwentieth, kMany);
  });
  const std::vector<LogEntry> versions = log();
  ASSERT_EQ(versions.size(), 4u);
  EXPECT_GE(versions[1].bytes, 4u * kMany);
  // Here a digest is 1/64 of its chunk; with chunks of 1 MiB it is nothing.
  const std::uint64_t digests_bytes = 4 * kMany / 1024 * 16;
  EXPECT_LE(versions[2].bytes - digests_bytes, 4u * kMany * 51 / 1000 + 4 * kPlaceAlignment);
  EXPECT_GE(versions[2].bytes, 4u * kTwentieth);
  expect_sound();
}

TEST_F(InBlob, AJobSharesWhatAnEarlierJobHasWritten) {
  for (std::uint64_t step = 1; step <= 3; ++step) run_ranks(world, [&](Rank& rank) { save(rank, step, 0, 100); });
  for (const LogEntry& entry : log()) {
    if (entry.version > 2) {
      EXPECT_LT(entry.bytes, 6 * kPlaceAlignment) << entry.version;
    }
  }
  run_ranks(world, [&](Rank& rank) {
    for (std::uint64_t step = 1; step <= 3; ++step) expect_content(restore_step(rank, step), step, 0, 100);
  });
}

TEST_F(InBlob, AJobSharesNothingThatIsDamaged) {
  run_ranks(world, [](Rank& rank) { save(rank, 1, 0, 100); });
  flip_all();
  run_ranks(world, [](Rank& rank) {
    save(rank, 2, 0, 100);
    const Restored restored = rank.restore();
    expect_content(restored, 2, 0, 100);
    EXPECT_TRUE(restored.warnings.empty()) << restored.warnings[0];
    EXPECT_THROW(restore_step(rank, 1), Error);
  });
}

TEST_F(InBlob, AJobThatMeetsDamageSharesItNoMore) {
  run_ranks(world, [&](Rank& rank) {
    save(rank, 1, 0, 100);
    save(rank, 2, 0, 100);
    agree(rank.peers(), "damaging", [&] {
      if (rank.rank() == 0) flip_all();
      return Done{};
    });
    EXPECT_THROW(rank.restore(), Error);
    save(rank, 3, 0, 100);
    const Restored restored = rank.restore();
    expect_content(restored, 3, 0, 100);
    EXPECT_TRUE(restored.warnings.empty()) << restored.warnings[0];
  });
}

TEST_F(InBlob, DamageLeadsToTheStepBefore) {
  run_ranks(world, [](Rank& rank) { save(rank, 1, 0, kLength); });
  const std::vector<std::string> good = data_objects();
  run_ranks(world, [](Rank& rank) { save(rank, 2, 0, kLength); });
  for (const std::string& key : data_objects()) {
    if (std::find(good.begin(), good.end(), key) == good.end()) slow->remove(key);
  }
  run_ranks(world, [](Rank& rank) {
    const Restored restored = rank.restore();
    expect_content(restored, 1, 0, kLength);
    EXPECT_EQ(restored.warnings.size(), 1u);
  });
  CheckReport report;
  store::check_blob(*BlobState::open(slow, kRun), report);
  EXPECT_FALSE(report.problems.empty());
}

TEST_F(InBlob, ATreeMayGrowAndShrinkAndChangeItsRanks) {
  Random random(5);
  std::map<std::uint64_t, std::int64_t> lengths;
  for (std::uint64_t step = 1; step <= 24; ++step) {
    world.ranks = static_cast<int>(between(random, 1, 4));
    const std::int64_t length = between(random, 0, 4) == 0 ? 0 : between(random, 1, 9000);
    lengths[step] = length;
    run_ranks(world, [&](Rank& rank) {
      save(rank, step, length / 3, length / 5, length);
      expect_content(rank.restore(), step, length / 3, length / 5, length);
    });
    EXPECT_LT(blob().size_bytes(), static_cast<std::uint64_t>(length) * 4 + 6 * kPlaceAlignment);
  }
  run_ranks(world, [&](Rank& rank) {
    for (const auto& [step, length] : lengths) {
      expect_content(restore_step(rank, step), step, length / 3, length / 5, length);
    }
  });
  expect_sound();
}

TEST_F(InBlob, WhatIsRemovedFreesItsSpace) {
  world.options.keep = 2;
  run_ranks(world, [](Rank& rank) {
    for (std::uint64_t step = 1; step <= 6; ++step) save(rank, step, 0, kLength);
    EXPECT_TRUE(rank.saver().warnings().empty());
  });
  EXPECT_EQ(complete_steps(*blob_tier(slow, kRun)), (std::vector<std::uint64_t>{5, 6}));
  EXPECT_LE(data_objects().size(), 2u * 3);
}

TEST_F(InBlob, FewBytesThatStayDoNotKeepWhatWasWrittenWithThem) {
  world.ranks = 1;
  world.options.keep = 1;
  run_ranks(world, [](Rank& rank) {
    // After save n the first n chunks of 1024 elements never change again.
    for (std::int64_t n = 0; n < 40; ++n) {
      const Layout layout = Layout::whole({kLength});
      std::vector<std::byte> data = local_part(layout, 0, 4, static_cast<std::uint64_t>(n));
      const std::vector<std::byte> frozen = local_part(layout, 0, 4, kFrozenSeed);
      std::copy_n(frozen.begin(), n * 4096, data.begin());
      rank.save(static_cast<std::uint64_t>(n), {{"v", DType::float32, layout, data}}).wait(Level::drained);
      rank.saver().finish();
      EXPECT_EQ(copy_of(rank.restore().arrays.at(0)), data);
    }
    EXPECT_TRUE(rank.saver().warnings().empty());
  });
  std::uint64_t stored_bytes = 0;
  for (const std::string& key : data_objects()) stored_bytes += slow->size_bytes(key);
  EXPECT_LE(stored_bytes, 4u * kLength * 4 + 16 * kPlaceAlignment);
  expect_sound();
}

TEST_F(InBlob, TheNewestCanBeRemovedWhileAJobRuns) {
  run_ranks(world, [&](Rank& rank) {
    save(rank, 1, 0, 100);
    save(rank, 2, 0, 100);
    agree(rank.peers(), "removing", [&] {
      if (rank.rank() == 0) {
        const auto tier = blob_tier(slow, kRun);
        tier->remove({2, 1, 1});
        tier->sweep();
        EXPECT_EQ(complete_steps(*tier), std::vector<std::uint64_t>{1});
      }
      return Done{};
    });
    expect_content(rank.restore(), 1, 0, 100);
    save(rank, 3, 50, 100);
    expect_content(rank.restore(), 3, 50, 100);
  });
  expect_sound();
}

TEST_F(InBlob, RemovingTheNewestDuringASaveDoesNotFailIt) {
  run_ranks(world, [&](Rank& rank) {
    save(rank, 1, 0, 100);
    agree(rank.peers(), "arming", [&] {
      if (rank.rank() == 0) {
        faults->on_change = [this](const std::string& operation, const store::Backend&, const std::string& key,
                                   Faults::When when) {
          if (operation != "put" || when != Faults::When::before || !key.ends_with("versions/00000000000000000003"))
            return;
          const auto tier = blob_tier(slow, kRun);
          tier->remove({1, 1, 0});
          tier->sweep();
        };
      }
      return Done{};
    });
    save(rank, 2, 50, 100);
    expect_content(rank.restore(), 2, 50, 100);
  });
  EXPECT_EQ(complete_steps(*blob_tier(slow, kRun)), std::vector<std::uint64_t>{2});
  expect_sound();
}

TEST_F(InBlob, WhatACollectorHasGivenUpIsWrittenAgain) {
  run_ranks(world, [&](Rank& rank) {
    save(rank, 1, 0, 100);
    agree(rank.peers(), "arming", [&] {
      if (rank.rank() == 0) {
        faults->on_change = [this, collected = std::make_shared<std::atomic<bool>>(false)](
                                const std::string& operation, const store::Backend&, const std::string& key,
                                Faults::When when) {
          if (operation != "put" || when != Faults::When::before || !key.ends_with("versions/00000000000000000003") ||
              collected->exchange(true))
            return;
          GcReport report;
          store::collect_blob(*BlobState::open(slow, kRun), {.lease = std::chrono::seconds(0)}, report);
          EXPECT_GT(report.objects_removed, 0u);
        };
      }
      return Done{};
    });
    save(rank, 2, 0, kLength);
    expect_content(rank.restore(), 2, 0, kLength);
  });
  expect_sound();
}

TEST_F(InBlob, WithoutItsTagTheNewestCountsAndGetsItLater) {
  faults->on_change = [](const std::string& operation, const store::Backend&, const std::string& key,
                         Faults::When when) {
    if (operation == "put" && when == Faults::When::before && key.ends_with("tags/step-1.1-0"))
      throw Error(ErrorCode::io, "device");
  };
  run_ranks(world, [&](Rank& rank) {
    save(rank, 1, 0, 100);
    if (rank.rank() == 0) {
      ASSERT_EQ(rank.saver().warnings().size(), 1u);
      EXPECT_NE(rank.saver().warnings()[0].find("has no tag yet"), std::string::npos) << rank.saver().warnings()[0];
    }
    expect_content(rank.restore(), 1, 0, 100);
    // Nothing may be saved over it before it has its tag.
    EXPECT_THROW(save(rank, 2, 0, 100), Error);
    agree(rank.peers(), "mending", [&] {
      if (rank.rank() == 0)
        faults->on_change = [](const std::string&, const store::Backend&, const std::string&, Faults::When) {};
      return Done{};
    });
    save(rank, 3, 0, 100);
    expect_content(restore_step(rank, 1), 1, 0, 100);
  });
  EXPECT_EQ(complete_steps(*blob_tier(slow, kRun)), (std::vector<std::uint64_t>{1, 3}));
}

/// One process saves a checkpoint without arrays.
Publication save_by(Tier& tier, const Version& version, ConstBytes data) {
  const Base base = tier.base(version.generation);
  const Content content = content_of(data, 4096, kPlaceAlignment);
  const Written written = tier.write(version, 0, content, base);
  Manifest manifest;
  manifest.version = version;
  manifest.chunk_bytes = 4096;
  manifest.objects = {content.info};
  const std::string text = manifest.serialize();
  return tier.publish(version, {text, aligned_place(kPlaceAlignment + content.info.size_bytes), base, {written}}, tier);
}

TEST_F(InBlob, ASaveThatComesBeforeTheTakeoverStays) {
  const std::vector<std::byte> data(9000, std::byte{3});
  const auto older = blob_tier(slow, kRun);
  const std::uint64_t first = older->take_generation(0);
  EXPECT_FALSE(save_by(*older, {1, first, 0}, data).failure);
  int attempts = 0;
  faults->on_change = [&](const std::string& operation, const store::Backend&, const std::string& key,
                          Faults::When when) {
    if (operation != "put" || when != Faults::When::before || key.find("/versions/") == std::string::npos) return;
    // The older job is faster three times.
    if (++attempts > 3) return;
    const auto step = static_cast<std::uint64_t>(1 + attempts);
    EXPECT_FALSE(save_by(*older, {step, first, step}, data).failure);
  };
  const auto newer = blob_tier(std::make_shared<FaultyBackend>(slow, faults), kRun);
  EXPECT_EQ(newer->take_generation(0), first + 1);
  EXPECT_EQ(attempts, 4);
  EXPECT_EQ(complete_steps(*newer), (std::vector<std::uint64_t>{1, 2, 3, 4}));
  try {
    save_by(*older, {9, first, 9}, data);
    ADD_FAILURE() << "saved";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::fenced);
  }
  EXPECT_FALSE(save_by(*newer, {9, first + 1, 0}, data).failure);
  expect_sound();
}

TEST_F(InBlob, ATakeoverDuringASaveFencesIt) {
  const std::vector<std::byte> data(9000, std::byte{3});
  const auto older = blob_tier(std::make_shared<FaultyBackend>(slow, faults), kRun);
  const std::uint64_t first = older->take_generation(0);
  EXPECT_FALSE(save_by(*older, {1, first, 0}, data).failure);
  const auto newer = blob_tier(slow, kRun);
  faults->on_change = [&](const std::string& operation, const store::Backend&, const std::string& key,
                          Faults::When when) {
    const bool is_commit = operation == "put" && when == Faults::When::before && key.ends_with("00000000000000000003");
    if (is_commit && key.find("/versions/") != std::string::npos) newer->take_generation(0);
  };
  const Publication failed = save_by(*older, {2, first, 1}, data);
  ASSERT_TRUE(failed.failure);
  EXPECT_EQ(failed.failure->code(), ErrorCode::fenced);
  EXPECT_TRUE(failed.gone);
  EXPECT_EQ(complete_steps(*newer), std::vector<std::uint64_t>{1});
  expect_sound();
}

TEST_F(InBlob, ACloneIsABranch) {
  run_ranks(world, [](Rank& rank) {
    save(rank, 1, 0, 100);
    save(rank, 2, 0, 100);
  });
  BlobState::open(slow, kRun)->clone(blob().tagged("step-1.1-0"), "branch");
  World branch = world;
  branch.tiers = [this](int) { return Tiers{blob_tier(slow, "branch"), nullptr}; };
  run_ranks(branch, [](Rank& rank) {
    expect_content(rank.restore(), 1, 0, 100);
    save(rank, 2, 7, 100);
    expect_content(rank.restore(), 2, 7, 100);
    expect_content(restore_step(rank, 1), 1, 0, 100);
  });
  run_ranks(world, [](Rank& rank) { expect_content(rank.restore(), 2, 0, 100); });
  expect_sound();
  expect_sound("branch");
}

TEST_F(InBlob, AnotherBlobIsRefused) {
  const std::vector<std::byte> data(5000);
  BlobState::create(slow, kRun, {.size_bytes = 5000});
  const WriteRegion region{0, data};
  blob().write(std::span(&region, 1));
  run_ranks(world, [](Rank& rank) {
    try {
      rank.restore();
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("run 'run': version 1 of the blob does not begin as a checkpoint does"),
                std::string::npos)
          << error.message();
    }
    EXPECT_THROW(save(rank, 1, 0, 100), Error);
  });
  EXPECT_EQ(blob().latest(), 1u);
}

}  // namespace
}  // namespace penstock::checkpoint::test
