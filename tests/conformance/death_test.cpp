// A rank dies at a random moment of each algorithm. Operations on the other ranks that need it fail with an error that
// names it; none hangs. PENSTOCK_TEST_DEATHS is the number of deaths for each row. PENSTOCK_TEST_DEATH_SEED repeats the
// death that a failed test names.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "conformance/deaths.hpp"
#include "conformance/reference.hpp"
#include "engine/engine.hpp"
#include "plan/order.hpp"

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
    const auto run = engine_.start(plan_, {input_, output_}, {.dtype = DType::int32, .op = ReduceOp::sum}, 7);
    await(*run, each_);
  }

 private:
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
  const auto engine = engine::Engine::create(self.make_transport(), options);
  Caller caller(*engine, row, each);
  return call_until_told(self, each, [&] { caller.call(); });
}

/// Whether the victim communicates. Empty blocks may exclude it, and then the others do not notice its death.
bool takes_part(const Collective& collective, Team team, const Death& each) {
  team.rank = each.victim;
  const Plan plan = plan_collective(team, request_of(collective, each.victim, each.ranks));
  return !plan.tasks.empty() || std::ranges::any_of(plan.steps, [&](const Step& step) {
    return plan::touches(step).has_peer && step.peer != each.victim;
  });
}

class Deaths : public testing::TestWithParam<const Algorithm*> {};

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
  const Algorithm& row = *GetParam();
  const int deaths = deaths_per_row();
  std::uint32_t seed = first_seed(static_cast<std::uint32_t>(std::hash<std::string_view>{}(row.name)) ^
                                  static_cast<std::uint32_t>(row.kind) << 20);
  int tried = 0;
  for (int done = 0; done < deaths && tried < 100 * deaths; ++tried) {
    const Death each = death(seed++);
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
    if (HasFailure()) return;
  }
  EXPECT_LT(tried, 100 * deaths) << "the row fits nothing that is tried";
}

INSTANTIATE_TEST_SUITE_P(Row, Deaths, testing::ValuesIn(rows([](CollectiveKind) { return true; })), row_name);

}  // namespace
}  // namespace penstock::conformance
