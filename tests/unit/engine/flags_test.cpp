// Short exchanges by flags in shared memory: with late ranks, with every form of call, and with failures.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <optional>
#include <random>
#include <string>

#include "engine/flags.hpp"
#include "penstock/collective.hpp"
#include "plans.hpp"
#include "ranks.hpp"
#include "simulate.hpp"

namespace penstock::engine {
namespace {

using std::chrono::milliseconds;

const Arithmetic kFlagSum{.dtype = DType::int32, .op = ReduceOp::sum};
constexpr int kMoreThanEntries = 3 * Flags::kEntries;

std::shared_ptr<const Plan> plan_of(int rank, int size, Collective collective) {
  if (collective.algorithm.empty()) collective.algorithm = "shared";
  if (is_neighborhood(collective.kind))
    collective.graph = std::make_shared<const Graph>(Graph::cartesian(std::vector{size}, {true}));
  const Plan plan = plan_collective({.rank = rank, .node_of_rank = one_node(size)}, collective);
  EXPECT_TRUE(plan.by_flags);
  return std::make_shared<const Plan>(plan);
}

std::optional<Error> error_of_run(Engine& engine, const std::shared_ptr<const Plan>& plan, const Bindings& bindings,
                                  std::uint64_t signature = 0) {
  try {
    engine.run(plan, bindings, kFlagSum, signature);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

/// All collectives that use flags, with their expected results, for one team.
struct Exchanges {
  std::vector<std::vector<std::shared_ptr<const Plan>>> plans;
  std::vector<std::vector<plan::RankMemory>> before;
  std::vector<std::vector<plan::RankMemory>> after;

  explicit Exchanges(int size) {
    std::mt19937 random(5);
    for (const Algorithm& row : algorithms())
      for (const std::uint64_t count : {0u, 1u, 60u}) {
        if (row.name != "shared" && row.name != "shared_rounds") continue;
        Collective collective{.kind = row.kind, .count = count, .dtype = DType::int32, .root = size - 1};
        collective.algorithm = row.name;
        if (is_neighborhood(row.kind))
          collective.graph = std::make_shared<const Graph>(Graph::cartesian(std::array<std::int32_t, 1>{size}, {true}));
        std::vector<Plan> all;
        std::vector<plan::RankMemory> memory(static_cast<std::size_t>(size));
        for (int rank = 0; rank < size; ++rank) {
          all.push_back(*plan_of(rank, size, collective));
          auto& mine = memory[static_cast<std::size_t>(rank)];
          mine.input.resize(all.back().input_bytes);
          mine.output.resize(all.back().output_bytes);
          for (std::byte& byte : mine.input) byte = static_cast<std::byte>(random());
          for (std::byte& byte : mine.output) byte = static_cast<std::byte>(random());
        }
        before.push_back(memory);
        plan::simulate(all, kFlagSum, memory, 1);
        after.push_back(std::move(memory));
        plans.emplace_back();
        for (Plan& plan : all) plans.back().push_back(std::make_shared<const Plan>(std::move(plan)));
      }
  }
};

struct FlagSetting {
  int ranks;
  int progress_threads;
};

class ByFlags : public testing::TestWithParam<FlagSetting> {
 protected:
  int size() const { return GetParam().ranks; }
  RanksOptions ranks() const {
    RanksOptions options = ranks_of(one_node(size()));
    options.engine.progress_threads = GetParam().progress_threads;
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(, ByFlags, testing::Values(FlagSetting{2, 0}, FlagSetting{5, 0}, FlagSetting{3, 1}),
                         [](const testing::TestParamInfo<FlagSetting>& setting) {
                           return std::to_string(setting.param.ranks) + "_ranks_" +
                                  std::to_string(setting.param.progress_threads) + "_threads";
                         });

// Each rank chooses between run() and start(), and messages of another operation come in between.
TEST_P(ByFlags, ExchangesOfAllKindsHoweverTheyAreCalled) {
  const Exchanges exchanges(size());
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const auto me = static_cast<std::size_t>(rank);
    std::mt19937 shared(11);  // makes the same decisions on all ranks
    std::mt19937 mine(static_cast<std::uint32_t>(rank));
    for (int i = 0; i < 3000; ++i) {
      const std::size_t which = shared() % exchanges.plans.size();
      plan::RankMemory memory = exchanges.before[which][me];
      const Bindings bindings{memory.input, memory.output};
      if (mine() % 200 == 0) std::this_thread::sleep_for(milliseconds(mine() % 3));
      if (shared() % 16 == 0) {
        std::vector<std::uint32_t> in(100, static_cast<std::uint32_t>(rank));
        std::vector<std::uint32_t> out(100);
        const auto other =
            engine.start(allreduce_plan(rank, size(), 400), {bytes_of(in), bytes_of(out)}, kAddUint32, 1);
        engine.run(exchanges.plans[which][me], bindings, kFlagSum, which);
        other->wait();
        ASSERT_EQ(out[99], static_cast<std::uint32_t>(size() * (size() - 1) / 2));
      } else if (mine() % 4 == 0) {
        engine.start(exchanges.plans[which][me], bindings, kFlagSum, which)->wait();
      } else {
        engine.run(exchanges.plans[which][me], bindings, kFlagSum, which);
      }
      ASSERT_EQ(memory.output, exchanges.after[which][me].output) << exchanges.plans[which][me]->algorithm << ", " << i;
    }
  });
}

TEST_P(ByFlags, ARootIsNotFurtherAheadThanThereAreEntries) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const auto plan = plan_of(rank, size(), {.kind = CollectiveKind::bcast, .count = 2, .dtype = DType::int32});
    for (std::uint32_t i = 0; i < 40 * Flags::kEntries; ++i) {
      if (rank == size() - 1 && i % 64 == 0) std::this_thread::sleep_for(milliseconds(3));
      std::vector<std::uint32_t> data(2, rank == 0 ? i : 0);
      engine.run(plan, {{}, bytes_of(data)}, kFlagSum, 0);
      ASSERT_EQ(data[1], i);
    }
  });
}

// A rank that has waited for long queries the late rank. It may read the answer before the data that the late rank has
// published.
TEST_P(ByFlags, ARankThatIsLate) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const auto plan = plan_of(rank, size(), {.kind = CollectiveKind::allreduce, .count = 1, .dtype = DType::int32});
    for (int i = 0; i < 8; ++i) {
      if (rank == i % size()) std::this_thread::sleep_for(milliseconds(250));
      std::vector<std::int32_t> in(1, rank);
      std::vector<std::int32_t> out(1);
      const auto error = error_of_run(engine, plan, {bytes_of(in), bytes_of(out)});
      ASSERT_FALSE(error) << error->what();
      ASSERT_EQ(out[0], size() * (size() - 1) / 2);
    }
  });
}

// Many operations are in flight. Each is deferred until its entry is free, and the operations stay in order.
TEST_P(ByFlags, ManyStartedBeforeAnyIsWaitedFor) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const auto plan = plan_of(rank, size(), {.kind = CollectiveKind::allreduce, .count = 1, .dtype = DType::int32});
    std::vector<std::vector<std::int32_t>> in;
    std::vector<std::vector<std::int32_t>> out;
    std::vector<std::shared_ptr<engine::Run>> runs;
    for (int i = 0; i < kMoreThanEntries; ++i) {
      in.push_back({i * rank});
      out.push_back({-1});
    }
    for (std::size_t i = 0; i < in.size(); ++i)
      runs.push_back(engine.start(plan, {bytes_of(in[i]), bytes_of(out[i])}, kFlagSum, 0));
    for (std::size_t i = in.size(); i-- > 0;) runs[i]->wait();
    for (int i = 0; i < kMoreThanEntries; ++i)
      EXPECT_EQ(out[static_cast<std::size_t>(i)][0], i * size() * (size() - 1) / 2);
  });
}

TEST_P(ByFlags, DifferentArgumentsAreAMismatch) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const auto plan = plan_of(rank, size(), {.kind = CollectiveKind::allreduce, .count = 1, .dtype = DType::int32});
    std::vector<std::int32_t> in(1, rank);
    std::vector<std::int32_t> out(1);
    for (int i = 0; i < kMoreThanEntries; ++i) {
      const auto error = error_of_run(engine, plan, {bytes_of(in), bytes_of(out)}, rank == 1 ? 8 : 7);
      ASSERT_TRUE(error) << "rank " << rank;
      EXPECT_TRUE(error->code() == ErrorCode::mismatch || error->code() == ErrorCode::peer_failed) << error->what();
      EXPECT_FALSE(error_of_run(engine, plan, {bytes_of(in), bytes_of(out)}));
      EXPECT_EQ(out[0], size() * (size() - 1) / 2);
    }
  });
}

// One rank calls an operation that uses messages.
TEST_P(ByFlags, AnotherOperationIsAMismatch) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const auto plan = plan_of(rank, size(), {.kind = CollectiveKind::allreduce, .count = 1, .dtype = DType::int32});
    std::vector<std::int32_t> in(1, rank);
    std::vector<std::int32_t> out(1);
    for (int i = 0; i < 3; ++i) {
      const bool differs = rank == size() - 1;
      const auto error = error_of_run(engine, differs ? allreduce_plan(rank, size(), 4) : plan,
                                      {bytes_of(in), bytes_of(out)}, differs ? 8 : 7);
      ASSERT_TRUE(error) << "rank " << rank;
      EXPECT_TRUE(error->code() == ErrorCode::mismatch || error->code() == ErrorCode::peer_failed) << error->what();
      EXPECT_FALSE(error_of_run(engine, plan, {bytes_of(in), bytes_of(out)}));
    }
  });
}

TEST_P(ByFlags, ARankThatFailsTellsTheOthers) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const auto plan = plan_of(rank, size(), {.kind = CollectiveKind::allreduce, .count = 1, .dtype = DType::int32});
    std::vector<std::int32_t> in(1, rank);
    std::vector<std::int32_t> out(1);
    for (int i = 0; i < kMoreThanEntries; ++i) {
      if (rank == i % size()) {
        engine.fail_next("count is -1");
      } else {
        const auto error = error_of_run(engine, plan, {bytes_of(in), bytes_of(out)});
        ASSERT_TRUE(error) << "rank " << rank;
        EXPECT_EQ(error->code(), ErrorCode::peer_failed);
        EXPECT_NE(error->message().find("count is -1"), std::string::npos) << error->what();
      }
      if (i % 5 == 0) {
        EXPECT_FALSE(error_of_run(engine, plan, {bytes_of(in), bytes_of(out)}));
        EXPECT_EQ(out[0], size() * (size() - 1) / 2);
      }
    }
  });
}

TEST_P(ByFlags, BuffersThatAreTooShortFailOnAllRanks) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const auto plan = plan_of(rank, size(), {.kind = CollectiveKind::allreduce, .count = 2, .dtype = DType::int32});
    std::vector<std::int32_t> in(2, rank);
    std::vector<std::int32_t> out(rank == 1 ? 1 : 2);
    const auto error = error_of_run(engine, plan, {bytes_of(in), bytes_of(out)});
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), rank == 1 ? ErrorCode::invalid_argument : ErrorCode::peer_failed);
  });
}

// Ranks that wait for the gone rank get an error. A root that does not wait does not hang, and gets the error once the
// death is known.
TEST_P(ByFlags, ARankThatHasGone) {
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const auto sum = plan_of(rank, size(), {.kind = CollectiveKind::allreduce, .count = 1, .dtype = DType::int32});
    std::vector<std::int32_t> in(1, rank);
    std::vector<std::int32_t> out(1);
    EXPECT_FALSE(error_of_run(engine, sum, {bytes_of(in), bytes_of(out)}));
    if (rank == size() - 1) return;
    const auto bcast = plan_of(rank, size(), {.kind = CollectiveKind::bcast, .count = 1, .dtype = DType::int32});
    const auto expect_its_name = [&](const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_failed);
      EXPECT_EQ(error.rank(), size() - 1);
      EXPECT_NE(error.message().find("rank " + std::to_string(size() - 1) + " has gone"), std::string::npos)
          << error.what();
    };
    bool is_known = false;
    for (int i = 0; i < kMoreThanEntries; ++i) {
      const auto error = error_of_run(engine, bcast, {{}, bytes_of(out)});
      EXPECT_EQ(error.has_value(), is_known || error) << "a call succeeds after one that was told";
      is_known = is_known || error;
      if (error) expect_its_name(*error);
    }
    const auto error = error_of_run(engine, sum, {bytes_of(in), bytes_of(out)});
    ASSERT_TRUE(error);
    expect_its_name(*error);
  });
}

TEST_P(ByFlags, OperationsOfTheCallersOwn) {
  const auto join = std::make_shared<UserOp>(
      UserOp{.combine =
                 [](ConstBytes from, Bytes to) {
                   for (std::size_t i = 0; i < to.size(); ++i)
                     to[i] = static_cast<std::byte>(static_cast<int>(from[i]) * 2 + static_cast<int>(to[i]));
                 },
             .element_bytes = 1,
             .commutative = false});
  run_ranks(ranks(), [&](Engine& engine, int rank) {
    const auto plan = plan_of(rank, size(), {.kind = CollectiveKind::allreduce, .count = 1, .element_bytes = 1});
    std::vector<std::uint8_t> in(1, static_cast<std::uint8_t>(rank + 1));
    std::vector<std::uint8_t> out(1);
    engine.run(plan, {bytes_of(in), bytes_of(out)}, {.user = join}, 0);
    int expected = size();
    for (int lower = size() - 1; lower > 0; --lower) expected += 2 * lower;
    EXPECT_EQ(out[0], expected);
  });
}

}  // namespace
}  // namespace penstock::engine
