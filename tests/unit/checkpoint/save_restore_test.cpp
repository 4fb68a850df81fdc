#include <gtest/gtest.h>

#include <atomic>

#include "checkpoint/keys.hpp"
#include "unit/checkpoint/faulty_backend.hpp"
#include "unit/checkpoint/vector.hpp"

namespace penstock::checkpoint::test {
namespace {

using Level = CheckpointLevel;

TEST(SaveRestore, AnyLayoutOnAnyNumberOfRanks) {
  Random random(2);
  for (int trial = 0; trial < 40; ++trial) {
    const int save_ranks = static_cast<int>(between(random, 1, 5));
    const int restore_ranks = static_cast<int>(between(random, 1, 5));
    struct Array {
      std::string name;
      DType dtype;
      Layout from, to;
      bool whole;
    };
    std::vector<Array> arrays;
    const std::int64_t count = between(random, 0, 5);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::vector<std::int64_t> shape = random_shape(random);
      arrays.push_back({"array " + std::to_string(i), random_dtype(random), random_layout(random, shape, save_ranks),
                        random_layout(random, shape, restore_ranks), between(random, 0, 3) == 0});
    }
    World world;
    const bool in_blob = between(random, 0, 1) == 0;
    const auto slow = memory();
    const auto fast = between(random, 0, 1) == 0 ? memory() : nullptr;
    world.tiers = [=](int) { return in_blob ? blob_and_folder(slow, fast) : folders(slow, fast); };
    world.options.chunk_bytes = 64 * static_cast<std::uint64_t>(between(random, 1, 20));
    world.relayed = between(random, 0, 2) == 0;
    world.ranks = save_ranks;
    run_ranks(world, [&](Rank& rank) {
      std::vector<std::vector<std::byte>> parts;
      std::vector<CheckpointArray> given;
      for (const Array& array : arrays)
        parts.push_back(local_part(array.from, rank.rank(), size_bytes(array.dtype), 5));
      for (std::size_t i = 0; i < arrays.size(); ++i) {
        given.push_back({arrays[i].name, arrays[i].dtype, arrays[i].from, parts[i]});
      }
      CheckpointHandle handle = rank.save(42, given, "{\"rank\": " + std::to_string(rank.rank()) + "}");
      for (std::vector<std::byte>& part : parts) std::fill(part.begin(), part.end(), std::byte{0xEE});
      handle.wait(Level::drained);
      EXPECT_EQ(handle.level(), Level::drained);
      EXPECT_FALSE(handle.failed());
    });
    world.ranks = restore_ranks;
    run_ranks(world, [&](Rank& rank) {
      RestoreOptions options;
      for (const Array& array : arrays) {
        if (!array.whole) options.layouts.emplace(array.name, array.to);
      }
      const Restored restored = rank.restore(options);
      EXPECT_EQ(restored.step, 42u);
      EXPECT_EQ(restored.metadata, "{\"rank\": 0}");
      EXPECT_TRUE(restored.warnings.empty());
      ASSERT_EQ(restored.arrays.size(), arrays.size());
      for (std::size_t i = 0; i < arrays.size(); ++i) {
        const Array& array = arrays[i];
        EXPECT_EQ(restored.arrays[i].name, array.name);
        EXPECT_EQ(restored.arrays[i].dtype, array.dtype);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(restored.arrays[i].local.data()) % 64, 0u);
        const Layout whole = Layout::whole(array.from.shape(), rank.rank(), rank.ranks());
        EXPECT_EQ(copy_of(restored.arrays[i]),
                  local_part(array.whole ? whole : array.to, rank.rank(), size_bytes(array.dtype), 5))
            << array.from.serialize() << " -> " << array.to.serialize();
      }
    });
  }
}

TEST(SaveRestore, ReplicatedArrayIsSavedOnceAndComesWholeToAll) {
  const auto slow = memory();
  World world;
  world.ranks = 3;
  world.tiers = shared_tiers(slow);
  run_ranks(world, [](Rank& rank) {
    const Layout layout = Layout::whole({50});
    const std::vector<std::byte> data = local_part(layout, 0, 8, 9);
    rank.save(1, {{"w", DType::float64, layout, rank.rank() == 0 ? ConstBytes(data) : ConstBytes()}}).wait(Level::fast);
    EXPECT_EQ(copy_of(rank.restore().arrays.at(0)), data);
  });
  EXPECT_EQ(list_versions(*slow).at({1, 1, 0}).ranks, std::vector<int>{0});
}

TEST(SaveRestore, IntoTheCallersMemory) {
  World world;
  world.tiers = shared_tiers(memory());
  run_ranks(world, [](Rank& rank) {
    const Vector vector(rank, 3);
    rank.save(3, vector.arrays).wait(Level::drained);
    std::vector<std::byte> memory(4000);
    RestoreOptions options;
    options.into["v"] = memory;
    const Restored restored = rank.restore(options);
    EXPECT_EQ(restored.arrays[0].memory, nullptr);
    EXPECT_EQ(memory, vector.data);
  });
}

TEST(SaveRestore, KeepsTheNewestInTheSlowTierAndOnlyWhatItNeedsInTheBurstBuffer) {
  for (const bool relayed : {false, true}) {
    const auto slow = memory();
    const auto fast = memory();
    World world;
    world.ranks = 3;
    world.relayed = relayed;
    world.options.keep = 2;
    world.tiers = shared_tiers(slow, fast);
    run_ranks(world, [&](Rank& rank) {
      for (std::uint64_t step = 1; step <= 6; ++step) rank.save(step, Vector(rank, step).arrays);
      rank.saver().finish();
      EXPECT_TRUE(rank.saver().warnings().empty());
      expect_vector(rank.restore(), 6);
      RestoreOptions options;
      options.step = 5;
      expect_vector(rank.restore(options), 5);
      options.step = 4;
      EXPECT_THROW(rank.restore(options), Error);
    });
    EXPECT_EQ(complete_steps(slow), (std::vector<std::uint64_t>{5, 6}));
    EXPECT_EQ(complete_steps(fast), (std::vector<std::uint64_t>{6}));
    // Data is removed with its manifest.
    EXPECT_EQ(list_versions(*slow).size(), 2u);
    EXPECT_EQ(list_versions(*fast).size(), 1u);
  }
}

/// Both threads remove what is not kept. That of the burst buffer may be the slower one, and it calls collectives.
TEST(SaveRestore, FinishWaitsUntilNothingIsLeftToRemove) {
  for (const bool relayed : {false, true}) {
    const auto slow = memory();
    const auto fast = memory();
    World world;
    world.ranks = 2;
    world.relayed = relayed;
    world.tiers = shared_tiers(slow, fast);
    run_ranks(world, [&](Rank& rank) { rank.save(1, Vector(rank, 1).arrays).wait(Level::drained); });
    folder_tier(slow)->mark_removed({1, 1, 0});

    std::atomic<bool> removing = false;
    std::atomic<bool> finished = false;
    const auto of_fast = std::make_shared<Faults>();
    of_fast->on_change = [&](const std::string& operation, const store::Backend&, const std::string&,
                             Faults::When when) {
      if (operation != "remove" || when != Faults::When::before || removing.exchange(true)) return;
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
      while (!finished && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_FALSE(finished) << "finish() returned while a checkpoint was being removed";
    };
    const auto of_slow = std::make_shared<Faults>();
    of_slow->on_change = [&](const std::string& operation, const store::Backend&, const std::string& key,
                             Faults::When when) {
      if (operation != "put" || when != Faults::When::before || key.find(".data") == key.npos) return;
      EXPECT_TRUE(penstock::test::eventually([&] { return removing.load(); }));
    };
    world.tiers =
        shared_tiers(std::make_shared<FaultyBackend>(slow, of_slow), std::make_shared<FaultyBackend>(fast, of_fast));
    run_ranks(world, [&](Rank& rank) {
      rank.save(2, Vector(rank, 2).arrays);
      rank.saver().finish();
      finished = true;
    });
    EXPECT_TRUE(removing);
    EXPECT_EQ(list_versions(*fast).size(), 1u);
  }
}

TEST(SaveRestore, NodeLocalBurstBuffers) {
  const auto slow = memory();
  const std::vector<std::shared_ptr<store::Backend>> nodes = {memory(), memory()};
  World world;
  world.ranks = 4;
  world.tiers = [&](int rank) { return folders(slow, nodes[static_cast<std::size_t>(rank / 2)]); };
  run_ranks(world, [](Rank& rank) {
    for (std::uint64_t step = 1; step <= 3; ++step) rank.save(step, Vector(rank, step).arrays);
    rank.saver().finish();
    expect_vector(rank.restore(), 3);
  });
  EXPECT_EQ(list_versions(*nodes[0]).size(), 1u);
  EXPECT_EQ(list_versions(*nodes[1]).size(), 1u);
  EXPECT_EQ(list_versions(*nodes[1]).at({3, 1, 2}).ranks, (std::vector<int>{2, 3}));
  // The ranks return on other nodes. What they do not see in the burst buffer they read from the slow tier.
  world.ranks = 3;
  world.tiers = [&](int rank) { return folders(slow, nodes[static_cast<std::size_t>(1 - rank / 2)]); };
  run_ranks(world, [](Rank& rank) {
    expect_vector(rank.restore(), 3);
    rank.save(4, Vector(rank, 4).arrays).wait(Level::drained);
    rank.saver().finish();
    expect_vector(rank.restore(), 4);
  });
}

TEST(SaveRestore, SavingAStepAgainReplacesIt) {
  const auto slow = memory();
  World world;
  world.ranks = 2;
  world.tiers = shared_tiers(slow, memory());
  run_ranks(world, [](Rank& rank) {
    rank.save(7, Vector(rank, 1).arrays).wait(Level::drained);
    rank.save(7, Vector(rank, 2).arrays).wait(Level::drained);
    rank.saver().finish();
    const Restored restored = rank.restore();
    EXPECT_EQ(restored.step, 7u);
    EXPECT_EQ(copy_of(restored.arrays[0]), local_part(Layout::whole({1000}), 0, 4, 2));
  });
  EXPECT_EQ(list_versions(*slow).size(), 1u);
  EXPECT_TRUE(list_versions(*slow).contains({7, 1, 1}));
}

TEST(SaveRestore, LaterStepsOfAnAbandonedTimeLineStay) {
  const auto slow = memory();
  World world;
  world.options.keep = 1;
  world.tiers = shared_tiers(slow);
  run_ranks(world, [](Rank& rank) {
    rank.save(10, Vector(rank, 10).arrays);
    rank.save(5, Vector(rank, 5).arrays);
    rank.saver().finish();
  });
  EXPECT_EQ(complete_steps(slow), (std::vector<std::uint64_t>{5, 10}));
}

/// What a place should hold after saves in this order, told naively.
struct Model {
  struct Saved {
    std::uint64_t step;
    std::uint64_t seed;
  };
  std::vector<Saved> held;  // in the order of the saves
  int keep = 0;
  std::uint64_t keep_every = 0;

  void save(std::uint64_t step, std::uint64_t seed) {
    std::erase_if(held, [&](const Saved& old) { return old.step == step; });
    held.push_back({step, seed});
    if (keep == 0) return;
    int of_line = 0;
    std::vector<Saved> kept;
    for (std::size_t i = held.size(); i-- > 0;) {
      const bool superseded = std::any_of(held.begin() + static_cast<std::ptrdiff_t>(i) + 1, held.end(),
                                          [&](const Saved& newer) { return newer.step <= held[i].step; });
      const bool periodic = keep_every > 0 && held[i].step % keep_every == 0;
      if (superseded ? held[i].step > step : of_line++ < keep || periodic) kept.insert(kept.begin(), held[i]);
    }
    held = kept;
  }
};

TEST(SaveRestore, TheNewestIsTheOneSavedLastHoweverOftenTheRunGoesBack) {
  Random random(11);
  for (int trial = 0; trial < 32; ++trial) {
    const auto tiers = between(random, 0, 1) == 0 ? blob_and_folder : folders;
    const auto slow = memory();
    const auto fast = between(random, 0, 1) == 0 ? memory() : nullptr;
    Model model;
    model.keep = static_cast<int>(between(random, 0, 3));
    World world;
    if (model.keep > 0) model.keep_every = static_cast<std::uint64_t>(between(random, 0, 4));
    world.options.staging_buffers = static_cast<int>(between(random, 1, 3));
    world.relayed = between(random, 0, 3) == 0;
    world.options.keep = model.keep;
    world.options.keep_every = model.keep_every;
    world.tiers = [=](int) { return tiers(slow, fast); };
    std::uint64_t seed = 0;
    for (int job = 0; job < 4; ++job) {
      world.ranks = static_cast<int>(between(random, 1, 3));
      std::vector<std::uint64_t> steps;
      for (std::int64_t left = between(random, 0, 5); left > 0; --left)
        steps.push_back(static_cast<std::uint64_t>(between(random, 1, 9)));
      run_ranks(world, [&](Rank& rank) {
        for (std::size_t i = 0; i < steps.size(); ++i) {
          const Layout layout = Layout::even({1000}, rank.ranks());
          const std::vector<std::byte> data = local_part(layout, rank.rank(), 4, seed + i);
          rank.save(steps[i], {{"v", DType::float32, layout, data}});
        }
        rank.saver().finish();
        EXPECT_TRUE(rank.saver().warnings().empty());
      });
      for (const std::uint64_t step : steps) model.save(step, seed++);
      if (model.held.empty()) continue;
      world.ranks = static_cast<int>(between(random, 1, 3));
      run_ranks(world, [&](Rank& rank) {
        const auto expect = [&](const Restored& restored, const Model::Saved& saved) {
          EXPECT_EQ(restored.step, saved.step);
          EXPECT_EQ(copy_of(restored.arrays.at(0)), local_part(Layout::whole({1000}), 0, 4, saved.seed));
          EXPECT_TRUE(restored.warnings.empty());
        };
        expect(rank.restore(), model.held.back());
        for (const Model::Saved& saved : model.held) {
          RestoreOptions options;
          options.step = saved.step;
          expect(rank.restore(options), saved);
        }
      });
      std::vector<std::uint64_t> held;
      for (const Model::Saved& saved : model.held) held.push_back(saved.step);
      std::sort(held.begin(), held.end());
      EXPECT_EQ(complete_steps(*tiers(slow, fast).slow), held);
    }
  }
}

TEST(SaveRestore, AfterDamageTheLineComesBeforeWhatItSuperseded) {
  const auto slow = memory();
  World world;
  world.ranks = 2;
  world.tiers = shared_tiers(slow);
  run_ranks(world, [&](Rank& rank) {
    for (const std::uint64_t step : {10, 20, 15}) rank.save(step, Vector(rank, step).arrays).wait(Level::drained);
    const auto damage = [&](const Version& version) {
      agree(rank.peers(), "damaging", [&] {
        if (rank.rank() == 0) slow->remove(data_key(version, 1));
        return Done{};
      });
    };
    expect_vector(rank.restore(), 15);
    damage({15, 1, 2});
    expect_vector(rank.restore(), 10);
    damage({10, 1, 0});
    const Restored superseded = rank.restore();
    expect_vector(superseded, 20);
    ASSERT_EQ(superseded.warnings.size(), 3u);
    EXPECT_EQ(superseded.warnings[2],
              "checkpoint of step 20 was restored, which a save of an earlier step had superseded");
  });
}

TEST(SaveRestore, AnEmptiedSlowTierDoesNotMakeTheBurstBufferNewer) {
  const auto fast = memory();
  World world;
  world.ranks = 2;
  world.tiers = shared_tiers(memory(), fast);
  for (int job = 0; job < 3; ++job)
    run_ranks(world, [](Rank& rank) { rank.save(7, Vector(rank, 7).arrays).wait(Level::drained); });
  world.tiers = shared_tiers(memory(), fast);
  run_ranks(world, [](Rank& rank) {
    rank.save(1, Vector(rank, 1).arrays).wait(Level::drained);
    expect_vector(rank.restore(), 1);
  });
}

TEST(SaveRestore, WrongArgumentsOnOneRankFailThatStepOnAll) {
  for (const bool relayed : {false, true}) {
    const auto slow = memory();
    World world;
    world.ranks = 3;
    world.relayed = relayed;
    world.tiers = shared_tiers(slow, memory());
    run_ranks(world, [](Rank& rank) {
      rank.save(1, Vector(rank, 1).arrays);
      Vector vector(rank, 2);
      if (rank.rank() == 1) {
        vector.arrays[0].local = ConstBytes(vector.data).first(100);
        try {
          rank.save(2, vector.arrays);
          ADD_FAILURE() << "accepted";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
          EXPECT_NE(error.message().find("'v' has 100 bytes on rank 1, its layout says 1332"), std::string::npos)
              << error.message();
        }
      } else {
        CheckpointHandle handle = rank.save(2, vector.arrays);
        try {
          handle.wait(Level::fast);
          ADD_FAILURE() << "no error";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::peer_failed);
          EXPECT_EQ(error.rank(), 1);
        }
        EXPECT_TRUE(handle.failed());
      }
      rank.save(3, Vector(rank, 3).arrays).wait(Level::drained);
      expect_vector(rank.restore(), 3);
    });
    EXPECT_EQ(complete_steps(slow), (std::vector<std::uint64_t>{1, 3}));
  }
}

TEST(SaveRestore, MetadataThatAManifestCannotHoldFailsThatStepOnAll) {
  World world;
  world.ranks = 2;
  world.tiers = shared_tiers(memory(), memory());
  run_ranks(world, [](Rank& rank) {
    rank.save(1, Vector(rank, 1).arrays).wait(Level::drained);
    const Vector vector(rank, 2);
    CheckpointHandle handle = rank.save(2, vector.arrays, "\xff");
    try {
      handle.wait(Level::drained);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), rank.rank() == 0 ? ErrorCode::invalid_argument : ErrorCode::peer_failed);
      EXPECT_NE(error.message().find("expected UTF-8"), std::string::npos) << error.message();
    }
    rank.save(3, Vector(rank, 3).arrays).wait(Level::drained);
    expect_vector(rank.restore(), 3);
  });
}

/// A read waits until another one is in flight, too.
class PairedReads final : public store::Backend {
 public:
  explicit PairedReads(std::shared_ptr<store::Backend> inner) : inner_(std::move(inner)) {}

  bool put_if_absent(std::string_view key, std::span<const ConstBytes> pieces) override {
    return inner_->put_if_absent(key, pieces);
  }
  bool remove(std::string_view key) override { return inner_->remove(key); }
  void read(std::string_view key, std::uint64_t offset_bytes, Bytes to) const override {
    if (to.size() >= kLargeBytes) {
      std::unique_lock lock(mutex_);
      if (++in_flight_ > 1) paired_ = true;
      changed_.notify_all();
      EXPECT_TRUE(changed_.wait_for(lock, penstock::test::kHung, [&] { return paired_; }));
    }
    inner_->read(key, offset_bytes, to);
  }
  std::uint64_t size_bytes(std::string_view key) const override { return inner_->size_bytes(key); }
  bool exists(std::string_view key) const override { return inner_->exists(key); }
  std::vector<std::string> list(std::string_view prefix) const override { return inner_->list(prefix); }
  const std::string& url() const override { return inner_->url(); }

  static constexpr std::size_t kLargeBytes = 1 << 20;

 private:
  const std::shared_ptr<store::Backend> inner_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int in_flight_ = 0;
  mutable bool paired_ = false;
};

TEST(SaveRestore, SeveralRequestsAreInFlight) {
  constexpr std::int64_t kElements = 5 << 20;  // 20 MiB
  const auto slow = memory();
  World world;
  world.tiers = shared_tiers(slow);
  run_ranks(world, [&](Rank& rank) {
    rank.save(1, Vector(rank, 1, kElements).arrays).wait(CheckpointLevel::drained);
    rank.saver().finish();
  });
  world.tiers = shared_tiers(std::make_shared<PairedReads>(slow));
  run_ranks(world, [&](Rank& rank) { expect_vector(rank.restore(), 1, kElements); });
}

}  // namespace
}  // namespace penstock::checkpoint::test
