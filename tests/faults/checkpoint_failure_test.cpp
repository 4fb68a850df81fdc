// Devices fill up or fail during a save. The save fails on all ranks, no rank hangs, and other checkpoints stay.
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <future>

#include "unit/checkpoint/faulty_backend.hpp"
#include "unit/checkpoint/vector.hpp"

namespace penstock::checkpoint::test {
namespace {

using Level = CheckpointLevel;

constexpr int kFailingRanks = 3;

struct Failure {
  const char* name;
  bool in_fast;
  int rank;  ///< whose object fails; -1: the manifest, which rank 0 writes
  ErrorCode code;
  bool relayed;
};

void PrintTo(const Failure& failure, std::ostream* out) { *out << failure.name; }

class Fails : public testing::TestWithParam<Failure> {
 protected:
  Fails() {
    world.ranks = kFailingRanks;
    world.relayed = GetParam().relayed;
    world.tiers = [this](int) {
      return folders(std::make_shared<FaultyBackend>(slow, faults), std::make_shared<FaultyBackend>(fast, faults));
    };
    // Step 2 is the first or the second save of the job.
    const auto key = [](std::uint64_t sequence) {
      const Version version{2, 1, sequence};
      return GetParam().rank < 0 ? manifest_key(version) : data_key(version, GetParam().rank);
    };
    const std::string keys[] = {key(0), key(1)};
    const store::Backend* where = GetParam().in_fast ? fast.get() : slow.get();
    faults->on_change = [=](const std::string& operation, const store::Backend& backend, const std::string& changed,
                            Faults::When when) {
      if (operation == "put" && when == Faults::When::before && &backend == where &&
          (changed == keys[0] || changed == keys[1])) {
        throw Error(GetParam().code, "device of rank " + std::to_string(GetParam().rank), -1,
                    "No space left on device");
      }
    };
  }

  void expect_told_once(int staging_buffers);

  int failing_rank() const { return std::max(GetParam().rank, 0); }

  void expect_error(const Error& error, int rank) const {
    EXPECT_EQ(error.code(), rank == failing_rank() ? GetParam().code : ErrorCode::peer_failed) << error.what();
    EXPECT_EQ(error.rank(), failing_rank());
    EXPECT_NE(error.message().find("step 2"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("device of rank"), std::string::npos) << error.message();
  }

  const std::shared_ptr<store::Backend> slow = memory();
  const std::shared_ptr<store::Backend> fast = memory();
  const std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  World world;
};

TEST_P(Fails, ThatCheckpointOnAllRanksAtWait) {
  run_ranks(world, [&](Rank& rank) {
    rank.save(1, Vector(rank, 1).arrays).wait(Level::drained);
    CheckpointHandle handle = rank.save(2, Vector(rank, 2).arrays);
    // The checkpoint still reaches the levels before the failure.
    if (!GetParam().in_fast) handle.wait(Level::fast);
    try {
      handle.wait(Level::drained);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      expect_error(error, rank.rank());
    }
    EXPECT_TRUE(handle.failed());
    EXPECT_EQ(handle.level(), GetParam().in_fast ? Level::staged : Level::fast);
    rank.save(3, Vector(rank, 3).arrays).wait(Level::drained);  // the error is reported only once
    rank.saver().finish();
    expect_vector(rank.restore(), 3);
    RestoreOptions first;
    first.step = 1;
    expect_vector(rank.restore(first), 1);
    EXPECT_TRUE(rank.saver().warnings().empty());
  });
  EXPECT_EQ(complete_steps(slow), (std::vector<std::uint64_t>{1, 3}));
  EXPECT_EQ(list_versions(*slow).size(), 2u) << "data of the failed one are left";
  EXPECT_EQ(list_versions(*fast).size(), 1u);
}

TEST_P(Fails, AndIsToldByTheSameSaveOnAllRanksOnce) { expect_told_once(1); }

TEST_P(Fails, AndIsToldOneSaveLaterWithTwoStagingBuffers) { expect_told_once(2); }

TEST_P(Fails, AndIsToldByTheNextSaveIfARankHasMemoryForOneBuffer) { expect_told_once(0); }

void Fails::expect_told_once(int staging_buffers) {
  world.options.staging_buffers = staging_buffers;
  run_ranks(world, [&](Rank& rank) {
    if (staging_buffers == 0) {
      SaverTuning tuning = world.tuning;
      tuning.free_memory_bytes = [&rank] { return std::uint64_t{1} << (rank.rank() == 1 ? 0 : 30); };
      rank.retune(tuning);
    }
    rank.save(1, Vector(rank, 1).arrays);
    rank.save(2, Vector(rank, 2).arrays);
    std::uint64_t told_at = 0;
    // How many saves a failed drain takes to become known on all ranks depends on the threads.
    std::uint64_t last = 2;
    while (told_at == 0 || last < told_at + 4) {
      const std::uint64_t step = ++last;
      if (step > 10'000) throw Error(ErrorCode::internal, "no save has told the failure");
      try {
        rank.save(step, Vector(rank, step).arrays);
      } catch (const Error& error) {
        EXPECT_EQ(told_at, 0u) << "told twice";
        told_at = step;
        expect_error(error, rank.rank());
      }
    }
    rank.saver().finish();
    if (GetParam().in_fast) {
      EXPECT_EQ(told_at, 2u + static_cast<std::uint64_t>(std::max(staging_buffers, 1)));
    }
    const auto told = agree(rank.peers(), "comparing", [&] { return told_at; });
    for (const std::uint64_t other : told) EXPECT_EQ(other, told_at);
    EXPECT_NE(told_at, 0u);
    expect_vector(rank.restore(), last);
  });
}

TEST_P(Fails, AndFinishTellsWhatNobodyHasHeard) {
  run_ranks(world, [&](Rank& rank) {
    rank.save(2, Vector(rank, 2).arrays);
    try {
      rank.saver().finish();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      expect_error(error, rank.rank());
    }
    rank.saver().finish();
  });
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, Fails,
                         testing::Values(Failure{"BurstBufferFullOnRank0", true, 0, ErrorCode::no_space, false},
                                         Failure{"BurstBufferFullOnRank2", true, 2, ErrorCode::no_space, false},
                                         Failure{"BurstBufferBrokenForTheManifest", true, -1, ErrorCode::io, false},
                                         Failure{"SlowTierBrokenOnRank1", false, 1, ErrorCode::io, false},
                                         Failure{"SlowTierFullForTheManifest", false, -1, ErrorCode::no_space, false},
                                         Failure{"BurstBufferFullOnRank1Relayed", true, 1, ErrorCode::no_space, true},
                                         Failure{"SlowTierFullOnRank2Relayed", false, 2, ErrorCode::no_space, true}),
                         [](const auto& tested) { return tested.param.name; });

/// Holds all writes of checkpoints until a test lets them go, and counts ranks whose save waits for them.
class HeldWrites {
 public:
  explicit HeldWrites(World& world) {
    faults->on_change = [this](const std::string&, const store::Backend&, const std::string& key, Faults::When when) {
      if (when == Faults::When::after || !key.starts_with("checkpoints/step-")) return;
      await([this] { return released_; }, "the writes are held for ever: a save waits for them that should not");
    };
    world.tiers = [this](int) { return folders(std::make_shared<FaultyBackend>(slow, faults), nullptr); };
    world.tuning.on_backpressure = [this] { update([this] { ++waiting_; }); };
  }

  void release() {
    update([this] { released_ = true; });
  }
  /// Lets the writes go as soon as so many saves wait for them.
  void release_when_waiting(int saves) {
    await([=, this] { return waiting_ >= saves; }, "no save waits for the writes that fill the staging memory");
    release();
  }
  int waiting() {
    const std::lock_guard lock(mutex_);
    return waiting_;
  }

  const std::shared_ptr<store::Backend> slow = memory();

 private:
  void await(const std::function<bool()>& holds, const char* otherwise) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, penstock::test::kHung, holds)) throw Error(ErrorCode::internal, otherwise);
  }
  void update(const std::function<void()>& change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }

  const std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = false;
  int waiting_ = 0;
};

void expect_steps(Rank& rank, std::uint64_t last) {
  rank.saver().finish();
  for (std::uint64_t step = 1; step <= last; ++step) {
    RestoreOptions options;
    options.step = step;
    expect_vector(rank.restore(options), step);
  }
}

/// Saves that go on although nothing is written. Their arrays change afterwards.
std::vector<CheckpointHandle> save_unwritten(Rank& rank, std::uint64_t last) {
  std::vector<CheckpointHandle> handles;
  for (std::uint64_t step = 1; step <= last; ++step) {
    Vector vector(rank, step);
    handles.push_back(rank.save(step, vector.arrays));
    std::fill(vector.data.begin(), vector.data.end(), std::byte{0xEE});
  }
  for (const CheckpointHandle& handle : handles) EXPECT_EQ(handle.level(), Level::staged);
  return handles;
}

TEST(Checkpoint, WithTwoStagingBuffersASaveDoesNotWaitForTheWriteOfThePreviousOne) {
  World world;
  HeldWrites writes(world);
  world.ranks = 2;
  world.options.staging_buffers = 2;
  run_ranks(world, [&](Rank& rank) {
    save_unwritten(rank, 2);
    agree(rank.peers(), "both are staged", [] { return Done{}; });
    if (rank.rank() == 0) writes.release();
    rank.save(3, Vector(rank, 3).arrays);
    expect_steps(rank, 3);
  });
}

/// A rank's part of a Vector.
constexpr std::uint64_t kPartBytes = 2000;

TEST(Checkpoint, ASaveWaitsForAWriteOnlyIfTheStagingBytesAreUsedUp) {
  World world;
  HeldWrites writes(world);
  world.ranks = 2;
  world.options.staging_bytes = 3 * kPartBytes + kPartBytes / 2;
  run_ranks(world, [&](Rank& rank) {
    const std::vector<CheckpointHandle> handles = save_unwritten(rank, 3);
    for (const CheckpointHandle& handle : handles) EXPECT_EQ(handle.waited_s(), 0);
    EXPECT_NE(rank.saver().report().find("of at most 7000,"), std::string::npos) << rank.saver().report();
    EXPECT_EQ(rank.saver().report().find("backpressure"), std::string::npos) << rank.saver().report();
    std::thread releases;
    if (rank.rank() == 0) releases = std::thread([&] { writes.release_when_waiting(rank.ranks()); });
    const CheckpointHandle fourth = rank.save(4, Vector(rank, 4).arrays);
    if (releases.joinable()) releases.join();
    EXPECT_NE(handles[0].level(), Level::staged);
    EXPECT_GT(fourth.waited_s(), 0);
    EXPECT_LE(fourth.waited_s(), fourth.stall_s());
    const std::string report = rank.saver().report();
    EXPECT_NE(report.find("saves under way in the first tier: at most 3\n"), std::string::npos) << report;
    EXPECT_NE(report.find("backpressure: 1 of 4 saves waited "), std::string::npos) << report;
    expect_steps(rank, 4);
  });
  EXPECT_EQ(writes.waiting(), world.ranks);
}

TEST(Checkpoint, ByDefaultASecondBufferIsTakenIfTheFreeMemoryHoldsTwo) {
  for (const bool enough : {true, false}) {
    World world;
    HeldWrites writes(world);
    world.tuning.free_memory_bytes = [=] { return 2 * kPartBytes * 2 - (enough ? 0 : 1); };
    run_ranks(world, [&](Rank& rank) {
      save_unwritten(rank, enough ? 2 : 1);
      std::thread releases([&] { writes.release_when_waiting(1); });
      rank.save(enough ? 3 : 2, Vector(rank, enough ? 3 : 2).arrays);
      releases.join();
      expect_steps(rank, enough ? 3 : 2);
    });
  }
}

/// The number of saves was agreed for a small state, and the budget holds nonetheless.
TEST(Checkpoint, AStateThatHasGrownWaitsForMoreOfTheEarlierWrites) {
  for (const bool relayed : {false, true}) {
    World world;
    HeldWrites writes(world);
    world.ranks = 2;
    world.relayed = relayed;
    world.options.staging_bytes = 4 * kPartBytes;
    run_ranks(world, [&](Rank& rank) {
      save_unwritten(rank, 2);
      std::thread releases;
      if (rank.rank() == 0) releases = std::thread([&] { writes.release_when_waiting(rank.ranks()); });
      const std::vector<std::byte> data(3 * kPartBytes, std::byte{3});
      const Layout layout = Layout::even({static_cast<std::int64_t>(data.size()) * rank.ranks()}, rank.ranks());
      const std::vector<CheckpointArray> grown{{"v", DType::uint8, layout, data}};
      EXPECT_GT(rank.save(3, grown).waited_s(), 0);
      if (releases.joinable()) releases.join();
      rank.save(4, Vector(rank, 4).arrays);
      rank.saver().finish();
      EXPECT_EQ(copy_of(rank.restore().arrays[0]), local_part(Layout::whole({1000}), 0, 4, 4));
      RestoreOptions third;
      third.step = 3;
      EXPECT_EQ(copy_of(rank.restore(third).arrays[0]), std::vector<std::byte>(data.size() * 2, std::byte{3}));
    });
  }
}

TEST(Checkpoint, AStateThatIsLargerThanTheStagingBytesIsRefusedOnAllRanks) {
  World world;
  world.ranks = 2;
  world.options.staging_bytes = kPartBytes;
  world.tiers = shared_tiers(memory());
  run_ranks(world, [&](Rank& rank) {
    rank.save(1, Vector(rank, 1).arrays).wait(Level::drained);
    // Rank 0 has one element more than fits.
    std::vector<std::byte> data(rank.rank() == 0 ? kPartBytes + 1 : 1);
    const Layout layout = Layout::grid({{0, kPartBytes + 1, kPartBytes + 2}}, {0, 1}, 2);
    const std::vector<CheckpointArray> large{{"v", DType::uint8, layout, data}};
    try {
      rank.save(2, large).wait(Level::drained);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), rank.rank() == 0 ? ErrorCode::invalid_argument : ErrorCode::peer_failed);
      EXPECT_NE(error.message().find("staging_bytes is 2000, but the arrays of this rank take 2001 bytes; give at"),
                std::string::npos)
          << error.message();
    }
    rank.save(3, Vector(rank, 3).arrays);
    rank.saver().finish();
    expect_vector(rank.restore(), 3);
  });
}

/// Holds the thread that copies in the background before its first piece.
struct HeldCopies {
  std::mutex mutex;
  std::condition_variable changed;
  bool released = false;

  explicit HeldCopies(World& world) {
    world.tuning.on_background_copy = [this] {
      std::unique_lock lock(mutex);
      if (!changed.wait_for(lock, penstock::test::kHung, [this] { return released; }))
        ADD_FAILURE() << "the copies are held for ever: somebody waits for them who should copy";
    };
  }
  void release() {
    {
      const std::lock_guard lock(mutex);
      released = true;
    }
    changed.notify_all();
  }
};

TEST(Checkpoint, WhatIsCopiedLaterIsWhatWasThereWhenSaveReturned) {
  for (const bool relayed : {false, true}) {
    World world;
    HeldCopies copies(world);
    world.ranks = 2;
    world.relayed = relayed;
    world.tiers = shared_tiers(memory(), memory());
    run_ranks(world, [&](Rank& rank) {
      // Large enough for several pieces.
      constexpr std::int64_t kElements = 4'000'000;
      Vector vector(rank, 1, kElements);
      vector.with_frozen();
      vector.arrays[0].copied_later = true;
      CheckpointHandle handle = rank.save(1, vector.arrays);
      EXPECT_EQ(handle.level(), Level::copying);
      std::fill(vector.frozen.begin(), vector.frozen.end(), std::byte{0xEE});  // copied by save()
      handle.wait(Level::staged);  // copies all by itself, since the background is held
      EXPECT_EQ(handle.level(), Level::staged);
      std::fill(vector.data.begin(), vector.data.end(), std::byte{0xEE});
      agree(rank.peers(), "all is changed", [] { return Done{}; });
      if (rank.rank() == 0) copies.release();
      handle.wait(Level::drained);
      const Restored restored = rank.restore();
      EXPECT_EQ(copy_of(restored.arrays.at(0)), local_part(Layout::whole({kElements}), 0, 4, 1));
      EXPECT_EQ(copy_of(restored.arrays.at(1)), local_part(Layout::whole({kElements}), 0, 4, kFrozenSeed));
    });
  }
}

TEST(Checkpoint, TheBackgroundCopiesWithoutAnybodyWhoWaits) {
  World world;
  world.ranks = 2;
  world.tiers = shared_tiers(memory());
  run_ranks(world, [&](Rank& rank) {
    std::vector<std::unique_ptr<Vector>> vectors;
    for (std::uint64_t step = 1; step <= 5; ++step) {
      vectors.push_back(std::make_unique<Vector>(rank, step));
      vectors.back()->arrays[0].copied_later = true;
      rank.save(step, vectors.back()->arrays);
    }
    expect_steps(rank, 5);
  });
}

/// The memory of a save that fails is used again only when nobody copies into it.
TEST(Checkpoint, ASaveThatFailsWhileItIsCopiedLeavesTheNextOneWhole) {
  World world;
  HeldCopies copies(world);
  world.ranks = 2;
  world.options.staging_buffers = 1;
  world.tiers = shared_tiers(memory());
  run_ranks(world, [&](Rank& rank) {
    Vector one(rank, 1);
    one.arrays[0].copied_later = true;
    if (rank.rank() == 1) one.arrays[0].name = "w";
    CheckpointHandle handle = rank.save(1, one.arrays);
    agree(rank.peers(), "both have saved", [] { return Done{}; });
    EXPECT_EQ(handle.level(), Level::copying);
    EXPECT_FALSE(handle.failed());
    agree(rank.peers(), "both have looked", [] { return Done{}; });
    if (rank.rank() == 0) copies.release();
    EXPECT_THROW(handle.wait(Level::fast), Error);
    rank.save(2, Vector(rank, 2).arrays);
    rank.saver().finish();
    expect_vector(rank.restore(), 2);
  });
}

/// If the last sync of a manifest fails, the manifest may or may not exist.
TEST(Checkpoint, ManifestOfUncertainFateKeepsItsData) {
  const auto slow = memory();
  const auto faults = std::make_shared<Faults>();
  faults->on_change = [&](const std::string& operation, const store::Backend&, const std::string& key,
                          Faults::When when) {
    if (key != manifest_key({1, 1, 0})) return;
    const bool after_put = operation == "put" && when == Faults::When::after;
    if (after_put || operation == "remove") throw Error(ErrorCode::io, "directory cannot be synced");
  };
  World world;
  world.ranks = 2;
  world.tiers = [&](int) { return folders(std::make_shared<FaultyBackend>(slow, faults), nullptr); };
  run_ranks(world, [&](Rank& rank) {
    CheckpointHandle handle = rank.save(1, Vector(rank, 1).arrays);
    EXPECT_THROW(handle.wait(Level::drained), Error);
    expect_vector(rank.restore(), 1);
  });
}

TEST(Checkpoint, OldOneThatCannotBeRemovedIsAWarning) {
  const auto slow = memory();
  const auto faults = std::make_shared<Faults>();
  faults->on_change = [](const std::string& operation, const store::Backend&, const std::string& key, Faults::When) {
    if (operation == "remove" && key == manifest_key({1, 1, 0})) throw Error(ErrorCode::io, "read-only");
  };
  World world;
  world.ranks = 2;
  world.options.keep = 1;
  world.tiers = [&](int) { return folders(std::make_shared<FaultyBackend>(slow, faults), nullptr); };
  run_ranks(world, [&](Rank& rank) {
    for (std::uint64_t step = 1; step <= 3; ++step) rank.save(step, Vector(rank, step).arrays).wait(Level::drained);
    rank.saver().finish();
    if (rank.rank() == 0) {
      const std::vector<std::string> warnings = rank.saver().warnings();
      ASSERT_EQ(warnings.size(), 2u);
      EXPECT_NE(warnings[0].find("removing the checkpoint of step 1: read-only"), std::string::npos) << warnings[0];
    }
    RestoreOptions options;
    options.step = 1;
    expect_vector(rank.restore(options), 1);
  });
  EXPECT_EQ(complete_steps(slow), (std::vector<std::uint64_t>{1, 3}));
}

TEST(Checkpoint, RanksThatSaveDifferentThingsAreToldBeforeAnythingIsWritten) {
  const auto slow = memory();
  World world;
  world.ranks = 2;
  world.tiers = shared_tiers(slow);
  run_ranks(world, [&](Rank& rank) {
    const auto expect_mismatch = [&](CheckpointHandle handle, const char* text) {
      try {
        handle.wait(Level::fast);
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::mismatch);
        EXPECT_NE(error.message().find(text), std::string::npos) << error.message();
      }
    };
    Vector vector(rank, 1);
    expect_mismatch(rank.save(rank.rank() == 0 ? 1 : 2, vector.arrays), "rank 1 saves step 2, rank 0 step 1");
    if (rank.rank() == 1) vector.arrays[0].name = "w";
    expect_mismatch(rank.save(1, vector.arrays), "other names");
    RestoreOptions options;
    options.step = 5 + static_cast<std::uint64_t>(rank.rank());
    EXPECT_THROW(rank.restore(options), Error);
  });
  EXPECT_TRUE(list_versions(*slow).empty());
}

/// Storage that hangs until it is told to go on.
TEST(Hangs, AWaitWithALimitEndsAndTheCheckpointGoesOn) {
  using namespace std::chrono_literals;
  for (const bool relayed : {false, true}) {
    for (const int ranks : {1, 3}) {
      SCOPED_TRACE(std::to_string(ranks) + (relayed ? " relayed" : ""));
      const auto slow = memory();
      const auto fast = memory();
      const auto faults = std::make_shared<Faults>();
      std::promise<void> released;
      faults->on_change = [&, gate = released.get_future().share()](const std::string& operation,
                                                                    const store::Backend& backend,
                                                                    const std::string& key, Faults::When when) {
        const bool is_data = operation == "put" && key.ends_with(".data");
        if (is_data && when == Faults::When::before && &backend == slow.get()) gate.wait();
      };
      World world;
      world.ranks = ranks;
      world.relayed = relayed;
      world.tiers = [&](int) { return folders(std::make_shared<FaultyBackend>(slow, faults), fast); };
      std::barrier all_timed_out(ranks, [&]() noexcept { released.set_value(); });
      run_ranks(world, [&](Rank& rank) {
        CheckpointHandle handle = rank.save(7, Vector(rank, 1).arrays);
        handle.wait(Level::fast, 1h);
        const auto expect_timed_out = [](const std::function<void()>& wait) {
          try {
            wait();
            ADD_FAILURE() << "no error";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::timed_out);
            EXPECT_NE(error.message().find("step 7 is not drained"), std::string::npos) << error.message();
          }
        };
        expect_timed_out([&] { handle.wait(Level::drained, 1ms); });
        expect_timed_out([&] { rank.saver().finish(deadline_in(0ms)); });
        EXPECT_FALSE(handle.failed());
        EXPECT_EQ(handle.level(), Level::fast);
        all_timed_out.arrive_and_wait();
        handle.wait(Level::drained);
        rank.saver().finish();
        EXPECT_EQ(rank.restore().step, 7u);
      });
    }
  }
}

TEST(Hangs, ASaveThatWouldWaitForLongerIsSavedByNoRank) {
  using namespace std::chrono_literals;
  for (const bool relayed : {false, true}) {
    for (const int ranks : {1, 3}) {
      SCOPED_TRACE(std::to_string(ranks) + (relayed ? " relayed" : ""));
      const auto slow = memory();
      const auto faults = std::make_shared<Faults>();
      std::promise<void> released;
      faults->on_change = [&, gate = released.get_future().share()](const std::string& operation, const store::Backend&,
                                                                    const std::string& key, Faults::When when) {
        if (operation == "put" && key.ends_with(".data") && when == Faults::When::before) gate.wait();
      };
      World world;
      world.ranks = ranks;
      world.relayed = relayed;
      world.options.staging_buffers = 1;
      world.options.timeout = 1ms;
      world.tiers = shared_tiers(std::make_shared<FaultyBackend>(slow, faults));
      std::barrier all_timed_out(ranks, [&]() noexcept { released.set_value(); });
      run_ranks(world, [&](Rank& rank) {
        const auto expect_timed_out = [](const std::function<void()>& call, const char* text) {
          try {
            call();
            ADD_FAILURE() << "no error";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::timed_out);
            EXPECT_NE(error.message().find(text), std::string::npos) << error.message();
          }
        };
        CheckpointHandle handle = rank.save(7, Vector(rank, 1).arrays);
        expect_timed_out([&] { rank.save(8, Vector(rank, 1).arrays); }, "step 8 is not saved: the one of step 7");
        expect_timed_out([&] { handle.wait(Level::drained); }, "step 7 is not drained");
        expect_timed_out([&] { rank.saver().settle(7, deadline_in(1ms)); }, "step 7 is not drained");
        rank.saver().settle(6, deadline_in(1ms));
        all_timed_out.arrive_and_wait();
        rank.saver().settle(8, deadline_in(1h));  // it has failed
        rank.saver().settle(7, deadline_in(1h));
        EXPECT_EQ(handle.level(), Level::drained);
        rank.saver().finish();  // the error of step 8 has been thrown
        rank.save(9, Vector(rank, 1).arrays).wait(Level::drained, 1h);
        EXPECT_EQ(rank.restore().step, 9u);
      });
      EXPECT_EQ(complete_steps(slow), (std::vector<std::uint64_t>{7, 9}));
    }
  }
}

}  // namespace
}  // namespace penstock::checkpoint::test
