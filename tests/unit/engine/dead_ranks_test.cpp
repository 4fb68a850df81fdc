// What a rank leaves behind that has died, or has failed an operation, holds up nobody. The tests drive the engines
// themselves, so that each moment is the one meant.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/cells.hpp"
#include "engine/executor.hpp"
#include "engine/node_setup.hpp"
#include "engine/remote/tag_split.hpp"
#include "eventually.hpp"
#include "make_engine.hpp"
#include "penstock/collective.hpp"
#include "plans.hpp"
#include "ranks.hpp"
#include "wrapped_transport.hpp"

namespace penstock::engine {
namespace {

/// The node of a rank, which alone holds its segment then.
Node make_node(Transport& transport, const EngineOptions& options) {
  NodeSetup setup(transport, std::vector<std::byte>(NodeSetup::memory_bytes(transport.size(), {})), {});
  setup.exchange_facts(options);
  setup.exchange_results();
  return setup.finish(options);
}

/// Runs `body(transport, node, rank)` on the ranks of one node. A rank may die without an engine.
template <typename Body>
void run_node(int ranks, const EngineOptions& options, Body body) {
  auto transports = make_local_transports(one_node(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank, transport = std::move(transports[static_cast<std::size_t>(rank)])]() mutable {
      Node node = make_node(*transport, options);
      body(std::shared_ptr<Transport>(std::move(transport)), std::move(node), rank);
    });
  for (std::thread& thread : threads) thread.join();
}

std::shared_ptr<Executor> make_executor(std::shared_ptr<Transport> transport, const EngineOptions& options, Node node) {
  auto executor = std::make_shared<Executor>(std::move(transport), options, std::move(node));
  executor->enter();
  return executor;
}

// Rank 1 has completed the operation. It dies while it appends a message of the next one to the queue of rank 0: its
// cell is the last one of the queue, but no other cell leads to it. The message of rank 2 follows.
TEST(DeadRanks, WhatComesBehindTheirLastMessageIsReceived) {
  std::latch dead(1);
  std::latch received(1);
  const EngineOptions options;
  run_node(3, options, [&](std::shared_ptr<Transport> transport, Node node, int rank) {
    if (rank == 1) {
      Segment& segment = *node.segment;
      segment.slot(1).completed_before = 1;
      const Cell* const last = Cells(segment).take(0);
      std::uint32_t index = Segment::first_cell(1);
      while (&segment.cell(index) != last) ++index;
      Header& header = segment.cell(index).header;
      header = {};
      header.sequence = 1;
      header.source = 1;
      segment.slot(1).sending = index + 1;
      segment.slot(0).queue_tail.exchange(index);
      node.segment.reset();
      return dead.count_down();
    }
    dead.wait();
    const auto engine = make_executor(std::move(transport), options, std::move(node));
    PlanBuilder builder("test/one_way", rank, 3);
    if (rank == 0) builder.recv({0, 4, Buffer::output}, 2, 0);
    if (rank == 2) builder.send({0, 4, Buffer::input}, 0, 0);
    const auto plan = std::make_shared<const Plan>(std::move(builder).finish(rank == 2 ? 4 : 0, rank == 0 ? 4 : 0));
    const std::vector<std::uint32_t> in(1, 7);
    std::vector<std::uint32_t> out(1);
    engine->set_timeout(test::kHung);
    const auto error = failure_of(*engine->start(plan, {bytes_of(in), bytes_of(out)}, {}, 7));
    EXPECT_FALSE(error) << error->what();
    if (rank == 2) return received.wait();
    EXPECT_EQ(out[0], 7u);
    received.count_down();
  });
}

// Rank 0 has more for rank 1 than there are cells.
TEST(DeadRanks, WhatWaitsForTheirCellsIsDropped) {
  constexpr int kMoreThanCells = 1000;
  std::latch sent(1);
  std::latch dead(1);
  const EngineOptions options;
  run_node(2, options, [&](std::shared_ptr<Transport> transport, Node node, int rank) {
    if (rank == 1) {
      sent.wait();
      node.segment.reset();
      return dead.count_down();
    }
    const auto engine = make_executor(std::move(transport), options, std::move(node));
    for (int i = 0; i < kMoreThanCells; ++i) engine->fail_next("count is -1");
    EXPECT_TRUE(engine->active);
    sent.count_down();
    dead.wait();
    engine->check_peers(Caller::application);
    EXPECT_FALSE(engine->active) << "threads would poll for ever";
  });
}

// The second operation does not fit into the ring beside the first one, so none of its steps has been issued.
TEST(DeadRanks, FailOperationsThatDoNotRunYet) {
  std::latch started(1);
  std::latch dead(1);
  const EngineOptions options{.shared_bytes = 256 << 10};
  run_node(2, options, [&](std::shared_ptr<Transport> transport, Node node, int rank) {
    if (rank == 1) {
      started.wait();
      node.segment.reset();
      return dead.count_down();
    }
    const auto engine = make_executor(std::move(transport), options, std::move(node));
    const std::uint64_t bytes = engine->shared_limit_bytes() / 3 * 2;
    const auto plan = shared_allgather_plan(rank, 2, bytes);
    const std::vector<std::byte> in(bytes);
    std::vector<std::byte> out(2 * bytes);
    std::vector<std::shared_ptr<engine::Run>> runs;
    for (int i = 0; i < 2; ++i) runs.push_back(engine->start(plan, {bytes_of(in), bytes_of(out)}, {}, 7));
    started.count_down();
    dead.wait();
    engine->check_peers(Caller::application);
    for (const auto& run : runs) {
      EXPECT_TRUE(run->done());
      const auto error = failure_of(*run);
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::peer_failed) << error->what();
      EXPECT_EQ(error->rank(), 1);
    }
  });
}

// Rank 2 fails while rank 0 combines what rank 1 has given.
TEST(FailedTasks, UseMemoryUntilTheyEnd) {
  constexpr std::uint64_t kElems = 300'000;  // several tasks
  std::latch started(2);
  std::latch combining(1);
  std::latch failed(1);
  std::latch seen(1);
  std::latch over(3);
  run_ranks(ranks_of(one_node(3)), [&](Engine& engine, int rank) {
    auto& executor = static_cast<Executor&>(engine);
    const auto op = std::make_shared<const UserOp>(UserOp{.combine = [&, rank](ConstBytes, Bytes) {
      if (rank != 0) throw Error(ErrorCode::invalid_argument, "given up");
      combining.count_down();
      seen.wait();
    }});
    Collective collective{.kind = CollectiveKind::allreduce, .count = kElems, .element_bytes = 1};
    collective.algorithm = "divided";
    const auto plan = std::make_shared<const Plan>(plan_collective(engine.team(), collective));
    const std::vector<std::uint8_t> in(kElems);
    std::vector<std::uint8_t> out(kElems);
    if (rank == 0) started.wait();
    // The last rank to start runs a task at once.
    const auto run = engine.start(plan, {bytes_of(in), bytes_of(out)}, {.user = op}, 7);
    if (rank != 0) {
      started.count_down();
      combining.wait();
      if (rank == 1) failed.wait();
      executor.progress(Caller::application);
      if (rank == 2) failed.count_down();
      executor.progress(Caller::application);
      EXPECT_FALSE(run->done()) << "rank " << rank << " may free its memory";
      if (rank == 1) seen.count_down();
    }
    // Not by wait(), which would drive the other ranks.
    EXPECT_TRUE(test::eventually([&] {
      executor.progress(Caller::application);
      return run->done();
    }));
    over.arrive_and_wait();
    EXPECT_TRUE(failure_of(*run)) << "rank " << rank;
  });
}

/// Loses the notices of its rank, as if there were no memory for them, and sees what its rank is told.
class WithoutNotices final : public WrappedTransport {
 public:
  WithoutNotices(std::unique_ptr<Transport> inner, std::atomic<int>& lists)
      : WrappedTransport(std::move(inner)), lists_(lists) {}

  bool isend(ConstBytes from, int peer, int tag, Token token) override {
    if (tag == TagSplit::kControlTag && header_of(from).kind == MessageKind::notice) return true;
    return WrappedTransport::isend(from, peer, tag, token);
  }
  bool take(Bytes to, int tag, Token token) override {
    if (!WrappedTransport::take(to, tag, token)) return false;
    lists_ += header_of(to).kind == MessageKind::sent ? 1 : 0;
    return true;
  }

 private:
  static Header header_of(ConstBytes packet) {
    Header header;
    std::memcpy(&header, packet.data(), sizeof header);
    return header;
  }

  std::atomic<int>& lists_;
};

// Rank 1 hears from rank 0 what that has sent for the operation, so it has failed there, and then completes it by a
// message of rank 2, which is of its node.
TEST(FailedElsewhere, AnOperationThatIsCompletedLaterIsSettled) {
  constexpr int kRanks = 3;
  RanksOptions options = ranks_of({0, 1, 1});
  options.engine.operation_slots = 4;
  auto transports = make_local_transports(options.nodes, options.transport);
  std::vector<std::atomic<int>> lists(kRanks);
  std::latch heard(1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      const auto me = static_cast<std::size_t>(rank);
      const auto engine =
          make_engine(std::make_unique<WithoutNotices>(std::move(transports[me]), lists[me]), options.engine);
      auto& executor = static_cast<Executor&>(*engine);
      engine->set_timeout(test::kHung);
      PlanBuilder builder("test/in_a_row", rank, kRanks);
      if (rank == 1) builder.send({0, 4, Buffer::input}, 0, 0);
      if (rank == 1) builder.recv({0, 4, Buffer::output}, 2, 0);
      if (rank == 2) builder.send({0, 4, Buffer::input}, 1, 0);
      const auto plan = std::make_shared<const Plan>(std::move(builder).finish(4, 4));
      const std::vector<std::uint32_t> in(1, 7);
      std::vector<std::uint32_t> out(1);
      if (rank == 0) {
        engine->fail_next("on purpose");
      } else {
        if (rank == 2) heard.wait();
        const auto run = engine->start(plan, {bytes_of(in), bytes_of(out)}, {}, 7);
        if (rank == 1) {
          EXPECT_TRUE(test::eventually([&] {
            executor.progress(Caller::application);
            return lists[me] > 0;
          }));
          executor.progress(Caller::application);
          EXPECT_FALSE(run->done());
          heard.count_down();
        }
        const auto error = failure_of(*run);
        EXPECT_FALSE(error) << error->what();
        EXPECT_EQ(out[0], rank == 1 ? 7u : 0u);
      }
      // Each uses the tags of an earlier one again.
      for (std::uint64_t i = 0; i < 3 * options.engine.operation_slots; ++i) {
        const std::vector<std::uint32_t> ones(1, 1);
        const auto error =
            failure_of(*engine->start(allreduce_plan(rank, kRanks, 4), {bytes_of(ones), bytes_of(out)}, kAddUint32, 1));
        ASSERT_FALSE(error) << error->what();
        ASSERT_EQ(out[0], 3u);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace penstock::engine
