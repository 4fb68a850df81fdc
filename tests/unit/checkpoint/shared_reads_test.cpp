#include "checkpoint/shared_reads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>
#include <utility>

#include "unit/checkpoint/faulty_backend.hpp"
#include "unit/checkpoint/vector.hpp"

namespace penstock::checkpoint::test {
namespace {

using Chunk = std::pair<std::uint64_t, std::uint64_t>;  // object, number

std::vector<ObjectChunks> ranges_of(const std::set<Chunk>& chunks) {
  std::vector<ObjectChunks> ranges;
  for (const auto& [object, chunk] : chunks) {
    const bool follows = !ranges.empty() && ranges.back().object == object &&
                         ranges.back().range.first + ranges.back().range.count == chunk;
    if (!follows) ranges.push_back({object, {chunk, 0}});
    ++ranges.back().range.count;
  }
  return ranges;
}

TEST(SharedReads, AreWhatHalfOfTheRanksOnSeveralNodesNeedEachOnce) {
  Random random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const std::int64_t ranks = between(random, 1, 6);
    const std::int64_t objects = between(random, 1, 3);
    const auto most = static_cast<std::uint64_t>(between(random, 1, 4));
    const bool holding = between(random, 0, 1) == 0;
    std::vector<int> nodes;
    const bool has_nodes = between(random, 0, 1) == 0;
    for (std::int64_t rank = 0; has_nodes && rank < ranks; ++rank) {
      nodes.push_back(static_cast<int>(between(random, 0, 2)));
    }
    std::vector<std::set<Chunk>> needed(static_cast<std::size_t>(ranks));
    std::vector<std::vector<ObjectChunks>> needs;
    std::vector<std::vector<std::uint8_t>> at_hand;
    for (std::set<Chunk>& own : needed) {
      const std::int64_t density = between(random, 0, 10);
      for (std::int64_t object = 0; object < objects; ++object) {
        for (std::int64_t chunk = 0; chunk < 12; ++chunk) {
          if (between(random, 1, 10) <= density) own.insert({object, chunk});
        }
      }
      needs.push_back(ranges_of(own));
      if (!holding) continue;
      at_hand.emplace_back();
      for (std::int64_t object = 0; object < objects; ++object) {
        at_hand.back().push_back(static_cast<std::uint8_t>(between(random, 0, 1)));
      }
    }
    std::map<Chunk, int> reader_of;
    for (const std::vector<SharedRead>& round : plan_shared_reads(needs, at_hand, nodes, most)) {
      std::set<int> readers;
      for (const auto& [chunks, reader] : round) {
        EXPECT_TRUE(readers.insert(reader).second) << "rank " << reader << " reads twice in a round";
        EXPECT_GE(chunks.range.count, 1u);
        EXPECT_LE(chunks.range.count, most);
        for (std::uint64_t i = 0; i < chunks.range.count; ++i) {
          const Chunk chunk{chunks.object, chunks.range.first + i};
          EXPECT_TRUE(reader_of.emplace(chunk, reader).second) << "chunk " << chunk.second << " is read twice";
          EXPECT_TRUE(needed[static_cast<std::size_t>(reader)].contains(chunk));
        }
      }
    }
    for (std::int64_t object = 0; object < objects; ++object) {
      for (std::int64_t number = 0; number < 12; ++number) {
        const Chunk chunk{object, number};
        std::size_t needers = 0;
        std::set<int> on_nodes;
        bool held = false;
        for (std::size_t rank = 0; rank < needed.size(); ++rank) {
          if (!needed[rank].contains(chunk)) continue;
          ++needers;
          on_nodes.insert(nodes.empty() ? static_cast<int>(rank) : nodes[rank]);
          held = held || (holding && at_hand[rank][chunk.first] != 0);
        }
        const auto found = reader_of.find(chunk);
        ASSERT_EQ(found != reader_of.end(), on_nodes.size() > 1 && 2 * needers >= needed.size())
            << needers << " need it";
        if (held && found != reader_of.end()) {
          EXPECT_NE(at_hand[static_cast<std::size_t>(found->second)][chunk.first], 0);
        }
      }
    }
  }
}

TEST(SharedReads, AreDividedOverTheRanks) {
  const std::vector<std::vector<ObjectChunks>> needs(4, {{0, {0, 100}}});
  std::map<int, std::uint64_t> chunks;
  for (const std::vector<SharedRead>& round : plan_shared_reads(needs, {}, {}, 5)) {
    for (const SharedRead& read : round) chunks[read.reader] += read.chunks.range.count;
  }
  EXPECT_EQ(chunks, (std::map<int, std::uint64_t>{{0, 25}, {1, 25}, {2, 25}, {3, 25}}));
}

/// Counts what is read of data objects; reads of some fail.
class CountedReads final : public store::Backend {
 public:
  explicit CountedReads(std::shared_ptr<store::Backend> inner) : inner_(std::move(inner)) {}

  std::atomic<std::uint64_t> read_bytes{0};
  std::function<void(std::string_view key, std::uint64_t offset_bytes)> on_read = [](std::string_view, std::uint64_t) {
  };

  bool put_if_absent(std::string_view key, std::span<const ConstBytes> pieces) override {
    return inner_->put_if_absent(key, pieces);
  }
  bool remove(std::string_view key) override { return inner_->remove(key); }
  void read(std::string_view key, std::uint64_t offset_bytes, Bytes to) const override {
    if (key.ends_with(".data")) {
      on_read(key, offset_bytes);
      const_cast<std::atomic<std::uint64_t>&>(read_bytes) += to.size();
    }
    inner_->read(key, offset_bytes, to);
  }
  std::uint64_t size_bytes(std::string_view key) const override { return inner_->size_bytes(key); }
  bool exists(std::string_view key) const override { return inner_->exists(key); }
  std::vector<std::string> list(std::string_view prefix) const override { return inner_->list(prefix); }
  const std::string& url() const override { return inner_->url(); }

 private:
  const std::shared_ptr<store::Backend> inner_;
};

constexpr std::int64_t kElements = 3 << 20;  // 12 MiB
constexpr std::uint64_t kDataBytes = 4 * kElements;

/// A vector saved by so many ranks.
std::shared_ptr<store::Backend> saved_by(int ranks) {
  const auto slow = memory();
  World world;
  world.ranks = ranks;
  world.options.chunk_bytes = std::uint64_t{64} << 10;
  world.tiers = shared_tiers(slow);
  run_ranks(world, [&](Rank& rank) { rank.save(1, Vector(rank, 1, kElements).arrays).wait(CheckpointLevel::drained); });
  return slow;
}

/// The digests of chunks, which each rank reads.
constexpr std::uint64_t digests_bytes(int ranks) {
  return static_cast<std::uint64_t>(ranks) * 16 * (kDataBytes / (std::uint64_t{64} << 10) + 8);
}

TEST(SharedReads, WhatAllRanksRestoreIsReadOnce) {
  for (const int saving : {1, 3}) {
    const auto slow = std::make_shared<CountedReads>(saved_by(saving));
    World world;
    world.ranks = 5;
    world.tiers = shared_tiers(slow);
    run_ranks(world, [&](Rank& rank) { expect_vector(rank.restore(), 1, kElements); });
    EXPECT_GE(slow->read_bytes, kDataBytes);
    EXPECT_LE(slow->read_bytes, kDataBytes + digests_bytes(5)) << "saved by " << saving;
  }
}

TEST(SharedReads, DividedOverMoreRanksOnlyBordersAreReadTwice) {
  const auto slow = std::make_shared<CountedReads>(saved_by(2));
  World world;
  world.ranks = 7;
  world.tiers = shared_tiers(slow);
  run_ranks(world, [&](Rank& rank) {
    RestoreOptions options;
    options.layouts.emplace("v", Layout::even({kElements}, rank.ranks()));
    const Restored restored = rank.restore(options);
    EXPECT_EQ(copy_of(restored.arrays[0]), local_part(options.layouts.at("v"), rank.rank(), 4, 1));
  });
  EXPECT_LE(slow->read_bytes, kDataBytes + digests_bytes(7) + 6 * (std::uint64_t{64} << 10));
}

TEST(SharedReads, ARankThatCannotReadLeavesItToTheOthers) {
  const auto saved = saved_by(2);
  World world;
  world.ranks = 3;
  world.tiers = [&](int rank) {
    // The burst buffer of rank 1 is damaged from its second MiB on; the slow tier is whole.
    auto fast = std::make_shared<CountedReads>(saved);
    if (rank == 1) {
      fast->on_read = [](std::string_view key, std::uint64_t offset_bytes) {
        if (offset_bytes > (std::uint64_t{1} << 20)) throw Error(ErrorCode::io, std::string(key) + " cannot be read");
      };
    }
    return folders(saved, fast);
  };
  run_ranks(world, [&](Rank& rank) { expect_vector(rank.restore(), 1, kElements); });
}

TEST(SharedReads, DamageThatAllMeetLeadsToTheStepBefore) {
  const auto slow = memory();
  World world;
  world.ranks = 3;
  world.tiers = shared_tiers(slow);
  run_ranks(world, [&](Rank& rank) {
    for (const std::uint64_t step : {1, 2}) {
      rank.save(step, Vector(rank, step).arrays).wait(CheckpointLevel::drained);
    }
  });
  const auto damaged = std::make_shared<CountedReads>(slow);
  damaged->on_read = [](std::string_view key, std::uint64_t) {
    if (key.find("step-00000000000000000002") != std::string_view::npos && key.ends_with("rank-2.data"))
      throw Error(ErrorCode::io, "cannot be read");
  };
  world.tiers = shared_tiers(damaged);
  run_ranks(world, [&](Rank& rank) {
    const Restored restored = rank.restore();
    expect_vector(restored, 1);
    ASSERT_EQ(restored.warnings.size(), 1u);
  });
}

}  // namespace
}  // namespace penstock::checkpoint::test
