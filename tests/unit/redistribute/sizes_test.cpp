// Plans for arrays larger than this machine's memory: volumes, numbers of messages, tags.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "penstock/redistribute.hpp"
#include "plan/order.hpp"

namespace penstock {
namespace {

constexpr std::int64_t kKibi = std::int64_t{1} << 10;
constexpr std::int64_t kGibi = std::int64_t{1} << 30;
constexpr std::int64_t kTebi = std::int64_t{1} << 40;

using Pair = std::pair<std::int32_t, std::int32_t>;

struct Traffic {
  std::map<Pair, std::uint64_t> message_bytes;
  std::map<Pair, std::uint64_t> staging_bytes;
  std::map<Pair, std::uint64_t> remote_read_bytes;
  std::uint64_t most_messages = 0;  ///< of a pair, including remote reads
  std::uint64_t longest_bytes = 0;  ///< of all messages
  std::uint64_t kept_bytes = 0;
};

std::uint64_t elems_of(const Plan& plan, const Step& step) {
  std::uint64_t sum = 0;
  for (const Block& block : plan::blocks(plan, step)) sum += block.rows * block.columns;
  return sum;
}

enum class Verified : bool { no, yes };

/// The traffic of the plans of all ranks, which must equal the layouts' volumes. The verifier's time grows with the
/// square of the uses of staging buffers, and with the number of runs, which is large for transpositions.
Traffic checked(const std::vector<LayoutPair>& pairs, const RedistributionOptions& options,
                const std::vector<std::int32_t>& nodes, Verified verified = Verified::yes, bool single_copy = true) {
  const auto element_bytes = static_cast<std::uint64_t>(size_bytes(options.dtype));
  std::vector<Plan> plans;
  Team team{.node_of_rank = nodes, .single_copy = single_copy};
  for (team.rank = 0; team.rank < team.size(); ++team.rank) plans.push_back(plan_redistribution(pairs, options, team));
  if (verified == Verified::yes)
    for (const std::string& finding : verify(plans, nodes, element_bytes)) ADD_FAILURE() << finding;

  Traffic traffic;
  for (const Plan& plan : plans) {
    EXPECT_LT(plan.scratch_bytes, (plan.input_bytes + plan.output_bytes) / 64 + (std::uint64_t{1} << 26))
        << "a few segments for each peer";
    std::map<std::int32_t, std::set<std::uint32_t>> tags;
    for (const Step& step : plan.steps) {
      EXPECT_LE(step.tag, kMaxTag);
      if (plan::touches(step).reads_remote)
        traffic.staging_bytes[{step.peer, plan.rank}] += elems_of(plan, step) * element_bytes;
      if (plan::has_blocks(step) && step.from.buffer == Buffer::input && step.to.buffer == Buffer::output)
        traffic.kept_bytes += elems_of(plan, step) * element_bytes;
      if (plan::takes_message(step) && plan::consumed_bytes(step) > 0)
        (step.kind == StepKind::recv ? traffic.message_bytes : traffic.remote_read_bytes)[{step.peer, plan.rank}] +=
            plan::consumed_bytes(step);
      if (step.kind != StepKind::send || step.from.size_bytes == 0) continue;
      EXPECT_TRUE(tags[step.peer].insert(step.tag).second) << "tag " << step.tag << " twice";
      traffic.longest_bytes = std::max(traffic.longest_bytes, step.from.size_bytes);
    }
    for (const auto& [peer, used] : tags)
      traffic.most_messages = std::max<std::uint64_t>(traffic.most_messages, used.size());
  }

  std::map<Pair, std::uint64_t> expected;
  for (const LayoutPair& pair : pairs)
    for (const PairVolume& volume : transfer_volumes(pair.source, pair.target, options.op))
      expected[{volume.source, volume.target}] += static_cast<std::uint64_t>(volume.elems) * element_bytes;
  std::uint64_t kept_bytes = 0;
  for (const auto& [pair, volume_bytes] : expected) {
    if (pair.first == pair.second) {
      kept_bytes += volume_bytes;
      continue;
    }
    EXPECT_EQ(traffic.message_bytes[pair] + traffic.staging_bytes[pair] + traffic.remote_read_bytes[pair], volume_bytes)
        << "rank " << pair.first << " to rank " << pair.second;
  }
  EXPECT_EQ(traffic.kept_bytes, kept_bytes);
  for (auto* each : {&traffic.message_bytes, &traffic.staging_bytes, &traffic.remote_read_bytes})
    std::erase_if(*each, [](const auto& entry) { return entry.second == 0; });
  return traffic;
}

TEST(RedistributionSizes, APairInsideANodeUsesMessagesWhereTheTagsForStagingDoNotLast) {
  // A staging buffer is 128 KiB and may be half full; each use takes two of the 2^16 tags.
  for (const std::int64_t pair_gibi : {1, 2, 5}) {
    const Layout rows = Layout::even({2 * kKibi * pair_gibi, 2 * 128 * kKibi}, 2);
    const Layout columns = Layout::even({2 * kKibi * pair_gibi, 2 * 128 * kKibi}, 2, 1);
    const Traffic traffic = checked({{rows, columns}}, {.dtype = DType::float64}, {0, 0},
                                    pair_gibi < 2 ? Verified::no : Verified::yes, false);
    EXPECT_EQ(traffic.staging_bytes.size(), pair_gibi < 2 ? 2u : 0u) << pair_gibi << " GiB";
    EXPECT_EQ(traffic.message_bytes.size(), pair_gibi < 2 ? 0u : 2u) << pair_gibi << " GiB";
  }
}

TEST(RedistributionSizes, EachPairOfRanksChoosesForItself) {
  // Four ranks on two nodes. Rank 0 has 5 GiB for the other rank of its node; other pairs have little.
  const Layout source = Layout::grid({{0, 5 * kGibi, 5 * kGibi + 1000}, {0, 8}}, {0, 1}, 4);
  const Layout target = Layout::grid({{0, 5 * kGibi, 5 * kGibi + 600, 5 * kGibi + 1000}, {0, 8}}, {1, 0, 2}, 4);
  const Traffic traffic = checked({{source, target}}, {.dtype = DType::uint8}, {0, 0, 1, 1});
  const std::map<Pair, std::uint64_t> vast{{{0, 1}, 40u * kGibi}};
  const std::map<Pair, std::uint64_t> between{{{1, 2}, 400u * 8}};
  const std::map<Pair, std::uint64_t> near{{{1, 0}, 600u * 8}};
  EXPECT_EQ(traffic.remote_read_bytes, vast);
  EXPECT_EQ(traffic.message_bytes, between);
  EXPECT_EQ(traffic.staging_bytes, near);
  const Traffic apart = checked({{source, target}}, {.dtype = DType::uint8}, {0, 0, 1, 1}, Verified::yes, false);
  EXPECT_EQ(apart.message_bytes, (std::map<Pair, std::uint64_t>{*vast.begin(), *between.begin()}));
  EXPECT_EQ(apart.staging_bytes, near);
}

TEST(RedistributionSizes, TranspositionOfMoreThanFourGibibytesForAPair) {
  const std::int64_t n = 33 * kKibi;  // 17 GB, a quarter per pair
  const Layout source = Layout::even({n, n}, 2);
  const Layout target = Layout::block_cyclic({n, n}, {kKibi, kKibi}, {2, 1});
  const Traffic traffic =
      checked({{source, target}}, {.dtype = DType::complex128, .op = MatrixOp::transpose}, {0, 0}, Verified::no);
  ASSERT_EQ(traffic.message_bytes.size(), 2u);
  EXPECT_GT(traffic.message_bytes.at({0, 1}), 4u * kGibi);
  EXPECT_LE(traffic.most_messages, 2u * 4096 + 1);
  EXPECT_LE(traffic.longest_bytes, 2u * kKibi * kKibi);
}

TEST(RedistributionSizes, BeyondTwoToTheForty) {
  // Inside nodes and between them; 2^43 bytes in total, up to 2^39 per pair.
  const Layout source = Layout::block_cyclic({kTebi}, {kGibi}, {4});
  const Layout target = Layout::even({kTebi}, 4);
  for (const std::vector<std::int32_t>& nodes : {std::vector<std::int32_t>{0, 0, 1, 1}, {0, 1, 2, 3}}) {
    const Traffic traffic = checked({{source, target}}, {.dtype = DType::float64}, nodes);
    EXPECT_EQ(traffic.remote_read_bytes.size(), nodes[1] == 0 ? 4u : 0u);
    EXPECT_EQ(traffic.message_bytes.size() + traffic.remote_read_bytes.size(), 12u);
    for (const auto& moved : {traffic.message_bytes, traffic.remote_read_bytes})
      for (const auto& [pair, moved_bytes] : moved) EXPECT_EQ(moved_bytes, static_cast<std::uint64_t>(kTebi) / 16 * 8);
    EXPECT_LE(traffic.most_messages, 2u * 16384 + 1);
  }
  // One element less than 63 bits can count in bytes.
  const std::int64_t most = (std::int64_t{1} << 60) - 1;
  const Traffic vast = checked({{Layout::whole({most}, 0, 2), Layout::whole({most}, 1, 2)}}, {}, {0, 0});
  EXPECT_EQ(vast.remote_read_bytes.at({0, 1}), static_cast<std::uint64_t>(most) * 8);
}

TEST(RedistributionSizes, PartsAndBatchesBeyondTwoToTheForty) {
  const Layout source = Layout::block_cyclic({4 * kTebi, 4}, {kGibi, 4}, {2, 1});
  const Layout target = Layout::even({4 * kTebi, 4}, 2);
  const RedistributionOptions part{
      .dtype = DType::float32, .source_begin = {kTebi + 1, 0}, .target_begin = {2 * kTebi - 3, 0}, .shape = {kTebi, 4}};
  const MovedLayouts parts = moved_layouts(source, target, part);
  const std::uint64_t part_bytes = static_cast<std::uint64_t>(kTebi) * 4 * 4;
  std::uint64_t sum = 0;
  std::vector<Plan> plans;
  for (std::int32_t rank = 0; rank < 2; ++rank)
    plans.push_back(plan_redistribution(source, target, part, {.rank = rank, .node_of_rank = {0, 1}}));
  for (const std::string& finding : verify(plans, std::vector<std::int32_t>{0, 1}, 4)) ADD_FAILURE() << finding;
  for (const Plan& plan : plans)
    for (const Step& step : plan.steps)
      if (step.kind == StepKind::send) sum += step.from.size_bytes;
  EXPECT_EQ(sum, relabel(parts.source, parts.target, {.element_bytes = 4}).bytes_before);
  EXPECT_GT(sum, part_bytes / 3);
  EXPECT_LT(sum, part_bytes);

  const Layout small = Layout::even({1000}, 2);
  const Layout swapped = small.relabeled(std::vector<std::int32_t>{1, 0});
  const Traffic batch =
      checked({{small, swapped}, {source, target}, {small, swapped}}, {.dtype = DType::float32}, {0, 0});
  EXPECT_LE(batch.most_messages, 2u * 16384 + 3);
}

TEST(RedistributionSizes, MoreMembersOfABatchThanTags) {
  const Layout source = Layout::even({2}, 2);
  const Layout target = source.relabeled(std::vector<std::int32_t>{1, 0});
  const std::vector<LayoutPair> pairs(70'000, {source, target});
  checked(pairs, {.dtype = DType::float64}, {0, 0}, Verified::no);
}

}  // namespace
}  // namespace penstock
