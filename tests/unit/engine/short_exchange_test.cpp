// The fast path for short messages between nodes, and what follows when it stops: other operations, late ranks,
// failures, transports that throw.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include "calls.hpp"
#include "engine/compiled_plan.hpp"
#include "host/yielding.hpp"
#include "make_engine.hpp"
#include "plans.hpp"
#include "ranks.hpp"
#include "wrapped_transport.hpp"
#include "yields_counted.hpp"

namespace penstock::engine {
namespace {

void expect_exchanges(Engine& engine, int rank, int operations) {
  const int size = engine.team().size();
  const auto plan = exchange_plan(rank, size, 4);
  for (int i = 0; i < operations; ++i) {
    const std::vector<std::uint32_t> in(static_cast<std::size_t>(size), static_cast<std::uint32_t>(i * size + rank));
    std::vector<std::uint32_t> out(in.size());
    engine.run(plan, {bytes_of(in), bytes_of(out)}, {}, 7);
    for (int peer = 0; peer < size; ++peer)
      ASSERT_EQ(out[static_cast<std::size_t>(peer)], static_cast<std::uint32_t>(i * size + peer)) << i;
  }
}

TEST(ShortExchange, PlansOfFewShortMessagesBetweenNodes) {
  const auto masks = [](const Plan& plan, std::vector<std::int32_t> nodes) {
    const CompiledPlan compiled(plan, {plan.rank, std::move(nodes)}, 0);
    return std::vector<std::uint32_t>(compiled.short_exchange().begin(), compiled.short_exchange().end());
  };
  EXPECT_EQ(masks(*exchange_plan(0, 2, 4), {0, 1}), (std::vector<std::uint32_t>{0, 0, 0, 0b100}));
  EXPECT_FALSE(masks(*exchange_plan(0, 2, 1024), {0, 1}).empty());
  EXPECT_TRUE(masks(*exchange_plan(0, 2, 1 << 20), {0, 1}).empty()) << "long";
  EXPECT_TRUE(masks(*exchange_plan(0, 16, 4), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}).empty())
      << "many";
  EXPECT_TRUE(masks(*alltoall_plan(0, 2, 4), {0, 1}).empty()) << "a message to itself";
}

struct ExchangeSetting {
  std::uint64_t shuffle_seed;
  int progress_threads;
  std::uint64_t rendezvous_bytes;
};

class ShortExchanges : public testing::TestWithParam<ExchangeSetting> {
 protected:
  RanksOptions ranks(std::vector<std::int32_t> nodes) {
    RanksOptions options = ranks_of(std::move(nodes));
    options.transport.shuffle_seed = GetParam().shuffle_seed;
    options.transport.rendezvous_bytes = GetParam().rendezvous_bytes;
    options.transport.left_over = &left_over_;
    options.engine.progress_threads = GetParam().progress_threads;
    options.engine.operation_slots = 4;
    return options;
  }
  // A message that is sent twice is left over.
  void TearDown() override { EXPECT_EQ(left_over_.load(), 0u); }

  std::atomic<std::size_t> left_over_{0};
};
INSTANTIATE_TEST_SUITE_P(, ShortExchanges,
                         testing::Values(ExchangeSetting{0, 0, 1000}, ExchangeSetting{0, 1, 1000},
                                         ExchangeSetting{1, 0, 0}, ExchangeSetting{2, 0, 16}, ExchangeSetting{3, 1, 0},
                                         ExchangeSetting{4, 1, 1000}));

// Operations of all ways follow each other, and some ranks are late: so the fast path stops at any step.
TEST_P(ShortExchanges, BetweenOtherOperations) {
  constexpr int kSize = 4;
  std::vector<RandomPlans> cases;
  for (std::uint32_t i = 0; i < 6; ++i) cases.emplace_back(kSize, 6 + static_cast<int>(i) * 3, 3, 1 + 40 * i, i);
  run_ranks(ranks({0, 1, 2, 3}), [&](Engine& engine, int rank) {
    const auto me = static_cast<std::size_t>(rank);
    std::mt19937 random(static_cast<std::mt19937::result_type>(rank));
    for (std::uint32_t i = 0; i < 105; ++i) {
      const RandomPlans& one = cases[i % cases.size()];
      const RandomPlans& other = cases[(i / 2) % cases.size()];
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      std::vector<std::uint32_t> out(one.inputs[me].size());
      std::vector<std::uint32_t> out_of_other(other.inputs[me].size());
      std::shared_ptr<engine::Run> started;
      if (i % 3 == 0)
        started = engine.start(other.plans[me], {bytes_of(other.inputs[me]), bytes_of(out_of_other)}, kAddUint32, i);
      if (started != nullptr && random() % 2 == 0) started->wait();
      engine.run(one.plans[me], {bytes_of(one.inputs[me]), bytes_of(out)}, kAddUint32, i);
      ASSERT_EQ(out, one.outputs[me]) << i;
      if (started == nullptr) continue;
      started->wait();
      ASSERT_EQ(out_of_other, other.outputs[me]) << i;
    }
  });
}

TEST_P(ShortExchanges, SumsWithLateRanksAndFailures) {
  constexpr int kSize = 4;
  run_ranks(ranks({0, 1, 2, 3}), [&](Engine& engine, int rank) {
    std::mt19937 random(static_cast<std::mt19937::result_type>(rank));
    const auto plan = allreduce_plan(rank, kSize, 40);
    for (std::uint32_t i = 0; i < 105; ++i) {
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      const bool some_fails = i % 7 == 6;
      const int failing = some_fails ? static_cast<int>(i / 7 % kSize) : -1;
      if (rank == failing) {
        engine.fail_next("late");
        continue;
      }
      const std::vector<std::uint32_t> in(10, i + static_cast<std::uint32_t>(rank));
      std::vector<std::uint32_t> out(10);
      const auto error = failure_of_run(engine, plan, {bytes_of(in), bytes_of(out)}, kAddUint32);
      if (some_fails) {
        // The others need rank 0, which sends to none of them before it has heard all.
        ASSERT_TRUE(error) << i;
        ASSERT_EQ(error->code(), ErrorCode::peer_failed) << error->what();
        ASSERT_EQ(error->rank(), failing) << error->what();
        continue;
      }
      ASSERT_FALSE(error) << error->what();
      ASSERT_EQ(out, std::vector<std::uint32_t>(10, 4 * i + 6));
    }
    expect_exchanges(engine, rank, 20);
  });
}

TEST_P(ShortExchanges, MessagesOfOtherLengthsAndOtherCalls) {
  run_ranks(ranks({0, 1}), [&](Engine& engine, int rank) {
    std::mt19937 random(static_cast<std::mt19937::result_type>(rank));
    for (std::uint32_t i = 0; i < 60; ++i) {
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      const std::uint64_t bytes = i % 3 == 0 ? 8 : (i % 3 == 1) == (rank == 0) ? 4 : 12;
      const std::vector<std::uint32_t> in(6, i);
      std::vector<std::uint32_t> out(6);
      const auto error = failure_of_run(engine, exchange_plan(rank, 2, bytes), {bytes_of(in), bytes_of(out)});
      ASSERT_EQ(error.has_value(), i % 3 != 0) << i;
      if (error) {
        ASSERT_EQ(error->code(), ErrorCode::mismatch) << error->what();
      }
    }
    expect_exchanges(engine, rank, 20);
    const std::vector<std::uint32_t> in(2);
    std::vector<std::uint32_t> out(2);
    const auto error =
        failure_of_run(engine, exchange_plan(rank, 2, 4), {bytes_of(in), bytes_of(out)}, {}, rank == 0 ? 7 : 8);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::mismatch) << error->what();
    expect_exchanges(engine, rank, 20);
  });
}

/// Counts the yields between a receive and the first poll after it.
class CountingYields final : public WrappedTransport {
 public:
  CountingYields(std::unique_ptr<Transport> inner, int& yields) : WrappedTransport(std::move(inner)), yields_(yields) {}

  void irecv(Bytes to, int peer, int tag, Token token) override {
    WrappedTransport::irecv(to, peer, tag, token);
    posted_at_ = count_yields();
  }
  void poll(std::vector<Completion>& complete) override {
    if (posted_at_) yields_ = count_yields() - *posted_at_;
    posted_at_.reset();
    WrappedTransport::poll(complete);
  }

 private:
  int& yields_;
  std::optional<int> posted_at_;
};

/// Now the thread has found that others have half of its core, in turns.
void share_core(host::Yields& yields) {
  for (std::int64_t i = 0; i < 1000; ++i)
    yields.returned(1 + i / 10, 1 + i / 10, [&] { return host::Turns{static_cast<long>(i) / 4, i / 20}; });
  ASSERT_TRUE(yields.is_core_shared() && yields.are_useful());
}

TEST(ShortExchange, RanksThatShareACoreYieldBeforeTheyPoll) {
  for (const bool is_shared : {false, true}) {
    auto transports = make_local_transports({0, 1});
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < transports.size(); ++rank)
      threads.emplace_back([&, rank, transport = std::move(transports[rank])]() mutable {
        int yields = -1;
        const auto engine = make_engine(std::make_unique<CountingYields>(std::move(transport), yields), {});
        const auto plan = exchange_plan(static_cast<int>(rank), 2, 4);
        const std::vector<std::uint32_t> in(2);
        std::vector<std::uint32_t> out(2);
        ShortCallCounts counts;
        for (int i = 0; i < 20; ++i) {
          host::yields_of_this_thread() = {};  // whatever it has found on this machine
          if (is_shared) share_core(host::yields_of_this_thread());
          const bool is_first = counts.taken == 0;
          EXPECT_FALSE(failure_of_run(*engine, plan, {bytes_of(in), bytes_of(out)}, {}, 7, counts));
          // Later ones may look for packets before they poll.
          if (is_first && counts.taken == 1) {
            EXPECT_EQ(yields, is_shared ? 1 : 0);
          }
        }
        EXPECT_GT(counts.taken, 0u);
      });
    for (std::thread& thread : threads) thread.join();
  }
}

/// Throws at the given call of the given kind, once.
class Throwing final : public WrappedTransport {
 public:
  enum class Call : std::uint8_t { send, receive, poll };
  Throwing(std::unique_ptr<Transport> inner, Call which, int at)
      : WrappedTransport(std::move(inner)), which_(which), at_(at) {}

  bool isend(ConstBytes from, int peer, int tag, Token token) override {
    if (tag != 0) look(Call::send);
    return WrappedTransport::isend(from, peer, tag, token);
  }
  void irecv(Bytes to, int peer, int tag, Token token) override {
    look(Call::receive);
    WrappedTransport::irecv(to, peer, tag, token);
  }
  void poll(std::vector<Completion>& complete) override {
    look(Call::poll);
    WrappedTransport::poll(complete);
  }

 private:
  void look(Call call) {
    if (call == which_ && at_-- == 0) throw Error(ErrorCode::mpi, "thrown by the test", rank());
  }

  const Call which_;
  int at_;
};

void run_throwing(Throwing::Call which, int at, const std::function<void(Engine&, int)>& body) {
  auto transports = make_local_transports({0, 1, 2});
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < transports.size(); ++rank)
    threads.emplace_back([&, rank, transport = std::move(transports[rank])]() mutable {
      if (rank == 0) transport = std::make_unique<Throwing>(std::move(transport), which, at);
      const auto engine = make_engine(std::move(transport), {});
      body(*engine, static_cast<int>(rank));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(ShortExchangeFailures, AMessageThatCannotBePosted) {
  for (const Throwing::Call which : {Throwing::Call::send, Throwing::Call::receive})
    for (int at = 0; at < 6; ++at)
      run_throwing(which, at, [&](Engine& engine, int rank) {
        const auto plan = exchange_plan(rank, 3, 4);
        for (int i = 0; i < 3; ++i) {
          const std::vector<std::uint32_t> in(3, static_cast<std::uint32_t>(rank));
          std::vector<std::uint32_t> out(3);
          const auto error = failure_of_run(engine, plan, {bytes_of(in), bytes_of(out)}, kAddUint32);
          if (i == at / 2 && rank == 0) {
            ASSERT_TRUE(error) << at;
            EXPECT_EQ(error->code(), ErrorCode::mpi) << error->what();
          } else if (error) {
            EXPECT_EQ(i, at / 2);
            EXPECT_EQ(error->code(), ErrorCode::peer_failed) << error->what();
          } else {
            EXPECT_EQ(out, (std::vector<std::uint32_t>{0, 1, 2}));
          }
        }
        expect_exchanges(engine, rank, 20);
      });
}

TEST(ShortExchangeFailures, APollThatThrowsBreaksTheTransport) {
  for (const int at : {0, 1, 5}) {
    // A broken transport withdraws no receive, so the memory outlives the engines.
    std::vector<std::vector<std::uint32_t>> memories(3, std::vector<std::uint32_t>(3));
    run_throwing(Throwing::Call::poll, at, [&](Engine& engine, int rank) {
      // Rank 0 receives from the others, which wait for nothing.
      PlanBuilder builder("test/to_first", rank, 3);
      for (int peer = 1; peer < 3; ++peer) {
        if (rank == 0) builder.recv({static_cast<std::uint64_t>(peer) * 4, 4, Buffer::output}, peer, 0);
        if (rank == peer) builder.send({0, 4, Buffer::input}, 0, 0);
      }
      const auto plan = std::make_shared<const Plan>(std::move(builder).finish(rank == 0 ? 0 : 4, rank == 0 ? 12 : 0));
      std::optional<Error> error;
      std::vector<std::uint32_t>& memory = memories[static_cast<std::size_t>(rank)];
      for (int i = 0; i < 12 && !error; ++i)
        error = rank == 0 ? failure_of_run(engine, plan, {{}, bytes_of(memory)})
                          : failure_of_run(engine, plan, {bytes_of(std::as_const(memory)), {}});
      if (rank != 0) return;
      ASSERT_TRUE(error) << at;
      EXPECT_EQ(error->code(), ErrorCode::mpi) << error->what();
    });
  }
}

}  // namespace
}  // namespace penstock::engine
