// The parts of the node's shared memory, and what happens where there is none.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

// Its files are the parent's, and with them the lock by which the others see that it lives.
TEST(Segments, AreNotKeptAliveByAChildOfTheirProcess) {
  const SegmentLayout layout = SegmentLayout::fit(2, 1024, 1 << 20);
  const auto mine = Segment::make(layout, 0);
  auto other = Segment::open(mine->name(), layout, 1);
  int until_closed[2];
  int is_up[2];
  ASSERT_EQ(::pipe(until_closed), 0);
  ASSERT_EQ(::pipe(is_up), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  char byte = 0;
  if (child == 0) {
    ::close(until_closed[1]);
    static_cast<void>(!::write(is_up[1], "c", 1));
    static_cast<void>(!::read(until_closed[0], &byte, 1));
    other.reset();  // closes nothing that the child may have opened since
    ::_exit(::fcntl(is_up[1], F_GETFD) >= 0 ? 0 : 1);
  }
  ASSERT_EQ(::read(is_up[0], &byte, 1), 1);
  EXPECT_TRUE(mine->is_alive(1));
  other.reset();
  EXPECT_FALSE(mine->is_alive(1)) << "the child keeps it";
  EXPECT_EQ(names_in_dev_shm(), 1u) << "the child does not remove the name";
  ::close(until_closed[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const int end : {until_closed[0], is_up[0], is_up[1]}) ::close(end);
}

/// The cells of several ranks in one process, of whom some die between the two stores that append a message.
class CutQueue : public testing::Test {
 protected:
  static constexpr std::uint32_t kRanks = 4;

  CutQueue() {
    const SegmentLayout layout = SegmentLayout::fit(kRanks, 1024, 2 << 20);
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      segments_.push_back(rank == 0 ? Segment::make(layout, 0) : Segment::open(segments_[0]->name(), layout, rank));
      cells_.emplace_back(*segments_.back());
    }
  }

  Cell& take(std::uint32_t from, std::uint64_t number, std::uint32_t to = 0) {
    Cell& cell = *cells_[from].take(to);
    cell.header = {};
    cell.header.source = from;
    cell.header.sequence = number;
    return cell;
  }
  void send(std::uint32_t from, std::uint64_t number, std::uint32_t to = 0) {
    take(from, number, to);
    cells_[from].send();
  }
  std::uint32_t index_of(const Cell& cell) const {
    std::uint32_t index = 0;
    while (&segments_[0]->cell(index) != &cell) ++index;
    return index;
  }
  /// As send(), but the rank dies before it tells the one before of the new cell.
  void die_sending(std::uint32_t from, std::uint64_t number, bool is_queued = true) {
    const std::uint32_t index = index_of(take(from, number));
    segments_[0]->slot(from).sending.store(index + 1);
    if (is_queued) segments_[0]->slot(0).queue_tail.exchange(index);
    gone_[from] = true;
  }
  /// (source, number) of all that rank 0 receives, mending as the failure detector does.
  std::vector<std::pair<std::uint32_t, std::uint64_t>> receive_all() {
    std::vector<std::pair<std::uint32_t, std::uint64_t>> received;
    do {
      while (const Cell* cell = cells_[0].receive()) received.emplace_back(cell->header.source, cell->header.sequence);
    } while (cells_[0].mend(gone_));
    return received;
  }

  using Messages = std::vector<std::pair<std::uint32_t, std::uint64_t>>;
  std::vector<std::unique_ptr<Segment>> segments_;
  std::vector<Cells> cells_;
  std::vector<bool> gone_ = std::vector<bool>(kRanks, false);
};

TEST_F(CutQueue, IsMendedAndLosesNothing) {
  send(1, 0);
  send(2, 0);
  die_sending(1, 1);
  send(2, 1);
  send(3, 0);
  EXPECT_EQ(receive_all(), (Messages{{1, 0}, {2, 0}, {1, 1}, {2, 1}, {3, 0}}));
  send(3, 1);
  EXPECT_EQ(receive_all(), (Messages{{3, 1}}));
}

TEST_F(CutQueue, IsMendedAtItsEnd) {
  die_sending(2, 0);
  EXPECT_EQ(receive_all(), (Messages{{2, 0}}));
  send(1, 0);
  EXPECT_EQ(receive_all(), (Messages{{1, 0}}));
}

TEST_F(CutQueue, IsMendedAfterTwoDeaths) {
  send(3, 0);
  die_sending(1, 0);
  send(3, 1);
  die_sending(2, 0);
  send(3, 2);
  EXPECT_EQ(receive_all(), (Messages{{3, 0}, {1, 0}, {3, 1}, {2, 0}, {3, 2}}));
}

TEST_F(CutQueue, IgnoresWhatWasTakenAndNotQueued) {
  send(1, 0);
  EXPECT_EQ(receive_all(), (Messages{{1, 0}}));
  die_sending(1, 1, false);
  die_sending(2, 0);
  send(3, 0);
  EXPECT_EQ(receive_all(), (Messages{{2, 0}, {3, 0}}));
}

TEST_F(CutQueue, IsLeftAloneWhileALivingRankAppends) {
  die_sending(1, 0);
  const std::uint32_t index = index_of(take(2, 0));
  segments_[0]->slot(2).sending.store(index + 1);
  const std::uint32_t previous = segments_[0]->slot(0).queue_tail.exchange(index);
  EXPECT_EQ(receive_all(), Messages{});
  segments_[0]->cell(previous).next.store(index + 1);
  segments_[0]->slot(2).sending.store(0);
  EXPECT_EQ(receive_all(), (Messages{{1, 0}, {2, 0}}));
}

TEST_F(CutQueue, IsNotTheOneThatTheDeadSentTo) {
  take(1, 0, 3);
  segments_[0]->slot(1).sending.store(index_of(take(1, 1, 3)) + 1);
  gone_[1] = true;
  send(2, 0);
  EXPECT_EQ(receive_all(), (Messages{{2, 0}}));
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
