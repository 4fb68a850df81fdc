// PENSTOCK_NETWORK: algorithms between nodes by cost. The ranks are threads of this process.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "host/cpu_set.hpp"
#include "local_transport.hpp"
#include "penstock/comm.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"
#include "unit/engine/wrapped_transport.hpp"

namespace penstock::comm {
namespace {

const std::vector<std::int32_t> kNodes = {0, 0, 1, 1, 2, 2};

/// Runs `body` on each rank with this network. Returns what the ranks threw, or "".
std::vector<std::string> on_all_ranks(const std::string& network, const std::function<void(Comm&, std::size_t)>& body) {
  const std::string before = std::exchange(options().network, network);
  auto transports = engine::make_local_transports(kNodes);
  std::vector<std::string> thrown(kNodes.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < kNodes.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        Comm comm = make_comm([&] { return Link(std::move(transports[rank])); }, {.progress_cores = 0});
        body(comm, rank);
      } catch (const Error& error) {
        thrown[rank] = std::string(name(error.code())) + ": " + error.message();
      }
    });
  for (std::thread& thread : threads) thread.join();
  options().network = before;
  return thrown;
}

TEST(Network, ChoosesByCostBetweenNodes) {
  constexpr std::uint64_t kCount = 50'000;
  for (const std::string network : {"off", "tcp-1g", "rdma-200g"}) {
    std::vector<std::string> reasons(kNodes.size());
    const auto thrown = on_all_ranks(network, [&](Comm& comm, std::size_t rank) {
      const Collective collective{.kind = CollectiveKind::allreduce, .count = kCount, .dtype = DType::int64};
      reasons[rank] = comm.explain(collective);
      std::vector<std::int64_t> own(kCount);
      std::iota(own.begin(), own.end(), static_cast<std::int64_t>(rank));
      std::vector<std::int64_t> sum(kCount);
      comm.run(collective, std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(sum)));
      for (std::size_t i = 0; i < kCount; ++i)
        ASSERT_EQ(sum[i], static_cast<std::int64_t>(kNodes.size() * i + 15)) << i;
    });
    for (std::size_t rank = 0; rank < kNodes.size(); ++rank) {
      EXPECT_EQ(thrown[rank], "");
      EXPECT_EQ(reasons[rank].find("least cost on this network") != std::string::npos, network != "off")
          << reasons[rank];
    }
  }
}

// Each node has one rank, sees as many CPUs as the machine has, and so leaves one to communication.
TEST(Network, EmulatedNodesOfOneMachineShareItsCores) {
  const std::string before = std::exchange(options().network, "off");
  const int cpus = host::cpus_of_this_process().count();
  for (const int ranks : {5, std::max(5, cpus + 1)}) {
    std::vector<std::int32_t> nodes(static_cast<std::size_t>(ranks));
    std::iota(nodes.begin(), nodes.end(), 0);
    auto transports = engine::make_local_transports(nodes);
    std::vector<std::string> reasons(nodes.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank)
      threads.emplace_back([&, rank] {
        const Comm comm = make_comm([&] { return Link(std::move(transports[rank])); }, {.progress_cores = 1});
        reasons[rank] = comm.explain({.kind = CollectiveKind::alltoall, .count = 8});
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& reason : reasons)
      EXPECT_EQ(reason.find("ranks share cores") != std::string::npos, ranks > cpus) << ranks << ": " << reason;
  }
  options().network = before;
}

/// A transport whose rank has the options to itself until it first talks to others.
class WithOwnOptions final : public engine::WrappedTransport {
 public:
  WithOwnOptions(std::unique_ptr<engine::Transport> transport, std::unique_lock<std::mutex> lock)
      : WrappedTransport(std::move(transport)), lock_(std::move(lock)) {}
  void allgather(ConstBytes mine, Bytes all) override {
    if (lock_.owns_lock()) lock_.unlock();
    WrappedTransport::allgather(mine, all);
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

// Rank 0's network counts, and what a rank was asked about before does not.
TEST(Network, IsTheSameOnRanksWithOtherOptionsAndCaches) {
  const std::vector<std::string> networks = {"rdma-200g", "tcp-1g", "off", "slingshot", "tcp-1g", "measured"};
  const std::string before = options().network;
  auto transports = engine::make_local_transports(kNodes);
  std::mutex mutex;
  std::vector<std::vector<std::string>> reasons(kNodes.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < kNodes.size(); ++rank)
    threads.emplace_back([&, rank] {
      Comm comm = make_comm(
          [&] {
            std::unique_lock lock(mutex);
            options().network = networks[rank];
            Link link(std::make_unique<WithOwnOptions>(std::move(transports[rank]), std::move(lock)));
            link.exchange_memory.resize(exchange_bytes(static_cast<int>(kNodes.size())));
            return link;
          },
          {.progress_cores = 0});
      const auto explain = [&](CollectiveKind kind, std::uint64_t count) {
        const std::string text = comm.explain({.kind = kind, .count = count, .dtype = DType::int64});
        const std::size_t begin = text.find("\"algorithm\"");
        return text.substr(begin, text.find("\"split\"") - begin);
      };
      for (std::uint64_t count = 1; count < 50 * (rank + 1); count += 7)
        static_cast<void>(explain(CollectiveKind::allreduce, 37 * count));
      for (const CollectiveKind kind : {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::allreduce})
        for (const std::uint64_t count : {1u, 700u, 9000u, 120'000u}) reasons[rank].push_back(explain(kind, count));
    });
  for (std::thread& thread : threads) thread.join();
  options().network = before;
  EXPECT_NE(reasons[0][0].find("least cost on this network"), std::string::npos) << reasons[0][0];
  for (const std::vector<std::string>& each : reasons) EXPECT_EQ(each, reasons[0]);
}

TEST(Network, IsRefusedOnAllRanksIfItIsUnknown) {
  for (const std::string& each : on_all_ranks("pigeon", [](Comm&, std::size_t) { ADD_FAILURE(); }))
    EXPECT_NE(each.find("unknown class of networks 'pigeon'; expected one of tcp-1g"), std::string::npos) << each;
}

}  // namespace
}  // namespace penstock::comm
