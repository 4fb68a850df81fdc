// The parts of the node's shared memory, and what happens where there is none.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>

#include "engine/arena.hpp"
#include "engine/cells.hpp"
#include "engine/segment.hpp"
#include "plans.hpp"
#include "ranks.hpp"

namespace penstock::engine {
namespace {

std::size_t names_in_dev_shm() {
  std::size_t count = 0;
  const std::string mine = "penstock-" + std::to_string(::getpid()) + "-";
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    count += entry.path().filename().string().starts_with(mine);
  return count;
}

TEST(Segments, FitTheirLimitOrSaySo) {
  for (const std::uint32_t ranks : {2u, 3u, 16u, 64u, 256u})
    for (const std::uint64_t limit : {16ull << 10, 256ull << 10, 4ull << 20, 64ull << 20, 1ull << 30}) {
      const SegmentLayout layout = SegmentLayout::fit(ranks, 16 << 10, limit);
      if (layout.ranks == 0) continue;
      EXPECT_LE(layout.total_bytes, limit);
      EXPECT_GE(layout.payload_bytes, 1024u);
      EXPECT_GE(layout.cells_per_rank, 8u);
      EXPECT_GE(layout.arena_bytes, 16u << 10);
    }
  EXPECT_EQ(SegmentLayout::fit(64, 16 << 10, 16 << 10).ranks, 0u);
  EXPECT_EQ(SegmentLayout::fit(4, 16 << 10, 64 << 20).ranks, 4u);
}

TEST(Segments, ASizeThatDevShmCannotHoldIsAnErrorAndNotASignal) {
  SegmentLayout layout = SegmentLayout::fit(2, 1024, 64 << 20);
  layout.total_bytes = std::uint64_t{1} << 60;
  try {
    Segment::make(layout, 0);
    FAIL() << "an exabyte of shared memory";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("/dev/shm"), std::string::npos) << error.what();
  }
  EXPECT_EQ(names_in_dev_shm(), 0u);
}

TEST(Segments, KnowWhoIsAlive) {
  const SegmentLayout layout = SegmentLayout::fit(3, 1024, 1 << 20);
  const auto mine = Segment::make(layout, 0);
  EXPECT_EQ(names_in_dev_shm(), 1u);
  auto other = Segment::open(mine->name(), layout, 1);
  EXPECT_TRUE(mine->is_alive(1));
  EXPECT_FALSE(mine->is_alive(2));
  EXPECT_TRUE(other->is_alive(0));
  other.reset();
  EXPECT_FALSE(mine->is_alive(1));
  mine->unlink();
  EXPECT_EQ(names_in_dev_shm(), 0u);
}

TEST(Cells, KeepEveryMessageAndTheOrderOfEachSender) {
  constexpr std::uint32_t kRanks = 4;
  constexpr std::uint64_t kMessages = 3000;
  const SegmentLayout layout = SegmentLayout::fit(kRanks, 1024, 2 << 20);
  std::vector<std::unique_ptr<Segment>> segments;
  segments.push_back(Segment::make(layout, 0));
  for (std::uint32_t rank = 1; rank < kRanks; ++rank)
    segments.push_back(Segment::open(segments[0]->name(), layout, rank));
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      Cells cells(*segments[rank]);
      std::vector<std::uint64_t> sent(kRanks, 0);
      std::vector<std::uint64_t> received(kRanks, 0);
      const auto all_done = [&](const std::vector<std::uint64_t>& counts) {
        for (std::uint32_t peer = 0; peer < kRanks; ++peer)
          if (peer != rank && counts[peer] < kMessages) return false;
        return true;
      };
      while (!all_done(sent) || !all_done(received)) {
        bool moved = false;
        for (std::uint32_t peer = 0; peer < kRanks; ++peer) {
          if (peer == rank || sent[peer] == kMessages) continue;
          Cell* cell = cells.take(peer);
          if (cell == nullptr) continue;
          cell->header = {};
          cell->header.source = rank;
          cell->header.sequence = sent[peer]++;
          *cell->payload() = static_cast<std::byte>(rank + cell->header.sequence);
          cells.send();
          moved = true;
        }
        while (Cell* cell = cells.receive()) {
          const std::uint32_t source = cell->header.source;
          ASSERT_EQ(cell->header.sequence, received[source]++);
          ASSERT_EQ(*cell->payload(), static_cast<std::byte>(source + cell->header.sequence));
          moved = true;
        }
        if (!moved) std::this_thread::yield();
      }
      EXPECT_TRUE(cells.empty());
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Cells, ARankThatDoesNotListenLeavesSomeForTheOthers) {
  const SegmentLayout layout = SegmentLayout::fit(3, 1024, 2 << 20);
  const auto mine = Segment::make(layout, 0);
  const auto other = Segment::open(mine->name(), layout, 2);
  Cells cells(*mine);
  int sent = 0;
  while (Cell* cell = cells.take(1)) {
    cell->header = {};
    cells.send();
    ASSERT_LT(++sent, 1000);
  }
  EXPECT_GT(sent, 0);
  Cells listening(*other);
  for (int i = 0; i < 1000; ++i) {
    Cell* cell = cells.take(2);
    ASSERT_NE(cell, nullptr) << "message " << i;
    cell->header = {};
    cells.send();
    ASSERT_NE(listening.receive(), nullptr);
  }
}

TEST(Cells, GiveTheLastMessageBackAfterAWhile) {
  const SegmentLayout layout = SegmentLayout::fit(2, 1024, 2 << 20);
  const auto mine = Segment::make(layout, 0);
  const auto other = Segment::open(mine->name(), layout, 1);
  Cells cells(*mine);
  Cells listening(*other);
  const auto send_all = [&] {
    int sent = 0;
    for (; cells.take(1) != nullptr; ++sent) cells.send();
    return sent;
  };
  const int all = send_all();
  EXPECT_EQ(all, static_cast<int>(layout.cells_per_rank));
  for (int i = 0; i < all; ++i) ASSERT_NE(listening.receive(), nullptr);
  EXPECT_TRUE(listening.empty());
  EXPECT_EQ(send_all(), all - 1) << "the last one may still be read";
  for (int i = 0; i < all - 1; ++i) ASSERT_NE(listening.receive(), nullptr);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(listening.receive(), nullptr);
  EXPECT_TRUE(listening.empty());
  EXPECT_EQ(send_all(), all);
}

TEST(Arenas, GiveSpaceInOrderAndNeverTwice) {
  Arena arena(1024);
  EXPECT_EQ(arena.take(0, 400), 0u);
  EXPECT_EQ(arena.take(1, 400), 448u);
  EXPECT_FALSE(arena.take(2, 400));
  arena.free_before(1);
  EXPECT_EQ(arena.take(2, 400), 0u);
  EXPECT_FALSE(arena.take(3, 64));
  arena.free_before(3);
  EXPECT_EQ(arena.take(3, 1024), 0u);
  EXPECT_FALSE(arena.take(4, 1));
  arena.free_before(4);
  EXPECT_FALSE(arena.take(4, 1025));
  EXPECT_EQ(arena.take(4, 0), 0u);
}

TEST(Fallback, WithoutSharedMemoryTheTransportCarriesAll) {
  for (const bool too_small : {false, true}) {
    RanksOptions options = ranks_of({0, 0, 1, 1});
    options.engine.shared_memory = too_small;
    options.engine.shared_bytes = 1000;
    run_ranks(options, [&](Engine& engine, int rank) {
      EXPECT_EQ(engine.team().node_of_rank, (std::vector<std::int32_t>{0, 1, 2, 3}));
      EXPECT_EQ(engine.shared_limit_bytes(), 0u);
      EXPECT_NE(engine.report().find("shared memory: given up"), std::string::npos) << engine.report();
      EXPECT_NE(engine.report().find(too_small ? "SHARED_BYTES" : "switched off"), std::string::npos);
      std::vector<std::uint32_t> in(30000, 1);
      std::vector<std::uint32_t> out(30000);
      engine.start(allreduce_plan(rank, 4, 120000), {bytes_of(in), bytes_of(out)}, kAddUint32, 1)->wait();
      EXPECT_EQ(out[29999], 4u);
    });
  }
}

TEST(Engines, LeaveNothingInDevShm) {
  run_ranks(ranks_of(one_node(3)), [](Engine& engine, int rank) {
    std::vector<std::uint32_t> in(4);
    std::vector<std::uint32_t> out(4);
    engine.start(allreduce_plan(rank, 3, 16), {bytes_of(in), bytes_of(out)}, kAddUint32, 0)->wait();
    EXPECT_EQ(names_in_dev_shm(), 0u);
    EXPECT_NE(engine.report().find("shared memory: 3 ranks"), std::string::npos) << engine.report();
  });
  EXPECT_EQ(names_in_dev_shm(), 0u);
}

}  // namespace
}  // namespace penstock::engine
