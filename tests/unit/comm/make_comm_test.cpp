// A rank runs out of memory while it makes a communicator. The ranks are threads of this process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "host/heap.hpp"
#include "local_transport.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"
#include "takes_all.hpp"
#include "unit/comm/failing_allocations.hpp"
#include "unit/engine/wrapped_transport.hpp"

namespace penstock::comm {
namespace {

using test::allocated_bytes;
using test::allocations_left;
using test::Fed;

enum class Lacking { description, nodes };

/// Throws bad_alloc once, at the first query of `lacking`.
class Starved final : public engine::WrappedTransport {
 public:
  Starved(std::unique_ptr<engine::Transport> under, Lacking lacking)
      : WrappedTransport(std::move(under)), lacking_(lacking) {}

  const std::vector<std::int32_t>& node_of_rank() const override {
    starve(Lacking::nodes);
    return WrappedTransport::node_of_rank();
  }
  std::string description() const override {
    starve(Lacking::description);
    return WrappedTransport::description();
  }

 private:
  void starve(Lacking what) const {
    if (what == lacking_ && std::exchange(is_first_, false)) throw std::bad_alloc();
  }

  const Lacking lacking_;
  mutable bool is_first_ = true;
};

TEST(MakeComm, FailsOnAllRanksWhereOneLacksMemory) {
  constexpr int kRanks = 3;
  for (const Lacking lacking : {Lacking::description, Lacking::nodes})
    for (int victim = 0; victim < kRanks; ++victim) {
      auto transports = engine::make_local_transports(std::vector<std::int32_t>(kRanks));
      std::vector<std::string> outcomes(kRanks);
      std::vector<std::thread> threads;
      for (int rank = 0; rank < kRanks; ++rank)
        threads.emplace_back([&, rank] {
          auto& outcome = outcomes[static_cast<std::size_t>(rank)];
          const MakeLink make_link = [&] {
            auto& own = transports[static_cast<std::size_t>(rank)];
            if (rank == victim) own = std::make_unique<Starved>(std::move(own), lacking);
            return std::move(own);
          };
          try {
            make_comm(make_link, {.progress_cores = 1});
            outcome = "made";
          } catch (const std::bad_alloc&) {
            outcome = "no memory";
          } catch (const Error& error) {
            outcome =
                std::string(name(error.code())) + " of rank " + std::to_string(error.rank()) + ": " + error.message();
          }
        });
      for (std::thread& thread : threads) thread.join();
      for (int rank = 0; rank < kRanks; ++rank)
        EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)], rank == victim
                                                                ? "no memory"
                                                                : "peer_failed of rank " + std::to_string(victim) +
                                                                      ": there is not enough memory for a communicator")
            << "rank " << rank;
    }
}

/// The network of communicators that are made while it lives.
class WithNetwork {
 public:
  explicit WithNetwork(const std::string& network) : before_(std::exchange(options().network, network)) {}
  ~WithNetwork() { options().network = before_; }
  WithNetwork(const WithNetwork&) = delete;
  WithNetwork& operator=(const WithNetwork&) = delete;

 private:
  std::string before_;
};

/// Lets one allocation of the victim fail. False if it makes fewer. `has_memory`: that for the exchanges was taken with
/// the link.
bool fail_allocation(const std::vector<std::int32_t>& nodes, std::size_t victim, bool has_memory, int allocation) {
  bool was_reached = true;
  auto transports = engine::make_local_transports(nodes);
  std::vector<std::string> outcomes(nodes.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    threads.emplace_back([&, rank] {
      Link link(std::make_unique<Fed>(std::move(transports[rank])));
      if (has_memory) link.exchange_memory.resize(exchange_bytes(static_cast<int>(nodes.size())));
      const MakeLink make_link = [&] {
        if (rank == victim) allocations_left = allocation;
        return std::move(link);
      };
      std::optional<Comm> comm;
      try {
        comm.emplace(make_comm(make_link, {.progress_cores = 0}));
        outcomes[rank] = "made";
      } catch (const std::bad_alloc&) {
        outcomes[rank] = "failed";
      } catch (const Error&) {
        outcomes[rank] = "failed";
      }
      if (rank == victim) was_reached = std::exchange(allocations_left, -1) < 0;
      if (comm) comm->run({.kind = CollectiveKind::barrier}, {}, {});
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(outcomes, std::vector<std::string>(nodes.size(), outcomes[0]))
      << "rank " << victim << ", allocation " << allocation;
  return was_reached;
}

/// Lets each allocation fail in turn, or one of `step`.
void fail_each_allocation(const std::vector<std::int32_t>& nodes, std::size_t victim, bool has_memory, int step = 1) {
  constexpr int kMostAllocations = 100'000;
  int allocation = 0;
  while (fail_allocation(nodes, victim, has_memory, allocation) && allocation < kMostAllocations) allocation += step;
  EXPECT_GT(allocation, 20);
  EXPECT_LT(allocation, kMostAllocations);
}

/// Counts the exchanges of its rank.
class Counting final : public Fed {
 public:
  Counting(std::unique_ptr<engine::Transport> under, int& exchanges) : Fed(std::move(under)), exchanges_(exchanges) {}
  void allgather(ConstBytes mine, Bytes all) override {
    ++exchanges_;
    Fed::allgather(mine, all);
  }
  void maximum(std::span<std::uint64_t> values, const std::function<void()>& meanwhile) override {
    ++exchanges_;
    Fed::maximum(values, meanwhile);
  }

 private:
  int& exchanges_;
};

/// How many exchanges each rank needs to make a communicator over two nodes.
std::vector<int> exchanges_of_make_comm() {
  auto transports = engine::make_local_transports({0, 0, 1});
  std::vector<int> exchanges(transports.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < exchanges.size(); ++rank)
    threads.emplace_back([&, rank] {
      const MakeLink make_link = [&] {
        Link link(std::make_unique<Counting>(std::move(transports[rank]), exchanges[rank]));
        link.exchange_memory.resize(exchange_bytes(3));
        return link;
      };
      make_comm(make_link, {.progress_cores = 0});
    });
  for (std::thread& thread : threads) thread.join();
  return exchanges;
}

TEST(MakeComm, FailsOnAllRanksOrNoneWhicheverAllocationFails) {
  const std::vector<std::int32_t> nodes = {0, 0, 1};
  const WithNetwork unknown("off");
  const host::Heap& heap = *host::Heap::of_process();
  const std::uint64_t taken = heap.taken_bytes();
  for (const bool has_memory : {false, true})
    for (std::size_t victim = 0; victim < nodes.size(); ++victim) fail_each_allocation(nodes, victim, has_memory);
  EXPECT_EQ(heap.taken_bytes(), taken) << "what failed has given back its memory";
}

// Engines that have failed may answer others for a second before they are gone, and the measurement makes thousands of
// allocations: only some fail.
TEST(MakeComm, FailsOnAllRanksOrNoneAlsoWhileTheyAgreeOnTheMachine) {
  const int part = takes_all() ? 10 : 1;
  const WithNetwork measured("measured");
  for (const std::vector<std::int32_t>& nodes :
       {std::vector<std::int32_t>{0, 1}, {0, 0}, {0, 0, 1}, {0, 1, 2}, {0, 0, 1, 1}})
    for (std::size_t victim = 0; victim < nodes.size(); ++victim)
      fail_each_allocation(nodes, victim, true, (nodes.size() == 2 ? 97 : 293) / part);
}

// The same for the rows of a node, by tries that lie further and further apart. Each has a folder of its own: what the
// process has measured once it does not measure again.
TEST(MakeComm, FailsOnAllRanksOrNoneAlsoWhileTheyMeasureTheRowsOfTheirNode) {
  const WithNetwork measured("measured");
  const Options before = options();
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("penstock-rows-" + std::to_string(::getpid()));
  options().measure_algorithms = true;
  int tries = 0;
  for (const std::size_t victim : {0u, 1u}) {
    bool was_reached = true;
    for (int allocation = 0; was_reached; allocation = allocation * 4 / 3 + 30, ++tries) {
      options().machine_folder = (folder / std::to_string(tries)).string();
      was_reached = fail_allocation({0, 0}, victim, true, allocation);
    }
  }
  options() = before;
  std::filesystem::remove_all(folder);
  EXPECT_GT(tries, 10);
}

// Whether or not ranks share cores, which ends the measurement for a choice early. On one node rows are measured, too.
void expect_nobody_waits_for_who_cannot_measure(const std::vector<std::int32_t>& nodes) {
  const WithNetwork unknown("off");
  bool was_reached = true;
  int tries = 0;
  for (std::int64_t allocation = 0; was_reached; allocation = allocation * 3 / 2 + 40, ++tries) {
    auto transports = engine::make_local_transports(nodes);
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank)
      threads.emplace_back([&, rank] {
        Comm comm =
            make_comm([&] { return Link(std::make_unique<Fed>(std::move(transports[rank]))); }, {.progress_cores = 0});
        if (rank == 1) allocations_left = allocation;
        try {
          static_cast<void>(comm.machine(true));
        } catch (const std::exception&) {
        }
        if (rank == 1) was_reached = std::exchange(allocations_left, -1) < 0;
      });
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_GT(tries, 5);
}
TEST(MakeComm, NobodyWaitsForARankThatCannotMeasureTheMachine) { expect_nobody_waits_for_who_cannot_measure({0, 1}); }
TEST(MakeComm, NobodyWaitsForARankThatCannotMeasureTheRows) { expect_nobody_waits_for_who_cannot_measure({0, 0}); }

TEST(MakeComm, FailsOnAllRanksWhereTheLinkOfOneHasFailed) {
  for (const std::size_t victim : {0u, 1u, 2u}) {
    auto transports = engine::make_local_transports({0, 0, 1});
    std::vector<std::string> outcomes(transports.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank)
      threads.emplace_back([&, rank] {
        const MakeLink make_link = [&] {
          Link link(std::move(transports[rank]));
          link.exchange_memory.resize(exchange_bytes(3));
          if (rank >= victim)
            link.failure = std::make_exception_ptr(
                Error(ErrorCode::no_space, "no descriptors on rank " + std::to_string(rank), static_cast<int>(rank)));
          return link;
        };
        try {
          make_comm(make_link, {.progress_cores = 0});
        } catch (const Error& error) {
          outcomes[rank] =
              std::string(name(error.code())) + " " + std::to_string(error.rank()) + ": " + error.message();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      const std::size_t reported = std::max(rank, victim);
      EXPECT_EQ(outcomes[rank].starts_with(rank < victim ? "peer_failed " : "no_space "), true) << outcomes[rank];
      EXPECT_NE(outcomes[rank].find("no descriptors on rank " + std::to_string(reported)), std::string::npos)
          << "rank " << rank << " of " << victim << ": " << outcomes[rank];
    }
  }
}

TEST(MakeComm, NeedsTwoExchanges) {
  const WithNetwork unknown("off");
  EXPECT_EQ(exchanges_of_make_comm(), std::vector<int>(3, 2));
}

TEST(MakeComm, NeedsAThirdExchangeToAgreeOnTheMachine) {
  const WithNetwork measured("measured");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(exchanges_of_make_comm(), std::vector<int>(3, 3));
}

/// That of a rank whose MPI was initialized for one thread.
class OneThread final : public Fed {
 public:
  using Fed::Fed;
  bool any_thread() const override { return false; }
};

TEST(MakeComm, AgreesOnWhetherAnyThreadMayCall) {
  for (const int alone : {0, 1, 2}) {
    auto transports = engine::make_local_transports({0, 0, 1});
    std::vector<int> any_thread(transports.size(), -1);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        const auto own = static_cast<std::size_t>(rank);
        if (rank == alone) transports[own] = std::make_unique<OneThread>(std::move(transports[own]));
        const Comm comm = make_comm([&] { return Link(std::move(transports[own])); }, {.progress_cores = 0});
        any_thread[own] = comm.any_thread() ? 1 : 0;
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(any_thread, std::vector<int>(3, 0)) << "rank " << alone;
  }
}

/// A transport of a rank in a large job without other ranks. All of them seem to contribute what this rank does.
class Crowd final : public engine::Transport {
 public:
  explicit Crowd(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) nodes_.push_back(rank);
  }

  int rank() const override { return 0; }
  int size() const override { return static_cast<int>(nodes_.size()); }
  const std::vector<std::int32_t>& node_of_rank() const override { return nodes_; }
  bool any_thread() const override { return true; }
  std::string description() const override { return "a crowd (nobody)"; }
  int max_tag() const override { return 32767; }
  bool isend(ConstBytes, int, int, Token) override { return true; }
  void irecv(Bytes, int, int, Token) override {}
  bool take(Bytes, int, Token) override { return false; }
  void poll(std::vector<Completion>&) override {}
  void cancel(Token) override {}
  void poke() noexcept override {}
  void allgather(ConstBytes mine, Bytes all) override {
    for (std::size_t at = 0; at < all.size(); at += mine.size()) std::memcpy(&all[at], mine.data(), mine.size());
  }
  void maximum(std::span<std::uint64_t>, const std::function<void()>&) override {}

 private:
  std::vector<std::int32_t> nodes_;
};

TEST(MakeComm, KeepsFewBytesForEachRankOfAJob) {
  constexpr std::int64_t kRanks = 16384;
  constexpr std::int64_t kMostBytesPerRank = 64;
  const WithNetwork unknown("off");  // a crowd without other ranks cannot measure
  const std::int64_t before = allocated_bytes;
  const MakeLink make_link = [] { return Link(std::make_unique<Crowd>(static_cast<int>(kRanks))); };
  const Comm comm = make_comm(make_link, {.progress_cores = 0});
  EXPECT_EQ(comm.size(), kRanks);
  EXPECT_LE(allocated_bytes - before, kRanks * kMostBytesPerRank)
      << static_cast<double>(allocated_bytes - before) / kRanks << " bytes for each rank";
}

}  // namespace
}  // namespace penstock::comm
