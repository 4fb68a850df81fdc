// A failure reaches every rank of its operation exactly once, and later operations work.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <optional>
#include <random>
#include <string>

#include "calls.hpp"
#include "engine/segment.hpp"
#include "eventually.hpp"
#include "plans.hpp"
#include "ranks.hpp"

namespace penstock::engine {
namespace {

using std::chrono::milliseconds;

std::optional<Error> error_of(engine::Run& run) {
  std::optional<Error> error;
  try {
    run.wait();
  } catch (const Error& thrown) {
    error = thrown;
  }
  EXPECT_TRUE(run.done());
  EXPECT_NO_THROW(run.wait());  // an error is delivered only once
  EXPECT_TRUE(run.test());
  return error;
}

void expect_next_operation_works(Engine& engine, int rank, CalledBy by = CalledBy::start) {
  const int size = engine.team().size();
  const std::uint64_t elems = by == CalledBy::run ? 100 : 5000;
  std::vector<std::uint32_t> in(elems, static_cast<std::uint32_t>(rank));
  std::vector<std::uint32_t> out(elems);
  const auto plan = allreduce_plan(rank, size, elems * 4);
  const Bindings bindings{bytes_of(std::as_const(in)), bytes_of(out)};
  if (by == CalledBy::run)
    engine.run(plan, bindings, kAddUint32, 1);
  else
    engine.start(plan, bindings, kAddUint32, 1)->wait();
  EXPECT_EQ(out.back(), static_cast<std::uint32_t>(size * (size - 1) / 2));
}

struct FailureSetting {
  const char* name;
  std::vector<std::int32_t> nodes;
  int progress_threads;
  bool single_copy;
  CalledBy by = CalledBy::start;
};

std::string name_of(const testing::TestParamInfo<FailureSetting>& setting) { return setting.param.name; }

class Failures : public testing::TestWithParam<FailureSetting> {
 protected:
  RanksOptions ranks() const {
    RanksOptions options = ranks_of(GetParam().nodes);
    options.engine.progress_threads = GetParam().progress_threads;
    options.engine.single_copy = GetParam().single_copy;
    return options;
  }
  int size() const { return static_cast<int>(GetParam().nodes.size()); }
  std::optional<Error> failure(Engine& engine, const std::shared_ptr<const Plan>& plan, const Bindings& bindings,
                               std::uint64_t signature = 7) {
    return GetParam().by == CalledBy::run ? failure_of_run(engine, plan, bindings, kAddUint32, signature, counts_)
                                          : error_of(*engine.start(plan, bindings, kAddUint32, signature));
  }
  void expect_next_works(Engine& engine, int rank) const { expect_next_operation_works(engine, rank, GetParam().by); }
  void TearDown() override {
    // A progress thread may find the failure first.
    if (counts_.possible > 0 && GetParam().progress_threads == 0) {
      EXPECT_GT(counts_.taken, 0u);
    }
  }

  ShortCallCounts counts_;  ///< of calls that may fail
};

INSTANTIATE_TEST_SUITE_P(, Failures,
                         testing::Values(FailureSetting{"one_node", one_node(3), 0, true},
                                         FailureSetting{"one_node_copied_twice", one_node(4), 0, false},
                                         FailureSetting{"one_node_thread", one_node(4), 1, true},
                                         FailureSetting{"nodes_of_one", {0, 1, 2}, 0, true},
                                         FailureSetting{"nodes_of_one_run", {0, 1, 2, 3}, 0, true, CalledBy::run},
                                         FailureSetting{"nodes_of_1_and_2_run", {0, 1, 1}, 0, true, CalledBy::run},
                                         FailureSetting{"nodes_of_one_thread_run", {0, 1, 2}, 1, true, CalledBy::run},
                                         FailureSetting{"nodes_of_3_and_4", {1, 0, 1, 0, 0, 1, 0}, 0, true},
                                         FailureSetting{"nodes_of_2_and_2_thread", {0, 1, 0, 1}, 1, false}),
                         name_of);

// Rank 0 fails last: where it alone has a node to itself, its first call must be one that may take the fast path, as
// packets of an earlier failure may keep any later one from it.
TEST_P(Failures, FailNextIsToldToAllRanks) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    for (const std::uint64_t elems : {4u, 50000u})
      for (int failing = size(); failing-- > 0;) {
        if (rank == failing) {
          engine.fail_next("count is -1; expected a number from 0 on");
        } else {
          std::vector<std::uint32_t> in(elems);
          std::vector<std::uint32_t> out(elems);
          const auto plan = allreduce_plan(rank, size(), elems * 4);
          const auto error = failure(engine, plan, {bytes_of(in), bytes_of(out)});
          ASSERT_TRUE(error) << "rank " << rank;
          EXPECT_EQ(error->code(), ErrorCode::peer_failed);
          EXPECT_EQ(error->rank(), failing);
          EXPECT_NE(error->message().find("count is -1"), std::string::npos) << error->what();
        }
        expect_next_works(engine, rank);
      }
  });
}

TEST_P(Failures, ARankThatStartsLateGetsItAtOnce) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    if (rank == 0) engine.fail_next("first");
    if (rank == 0) engine.fail_next("second");
    if (rank == size() - 1) std::this_thread::sleep_for(milliseconds(20));
    if (rank != 0)
      for (const char* text : {"first", "second"}) {
        std::vector<std::uint32_t> in(4);
        std::vector<std::uint32_t> out(4);
        const auto error = failure(engine, allreduce_plan(rank, size(), 16), {bytes_of(in), bytes_of(out)});
        ASSERT_TRUE(error);
        EXPECT_NE(error->message().find(text), std::string::npos);
      }
    expect_next_works(engine, rank);
  });
}

TEST_P(Failures, AnOperationThatARankDoesNotCallTimesOutOnAllOthers) {
  std::atomic<int> failed{0};
  std::atomic<int> timed_out{0};
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const int late = size() - 1;
    engine.set_timeout(milliseconds(300));
    if (rank == late)
      while (failed < late) std::this_thread::sleep_for(milliseconds(5));
    const std::uint64_t elems = GetParam().by == CalledBy::run ? 100 : 50'000;
    std::vector<std::uint32_t> in(elems);
    std::vector<std::uint32_t> out(elems);
    const auto plan = allreduce_plan(rank, size(), elems * 4);
    const auto error = failure(engine, plan, {bytes_of(in), bytes_of(out)});
    ++failed;
    ASSERT_TRUE(error) << "rank " << rank;
    EXPECT_NE(error->message().find("timed out"), std::string::npos) << error->what();
    const bool is_own = error->code() == ErrorCode::timed_out;
    timed_out += is_own ? 1 : 0;
    EXPECT_TRUE(is_own || error->code() == ErrorCode::peer_failed) << error->what();
    EXPECT_TRUE(rank != late || !is_own);
    engine.set_timeout(milliseconds(0));
    expect_next_works(engine, rank);
  });
  EXPECT_GT(timed_out, 0);
}

TEST_P(Failures, DifferentSizesAreAMismatchOnBothRanks) {
  for (const std::uint64_t elems : {10u, 50000u})
    run_ranks(ranks(), [&](Engine& engine, int rank) {
      const std::uint64_t mine = rank == 1 ? elems + 2 : elems;
      std::vector<std::uint32_t> in(mine);
      std::vector<std::uint32_t> out(mine);
      const auto plan = allreduce_plan(rank, size(), mine * 4);
      const auto error = failure(engine, plan, {bytes_of(in), bytes_of(out)});
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), rank < 2 ? ErrorCode::mismatch : ErrorCode::peer_failed) << error->what();
      if (rank < 2) {
        EXPECT_NE(error->message().find(std::to_string(elems * 4) + " "), std::string::npos) << error->what();
        EXPECT_NE(error->message().find(std::to_string(elems * 4 + 8) + " "), std::string::npos) << error->what();
      }
      expect_next_works(engine, rank);
    });
}

// Rank 0 completes the operation before rank 1's message arrives. Rank 2 still waits for rank 1.
TEST_P(Failures, AMismatchWithARankThatHasCompletedTheOperationIsToldToAll) {
  constexpr std::uint64_t kElems = 50'000;
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    PlanBuilder builder("test/fits_nobody", rank, size());
    if (rank == 1) {
      const StepId first = builder.send({0, kElems * 4, Buffer::input}, 0, 0);
      builder.send({0, 4, Buffer::input}, 2, 0, {first});
    } else if (rank == 2) {
      builder.recv({0, 4, Buffer::output}, 1, 0);
    }
    const auto plan =
        std::make_shared<const Plan>(std::move(builder).finish(rank == 1 ? kElems * 4 : 0, rank == 2 ? 4 : 0));
    const std::vector<std::uint32_t> in(rank == 1 ? kElems : 0);
    std::vector<std::uint32_t> out(rank == 2 ? 1 : 0);
    const auto error = failure(engine, plan, {bytes_of(in), bytes_of(out)});
    if (rank == 1 || rank == 2) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), rank == 1 ? ErrorCode::mismatch : ErrorCode::peer_failed) << error->what();
    }
    expect_next_works(engine, rank);
  });
}

TEST_P(Failures, DifferentSignaturesAreAMismatchOnBothRanks) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    std::vector<std::uint32_t> in(8);
    std::vector<std::uint32_t> out(8);
    const auto plan = allreduce_plan(rank, size(), 32);
    const auto error = failure(engine, plan, {bytes_of(in), bytes_of(out)}, rank == 1 ? 8 : 7);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), rank < 2 ? ErrorCode::mismatch : ErrorCode::peer_failed) << error->what();
    expect_next_works(engine, rank);
  });
}

// All ranks act as the root, so none sends. They detect the mismatch by querying each other.
TEST_P(Failures, RanksThatWaitForEachOtherFindOutWhy) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    PlanBuilder builder("test/gather", rank, size());
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank) builder.recv({static_cast<std::uint64_t>(peer) * 4, 4, Buffer::output}, peer, 0);
    const auto plan =
        std::make_shared<const Plan>(std::move(builder).finish(0, static_cast<std::uint64_t>(size()) * 4));
    std::vector<std::uint32_t> out(static_cast<std::size_t>(size()));
    const auto error = failure(engine, plan, {{}, bytes_of(out)}, static_cast<std::uint64_t>(rank));
    ASSERT_TRUE(error);
    EXPECT_TRUE(error->code() == ErrorCode::mismatch || error->code() == ErrorCode::peer_failed);
    expect_next_works(engine, rank);
  });
}

// As an alltoallv whose senders have zero bytes where the receivers expect some: no message comes, no rank completes
// the operation, and the signatures are equal.
TEST_P(Failures, RanksThatAllExpectWhatNoneSendsFindOutWhy) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    PlanBuilder builder("test/alltoallv", rank, size());
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank) builder.recv({static_cast<std::uint64_t>(peer) * 4, 4, Buffer::output}, peer, 0);
    const auto plan =
        std::make_shared<const Plan>(std::move(builder).finish(0, static_cast<std::uint64_t>(size()) * 4));
    std::vector<std::uint32_t> out(static_cast<std::size_t>(size()));
    const auto error = failure(engine, plan, {{}, bytes_of(out)});
    ASSERT_TRUE(error);
    EXPECT_TRUE(error->code() == ErrorCode::mismatch || error->code() == ErrorCode::peer_failed);
    EXPECT_NE(error->message().find("without sending the 4 bytes that rank"), std::string::npos) << error->what();
    expect_next_works(engine, rank);
  });
}

// Rank 1 sends to rank 0 only after what rank 0 never sends, and to the others at once.
TEST_P(Failures, ARankThatStillRunsSaysThatItExpectsAMessage) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    PlanBuilder builder("test/alltoallv", rank, size());
    if (rank == 0) {
      builder.recv({0, 4, Buffer::output}, 1, 0);
    } else if (rank == 1) {
      const StepId first = builder.recv({0, 4, Buffer::output}, 0, 0);
      builder.send({0, 4, Buffer::output}, 0, 0, {first});
    }
    const auto plan = std::make_shared<const Plan>(std::move(builder).finish(0, rank < 2 ? 4 : 0));
    std::vector<std::uint32_t> out(1);
    const auto error = failure(engine, plan, {{}, bytes_of(out)});
    if (rank < 2) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::mismatch) << error->what();
    }
    expect_next_works(engine, rank);
  });
}

TEST_P(Failures, APlanThatCannotBeRunFailsOnAllRanks) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    auto plan = std::make_shared<Plan>(*allreduce_plan(rank, size(), 64));
    if (rank == 1) plan->steps.back().peer = 99;
    std::vector<std::uint32_t> in(16);
    std::vector<std::uint32_t> out(16);
    const auto error = failure(engine, plan, {bytes_of(in), bytes_of(out)});
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), rank == 1 ? ErrorCode::invalid_argument : ErrorCode::peer_failed);
    expect_next_works(engine, rank);
  });
}

// Operations of all sizes overlap and fail at random moments. The caller frees memory as soon as it has the error.
TEST_P(Failures, InTheMiddleOfEverything) {
  constexpr std::size_t kOperations = 12;
  std::vector<RandomPlans> cases;
  for (std::uint32_t i = 0; i < 3; ++i) cases.emplace_back(size(), 30, 4, i == 0 ? 16 : i == 1 ? 3000 : 30000, i);
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const auto me = static_cast<std::size_t>(rank);
    std::mt19937 mine(static_cast<std::uint32_t>(rank));
    std::mt19937 shared(4711);  // makes the same decisions on all ranks
    for (int round = 0; round < 4; ++round) {
      struct Started {
        std::size_t operation;
        std::unique_ptr<std::vector<std::uint32_t>> in;
        std::unique_ptr<std::vector<std::uint32_t>> out;
        std::shared_ptr<engine::Run> run;
        bool fails;
      };
      const auto check = [&](Started& one, const std::optional<Error>& error) {
        if (error) {
          EXPECT_TRUE(one.fails) << error->what();
          EXPECT_EQ(error->code(), ErrorCode::peer_failed) << error->what();
        } else {
          EXPECT_EQ(*one.out, cases[one.operation % cases.size()].outputs[me]);
        }
        one.in.reset();
        one.out.reset();
      };
      std::vector<Started> started;
      for (std::size_t i = 0; i < kOperations; ++i) {
        const RandomPlans& one = cases[i % cases.size()];
        const bool fails = shared() % 3 == 0;
        const bool by_me = static_cast<int>(shared() % static_cast<std::uint32_t>(size())) == rank;
        if (mine() % 4 == 0) std::this_thread::sleep_for(milliseconds(mine() % 4));
        if (fails && by_me) {
          engine.fail_next("on purpose");
          continue;
        }
        Started next{i, std::make_unique<std::vector<std::uint32_t>>(one.inputs[me]),
                     std::make_unique<std::vector<std::uint32_t>>(one.inputs[me].size()), nullptr, fails};
        const Bindings bindings{bytes_of(std::as_const(*next.in)), bytes_of(*next.out)};
        if (GetParam().by == CalledBy::run) {
          const auto error = failure_of_run(engine, one.plans[me], bindings, kAddUint32, i, counts_);
          check(next, error);
        } else {
          next.run = engine.start(one.plans[me], bindings, kAddUint32, i);
          started.push_back(std::move(next));
        }
      }
      for (Started& one : started) check(one, error_of(*one.run));
    }
    expect_next_works(engine, rank);
  });
}

// Sends more messages than there are cells to a rank that receives nothing. AddressSanitizer detects a leak.
TEST(Runs, WhatWasNeitherSentNorTakenIsFreed) {
  constexpr int kMoreThanCells = 1000;
  std::latch all_sent(2);
  run_ranks(ranks_of(one_node(2)), [&](Engine& engine, int rank) {
    if (rank == 0)
      for (int i = 0; i < kMoreThanCells; ++i) engine.fail_next("count is -1");
    all_sent.arrive_and_wait();
    if (rank == 1) engine.fail_next("count is -2");  // receives the messages that have arrived
  });
}

TEST(Runs, ARankThatHasGoneIsNoticed) {
  run_ranks(ranks_of(one_node(3)), [](Engine& engine, int rank) {
    if (rank == 1) return;
    std::vector<std::uint32_t> in(4);
    std::vector<std::uint32_t> out(4);
    const auto error =
        error_of(*engine.start(allreduce_plan(rank, 3, 16), {bytes_of(in), bytes_of(out)}, kAddUint32, 7));
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::peer_failed) << error->what();
  });
}

// Rank 0 needs no other rank, so it never waits. Rank 1 exits without a message. The first calls take no fast path.
TEST(Runs, ARankThatHasGoneIsNoticedByOneThatNeverWaits) {
  RanksOptions alone = ranks_of(one_node(2));
  alone.engine.progress_threads = 0;
  for (const bool is_blocking : {false, true})
    for (const bool by_flags : {false, true}) {
      std::latch has_called(2);
      run_ranks(alone, [&](Engine& engine, int rank) {
        if (rank == 1) return has_called.arrive_and_wait();
        Plan plan = PlanBuilder("test/nothing", 0, 2).finish(0, 0);
        plan.by_flags = by_flags;
        const auto nothing = std::make_shared<const Plan>(std::move(plan));
        ShortCallCounts counts;
        const auto error_of_call = [&] {
          return is_blocking ? failure_of_run(engine, nothing, {}, {}, 7, counts)
                             : error_of(*engine.start(nothing, {}, {}, 7));
        };
        for (int i = 0; i < 3'000; ++i) EXPECT_FALSE(error_of_call());
        has_called.arrive_and_wait();
        std::optional<Error> error;
        EXPECT_TRUE(test::eventually([&] {
          error = error_of_call();
          return error.has_value();
        })) << (is_blocking ? "blocking" : "started")
            << (by_flags ? ", by flags" : "");
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), ErrorCode::peer_failed) << error->what();
        EXPECT_EQ(error->rank(), 1);
      });
    }
}

// Rank 1 reads a message from the memory of rank 0 after rank 0 has given up that operation and many more. User
// operations on both ranks wait for the right moments.
TEST(Runs, AMessageOfAnOperationThatFailedLongAgoIsNotTaken) {
  constexpr std::uint64_t kElems = 50'000;
  constexpr int kMoreFailures = 300;
  enum Moment { begin, sent, matched, gone, over };
  std::atomic<int> moment{begin};
  const auto reach = [&](Moment next) { moment.store(next); };
  const auto await = [&](Moment which) { EXPECT_TRUE(test::eventually([&] { return moment.load() >= which; })); };
  run_ranks(ranks_of(one_node(2)), [&](Engine& engine, int rank) {
    const auto combining = [](auto function) {
      return Arithmetic{
          .user = std::make_shared<const UserOp>(UserOp{.combine = [function](ConstBytes, Bytes) { function(); }})};
    };
    PlanBuilder builder("test/long_message", rank, 2);
    const Region whole{0, kElems * 4, rank == 0 ? Buffer::input : Buffer::output};
    builder.reduce({0, 4, Buffer::input}, builder.scratch(4));
    rank == 0 ? builder.send(whole, 1, 0) : builder.recv(whole, 0, 0);
    Plan plan = std::move(builder).finish(kElems * 4, kElems * 4);
    plan.steps.back().lane = Lane::application;
    const auto shared_plan = std::make_shared<const Plan>(std::move(plan));
    std::vector<std::uint32_t> in(kElems, 5);
    std::vector<std::uint32_t> out(kElems);
    if (rank == 1) await(sent);
    const Arithmetic arithmetic = rank == 0 ? combining([&] {
      reach(sent);
      await(matched);
      throw Error(ErrorCode::invalid_argument, "given up");
    })
                                            : combining([&] {
                                                reach(matched);
                                                await(gone);
                                              });
    const auto run = engine.start(shared_plan, {bytes_of(std::as_const(in)), bytes_of(out)}, arithmetic, 7);
    const auto error = error_of(*run);
    if (rank == 1) reach(over);
    ASSERT_TRUE(error) << "rank 1 has taken " << out[0];
    EXPECT_NE(error->message().find("given up"), std::string::npos) << error->what();
    if (rank == 0) std::ranges::fill(in, 6);  // the caller may reuse its memory
    for (int i = 0; i < kMoreFailures; ++i) {
      PlanBuilder short_builder("test/failing", rank, 2);
      short_builder.reduce({0, 4, Buffer::input}, short_builder.scratch(4));
      const auto failing = std::make_shared<const Plan>(std::move(short_builder).finish(4, 0));
      const auto fails = combining([] { throw Error(ErrorCode::invalid_argument, "given up, too"); });
      EXPECT_TRUE(error_of(*engine.start(failing, {bytes_of(std::as_const(in)), {}}, fails, 7)));
    }
    if (rank == 0) {
      reach(gone);
      await(over);  // a waiting thread would also drive rank 1's engine
    }
    expect_next_operation_works(engine, rank);
  });
}

// Rank 1 sends all its messages and exits. Rank 0 still waits for rank 2.
TEST(Runs, ARankThatGoesAfterItsPartDoesNoHarm) {
  run_ranks(ranks_of(one_node(3)), [](Engine& engine, int rank) {
    PlanBuilder builder("test/gather", rank, 3);
    if (rank == 0) {
      const StepId first = builder.recv({8, 4, Buffer::output}, 2, 0);
      builder.recv({4, 4, Buffer::output}, 1, 0, {first});
      builder.recv({0, 4, Buffer::output}, 1, 1);
    } else {
      builder.send({0, 4, Buffer::input}, 0, 0);
      if (rank == 1) builder.send({0, 4, Buffer::input}, 0, 1);
    }
    const auto plan = std::make_shared<const Plan>(std::move(builder).finish(rank == 0 ? 0 : 4, rank == 0 ? 12 : 0));
    if (rank == 2) std::this_thread::sleep_for(milliseconds(700));
    std::vector<std::uint32_t> in{static_cast<std::uint32_t>(rank)};
    std::vector<std::uint32_t> out(3);
    engine.start(plan, {bytes_of(std::as_const(in)), bytes_of(out)}, kAddUint32, 7)->wait();
    if (rank == 0) {
      EXPECT_EQ(out, (std::vector<std::uint32_t>{1, 1, 2}));
    }
  });
}

// Each operation that may fail needs a failure bit, which the other ranks read.
TEST(Runs, MoreOperationsAtATimeThanCanFail) {
  constexpr std::size_t kOperations = RankSlot::kFailureBits + 100;
  run_ranks(ranks_of(one_node(2)), [](Engine& engine, int rank) {
    const auto plan = allreduce_plan(rank, 2, 4);
    std::vector<std::uint32_t> in(1, 1);
    std::vector<std::vector<std::uint32_t>> out(kOperations, std::vector<std::uint32_t>(1));
    std::vector<std::shared_ptr<engine::Run>> runs;
    for (std::size_t i = 0; i < kOperations; ++i)
      if (i % 1000 == 7)
        engine.fail_next("on purpose");
      else
        runs.push_back(engine.start(plan, {bytes_of(in), bytes_of(out[i])}, kAddUint32, 1));
    for (const auto& run : runs) run->wait();
    expect_next_operation_works(engine, rank);
  });
}

TEST(Runs, ARunThatIsDroppedIsWaitedFor) {
  run_ranks(ranks_of(one_node(3)), [](Engine& engine, int rank) {
    for (std::uint32_t i = 0; i < 100; ++i) {
      std::vector<std::uint32_t> in(4, i);
      std::vector<std::uint32_t> out(4);
      engine.start(allreduce_plan(rank, 3, 16), {bytes_of(in), bytes_of(out)}, kAddUint32, 7).reset();
      ASSERT_EQ(out[3], 3 * i);
    }
  });
}

}  // namespace
}  // namespace penstock::engine
