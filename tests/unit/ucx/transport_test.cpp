// The engine over UCX. Ranks are threads of this process, each with a worker of its own, as if they were processes.
#include "ucx/transport.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "comm/link.hpp"
#include "penstock/error.hpp"

namespace penstock::ucx {
namespace {

/// Runs `body` on ranks that find each other by the addresses of their first peers alone.
void run_ranks(int size, const std::function<void(Comm&, Worker&)>& body) {
  std::vector<std::unique_ptr<Worker>> workers;
  for (int rank = 0; rank < size; ++rank) workers.push_back(std::make_unique<Worker>(library()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      Worker& worker = *workers[static_cast<std::size_t>(rank)];
      try {
        Group group{.rank = rank, .size = size, .nonce = 77};
        for (const int peer : first_peers(rank, size))
          group.addresses[peer] = workers[static_cast<std::size_t>(peer)]->address();
        const Members members = find_members(worker, group, static_cast<std::uint64_t>(rank));
        EXPECT_EQ(members.addresses->size(), static_cast<std::size_t>(size));
        Comm comm =
            comm::make_comm([&] { return comm::Link(make_transport(worker, group, members)); }, {.progress_cores = 0});
        body(comm, worker);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(UcxTransport, FirstPeersAreLogarithmicallyMany) {
  EXPECT_TRUE(first_peers(0, 1).empty());
  EXPECT_EQ(first_peers(0, 2), std::vector<int>{1});
  EXPECT_EQ(first_peers(1, 5), (std::vector<int>{0, 4, 2}));
  EXPECT_EQ(first_peers(0, 1024).size(), 10u);
}

TEST(UcxTransport, CollectivesBetweenNodes) {
  for (const int size : {1, 2, 3, 5})
    run_ranks(size, [size](Comm& comm, Worker&) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{500'000}}) {
        std::vector<std::int64_t> values(count, comm.rank() + 1);
        Collective collective{.kind = CollectiveKind::allreduce, .count = count, .dtype = DType::int64};
        collective.in_place = true;
        comm.start(collective, {}, std::as_writable_bytes(std::span(values))).wait();
        EXPECT_EQ(values, std::vector<std::int64_t>(count, size * (size + 1) / 2));
      }
    });
}

}  // namespace
}  // namespace penstock::ucx
