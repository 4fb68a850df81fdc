// The components of a node's shared memory, and failures to allocate it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/cells.hpp"
#include "engine/ring_allocator.hpp"
#include "engine/segment.hpp"
#include "make_engine.hpp"
#include "penstock/collective.hpp"
#include "plans.hpp"
#include "ranks.hpp"

namespace penstock::engine {
namespace {

std::size_t open_files() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

std::size_t names_in_dev_shm() {
  std::size_t count = 0;
  const std::string mine = "penstock-" + std::to_string(::getpid()) + "-";
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    count += entry.path().filename().string().starts_with(mine);
  return count;
}

/// The segments of ranks in this process.
std::vector<std::unique_ptr<Segment>> make_segments(const SegmentLayout& layout) {
  std::vector<std::unique_ptr<Segment>> segments;
  for (std::uint32_t rank = 0; rank < layout.ranks; ++rank) segments.push_back(std::make_unique<Segment>(layout, rank));
  for (const auto& segment : segments) {
    segment->locate(layout, [&](std::uint32_t rank) { return segments[rank]->address(); });
    segment->join();
  }
  return segments;
}

TEST(Segments, FitTheirLimitOrSaySo) {
  for (const std::uint32_t ranks : {2u, 3u, 16u, 64u, 256u})
    for (const std::uint64_t limit : {16ull << 10, 256ull << 10, 4ull << 20, 64ull << 20, 1ull << 30}) {
      const SegmentLayout layout = SegmentLayout::fit(ranks, 16 << 10, limit);
      if (layout.ranks == 0) continue;
      EXPECT_LE(layout.total_bytes, limit);
      EXPECT_GE(layout.payload_bytes, 1024u);
      EXPECT_GE(layout.cells_per_rank, 8u);
      EXPECT_GE(layout.ring_bytes, 16u << 10);
      EXPECT_LE(layout.ring_offset_bytes + layout.ring_bytes, layout.block_bytes);
    }
  EXPECT_EQ(SegmentLayout::fit(64, 16 << 10, 16 << 10).ranks, 0u);
  EXPECT_EQ(SegmentLayout::fit(4, 16 << 10, 64 << 20).ranks, 4u);
}

TEST(Segments, OfManyRanksHaveRoomForTheirBuffers) {
  for (const std::uint32_t ranks : {2u, 16u, 32u, 64u, 128u, 256u}) {
    const SegmentLayout usual = SegmentLayout::fit(ranks, 16 << 10, SegmentLayout::usual_bytes(ranks));
    EXPECT_GE(usual.ring_bytes, 1u << 20) << ranks;
    EXPECT_GE(usual.payload_bytes, 16u << 10) << ranks;
    EXPECT_NE(usual.task_table_offset_bytes, 0u) << ranks;
    const SegmentLayout poor = SegmentLayout::fit(ranks, 16 << 10, ranks * (std::uint64_t{192} << 10));
    EXPECT_GE(poor.ring_bytes, 64u << 10) << ranks;
  }
}

/// Each rank takes its block before it knows what the others can take.
TEST(Segments, OfDifferentSizesHaveALayoutThatFitsIntoAll) {
  constexpr std::uint32_t kRanks = 3;
  std::vector<SegmentLayout> layouts;
  for (const std::uint64_t limit : {300ull << 10, 1ull << 20, 3ull << 20, 64ull << 20, 1ull << 30})
    for (const std::uint64_t eager : {0ull, 1024ull, 5000ull, 16ull << 10, 100ull << 10})
      layouts.push_back(SegmentLayout::fit(kRanks, eager, limit));
  std::erase_if(layouts, [](const SegmentLayout& layout) { return layout.ranks == 0; });
  EXPECT_GT(layouts.size(), 20u);
  for (const SegmentLayout& a : layouts) {
    EXPECT_EQ(SegmentLayout::of(kRanks, a.sizes()).block_bytes, a.block_bytes);
    EXPECT_EQ(SegmentLayout::of(kRanks, a.sizes()).ring_offset_bytes, a.ring_offset_bytes);
    for (const SegmentLayout& b : layouts) {
      const SegmentLayout common = SegmentLayout::of(kRanks, a.sizes().common_with(b.sizes()));
      EXPECT_LE(common.block_bytes, std::min(a.block_bytes, b.block_bytes));
      EXPECT_EQ(common.flags_offset_bytes, a.flags_offset_bytes) << "the constructor has filled the head";
      EXPECT_EQ(common.stub_offset_bytes, a.stub_offset_bytes);
    }
  }
}

TEST(Segments, KnowWhoIsThere) {
  const auto before = host::Heap::of_process()->taken_bytes();
  auto segments = make_segments(SegmentLayout::fit(3, 1024, 1 << 20));
  EXPECT_EQ(names_in_dev_shm(), 0u);
  EXPECT_TRUE(segments[0]->is_alive(1));
  segments[1].reset();
  EXPECT_FALSE(segments[0]->is_alive(1));
  EXPECT_TRUE(segments[0]->is_alive(2));
  EXPECT_EQ(host::Heap::of_process()->taken_bytes(), before + 3 * segments[0]->layout().block_bytes)
      << "others may read it";
  segments[2].reset();
  segments[0].reset();
  host::Heap::of_process()->give_back(host::Heap::of_process()->take(host::Heap::kPageBytes), host::Heap::kPageBytes,
                                      {});
  EXPECT_EQ(host::Heap::of_process()->taken_bytes(), before);
}

TEST(Segments, HaveMemoryAsItIsNeeded) {
  const SegmentLayout layout = SegmentLayout::fit(2, 16 << 10, 64 << 20);
  const host::Heap& heap = *host::Heap::of_process();
  make_segments(layout);  // afterwards the heap keeps the segments' initial memory for later segments
  const std::uint64_t before = heap.committed_bytes() - 2 * layout.flags_offset_bytes;
  auto segments = make_segments(layout);
  EXPECT_EQ(heap.committed_bytes(), before + 2 * layout.flags_offset_bytes);
  EXPECT_EQ(segments[1]->flags(0), nullptr);
  segments[0]->commit_flags();
  EXPECT_NE(segments[1]->flags(0), nullptr);
  EXPECT_EQ(segments[1]->flags(1), nullptr);
  segments[0]->commit_ring(100);
  segments[0]->ring(0)[99] = std::byte{1};
  segments[1]->commit_task_table();
  segments[0]->commit_task_table();
  EXPECT_LE(heap.committed_bytes(), before + layout.total_bytes);
  const std::uint64_t some = heap.committed_bytes();
  for (const auto& segment : segments) {
    segment->commit_cells(layout.cells_per_rank);
    segment->commit_ring(layout.ring_bytes);
    segment->commit_flags();
    segment->commit_flag_data();
  }
  EXPECT_GT(heap.committed_bytes(), some);
  EXPECT_EQ(heap.committed_bytes(), before + layout.total_bytes);
}

/// The cells of several ranks in one process. Some ranks die between the two stores that append a message.
class CutQueue : public testing::Test {
 protected:
  static constexpr std::uint32_t kRanks = 4;

  CutQueue() {
    for (const auto& segment : segments_) cells_.emplace_back(*segment);
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
    for (std::uint32_t rank = 0; rank < kRanks; ++rank)
      for (std::uint32_t i = 0; i < segments_[0]->cells_of(rank); ++i)
        if (&segments_[0]->cell(Segment::first_cell(rank) + i) == &cell) return Segment::first_cell(rank) + i;
    throw std::logic_error("no such cell");
  }
  /// Does the same as send(), but the rank dies before it links the new cell to the previous one.
  void die_sending(std::uint32_t from, std::uint64_t number, bool is_queued = true) {
    const std::uint32_t index = index_of(take(from, number));
    segments_[0]->slot(from).sending.store(index + 1);
    if (is_queued) segments_[0]->slot(0).queue_tail.exchange(index);
    gone_[from] = true;
  }
  /// (source, number) of all messages that rank 0 receives. Mends the queue as the failure detector does.
  std::vector<std::pair<std::uint32_t, std::uint64_t>> receive_all() {
    std::vector<std::pair<std::uint32_t, std::uint64_t>> received;
    do {
      while (const Cell* cell = cells_[0].receive()) received.emplace_back(cell->header.source, cell->header.sequence);
    } while (cells_[0].mend(gone_));
    return received;
  }

  using Messages = std::vector<std::pair<std::uint32_t, std::uint64_t>>;
  std::vector<std::unique_ptr<Segment>> segments_ = make_segments(SegmentLayout::fit(kRanks, 1024, 2 << 20));
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
  const auto segments = make_segments(SegmentLayout::fit(kRanks, 1024, 2 << 20));
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
  const auto segments = make_segments(layout);
  Cells cells(*segments[0]);
  int sent = 0;
  while (Cell* cell = cells.take(1)) {
    cell->header = {};
    cells.send();
    ASSERT_LT(++sent, 1000);
  }
  EXPECT_GT(sent, 0);
  Cells listening(*segments[2]);
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
  const auto segments = make_segments(layout);
  Cells cells(*segments[0]);
  Cells listening(*segments[1]);
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

/// Ranks that have completed an operation do not receive. What rank 0 sends them for the next one leaves cells for the
/// last rank, which waits in the first one.
TEST(Cells, OfManyAbsentRanksAreNotAll) {
  constexpr int kRanks = 64;
  constexpr int kLast = kRanks - 1;
  const auto exchange = [](int rank) {
    PlanBuilder builder("test/exchange", rank, kRanks);
    const Region in{0, 8, Buffer::input};
    const Region out{0, 8, Buffer::output};
    if (rank == 0) builder.send(in, kLast, 1, {builder.recv(out, kLast, 0)});
    if (rank == kLast) {
      builder.send(in, 0, 0);
      builder.recv(out, 0, 1);
    }
    return std::make_shared<const Plan>(std::move(builder).finish(8, 8));
  };
  const auto spread = [](int rank) {
    PlanBuilder builder("test/spread", rank, kRanks);
    for (int peer = 1; peer < kRanks && rank == 0; ++peer) builder.send({0, 8, Buffer::input}, peer, 0);
    if (rank > 0) builder.recv({0, 8, Buffer::output}, 0, 0);
    return std::make_shared<const Plan>(std::move(builder).finish(8, 8));
  };
  std::atomic<int> completed{0};
  std::atomic<bool> has_spread{false};
  std::atomic<bool> is_over{false};
  run_ranks(ranks_of(one_node(kRanks)), [&](Engine& engine, int rank) {
    engine.set_timeout(std::chrono::seconds(20));
    std::vector<std::uint64_t> in(1, 7);
    std::vector<std::uint64_t> out(1);
    if (rank == kLast) has_spread.wait(false);
    const auto first = engine.start(exchange(rank), {bytes_of(in), bytes_of(out)}, {}, 1);
    if (rank == 0) {
      completed.fetch_add(1);
      while (completed.load() < kRanks - 1) std::this_thread::yield();
      const auto second = engine.start(spread(rank), {bytes_of(in), bytes_of(out)}, {}, 2);
      has_spread = true;
      has_spread.notify_all();
      EXPECT_EQ(failure_of(*first), std::nullopt);
      second->wait();
      return;
    }
    EXPECT_EQ(failure_of(*first), std::nullopt);
    completed.fetch_add(1);
    if (rank == kLast) {
      is_over = true;
      is_over.notify_all();
    }
    is_over.wait(false);
    engine.start(spread(rank), {bytes_of(in), bytes_of(out)}, {}, 2)->wait();
    EXPECT_EQ(out[0], 7u);
  });
}

TEST(RingAllocator, GiveSpaceInOrderAndNeverTwice) {
  RingAllocator ring(1024);
  EXPECT_EQ(ring.take(0, 400), 0u);
  EXPECT_EQ(ring.take(1, 400), 448u);
  EXPECT_FALSE(ring.take(2, 400));
  ring.free_before(1);
  EXPECT_EQ(ring.take(2, 400), 0u);
  EXPECT_FALSE(ring.take(3, 64));
  ring.free_before(3);
  EXPECT_EQ(ring.take(3, 1024), 0u);
  EXPECT_FALSE(ring.take(4, 1));
  ring.free_before(4);
  EXPECT_FALSE(ring.take(4, 1025));
  EXPECT_EQ(ring.take(4, 0), 0u);
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

/// The engines of a communicator whose ranks are threads of this process.
std::vector<std::shared_ptr<Engine>> make_engines(int ranks) {
  auto transports = make_local_transports(one_node(ranks));
  std::vector<std::shared_ptr<Engine>> engines(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < engines.size(); ++rank)
    threads.emplace_back([&, rank] { engines[rank] = make_engine(std::move(transports[rank]), {}); });
  for (std::thread& thread : threads) thread.join();
  return engines;
}

TEST(SharedMemory, OfAThousandCommunicatorsOfFourRanksIsLittle) {
  const auto first = make_engines(4);
  const host::Heap& heap = *host::Heap::of_process();
  const std::uint64_t before = heap.committed_bytes();
  const std::size_t files = open_files();
  std::vector<std::vector<std::shared_ptr<Engine>>> all;
  for (int i = 0; i < 1000; ++i) all.push_back(make_engines(4));
  EXPECT_LE(heap.committed_bytes() - before, std::uint64_t{64} << 20);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&, rank] {
      Collective one_number{.kind = CollectiveKind::allreduce, .count = 1, .dtype = DType::uint32};
      one_number.algorithm = "shared";
      const auto sum =
          std::make_shared<const Plan>(plan_collective({.rank = rank, .node_of_rank = one_node(4)}, one_number));
      std::vector<std::uint32_t> in(1, 1);
      std::vector<std::uint32_t> out(1);
      for (const auto& engines : all) {
        engines[static_cast<std::size_t>(rank)]->run(sum, {bytes_of(in), bytes_of(out)}, kAddUint32, 0);
        ASSERT_EQ(out[0], 4u);
      }
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_LE(heap.committed_bytes() - before, std::uint64_t{64} << 20) << "after a sum of one number on each";
  EXPECT_EQ(open_files(), files);
  all.clear();
  static_cast<void>(make_engines(4));
  EXPECT_LE(heap.committed_bytes(), before + (std::uint64_t{1} << 20));
}

TEST(SharedMemory, DoesNotGrowByCommunicatorsThatEnd) {
  const auto first = make_engines(4);
  const host::Heap& heap = *host::Heap::of_process();
  std::uint64_t taken = 0;
  std::uint64_t committed = 0;
  for (int i = 0; i < 500; ++i) {
    const auto engines = make_engines(4);
    if (i == 10) {
      taken = heap.taken_bytes();
      committed = heap.committed_bytes();
    }
    if (i > 10) {
      ASSERT_LE(heap.taken_bytes(), taken);
      ASSERT_LE(heap.committed_bytes(), committed);
    }
  }
}

}  // namespace
}  // namespace penstock::engine
