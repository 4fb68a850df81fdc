// Operations of another library, started in the place of the communicator's own. The ranks are threads of this process.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <random>
#include <vector>

#include "penstock/comm.hpp"
#include "unit/comm/debug_level.hpp"
#include "unit/comm/outcomes.hpp"

namespace penstock::comm {
namespace {

constexpr int kGroup = 3;
constexpr int kOperations = 8;
constexpr std::uint64_t kSignature = 7;

/// A library with non-blocking barriers.
struct Library {
  std::array<std::atomic<int>, kOperations> started{};
  std::mutex mutex;
  std::array<std::vector<int>, kGroup> order{};
};

class Barrier final : public ExternalOperation {
 public:
  Barrier(Library& library, int rank, int number) : library_(library), rank_(rank), number_(number) {}
  void start() override {
    const std::lock_guard lock(library_.mutex);
    library_.order[static_cast<std::size_t>(rank_)].push_back(number_);
    ++started();
  }
  bool test() override { return started() == kGroup; }

 private:
  std::atomic<int>& started() { return library_.started[static_cast<std::size_t>(number_)]; }

  Library& library_;
  int rank_;
  int number_;
};

class Failing final : public ExternalOperation {
 public:
  explicit Failing(bool at_start) : at_start_(at_start) {}
  void start() override {
    if (at_start_) throw Error(ErrorCode::mpi, "it does not start");
  }
  bool test() override { throw Error(ErrorCode::mpi, "it does not go on"); }

 private:
  bool at_start_;
};

class External : public testing::TestWithParam<std::vector<std::int32_t>> {};
INSTANTIATE_TEST_SUITE_P(, External,
                         testing::Values(std::vector<std::int32_t>{0, 0, 0}, std::vector<std::int32_t>{0, 1, 1}));

// Each rank finishes what is in flight in an order of its own, and operations of the communicator lie in between.
TEST_P(External, StartInOrderAndInAnyCallThatWaits) {
  for (const int debug : {0, 1}) {
    const DebugLevel level(debug);
    Library library;
    const auto errors = outcomes(GetParam(), [&](Comm& comm) {
      std::vector<Request> requests;
      std::array<std::int32_t, kOperations> sums{};
      const std::int32_t one = 1;
      for (int i = 0; i < kOperations; ++i) {
        const auto at = static_cast<std::size_t>(i);
        requests.push_back(comm.start_external(std::make_unique<Barrier>(library, comm.rank(), i), kSignature));
        requests.push_back(comm.start({.kind = CollectiveKind::allreduce, .count = 1, .dtype = DType::int32},
                                      std::as_bytes(std::span(&one, 1)),
                                      std::as_writable_bytes(std::span(&sums[at], 1))));
      }
      std::minstd_rand random(static_cast<unsigned>(comm.rank() + 1));
      std::ranges::shuffle(requests, random);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        if (i % 2 == 0) {
          requests[i].wait();
        } else {
          while (!requests[i].test()) std::this_thread::yield();
        }
      }
      for (const std::int32_t sum : sums) EXPECT_EQ(sum, kGroup);
    });
    for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
    for (const std::vector<int>& order : library.order) {
      EXPECT_EQ(order.size(), std::size_t{kOperations});
      EXPECT_TRUE(std::ranges::is_sorted(order));
    }
  }
}

TEST_P(External, NoneStartsIfARankHasFailedOrStartsAnother) {
  for (const bool fails : {false, true}) {
    Library library;
    const auto errors = outcomes(GetParam(), [&](Comm& comm) {
      if (comm.rank() == 1 && fails) return comm.fail_next("not here");
      comm.start_external(std::make_unique<Barrier>(library, comm.rank(), 0), kSignature + (comm.rank() == 1 ? 1 : 0))
          .wait();
    });
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      if (fails && rank == 1) continue;
      ASSERT_TRUE(errors[rank]);
      // A rank that another one has told of the mismatch gets peer_failed.
      if (fails || errors[rank]->code() != ErrorCode::mismatch) {
        EXPECT_EQ(errors[rank]->code(), ErrorCode::peer_failed) << errors[rank]->what();
      }
    }
    EXPECT_EQ(library.started[0], 0);
  }
}

TEST_P(External, WhatItsMembersThrowFailsItHere) {
  for (const bool at_start : {false, true}) {
    const auto errors = outcomes(GetParam(), [&](Comm& comm) {
      Request request = comm.start_external(std::make_unique<Failing>(at_start), kSignature);
      comm.start_external(std::make_unique<Failing>(at_start), kSignature);  // dropped
      request.wait();
    });
    for (const auto& error : errors) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->message(), at_start ? "it does not start" : "it does not go on");
    }
  }
}

}  // namespace
}  // namespace penstock::comm
