// Tuning tables: what they accept, what they refuse and why, and what they choose between measured sizes.
#include "penstock/tuning.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "penstock/error.hpp"

namespace penstock {
namespace {

Team team() { return {.rank = 0, .node_of_rank = {0, 1, 0, 1}}; }

std::string candidate(const std::string& algorithm, int segment_bytes, int nanoseconds) {
  return R"({"algorithm": ")" + algorithm + R"(", "segment_bytes": )" + std::to_string(segment_bytes) +
         R"(, "nanoseconds": )" + std::to_string(nanoseconds) + "}";
}

std::string point(int bytes, const std::string& candidates) {
  return R"({"bytes": )" + std::to_string(bytes) + R"(, "native_nanoseconds": 5000, "candidates": [)" + candidates +
         "]}";
}

std::string table(const std::string& points, TuningKey key = tuning_key(team(), "MPI 1", true), int version = 1) {
  std::string head = to_json(key);
  head.pop_back();
  return R"({"format": "penstock-tuning", "version": )" + std::to_string(version) + R"(, "tables": [)" + head +
         R"(, "operations": [{"operation": "bcast", "points": [)" + points + "]}]}]}";
}

const std::string kPoints = point(1000, candidate("binomial", 0, 4000) + "," + candidate("chain", 512, 9000)) + "," +
                            point(16000, candidate("chain", 512, 10000) + "," + candidate("binomial", 0, 64000));

Collective bcast(std::uint64_t bytes) { return {.kind = CollectiveKind::bcast, .count = bytes}; }

std::string refusal(const std::string& text, ErrorCode expected) {
  try {
    static_cast<void>(Tuning::parse(text, tuning_key(team(), "MPI 1", true)));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), expected) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "not refused: " << text;
  return {};
}

TEST(TuningKey, SaysWhereTheRanksAre) {
  const TuningKey key = tuning_key(team(), "MPI 1", false);
  EXPECT_EQ(key.nodes, 2u);
  EXPECT_EQ(key.ranks_per_node, "2 2");
  EXPECT_EQ(key.placement, "0*1 1*1 0*1 1*1");
  EXPECT_EQ(key.thread_level, "below multiple");
  EXPECT_NE(key, tuning_key({.rank = 0, .node_of_rank = {0, 0, 1, 1}}, "MPI 1", false));
}

TEST(Tuning, TakesTheBestOfTheMeasuredSize) {
  const Tuning tuning = Tuning::parse(table(kPoints), tuning_key(team(), "MPI 1", true));
  EXPECT_EQ(tuning.point_count(), 2u);
  EXPECT_EQ(tuning.find(team(), bcast(1000))->algorithm, "binomial");
  EXPECT_EQ(tuning.find(team(), bcast(16000))->algorithm, "chain");
  EXPECT_EQ(tuning.find(team(), bcast(16000))->segment_bytes, 512u);
  EXPECT_EQ(tuning.find(team(), bcast(1))->algorithm, "binomial");
  EXPECT_EQ(tuning.find(team(), bcast(1 << 30))->algorithm, "chain");
  EXPECT_FALSE(tuning.find(team(), {.kind = CollectiveKind::reduce, .count = 1000}));
  EXPECT_NE(tuning.find(team(), bcast(16000))->reason.find("MPI's own took 5.0 us"), std::string::npos);
}

// On logarithmic scales the two lines cross at about 1670 bytes.
TEST(Tuning, InterpolatesBetweenSizes) {
  const Tuning tuning = Tuning::parse(table(kPoints), tuning_key(team(), "MPI 1", true));
  EXPECT_EQ(tuning.find(team(), bcast(1400))->algorithm, "binomial");
  EXPECT_EQ(tuning.find(team(), bcast(2600))->algorithm, "chain");
}

TEST(Tuning, ChoosesMpisOwnWhereThatMayServe) {
  const std::string points = point(1000, candidate("native", 0, 3000) + "," + candidate("binomial", 0, 4000)) + "," +
                             point(16000, candidate("chain", 512, 10000) + "," + candidate("native", 0, 30000) + "," +
                                              candidate("binomial", 0, 64000));
  const Tuning tuning =
      Tuning::parse(table(points, tuning_key(team(), "MPI 1", true), 2), tuning_key(team(), "MPI 1", true));
  EXPECT_EQ(tuning.find(team(), bcast(1000), true)->algorithm, "native");
  EXPECT_EQ(tuning.find(team(), bcast(1000), true)->reason, "tuned: 3.0 us at 1000 bytes");
  EXPECT_EQ(tuning.find(team(), bcast(1000))->algorithm, "binomial");
  EXPECT_EQ(tuning.find(team(), bcast(16000), true)->algorithm, "chain");
  // Interpolates between the candidates that both sizes have.
  EXPECT_EQ(tuning.find(team(), bcast(2000), true)->algorithm, "native");
  EXPECT_EQ(tuning.find(team(), bcast(2000))->algorithm, "binomial");
  Team tuned = team();
  tuned.tuning = std::make_shared<const Tuning>(tuning);
  EXPECT_EQ(choose(tuned, bcast(1000)).algorithm->name, "binomial") << "a plan is always of ours";
}

TEST(Tuning, KeepsTheOrderOfTheTable) {
  const std::string points = point(1000, candidate("native", 0, 3100) + "," + candidate("binomial", 0, 3000)) + "," +
                             point(16000, candidate("native", 0, 31000) + "," + candidate("binomial", 0, 30000) + "," +
                                              candidate("chain", 512, 60000)) +
                             "," + point(32000, candidate("chain", 512, 70000) + "," + candidate("native", 0, 90000));
  const Tuning tuning =
      Tuning::parse(table(points, tuning_key(team(), "MPI 1", true), 2), tuning_key(team(), "MPI 1", true));
  EXPECT_EQ(tuning.find(team(), bcast(1000), true)->algorithm, "native");
  EXPECT_EQ(tuning.find(team(), bcast(4000), true)->algorithm, "native") << "both neighbours prefer it";
  EXPECT_EQ(tuning.find(team(), bcast(4000))->algorithm, "binomial");
  EXPECT_EQ(tuning.find(team(), bcast(31000), true)->algorithm, "chain") << "neighbours differ: by time";
}

TEST(Tuning, PassesOverWhatDoesNotFit) {
  // `divided` needs one node.
  const Tuning tuning = Tuning::parse(table(point(64, candidate("divided", 0, 10) + "," + candidate("chain", 0, 99))),
                                      tuning_key(team(), "MPI 1", true));
  EXPECT_EQ(tuning.find(team(), bcast(64))->algorithm, "chain");
}

TEST(Tuning, DecidesWhatIsChosenUnlessSomethingIsAskedFor) {
  Team tuned = team();
  tuned.tuning = std::make_shared<const Tuning>(Tuning::parse(table(kPoints), tuning_key(team(), "MPI 1", true)));
  const Choice choice = choose(tuned, bcast(16000));
  EXPECT_EQ(choice.algorithm->name, "chain");
  EXPECT_EQ(choice.segment_bytes, 512u);
  EXPECT_EQ(choice.reason.rfind("tuned: ", 0), 0u) << choice.reason;
  EXPECT_GT(plan_collective(tuned, bcast(16000)).steps.size(), 30u) << "in segments of 512 bytes";
  Collective named = bcast(16000);
  named.algorithm = "binomial";
  EXPECT_EQ(choose(tuned, named).reason, "asked for by name");
}

TEST(Tuning, RefusesWhatIsNoTableForThisRun) {
  EXPECT_NE(refusal("{", ErrorCode::corrupt), "");
  EXPECT_NE(refusal(R"({"format": "another"})", ErrorCode::corrupt).find("format"), std::string::npos);
  EXPECT_NE(refusal(table("").substr(0, 100), ErrorCode::corrupt), "");
  EXPECT_NE(refusal(table("{}"), ErrorCode::corrupt), "");
  EXPECT_NE(refusal(table("", tuning_key(team(), "MPI 1", true), 7), ErrorCode::unsupported).find("version is 7"),
            std::string::npos);
  EXPECT_NE(refusal(table(point(8, candidate("magic", 0, 1))), ErrorCode::unsupported).find("'magic'"),
            std::string::npos);
  EXPECT_NE(refusal(table("", tuning_key(team(), "MPI 2", true)), ErrorCode::not_found)
                .find("mpi is 'MPI 2', here it is 'MPI 1'"),
            std::string::npos);
  const Team elsewhere{.rank = 0, .node_of_rank = {0, 0, 1, 1}};
  EXPECT_NE(refusal(table("", tuning_key(elsewhere, "MPI 1", true)), ErrorCode::not_found).find("placement is"),
            std::string::npos);
}

TEST(Task, HasTheStagesThatAreAskedFor) {
  const Collective collective{.kind = CollectiveKind::bcast, .count = 100, .algorithm = "leader_chain"};
  const std::array sbib{Stage::sb, Stage::ib};
  std::vector<Plan> plans;
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    Team of_rank = team();
    of_rank.rank = rank;
    plans.push_back(plan_task(of_rank, collective, sbib));
    EXPECT_EQ(plans.back().output_bytes, 400u);
  }
  EXPECT_EQ(verify(plans, team().node_of_rank), std::vector<std::string>{});
  // Segment 2 goes to the other node's leader, segment 3 to the neighbour.
  ASSERT_EQ(plans[0].steps.size(), 2u);
  EXPECT_EQ(plans[3].steps.size(), 1u);
  Collective flat = collective;
  flat.algorithm = "binomial";
  EXPECT_THROW(plan_task(team(), flat, sbib), Error);
}

}  // namespace
}  // namespace penstock
