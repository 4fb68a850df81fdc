// Collectives over UCX. Ranks are threads of this process, each with a worker of its own, as if they were processes.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "conformance/reference.hpp"
#include "penstock/collective.hpp"
#include "ranks.hpp"

namespace penstock::ucx {
namespace {

using Nodes = std::vector<std::int32_t>;

TEST(UcxTransport, FirstPeersAreLogarithmicallyMany) {
  EXPECT_TRUE(first_peers(0, 1).empty());
  EXPECT_EQ(first_peers(0, 2), std::vector<int>{1});
  EXPECT_EQ(first_peers(1, 5), (std::vector<int>{0, 4, 2}));
  EXPECT_EQ(first_peers(0, 1024).size(), 10u);
}

class Placed : public testing::TestWithParam<Nodes> {};

// The reference of the conformance tests: all collectives, several sizes, in place and not, blocking and not.
TEST_P(Placed, EveryCollectiveGivesWhatTheReferenceGives) {
  PENSTOCK_NEEDS_UCX();
  const int size = static_cast<int>(GetParam().size());
  run_threads(GetParam(), [size](Joined& joined) {
    Comm& comm = joined.comm;
    bool in_place = false;
    for (int kind = 0; kind <= static_cast<int>(CollectiveKind::barrier); ++kind)
      for (const std::uint64_t count : {0, 1, 1000, 20'000}) {
        Collective collective{.kind = static_cast<CollectiveKind>(kind), .count = count, .dtype = DType::int64};
        if (collective.kind == CollectiveKind::barrier) collective.count = 0;
        if (is_rooted(collective.kind)) collective.root = size - 1;
        collective.in_place = in_place = !in_place;
        const auto rank = static_cast<std::size_t>(comm.rank());
        std::vector<plan::RankMemory> memory = conformance::memory_before(collective, size);
        const std::vector<plan::RankMemory> expected = conformance::memory_after(collective, size);
        const Collective mine = conformance::request_of(collective, comm.rank(), size);
        if (in_place)
          comm.run(mine, memory[rank].input, memory[rank].output);
        else
          comm.start(mine, memory[rank].input, memory[rank].output).wait();
        EXPECT_EQ(memory[rank].output, expected[rank].output) << name(collective.kind) << ", " << count << " elements";
      }
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes, Placed,
                         testing::Values(Nodes{0}, Nodes{0, 1}, Nodes{0, 1, 2}, Nodes{0, 1, 0}, Nodes{0, 1, 1, 0, 2},
                                         Nodes{0, 1, 2, 3, 4}, Nodes{0, 0, 0, 0}));

TEST(UcxTransport, LongMessagesBetweenNodes) {
  PENSTOCK_NEEDS_UCX();
  run_threads({0, 1, 2}, [](Joined& joined) {
    std::vector<std::int64_t> values(1'500'000, joined.comm.rank() + 1);
    Collective collective{.kind = CollectiveKind::allreduce, .count = values.size(), .dtype = DType::int64};
    collective.in_place = true;
    joined.comm.run(collective, {}, std::as_writable_bytes(std::span(values)));
    EXPECT_EQ(values, std::vector<std::int64_t>(values.size(), 6));
  });
}

std::int64_t sum_of_ranks(Comm& comm) {
  std::int64_t value = comm.rank();
  Collective collective{.kind = CollectiveKind::allreduce, .count = 1, .dtype = DType::int64};
  collective.in_place = true;
  comm.run(collective, {}, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

// Also of duplicates, and while the first communicator is in use by another thread.
TEST(UcxTransport, DuplicatesHaveAnOrderOfTheirOwn) {
  PENSTOCK_NEEDS_UCX();
  run_threads({0, 1, 0}, [](Joined& joined) {
    std::thread other([&] {
      for (int i = 0; i < 200; ++i) EXPECT_EQ(sum_of_ranks(joined.comm), 3);
    });
    for (int i = 0; i < 5; ++i) {
      Comm first = joined.comm.duplicate();
      Comm second = first.duplicate();
      if (first.rank() == 1) {
        Request request = first.start({.kind = CollectiveKind::barrier}, {}, {});
        EXPECT_EQ(sum_of_ranks(second), 3);
        request.wait();
      } else {
        EXPECT_EQ(sum_of_ranks(second), 3);
        first.run({.kind = CollectiveKind::barrier}, {}, {});
      }
    }
    other.join();
  });
}

TEST(UcxTransport, RanksConnectToTheirPlansPeersAlone) {
  PENSTOCK_NEEDS_UCX();
  static constexpr int kNodes = 16;
  static constexpr std::size_t kFirstPeers = 4;  // log2(kNodes)
  std::vector<std::int32_t> nodes(kNodes);
  std::iota(nodes.begin(), nodes.end(), 0);
  run_threads(nodes, [](Joined& joined, Worker& worker) {
    const auto connections = [&] {
      const auto locked = worker.lock();
      return worker.connections();
    };
    EXPECT_LE(connections(), 2 * kFirstPeers) << "to make the communicator, and to agree on its machine";
    joined.comm.run({.kind = CollectiveKind::barrier}, {}, {});
    std::vector<double> values(1, 1.0);
    Collective sum{.kind = CollectiveKind::allreduce, .count = values.size(), .dtype = DType::float64};
    sum.in_place = true;
    joined.comm.run(sum, {}, std::as_writable_bytes(std::span(values)));
    EXPECT_EQ(values[0], kNodes);
    EXPECT_LE(connections(), 3 * kFirstPeers) << "after a barrier and an allreduce";
  });
}

TEST(UcxTransport, TheReportNamesTheLibrary) {
  PENSTOCK_NEEDS_UCX();
  run_threads({0, 1}, [](Joined& joined) {
    EXPECT_NE(joined.comm.report().find("UCX 1."), std::string::npos) << joined.comm.report();
  });
}

// -- the application's messages ---------------------------------------------------------------------------------------

void wait(Message& message) {
  while (!message.test()) std::this_thread::yield();
}

TEST(UcxMessages, OfOneSenderMatchInOrder) {
  PENSTOCK_NEEDS_UCX();
  run_threads({0, 1, 2}, [](Joined& joined) {
    constexpr int kMessages = 50;
    const int rank = joined.comm.rank();
    // Every other one is long. Odd tags are received first.
    std::vector<std::vector<int>> sent;
    for (int i = 0; i < kMessages; ++i) sent.emplace_back(i % 4 < 2 ? 1 : 50'000, 100 * rank + i);
    std::vector<Message> sends;
    const int to = (rank + 1) % 3;
    for (int i = 0; i < kMessages; ++i)
      sends.push_back(joined.messages->send(std::as_bytes(std::span(sent[static_cast<std::size_t>(i)])), to, i % 2));
    const int from = (rank + 2) % 3;
    for (const int tag : {1, 0})
      for (int i = tag; i < kMessages; i += 2) {
        std::vector<int> received(sent[static_cast<std::size_t>(i)].size());
        Message receive = joined.messages->receive(std::as_writable_bytes(std::span(received)), from, tag);
        wait(receive);
        EXPECT_EQ(receive.source(), from);
        EXPECT_EQ(receive.size_bytes(), received.size() * sizeof(int));
        EXPECT_EQ(received, std::vector<int>(received.size(), 100 * from + i));
      }
    for (Message& each : sends) wait(each);
  });
}

TEST(UcxMessages, FromAnyRank) {
  PENSTOCK_NEEDS_UCX();
  run_threads({0, 1, 1}, [](Joined& joined) {
    int value = joined.comm.rank();
    if (value > 0) {
      Message message = joined.messages->send(std::as_bytes(std::span(&value, 1)), 0, 5);
      wait(message);
    } else {
      int sum = 0;
      for (int i = 0; i < 2; ++i) {
        Message message = joined.messages->receive(std::as_writable_bytes(std::span(&value, 1)), -1, 5);
        wait(message);
        EXPECT_EQ(message.source(), value);
        sum += value;
      }
      EXPECT_EQ(sum, 3);
    }
    joined.comm.run({.kind = CollectiveKind::barrier}, {}, {});
  });
}

TEST(UcxMessages, WrongOnesAreErrors) {
  PENSTOCK_NEEDS_UCX();
  run_threads({0, 1}, [](Joined& joined) {
    Messages& messages = *joined.messages;
    const int rank = joined.comm.rank();
    std::vector<int> values(4, rank);
    const auto code_of = [](const auto& call) {
      try {
        call();
      } catch (const Error& error) {
        return error.code();
      }
      return ErrorCode::internal;
    };
    EXPECT_EQ(code_of([&] { messages.send({}, 2, 0); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { messages.send({}, -1, 0); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { messages.receive({}, 0, messages.max_tag() + 1); }), ErrorCode::invalid_argument);
    if (rank == 0) {
      Message message = messages.send(std::as_bytes(std::span(values)), 1, messages.max_tag());
      wait(message);
    } else {
      Message message = messages.receive(std::as_writable_bytes(std::span(values).first(2)), 0, messages.max_tag());
      EXPECT_EQ(code_of([&] { wait(message); }), ErrorCode::mismatch);
      Message never = messages.receive(std::as_writable_bytes(std::span(values)), 0, 1);
      EXPECT_FALSE(never.test());
      EXPECT_TRUE(never.cancel());
      EXPECT_EQ(code_of([&] { never.test(); }), ErrorCode::invalid_argument);
    }
    joined.comm.run({.kind = CollectiveKind::barrier}, {}, {});
  });
}

}  // namespace
}  // namespace penstock::ucx
