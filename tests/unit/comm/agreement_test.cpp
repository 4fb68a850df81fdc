// The errors of ranks whose calls do not match. The ranks are threads of this process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "penstock/comm.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"
#include "unit/comm/debug_level.hpp"
#include "unit/comm/outcomes.hpp"

namespace penstock::comm {
namespace {

constexpr int kAgreeing = 4;

class Memory {
 public:
  ConstBytes input() const { return std::as_bytes(std::span(input_)); }
  Bytes output() { return std::as_writable_bytes(std::span(output_)); }

 private:
  std::vector<std::byte> input_ = std::vector<std::byte>(4096);
  std::vector<std::byte> output_ = std::vector<std::byte>(4096);
};

void run(Comm& comm, const Collective& collective) {
  Memory memory;
  const Plan plan = plan_collective(comm.team(), normalized(collective, comm.rank()));
  comm.run(collective, memory.input().first(plan.input_bytes), memory.output().first(plan.output_bytes));
}

struct Case {
  const char* name;
  std::function<Collective(int rank)> what;
  std::vector<const char*> says;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"count",
       [](int rank) {
         return Collective{.kind = CollectiveKind::allreduce, .count = rank == 2 ? 5u : 7u, .dtype = DType::int32};
       },
       {"allreduce: count is 5 elements on rank 2, 7 elements on ranks 0, 1 and 3"}},
      {"reproducible",
       [](int rank) {
         return Collective{
             .kind = CollectiveKind::allreduce, .count = 8, .dtype = DType::float32, .reproducible = rank != 1};
       },
       {"allreduce: reproducible is off on rank 1, on on ranks 0, 2 and 3"}},
      {"root",
       [](int rank) { return Collective{.kind = CollectiveKind::bcast, .count = 8, .root = rank == 3 ? 3 : 0}; },
       {"bcast: root is 0 on ranks 0, 1 and 2, 3 on rank 3"}},
      {"dtype and operation",
       [](int rank) {
         return Collective{.kind = CollectiveKind::scan,
                           .count = 8,
                           .dtype = rank == 0 ? DType::float32 : DType::int32,
                           .op = rank == 0 ? ReduceOp::sum : ReduceOp::max};
       },
       {"dtype is int32 on ranks 1, 2 and 3, float32 on rank 0",
        "operation is sum on rank 0, max on ranks 1, 2 and 3"}},
      {"kind",
       [](int rank) {
         return Collective{.kind = rank == 1 ? CollectiveKind::allgather : CollectiveKind::alltoall, .count = 4};
       },
       {"operation is allgather on rank 1, alltoall on ranks 0, 2 and 3"}},
      {"alltoallv",
       [](int rank) {
         Collective collective{.kind = CollectiveKind::alltoallv, .count = 6};
         collective.send.counts = collective.receive.counts = {6, 6, 6, 6};
         if (rank == 1) collective.send.counts[3] = 0;
         return collective;
       },
       {"alltoallv: rank 1 sends 0 bytes to rank 3, which expects 6 bytes"}},
      {"gatherv",
       [](int rank) {
         Collective collective{.kind = CollectiveKind::gatherv, .count = rank == 2 ? 9u : 3u, .root = 1};
         collective.receive.counts = {3, 3, 3, 3};
         return collective;
       },
       {"gatherv: rank 2 sends 9 bytes to rank 1, which expects 3 bytes"}},
      {"scatterv",
       [](int rank) {
         Collective collective{.kind = CollectiveKind::scatterv, .count = rank == 2 ? 0u : 3u};
         collective.send.counts = {3, 3, 3, 3};
         return collective;
       },
       {"scatterv: rank 0 sends 3 bytes to rank 2, which expects 0 bytes"}},
      {"reduce_scatter",
       [](int rank) {
         Collective collective{.kind = CollectiveKind::reduce_scatter, .dtype = DType::int16};
         collective.receive.counts = {1, 2, rank == 3 ? 4u : 3u, 4};
         return collective;
       },
       {"reduce_scatter: receive count of rank 2 is 3 elements on ranks 0, 1 and 2, 4 elements on rank 3"}},
  };
  return all;
}

TEST(Debug, NamesTheRanksThatDisagree) {
  const DebugLevel level(1);
  for (const std::vector<std::int32_t>& nodes : {std::vector<std::int32_t>{0, 0, 0, 0}, {0, 1, 0, 1}})
    for (const Case& each : cases()) {
      SCOPED_TRACE(std::string(each.name) + (nodes[1] == 0 ? " on one node" : " on two nodes"));
      const auto errors = outcomes(nodes, [&](Comm& comm) { run(comm, each.what(comm.rank())); });
      for (int rank = 0; rank < kAgreeing; ++rank) {
        const std::optional<Error>& error = errors[static_cast<std::size_t>(rank)];
        ASSERT_TRUE(error) << "rank " << rank;
        EXPECT_EQ(error->code(), ErrorCode::mismatch) << error->message();
        for (const char* text : each.says)
          EXPECT_NE(error->message().find(text), std::string::npos) << "rank " << rank << ": " << error->message();
      }
    }
}

TEST(Debug, LeavesWhatFitsTogetherAlone) {
  const DebugLevel level(1);
  const auto errors = outcomes({0, 1, 0, 1}, [](Comm& comm) {
    Collective collective{.kind = CollectiveKind::alltoallv, .dtype = DType::int32};
    for (unsigned peer = 0; peer < kAgreeing; ++peer) {
      collective.send.counts.push_back(static_cast<unsigned>(comm.rank()) + 2 * peer);
      collective.receive.counts.push_back(peer + 2 * static_cast<unsigned>(comm.rank()));
    }
    run(comm, collective);
    run(comm, {.kind = CollectiveKind::gatherv, .count = 3, .root = 2});
    // The other ranks do not know that the root's own block is in place.
    collective = {.kind = CollectiveKind::gatherv, .count = comm.rank() == 2 ? 99u : 3u, .root = 2};
    collective.in_place = comm.rank() == 2;
    collective.receive.counts = {3, 3, 3, 3};
    run(comm, collective);
    // MPI ignores the count of a rank without neighbours.
    using Lists = std::vector<std::vector<std::int32_t>>;
    collective = {.kind = CollectiveKind::neighbor_allgather, .count = comm.rank() == 3 ? 9u : 2u};
    collective.graph = std::make_shared<const Graph>(Lists{{2}, {0}, {1}, {}}, Lists{{1}, {2}, {0}, {}});
    run(comm, collective);
    comm.agree([] {});
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->message();
}

struct LargeCase {
  const char* name;
  std::function<Collective(int rank)> what;
  std::function<void(Collective& of_rank)> change;  ///< on the last rank
  const char* says;
};

std::vector<std::uint64_t> large_counts(const std::function<std::uint64_t(int)>& of_peer, int ranks) {
  std::vector<std::uint64_t> counts;
  for (int peer = 0; peer < ranks; ++peer) counts.push_back(of_peer(peer));
  return counts;
}

// All records of an operation together may not grow with the square of the ranks.
TEST(Debug, InLargeJobsComparesDigestsOfTheCounts) {
  constexpr int kRanks = 500;
  constexpr int kRoot = 3;
  const auto block = [](int from, int to) { return static_cast<std::uint64_t>(7 * from + 11 * to) % 13; };
  const auto exchange = [&](CollectiveKind kind, int rank) {
    Collective collective{.kind = kind};
    collective.send.counts = large_counts([&](int peer) { return block(rank, peer); }, kRanks);
    collective.receive.counts = large_counts([&](int peer) { return block(peer, rank); }, kRanks);
    return collective;
  };
  const auto alike = [&](CollectiveKind kind) {
    Collective collective{.kind = kind};
    collective.receive.counts = large_counts([&](int peer) { return block(peer, 0); }, kRanks);
    return collective;
  };
  const auto gathered = [&](int rank, bool in_place) {
    Collective collective{.kind = CollectiveKind::gatherv, .count = block(rank, kRoot), .root = kRoot};
    if (rank != kRoot) return collective;
    collective.in_place = in_place;
    if (in_place) collective.count = 99;
    collective.receive.counts = large_counts([&](int peer) { return block(peer, kRoot); }, kRanks);
    return collective;
  };
  const auto scattered = [&](int rank) {
    Collective collective{.kind = CollectiveKind::scatterv, .count = block(kRoot, rank), .root = kRoot};
    if (rank == kRoot) collective.send.counts = large_counts([&](int peer) { return block(kRoot, peer); }, kRanks);
    return collective;
  };
  const char* const pairs = "some ranks send other counts than their receivers expect";
  const std::vector<LargeCase> all{
      {"alltoallv", [&](int rank) { return exchange(CollectiveKind::alltoallv, rank); },
       [](Collective& of_rank) { std::swap(of_rank.send.counts[5], of_rank.send.counts[6]); }, pairs},
      {"alltoallv in place",
       [&](int rank) {
         Collective collective{.kind = CollectiveKind::alltoallv, .in_place = true};
         collective.receive.counts = large_counts([&](int peer) { return block(rank + peer, rank + peer); }, kRanks);
         return collective;
       },
       [](Collective& of_rank) { ++of_rank.receive.counts[5]; }, pairs},
      {"gatherv", [&](int rank) { return gathered(rank, false); }, [](Collective& of_rank) { ++of_rank.count; }, pairs},
      {"gatherv in place", [&](int rank) { return gathered(rank, true); }, [](Collective& of_rank) { ++of_rank.count; },
       pairs},
      {"scatterv", scattered, [](Collective& of_rank) { ++of_rank.count; }, pairs},
      {"allgatherv", [&](int) { return alike(CollectiveKind::allgatherv); },
       [](Collective& of_rank) { ++of_rank.receive.counts[7]; }, "the receive counts differ between ranks"},
      {"reduce_scatter", [&](int) { return alike(CollectiveKind::reduce_scatter); },
       [](Collective& of_rank) { ++of_rank.receive.counts[7]; }, "the receive counts differ between ranks"},
      {"bcast", [](int) { return Collective{.kind = CollectiveKind::bcast, .count = 8}; },
       [](Collective& of_rank) { of_rank.count = 9; }, "9 bytes on rank 499"},
  };
  for (const LargeCase& each : all) {
    SCOPED_TRACE(each.name);
    std::vector<std::uint64_t> records;
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::vector<std::uint64_t> record = record_of(each.what(rank), rank, kRanks);
      EXPECT_LE(record.size(), 16u);
      records.insert(records.end(), record.begin(), record.end());
    }
    EXPECT_EQ(disagreement(records, kRanks), "");
    Collective other = each.what(kRanks - 1);
    each.change(other);
    const std::vector<std::uint64_t> record = record_of(other, kRanks - 1, kRanks);
    std::ranges::copy(record, records.end() - static_cast<std::ptrdiff_t>(record.size()));
    EXPECT_NE(disagreement(records, kRanks).find(each.says), std::string::npos) << disagreement(records, kRanks);
  }
}

// At every debug level a rank that fails locally reports why, and the other ranks get that reason.
TEST(Debug, FailuresOfOneRankAreToldAsSuch) {
  for (const std::int64_t debug : {0, 1}) {
    const DebugLevel level(debug);
    const auto errors = outcomes({0, 0, 1, 1}, [](Comm& comm) {
      Collective collective{.kind = CollectiveKind::allgatherv, .count = 2};
      collective.receive.counts = {2, 2, 2, 2};
      if (comm.rank() == 1) collective.receive.displacements = {0, 1, 2, 3};
      Memory memory;
      comm.run(collective, memory.input().first(2), memory.output().first(8));
    });
    for (int rank = 0; rank < kAgreeing; ++rank) {
      const std::optional<Error>& error = errors[static_cast<std::size_t>(rank)];
      ASSERT_TRUE(error) << "rank " << rank;
      EXPECT_EQ(error->code(), rank == 1 ? ErrorCode::invalid_argument : ErrorCode::peer_failed);
      EXPECT_NE(error->message().find("overlap"), std::string::npos) << error->message();
    }
  }
}

// A rank does not wait for a message that is never sent, even without the debug level.
TEST(Counts, ARankThatWaitsForNothingIsTold) {
  for (const std::vector<std::int32_t>& nodes : {std::vector<std::int32_t>{0, 0, 0}, {0, 1, 2}}) {
    const auto errors = outcomes(nodes, [](Comm& comm) {
      Collective collective{.kind = CollectiveKind::alltoallv};
      collective.send.counts = collective.receive.counts = {4, 4, 4};
      if (comm.rank() == 2) collective.send.counts[0] = 0;
      run(comm, collective);
    });
    ASSERT_TRUE(errors[0]);
    EXPECT_EQ(errors[0]->code(), ErrorCode::mismatch);
    EXPECT_NE(errors[0]->message().find("without sending the 4 bytes"), std::string::npos) << errors[0]->message();
  }
}

// The lengths of a pair may choose different ways: beside a flag, in pieces, or as one message.
TEST(Counts, APairThatDisagreesIsToldBothLengths) {
  constexpr std::uint64_t kLengths[] = {0, 3, 40, 2000, 3000, 70'000, 200'000};
  for (const CollectiveKind kind : {CollectiveKind::gatherv, CollectiveKind::scatterv})
    for (const std::uint64_t sent : kLengths)
      for (const std::uint64_t expected : kLengths) {
        const bool gathers = kind == CollectiveKind::gatherv;
        const auto errors = outcomes({0, 0, 0}, [&](Comm& comm) {
          const bool is_root = comm.rank() == 1;
          Collective collective{.kind = kind, .count = 5, .root = 1};
          if (comm.rank() == 2) collective.count = gathers ? sent : expected;
          Blocks& blocks = gathers ? collective.receive : collective.send;
          if (is_root) blocks.counts = {5, 5, gathers ? expected : sent};
          std::vector<std::byte> whole(10 + kLengths[6]);
          std::vector<std::byte> own(kLengths[6]);
          const Bytes all = std::span(whole).first(is_root ? 10 + blocks.counts[2] : 0);
          const Bytes mine = std::span(own).first(collective.count);
          gathers ? comm.run(collective, mine, all) : comm.run(collective, all, mine);
        });
        const int reader = gathers ? 1 : 2;
        const std::string both = "rank " + std::to_string(3 - reader) + " sent " + std::to_string(sent) +
                                 " bytes where rank " + std::to_string(reader) + " expected " +
                                 std::to_string(expected) + " bytes";
        ASSERT_EQ(errors[static_cast<std::size_t>(reader)].has_value(), sent != expected) << both;
        if (sent == expected) continue;
        const Error& error = *errors[static_cast<std::size_t>(reader)];
        EXPECT_EQ(error.code(), ErrorCode::mismatch);
        EXPECT_NE(error.message().find(both), std::string::npos) << error.message();
      }
}

TEST(UserOp, WhatItThrowsFailsTheOperationOnAllRanks) {
  const auto user = std::make_shared<const UserOp>(
      UserOp{.combine = [](ConstBytes, Bytes) { throw std::runtime_error("does not like these"); },
             .element_bytes = 3,
             .commutative = false});
  for (const std::uint64_t count : {1u, 60'000u}) {
    const auto errors = outcomes({0, 0, 1, 1}, [&](Comm& comm) {
      std::vector<std::byte> input(3 * count);
      std::vector<std::byte> output(3 * count);
      comm.run({.kind = CollectiveKind::allreduce, .count = count}, input, output, user);
    });
    for (const auto& error : errors) EXPECT_TRUE(error);
  }
}

TEST(UserOp, IsNeededForElementsOfOtherSizes) {
  const auto errors = outcomes({0, 0}, [](Comm& comm) {
    std::vector<std::byte> memory(24);
    comm.run({.kind = CollectiveKind::allreduce, .count = 1, .element_bytes = 12}, std::span(memory).first(12),
             std::span(memory).subspan(12));
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_NE(error->message().find("element_bytes is 12 without a user operation"), std::string::npos)
        << error->message();
  }
}

}  // namespace
}  // namespace penstock::comm
