#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "collectives/parts/group.hpp"
#include "penstock/collective.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/error.hpp"
#include "plan/order.hpp"
#include "plan/split.hpp"

namespace penstock {
namespace {

Team team(std::vector<std::int32_t> nodes, int rank = 0) { return {rank, std::move(nodes)}; }

std::string_view chosen(const Team& on, CollectiveKind kind, std::uint64_t count) {
  return choose(on, {.kind = kind, .count = count}).algorithm->name;
}

std::string message(const Team& on, const Collective& collective) {
  try {
    choose(on, collective);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.message();
  }
  return "";
}

TEST(Choose, TakesTheAlgorithmThatIsNamed) {
  const Choice choice = choose(team({0, 0, 0}), {.kind = CollectiveKind::allreduce, .count = 1, .algorithm = "ring"});
  EXPECT_EQ(choice.algorithm->name, "ring");
}

TEST(Choose, ListsWhatFitsWhenTheNameIsUnknown) {
  const std::string text =
      message(team({0, 1, 0}), {.kind = CollectiveKind::allreduce, .count = 1, .algorithm = "magic"});
  EXPECT_NE(text.find("no algorithm 'magic'"), std::string::npos) << text;
  EXPECT_NE(text.find("ring"), std::string::npos) << text;
  EXPECT_EQ(text.find(" shared"), std::string::npos) << text;
}

TEST(Choose, RejectsAnAlgorithmThatDoesNotFit) {
  const std::string text =
      message(team({0, 0, 0}), {.kind = CollectiveKind::allgather, .count = 1, .algorithm = "recursive_doubling"});
  EXPECT_NE(text.find("does not fit"), std::string::npos) << text;
  EXPECT_NE(text.find("expected one of bruck, ring"), std::string::npos) << text;
}

TEST(Choose, RejectsWrongArguments) {
  const Team three = team({0, 0, 0});
  EXPECT_NE(message(three, {.kind = CollectiveKind::bcast, .root = 3}).find("ranks 0 to 2"), std::string::npos);
  EXPECT_NE(message(three, {.kind = CollectiveKind::bcast, .root = -1}).find("root is -1"), std::string::npos);
  EXPECT_EQ(message(three, {.kind = CollectiveKind::allgather, .root = 7}), "") << "no root, no error";
  EXPECT_NE(message(three, {.kind = CollectiveKind::reduce, .count = 1, .dtype = DType::float32, .op = ReduceOp::bor})
                .find("operation bor is not defined for dtype float32"),
            std::string::npos);
  EXPECT_NE(message(three, {.kind = CollectiveKind::gather, .count = std::uint64_t{1} << 61, .dtype = DType::float64})
                .find("2^63"),
            std::string::npos);
}

TEST(Choose, DependsOnSizeAndTeam) {
  const Team node = team({0, 0, 0, 0});
  const Team cluster = team({0, 0, 1, 1});
  EXPECT_EQ(chosen(node, CollectiveKind::allreduce, 8), "shared");
  EXPECT_EQ(chosen(cluster, CollectiveKind::allreduce, 8), "leader_doubling");
  EXPECT_EQ(chosen(cluster, CollectiveKind::allreduce, 8192), "leader_doubling") << "64 KiB";
  EXPECT_EQ(chosen(cluster, CollectiveKind::allreduce, 1 << 20), "leader_ring");
  EXPECT_EQ(chosen(team({0, 1, 2}), CollectiveKind::allreduce, 1 << 20), "ring");
  EXPECT_EQ(chosen(team({0, 1}), CollectiveKind::allreduce, 1 << 20), "recursive_doubling") << "a ring has two rounds";
  const Team four = team({0, 1, 2, 3});
  EXPECT_EQ(chosen(four, CollectiveKind::allreduce, 32 << 10), "recursive_doubling");
  EXPECT_EQ(chosen(four, CollectiveKind::allreduce, 64 << 10), "rabenseifner") << "a ring has six rounds";
  EXPECT_EQ(chosen(four, CollectiveKind::allreduce, 128 << 10), "ring") << "its messages are long";
  EXPECT_EQ(chosen(team({0, 1, 2}), CollectiveKind::allreduce, 64 << 10), "ring") << "no power of two";
  Team crowded = four;
  crowded.shares_cores = true;
  EXPECT_EQ(chosen(four, CollectiveKind::alltoall, 16), "pairwise");
  EXPECT_EQ(chosen(crowded, CollectiveKind::alltoall, 16), "bruck") << "two messages instead of three";
  EXPECT_EQ(chosen(crowded, CollectiveKind::alltoall, 8 << 10), "bruck") << "32 KiB in all";
  EXPECT_EQ(chosen(four, CollectiveKind::alltoall, 8 << 10), "pairwise");
  EXPECT_EQ(chosen(crowded, CollectiveKind::alltoall, 16 << 10), "pairwise") << "messages are long";
  EXPECT_EQ(chosen(four, CollectiveKind::allgather, 16 << 10), "recursive_doubling") << "a ring has three rounds";
  EXPECT_EQ(chosen(four, CollectiveKind::allgather, 32 << 10), "ring") << "its messages are long";
  EXPECT_EQ(chosen(team({0, 1, 2}), CollectiveKind::allgather, 16 << 10), "ring") << "no power of two";
  EXPECT_EQ(chosen(cluster, CollectiveKind::allgather, 8), "leader_ring");
  EXPECT_EQ(chosen(team({0, 0, 1, 1, 2, 2, 3, 3}), CollectiveKind::allgather, 8), "recursive_doubling");
  EXPECT_EQ(chosen(team({0, 1}), CollectiveKind::allgather, 1 << 20), "ring");
  EXPECT_EQ(chosen(cluster, CollectiveKind::bcast, 8), "hierarchical");
  EXPECT_EQ(chosen(cluster, CollectiveKind::bcast, 1 << 20), "leader_chain");
  EXPECT_EQ(chosen(team({0, 1, 1, 0, 1}), CollectiveKind::reduce, 1 << 20), "leader_chain");
  EXPECT_EQ(chosen(team({0, 1, 2}), CollectiveKind::barrier, 0), "dissemination");
  EXPECT_EQ(chosen(cluster, CollectiveKind::barrier, 0), "hierarchical");
  EXPECT_EQ(chosen(cluster, CollectiveKind::reduce_scatter_block, 8), "hierarchical");
  EXPECT_EQ(chosen(cluster, CollectiveKind::reduce_scatter_block, 1 << 20), "multi_leader");
  EXPECT_EQ(chosen(team({0, 0, 1, 1}), CollectiveKind::reduce_scatter_block, 2048), "hierarchical");
  EXPECT_EQ(chosen(team({0, 0, 1, 1}), CollectiveKind::reduce_scatter_block, 4096), "multi_leader") << "one round";
  EXPECT_EQ(chosen(team({0, 0, 0, 1}), CollectiveKind::reduce_scatter_block, 4096), "hierarchical");
  EXPECT_EQ(chosen(team({0, 0, 1, 1, 2, 2}), CollectiveKind::reduce_scatter_block, 4096), "hierarchical");
  EXPECT_EQ(chosen(team({0, 0, 0, 1}), CollectiveKind::reduce_scatter_block, 1 << 20), "ring") << "one rank for three";
  EXPECT_EQ(chosen(team({0, 1, 2}), CollectiveKind::reduce_scatter_block, 1 << 20), "ring");
  for (const CollectiveKind kind :
       {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::gather, CollectiveKind::scatter,
        CollectiveKind::allgather, CollectiveKind::alltoall, CollectiveKind::reduce_scatter_block, CollectiveKind::scan,
        CollectiveKind::exscan, CollectiveKind::barrier})
    EXPECT_EQ(chosen(node, kind, 8), "shared");
  EXPECT_EQ(chosen(node, CollectiveKind::bcast, kFlaggedBytes + 1), "binomial");
  EXPECT_EQ(chosen(node, CollectiveKind::scatter, kFlaggedBytes / 4 + 1), "binomial") << "the root shows all blocks";
  const auto many = [](std::size_t ranks) { return team(std::vector<std::int32_t>(ranks)); };
  EXPECT_EQ(chosen(many(21), CollectiveKind::bcast, 8), "shared");
  for (const CollectiveKind kind :
       {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::allreduce, CollectiveKind::barrier})
    EXPECT_EQ(chosen(many(22), kind, 8), "shared_rounds") << "so many flags take longer than rounds";
  EXPECT_EQ(chosen(many(22), CollectiveKind::bcast, kFlaggedBytes + 1), "binomial");
  EXPECT_EQ(chosen(many(256), CollectiveKind::allreduce, 256), "shared_rounds");
  EXPECT_EQ(chosen(many(256), CollectiveKind::allreduce, 260), "recursive_doubling") << "eight rounds do not fit";
  EXPECT_EQ(chosen(many(64), CollectiveKind::allreduce, 128 << 10), "staged");
  EXPECT_EQ(chosen(many(64), CollectiveKind::bcast, 256 << 10), "staged");
  EXPECT_EQ(chosen(many(256), CollectiveKind::bcast, 60'000), "staged");
  EXPECT_EQ(chosen(many(256), CollectiveKind::bcast, 17'000), "binomial") << "so many signals save too little";
  EXPECT_EQ(chosen(team({0}), CollectiveKind::bcast, 8), "binomial");
  EXPECT_EQ(chosen(node, CollectiveKind::bcast, 1 << 20), "staged");
  EXPECT_EQ(chosen(node, CollectiveKind::bcast, 4 << 20), "staged");
  EXPECT_EQ(chosen(node, CollectiveKind::bcast, 8 << 20), "staged") << "one copy of each rank, out of the caches";
  EXPECT_EQ(chosen(node, CollectiveKind::bcast, 16 << 20), "divided") << "more segments than a plan has";
  EXPECT_EQ(chosen(node, CollectiveKind::allgather, 1 << 20), "staged");
  EXPECT_EQ(chosen(node, CollectiveKind::allgather, 2 << 20), "ring");
  EXPECT_EQ(chosen(node, CollectiveKind::gather, 4 << 20), "staged");
  EXPECT_EQ(chosen(node, CollectiveKind::gather, 8 << 20), "divided");
  EXPECT_EQ(chosen(node, CollectiveKind::alltoall, 512 << 10), "staged");
  EXPECT_EQ(chosen(node, CollectiveKind::alltoall, 1 << 20), "pairwise");
  EXPECT_EQ(chosen(node, CollectiveKind::reduce, 1 << 20), "staged");
  EXPECT_EQ(chosen(team({0, 0}), CollectiveKind::alltoall, 2 << 20), "staged");
  EXPECT_EQ(chosen(team({0, 0}), CollectiveKind::alltoall, 256 << 10), "staged");
  EXPECT_EQ(chosen(team({0, 0}), CollectiveKind::alltoall, 32 << 10), "staged");
  EXPECT_EQ(chosen(team({0, 0}), CollectiveKind::reduce, 1 << 20), "staged_whole");
  EXPECT_EQ(chosen(team({0, 0}), CollectiveKind::reduce, 4 << 20), "staged");
  EXPECT_EQ(chosen(team({0, 0}), CollectiveKind::reduce, 16 << 20), "divided");
  EXPECT_EQ(chosen(node, CollectiveKind::reduce_scatter_block, 8 << 10), "recursive_halving") << "in all 32 KiB";
  EXPECT_EQ(chosen(node, CollectiveKind::reduce_scatter_block, 9 << 10), "staged");
  EXPECT_EQ(chosen(node, CollectiveKind::reduce_scatter_block, 1 << 20), "staged") << "16 MiB of all ranks";
  EXPECT_EQ(chosen(node, CollectiveKind::reduce_scatter_block, 2 << 20), "divided");
  EXPECT_EQ(chosen(many(64), CollectiveKind::reduce_scatter_block, 2 << 10), "staged");
  EXPECT_EQ(chosen(team({0, 0}), CollectiveKind::scan, 16 << 10), "doubling");
  EXPECT_EQ(chosen(team({0, 0}), CollectiveKind::scan, 17 << 10), "staged");
  EXPECT_EQ(chosen(node, CollectiveKind::exscan, 19 << 10), "staged");
  EXPECT_EQ(chosen(many(8), CollectiveKind::exscan, 19 << 10), "doubling") << "two segments pass seven ranks in turn";
  EXPECT_EQ(chosen(node, CollectiveKind::scan, 2 << 20), "staged");
  EXPECT_EQ(chosen(node, CollectiveKind::scan, 4 << 20), "divided");
  EXPECT_EQ(chosen(many(16), CollectiveKind::scan, 64 << 10), "doubling") << "three segments pass 15 ranks in turn";
  Team long_pair = team({0, 0});
  long_pair.shared_limit_bytes = 4 << 20;
  EXPECT_EQ(chosen(long_pair, CollectiveKind::bcast, 8 << 20), "staged");
  EXPECT_EQ(chosen(long_pair, CollectiveKind::bcast, 16 << 20), "divided") << "each core copies one half";
  Team long_node = node;
  long_node.shared_limit_bytes = 4 << 20;
  EXPECT_EQ(chosen(long_node, CollectiveKind::bcast, 16 << 20), "staged");
  EXPECT_EQ(chosen(long_node, CollectiveKind::reduce, 16 << 20), "divided");
  long_node.domain_of_rank = {0, 0, 1, 1};
  EXPECT_EQ(chosen(long_node, CollectiveKind::bcast, 16 << 20), "divided")
      << "far readers copy as slowly as the kernel";
  Team with_cores = node;
  with_cores.progress_cores = 1;
  EXPECT_NE(chosen(with_cores, CollectiveKind::bcast, 1 << 20), "staged") << "they cannot work for ranks that compute";
  for (const CollectiveKind kind :
       {CollectiveKind::allgather, CollectiveKind::alltoall, CollectiveKind::reduce_scatter_block})
    EXPECT_EQ(chosen(with_cores, kind, 1 << 20), "divided");
  const auto chosen_for_blocks = [](const Team& on, CollectiveKind kind, std::uint64_t bytes = 1 << 20,
                                    std::uint64_t of_last = 0) {
    Collective blocks{.kind = kind};
    blocks.receive.counts.assign(static_cast<std::size_t>(on.size()), bytes);
    if (of_last != 0) blocks.receive.counts.back() = of_last;
    return choose(on, blocks).algorithm->name;
  };
  EXPECT_EQ(chosen_for_blocks(node, CollectiveKind::allgatherv), "staged") << "16 MiB received by all ranks";
  EXPECT_EQ(chosen_for_blocks(node, CollectiveKind::allgatherv, 2 << 20), "ring") << "each block is copied once";
  EXPECT_EQ(chosen_for_blocks(node, CollectiveKind::allgatherv, 0, 4 << 20), "staged");
  EXPECT_EQ(chosen_for_blocks(node, CollectiveKind::allgatherv, 8 << 10), "bruck");
  EXPECT_EQ(chosen_for_blocks(node, CollectiveKind::allgatherv, 2 << 10), "shared");
  EXPECT_EQ(chosen_for_blocks(node, CollectiveKind::allgatherv, 0, 3 << 10), "bruck") << "the longest block decides";
  EXPECT_EQ(chosen_for_blocks(team({0, 0}), CollectiveKind::allgatherv, 8 << 10), "ring");
  EXPECT_EQ(chosen_for_blocks(with_cores, CollectiveKind::allgatherv), "divided");
  for (const CollectiveKind kind : {CollectiveKind::gatherv, CollectiveKind::scatterv}) {
    for (const std::uint64_t count : {0, 8, 4 << 20})
      EXPECT_EQ(chosen(node, kind, count), "shared") << "no rank but the root knows other counts";
    EXPECT_EQ(chosen(many(32), kind, 8), "linear");
    EXPECT_EQ(chosen(team({0, 0, 1}), kind, 8), "linear");
  }
  EXPECT_EQ(chosen_for_blocks(node, CollectiveKind::reduce_scatter), "staged");
  EXPECT_EQ(chosen_for_blocks(with_cores, CollectiveKind::reduce_scatter), "divided");
  Team copying = node;
  copying.single_copy = false;
  EXPECT_EQ(chosen(copying, CollectiveKind::bcast, 8 << 20), "chain");
  EXPECT_EQ(chosen(copying, CollectiveKind::bcast, 4 << 20), "staged");
  EXPECT_EQ(chosen(copying, CollectiveKind::allgather, 1 << 20), "staged");
}

TEST(Choose, StreamsOfOneRankHaveAsManySegmentsAsStagingBuffers) {
  const auto segments = [](int ranks, CollectiveKind kind, std::uint64_t bytes) {
    const Plan plan = plan_collective(team(std::vector<std::int32_t>(static_cast<std::size_t>(ranks))),
                                      {.kind = kind, .count = bytes, .algorithm = "staged"});
    return std::ranges::count_if(plan.steps, [](const Step& step) { return step.to.buffer == Buffer::shared; });
  };
  EXPECT_EQ(segments(2, CollectiveKind::bcast, 16 << 10), 1);
  EXPECT_EQ(segments(2, CollectiveKind::bcast, 24 << 10), 2) << "a reader copies one while the root fills the next one";
  EXPECT_EQ(segments(2, CollectiveKind::bcast, 32 << 10), 2);
  EXPECT_EQ(segments(2, CollectiveKind::scatter, 64 << 10), 3);
  EXPECT_EQ(segments(2, CollectiveKind::bcast, 256 << 10), 4);
  EXPECT_EQ(segments(3, CollectiveKind::bcast, 64 << 10), 2) << "a segment has a signal for each reader";
  EXPECT_EQ(segments(5, CollectiveKind::bcast, 64 << 10), 1);
}

TEST(Choose, LimitsFollowTheCachesAndTheMessagesOfTheTeam) {
  Team other = team({0, 0, 0, 0});
  other.last_cache_bytes = 8 << 20;
  EXPECT_EQ(chosen(other, CollectiveKind::bcast, 1 << 20), "staged") << "4 MiB received by all ranks";
  EXPECT_EQ(chosen(other, CollectiveKind::reduce, 1 << 20), "staged");
  EXPECT_EQ(chosen(other, CollectiveKind::reduce, 2 << 20), "divided");
  EXPECT_EQ(chosen(other, CollectiveKind::allgather, 256 << 10), "staged");
  EXPECT_EQ(chosen(other, CollectiveKind::allgather, 512 << 10), "ring");
  other.message_bytes = 64 << 10;
  EXPECT_EQ(chosen(other, CollectiveKind::bcast, 17 << 10), "binomial") << "one message in each round";
  EXPECT_EQ(chosen(other, CollectiveKind::bcast, 18 << 10), "staged") << "readers copy while the root does";
  EXPECT_EQ(chosen(other, CollectiveKind::reduce_scatter_block, 8 << 10), "recursive_halving");
  EXPECT_EQ(chosen(other, CollectiveKind::reduce_scatter_block, 9 << 10), "staged");
  other.message_bytes = 8 << 10;
  EXPECT_EQ(chosen(other, CollectiveKind::bcast, 8 << 10), "binomial");
  EXPECT_EQ(chosen(other, CollectiveKind::bcast, 9 << 10), "staged");
  EXPECT_EQ(chosen(other, CollectiveKind::reduce_scatter_block, 4 << 10), "recursive_halving");
  EXPECT_EQ(chosen(other, CollectiveKind::reduce_scatter_block, 5 << 10), "staged");
  Team pair = team({0, 0});
  pair.core_cache_bytes = 256 << 10;
  EXPECT_EQ(chosen(pair, CollectiveKind::reduce, 256 << 10), "staged_whole");
  EXPECT_EQ(chosen(pair, CollectiveKind::reduce, 257 << 10), "staged");
  const Plan plan = plan_collective(pair, {.kind = CollectiveKind::bcast, .count = 1 << 20, .algorithm = "staged"});
  EXPECT_EQ(plan.shared_bytes, pair.core_cache_bytes) << "four segments in flight";
}

TEST(Choose, RingsOfOneRankPerNodeSendPieces) {
  const auto messages = [](const Team& on, std::string_view algorithm, CollectiveKind kind, std::uint64_t count) {
    const Plan plan = plan_collective(on, {.kind = kind, .count = count, .algorithm = std::string(algorithm)});
    const int other = on.size() - 1;
    return std::ranges::count_if(plan.steps,
                                 [&](const Step& step) { return step.kind == StepKind::send && step.peer == other; });
  };
  EXPECT_EQ(messages(team({0, 1}), "ring", CollectiveKind::allgather, 1 << 20), 18);
  EXPECT_EQ(messages(team({0, 0}), "ring", CollectiveKind::allgather, 1 << 20), 1) << "inside a node as a whole";
  EXPECT_EQ(messages(team({0, 1}), "leader_doubling", CollectiveKind::allreduce, 60 << 10), 1);
  EXPECT_EQ(messages(team({0, 0, 1}), "leader_doubling", CollectiveKind::allreduce, 60 << 10), 4)
      << "shorter ones overlap with the work inside the node";
}

TEST(Choose, TakesATreeWhereASplitIsAskedFor) {
  for (const CollectiveKind kind : {CollectiveKind::bcast, CollectiveKind::reduce, CollectiveKind::allreduce,
                                    CollectiveKind::gather, CollectiveKind::scatter}) {
    Collective collective{.kind = kind, .count = 100, .split = 2};
    const Team node = team(std::vector<std::int32_t>(16));
    EXPECT_EQ(choose(node, collective).algorithm->name, "tree");
    EXPECT_EQ(choose(node, collective).split, 2);
    collective.split = 99;
    EXPECT_EQ(choose(node, collective).split, 4) << "clamped to the levels of the tree";
    EXPECT_EQ(choose(team({0, 0, 0, 1, 1}), collective).split, 2) << "levels between nodes stay on the progress cores";
    collective.split = -2;
    EXPECT_NE(message(node, collective).find("split is -2"), std::string::npos);
  }
}

TEST(Choose, AsksTheModelForTheSplit) {
  Collective collective{.kind = CollectiveKind::reduce, .count = 2 << 20, .algorithm = "binomial"};
  Team node = team(std::vector<std::int32_t>(60));
  node.single_copy = false;  // messages, as in the paper
  EXPECT_EQ(choose(node, collective).split, 0) << "no progress cores";
  for (const auto& [ranks, split] : {std::pair{51, 0}, {52, 1}, {57, 1}, {58, 2}, {61, 2}, {62, 3}, {63, 3}}) {
    node.node_of_rank.assign(static_cast<std::size_t>(ranks), 0);
    node.progress_cores = 64 - ranks;
    EXPECT_EQ(choose(node, collective).split, split) << ranks << " ranks";
  }
}

TEST(Choose, SaysWhatIsWrongWithCounts) {
  const Team three = team({0, 0, 0}, 1);
  const auto says = [&](const Collective& collective) { return message(three, collective); };
  EXPECT_NE(says({.kind = CollectiveKind::allgatherv, .receive = {{1, 2}, {}}}).find("2 counts"), std::string::npos);
  EXPECT_NE(says({.kind = CollectiveKind::allgatherv, .receive = {{1, 2, 3}, {0, 1, 2}}}).find("overlap"),
            std::string::npos);
  EXPECT_EQ(says({.kind = CollectiveKind::allgatherv, .receive = {{1, 0, 3}, {3, 1, 0}}}), "") << "out of order";
  EXPECT_NE(
      says({.kind = CollectiveKind::alltoallv, .send = {{1, 2, 3}, {}}, .receive = {{1, 1, 1}, {}}}).find("itself"),
      std::string::npos);
  EXPECT_NE(says({.kind = CollectiveKind::reduce_scatter,
                  .dtype = DType::float64,
                  .receive = {{std::uint64_t{1} << 60, std::uint64_t{1} << 60, 1}, {}}})
                .find("2^63"),
            std::string::npos);
  EXPECT_EQ(says({.kind = CollectiveKind::gatherv, .root = 0, .receive = {{1, 2}, {}}}), "") << "the root's affair";
}

TEST(Algorithms, HaveUniqueNames) {
  std::set<std::pair<CollectiveKind, std::string_view>> names;
  for (const Algorithm& row : algorithms()) EXPECT_TRUE(names.emplace(row.kind, row.name).second) << row.name;
  for (int kind = 0; kind < static_cast<int>(kCollectiveKinds); ++kind)
    EXPECT_EQ(collective_kind_from_name(name(static_cast<CollectiveKind>(kind))), static_cast<CollectiveKind>(kind));
  EXPECT_THROW(collective_kind_from_name("alltoallx"), Error);
}

TEST(Group, FollowsTheNodes) {
  const Team scattered = team({0, 1, 0, 2, 1, 0}, 4);
  EXPECT_EQ(collectives::by_node(scattered, 1).ranks, (std::vector{1, 4, 3, 0, 2, 5}));
  EXPECT_EQ(collectives::by_node(scattered, 1).self, 1);
  EXPECT_EQ(collectives::leaders(scattered, 4).ranks, (std::vector{4, 3, 0}));
  EXPECT_EQ(collectives::leaders(scattered, 1).self, -1);
  EXPECT_EQ(collectives::node_group(scattered, 4).ranks, (std::vector{4, 1}));
  EXPECT_EQ(collectives::node_group(scattered, 0).ranks, (std::vector{1, 4}));
  EXPECT_EQ(collectives::largest_node(scattered), 3);
}

// Every rank but the root has a parent. The parent has it as a child, at the same level and with the same subtree.
TEST(Tree, BothEndsOfEveryEdgeAgree) {
  for (int size = 1; size <= 33; ++size)
    for (const auto make : {collectives::binomial, collectives::chain}) {
      std::vector<collectives::Tree> trees;
      collectives::Group group;
      for (int rank = 0; rank < size; ++rank) group.ranks.push_back(rank);
      for (group.self = 0; group.self < size; ++group.self) trees.push_back(make(group));
      int edges = 0;
      for (int rank = 0; rank < size; ++rank)
        for (const auto& child : trees[static_cast<std::size_t>(rank)].children) {
          const auto& other = trees[static_cast<std::size_t>(child.rank)];
          EXPECT_EQ(other.parent, rank);
          EXPECT_EQ(other.parent_level, child.level);
          EXPECT_EQ(other.count, child.count);
          ++edges;
        }
      EXPECT_EQ(edges, size - 1);
      EXPECT_EQ(trees[0].parent, -1);
      EXPECT_EQ(trees[0].count, size);
    }
}

// Every rank but the root has one parent, which has it as a child. No rank has children in both trees.
TEST(Tree, TheTwoTreesShareTheWork) {
  using collectives::Group;
  const std::vector<collectives::Tree (*)(const Group&)> makers{
      [](const Group& group) { return collectives::two_tree(group, 0); },
      [](const Group& group) { return collectives::two_tree(group, 1); }, collectives::binary};
  for (int size = 1; size <= 40; ++size) {
    Group group;
    for (int i = 0; i < size; ++i) group.ranks.push_back(size - 1 - i);
    std::vector<std::vector<int>> trees_with_children(2, std::vector<int>(static_cast<std::size_t>(size)));
    for (std::size_t which = 0; which < makers.size(); ++which) {
      std::vector<collectives::Tree> trees;
      for (group.self = 0; group.self < size; ++group.self) trees.push_back(makers[which](group));
      std::size_t edges = 0;
      for (int i = 0; i < size; ++i) {
        const collectives::Tree& tree = trees[static_cast<std::size_t>(i)];
        for (const auto& child : tree.children)
          EXPECT_EQ(trees[static_cast<std::size_t>(size - 1 - child.rank)].parent, group[i]);
        EXPECT_EQ(tree.parent < 0, i == 0) << size << " ranks";
        EXPECT_LE(tree.children.size(), 2u);
        edges += tree.children.size();
        if (which < 2 && i > 0) trees_with_children[which][static_cast<std::size_t>(i)] = !tree.children.empty();
      }
      EXPECT_EQ(edges, static_cast<std::size_t>(size - 1));
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i)
      EXPECT_LE(trees_with_children[0][i] + trees_with_children[1][i], 1) << "rank " << i << " of " << size;
  }
}

// The last level of a full binomial tree has half of its messages (split-tree paper, section 3).
TEST(Tree, TheLastLevelOfABroadcastGoesToTheApplication) {
  int application = 0;
  int progress = 0;
  for (int rank = 0; rank < 16; ++rank) {
    Plan plan = plan_collective(team(std::vector<std::int32_t>(16), rank),
                                {.kind = CollectiveKind::bcast, .count = 10, .algorithm = "binomial"});
    EXPECT_EQ(plan.tree_levels, 4);
    plan::split_tree(plan, 1);
    for (const Step& step : plan.steps)
      if (step.kind == StepKind::send) ++(step.lane == Lane::application ? application : progress);
  }
  EXPECT_EQ(application, 8);
  EXPECT_EQ(progress, 7);
}

/// A leader that hears of each rank of its node one after another would take longer.
TEST(Choose, BarriersOfManyRanksInFewRounds) {
  const auto seconds = [](const std::vector<std::int32_t>& nodes, const std::string& algorithm) {
    std::vector<Plan> plans;
    for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(nodes.size()); ++rank)
      plans.push_back(plan_collective(Team{.rank = rank, .node_of_rank = nodes},
                                      {.kind = CollectiveKind::barrier, .algorithm = algorithm}));
    return simulated_seconds(plans, Team{.rank = 0, .node_of_rank = nodes}, machine_with("rdma-100g"));
  };
  std::vector<std::int32_t> nodes(64, 0);
  EXPECT_LE(seconds(nodes, ""), seconds(nodes, "dissemination"));
  nodes.resize(128, 1);
  EXPECT_LT(seconds(nodes, ""), seconds(nodes, "dissemination"));
}

TEST(Choose, ShortCallsOfManyRanksInFewRounds) {
  for (const std::size_t ranks : {32u, 64u, 128u})
    for (const auto& [kind, messages] :
         {std::pair(CollectiveKind::allreduce, "recursive_doubling"), std::pair(CollectiveKind::reduce, "binomial"),
          std::pair(CollectiveKind::barrier, "dissemination")}) {
      const Team node = team(std::vector<std::int32_t>(ranks));
      const auto seconds = [&, kind = kind](const std::string& algorithm) {
        std::vector<Plan> plans;
        Team each = node;
        for (each.rank = 0; each.rank < each.size(); ++each.rank)
          plans.push_back(
              plan_collective(each, {.kind = kind, .count = 1, .dtype = DType::float64, .algorithm = algorithm}));
        return simulated_seconds(plans, node, machine_with("rdma-100g"));
      };
      const std::string what = std::string(name(kind)) + " of " + std::to_string(ranks) + " ranks";
      EXPECT_LT(seconds(""), 0.3 * seconds("shared")) << what;
      EXPECT_LT(seconds(""), 1.01 * seconds(messages)) << what << ": one copy more at most";
    }
}

TEST(Boxes, CutWhatStaysInACacheIntoMessages) {
  const auto pieces = [](const Team& on, CollectiveKind kind, std::uint64_t bytes) {
    const auto ranks = static_cast<std::size_t>(on.size());
    Collective collective{.kind = kind, .count = bytes, .root = kind == CollectiveKind::gatherv ? 1 : 0};
    collective.algorithm = "shared";
    collective.send.counts.assign(ranks, bytes);
    const Plan writer = plan_collective(on, collective);
    return std::ranges::count_if(writer.steps,
                                 [](const Step& step) { return step.kind == StepKind::send && step.peer == 1; });
  };
  Team node = team({0, 0, 0});
  for (const auto& [bytes, count] : std::map<std::uint64_t, int>{{kFlaggedBytes, 0},
                                                                 {16 << 10, 1},
                                                                 {32 << 10, 2},
                                                                 {128 << 10, 8},
                                                                 {1 << 20, 64},
                                                                 {2'796'202, 171},
                                                                 {2'796'203, 1}})
    EXPECT_EQ(pieces(node, CollectiveKind::gatherv, bytes), count) << bytes;
  EXPECT_EQ(pieces(team({0, 0}), CollectiveKind::gatherv, 4 << 20), 256);
  EXPECT_EQ(pieces(node, CollectiveKind::scatterv, 1 << 20), 64);
  EXPECT_EQ(pieces(node, CollectiveKind::scatterv, 1025 << 10), 1) << "for two readers more than the cache";
  node.message_bytes = std::uint64_t{1} << 20;
  EXPECT_EQ(pieces(node, CollectiveKind::gatherv, 32 << 10), 2) << "reader and writer copy at the same time";
  EXPECT_EQ(pieces(node, CollectiveKind::gatherv, 1 << 20), 11);
  EXPECT_EQ(pieces(node, CollectiveKind::scatterv, 512 << 10), 6) << "each piece takes a message to each reader";
  node.message_bytes = 1024;
  EXPECT_EQ(pieces(node, CollectiveKind::gatherv, 32 << 10), 32);
  EXPECT_EQ(pieces(node, CollectiveKind::gatherv, 1 << 20), 1) << "more messages than a plan may have";
  for (const std::uint64_t few : {0, 1}) {
    node.message_bytes = few;
    EXPECT_EQ(pieces(node, CollectiveKind::gatherv, 32 << 10), 1);
  }
  node.message_bytes = 1024;
  EXPECT_EQ(pieces(node, CollectiveKind::scatterv, 32 << 10), 32);
  node.core_cache_bytes = 32 << 10;
  EXPECT_EQ(pieces(node, CollectiveKind::scatterv, 32 << 10), 1);
  EXPECT_EQ(pieces(node, CollectiveKind::gatherv, 32 << 10), 32);
  node.last_cache_bytes = 256 << 10;
  EXPECT_EQ(pieces(node, CollectiveKind::gatherv, 32 << 10), 1);
}

// A reader that expects another length may see a piece first. It tells both lengths only if it can read the sender's.
TEST(Boxes, TellALengthBeforeThePiecesOfItsBlock) {
  for (const CollectiveKind kind : {CollectiveKind::gatherv, CollectiveKind::scatterv}) {
    const bool gathers = kind == CollectiveKind::gatherv;
    Collective collective{.kind = kind, .count = 200'000, .root = gathers ? 1 : 0};
    collective.algorithm = "shared";
    (gathers ? collective.receive : collective.send).counts = {200'000, 200'000, 200'000};
    const Plan writer = plan_collective({.rank = 0, .node_of_rank = {0, 0, 0}}, collective);
    const auto is_signal = [&](StepId id) { return writer.steps[id].kind == StepKind::signal; };
    int pieces = 0;
    for (StepId id = 0; id < writer.steps.size(); ++id) {
      if (writer.steps[id].kind != StepKind::send) continue;
      ++pieces;
      EXPECT_TRUE(std::ranges::any_of(plan::dependencies(writer, id), is_signal)) << writer.algorithm << ", " << id;
    }
    EXPECT_GT(pieces, 2) << writer.algorithm;
  }
}

}  // namespace
}  // namespace penstock
