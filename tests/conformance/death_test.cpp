// A rank dies at a random moment of each algorithm. Operations on the other ranks that need it fail with an error that
// names it; none hangs. PENSTOCK_TEST_DEATHS is the number of deaths for each row. PENSTOCK_TEST_DEATH_SEED repeats the
// death that a failed test names.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "conformance/deaths.hpp"
#include "conformance/reference.hpp"
#include "engine/executor.hpp"
#include "make_engine.hpp"
#include "plan/order.hpp"
#include "unit/engine/calls.hpp"

namespace penstock::conformance {
namespace {

/// One rank's calls of one algorithm.
class Caller {
 public:
  Caller(engine::Engine& engine, const Algorithm& row, const Death& each) : engine_(engine), each_(each) {
    Collective collective{
        .kind = row.kind, .count = each.count, .dtype = DType::int32, .algorithm = std::string(row.name)};
    if (row.kind == CollectiveKind::barrier) collective.count = 0;
    if (is_rooted(row.kind)) collective.root = each.ranks / 2;
    const Collective mine = request_of(collective, engine.team().rank, each.ranks);
    plan_ = std::make_shared<const Plan>(plan_collective(engine.team(), mine));
    input_.resize(plan_->input_bytes);
    output_.resize(plan_->output_bytes);
  }

  void call() {
    if (each_.is_blocking) return engine_.run(plan_, {input_, output_}, kSumInt32, 7);
    const auto run = engine_.start(plan_, {input_, output_}, kSumInt32, 7);
    await(*run, each_);
  }
  bool may_run_short() { return engine::may_run_short(engine_, *plan_, {input_, output_}, kSumInt32); }

 private:
  inline static const Arithmetic kSumInt32{.dtype = DType::int32, .op = ReduceOp::sum};

  engine::Engine& engine_;
  const Death& each_;
  std::shared_ptr<const Plan> plan_;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
};

std::string body(ForkedRank& self, const Algorithm& row, const Death& each) {
  engine::EngineOptions options;
  options.progress_threads = each.progress_threads;
  options.progress_cores = each.progress_threads;
  options.single_copy = each.single_copy;
  options.stall_timeout_ms = 0;
  const auto engine = engine::make_engine(self.make_transport(), options);
  Caller caller(*engine, row, each);
  std::string problem = call_until_told(self, each, [&] { caller.call(); });
  const bool has_run_short = static_cast<engine::Executor&>(*engine).short_calls() > 0;
  if (problem == "ok" && each.placement == Placement::alone && has_run_short != caller.may_run_short())
    problem = has_run_short ? "calls took the fast path" : "no call took the fast path";
  return problem;
}

/// Whether the victim communicates. Empty blocks may exclude it, and then the others do not notice its death.
bool takes_part(const Collective& collective, Team team, const Death& each) {
  team.rank = each.victim;
  const Plan plan = plan_collective(team, request_of(collective, each.victim, each.ranks));
  return !plan.tasks.empty() || std::ranges::any_of(plan.steps, [&](const Step& step) {
    return plan::touches(step).has_peer && step.peer != each.victim;
  });
}

class Deaths : public testing::TestWithParam<const Algorithm*> {
 protected:
  /// Tries so many deaths that concern the row. False if none does.
  bool try_deaths(int deaths, Death (*death_of)(std::uint32_t)) {
    const Algorithm& row = *GetParam();
    std::uint32_t seed = first_seed(static_cast<std::uint32_t>(std::hash<std::string_view>{}(row.name)) ^
                                    static_cast<std::uint32_t>(row.kind) << 20);
    int tried = 0;
    int done = 0;
    for (; done < deaths && tried < 100 * deaths; ++tried) {
      const Death each = death_of(seed++);
      Collective collective{
          .kind = row.kind, .count = each.count, .dtype = DType::int32, .algorithm = std::string(row.name)};
      Team team{.rank = 0, .node_of_rank = place(each.placement, each.ranks)};
      team.progress_cores = each.progress_threads;
      team.single_copy = each.single_copy;
      if (row.kind == CollectiveKind::barrier) collective.count = 0;
      if (is_rooted(row.kind)) collective.root = each.ranks / 2;
      if (!fits(row, collective, team) || !takes_part(collective, team, each)) continue;
      ++done;
      expect_told(each, [&](ForkedRank& self) { return body(self, row, each); });
      if (HasFailure()) return true;
    }
    return done == deaths;
  }
};

/// Rank 0 may have begun an operation with a long message that no other rank calls any more. It hung in one of about
/// fifteen runs.
TEST(ADeath, EndsWhatTheOthersNeverCall) {
  const Death each = death(526703208);
  const std::vector<const Algorithm*> known = rows([](CollectiveKind kind) { return kind == CollectiveKind::exscan; });
  const Algorithm& doubling = **std::ranges::find(known, "doubling", &Algorithm::name);
  for (int run = 0; run < 5 * deaths_per_row() && !testing::Test::HasFailure(); ++run)
    expect_told(each, [&](ForkedRank& self) { return body(self, doubling, each); });
}

TEST_P(Deaths, AreToldToAllByName) {
  EXPECT_TRUE(try_deaths(deaths_per_row(), death)) << "the row fits nothing that is tried";
}

/// Rows of which all messages may be between nodes.
class DeathsInShortCalls : public Deaths {};

TEST_P(DeathsInShortCalls, AreToldToAllByName) {
  EXPECT_TRUE(try_deaths((deaths_per_row() + 1) / 2, death_in_short_call)) << "the row fits nothing that is tried";
}

class DeathsInBlockingCalls : public Deaths {};

TEST_P(DeathsInBlockingCalls, AreToldToAllByName) {
  EXPECT_TRUE(try_deaths((deaths_per_row() + 1) / 2, death_in_blocking_call)) << "the row fits nothing that is tried";
}

bool fits_on(Placement placement, const Algorithm* row) {
  return std::ranges::any_of(std::array{2, 4}, [&](int ranks) {
    Collective collective{.kind = row->kind, .count = 1, .dtype = DType::int32, .algorithm = std::string(row->name)};
    if (row->kind == CollectiveKind::barrier) collective.count = 0;
    return fits(*row, collective, Team{.rank = 0, .node_of_rank = place(placement, ranks)});
  });
}

std::vector<const Algorithm*> rows_on(Placement placement) {
  std::vector<const Algorithm*> chosen = rows([](CollectiveKind) { return true; });
  std::erase_if(chosen, [&](const Algorithm* row) { return !fits_on(placement, row); });
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(Row, DeathsInShortCalls, testing::ValuesIn(rows_on(Placement::alone)), row_name);
INSTANTIATE_TEST_SUITE_P(Row, DeathsInBlockingCalls, testing::ValuesIn(rows_on(Placement::one_node)), row_name);
INSTANTIATE_TEST_SUITE_P(Row, Deaths, testing::ValuesIn(rows([](CollectiveKind) { return true; })), row_name);

}  // namespace
}  // namespace penstock::conformance
