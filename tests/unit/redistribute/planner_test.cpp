// The plans of all ranks in one process, against a reference that moves one element at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "penstock/error.hpp"
#include "penstock/redistribute.hpp"
#include "planner_reference.hpp"
#include "redistribute_cases.hpp"
#include "simulate.hpp"

namespace penstock {
namespace {

using namespace planner_reference;
using testing_layouts::pick;
using testing_layouts::random_layout;

TEST(RedistributionPlan, RandomLayoutsEqualTheReference) {
  std::mt19937 random(29);
  constexpr int kDTypes = static_cast<int>(DType::complex128) + 1;
  for (int i = 0; i < 360; ++i) {
    const auto op = static_cast<MatrixOp>(i % 3);
    const auto dtype = static_cast<DType>(i % kDTypes);
    Index shape = testing_layouts::random_shape(random, op == MatrixOp::none ? 1 + i % 4 : 2);
    const std::int32_t max_ranks = i % 20 == 0 ? 17 : 6;
    const Layout source = random_layout(random, shape, max_ranks);
    if (op != MatrixOp::none) std::swap(shape[0], shape[1]);
    const Layout target = random_layout(random, shape, max_ranks);
    Case c{source, target, {.dtype = dtype, .op = op}, 0};
    if (i % 2 == 0) c.options.segment_bytes = static_cast<std::uint64_t>(pick(random, 1, 300));
    c.ranks = std::max(source.ranks(), target.ranks()) + static_cast<std::int32_t>(pick(random, 0, 1));
    c.alpha = static_cast<double>(pick(random, 0, 2));
    c.beta = static_cast<double>(pick(random, 0, 2));
    c.nodes = static_cast<std::int32_t>(pick(random, 1, 3));
    if (i % 5 == 0) c.shared_limit_bytes = static_cast<std::uint64_t>(pick(random, 0, 1 << 16));
    c.single_copy = i % 7 < 5;
    if (is_complex(dtype)) c.alpha += Value(0.0, static_cast<double>(pick(random, -1, 1)));
    expect_correct(c, random);
    if (HasFailure()) return;
  }
}

TEST(RedistributionPlan, BoxesAndCopiesEqualTheReference) {
  std::mt19937 random(31);
  for (int i = 0; i < 400; ++i) {
    const auto op = static_cast<MatrixOp>(i % 3);
    const int dimensions = op == MatrixOp::none ? 1 + i / 3 % 4 : 2;
    std::vector<std::int64_t> shape = testing_layouts::random_shape(random, dimensions);
    const Layout source = testing_layouts::random_composed(random, shape, 7);
    if (op != MatrixOp::none) std::swap(shape[0], shape[1]);
    const Layout target = testing_layouts::random_composed(random, shape, 7);
    Case c{source, target, {.dtype = i % 2 == 0 ? DType::complex128 : DType::int16, .op = op}, 0};
    if (i % 4 == 0) c.options.segment_bytes = static_cast<std::uint64_t>(pick(random, 1, 300));
    c.ranks = std::max(source.ranks(), target.ranks());
    c.nodes = static_cast<std::int32_t>(pick(random, 1, 3));
    c.beta = static_cast<double>(pick(random, 0, 1));
    expect_correct(c, random);
    if (HasFailure()) return;

    std::int64_t moved_elems = 0;
    for (const PairVolume& volume : transfer_volumes(source, target, op)) moved_elems += volume.elems;
    ASSERT_EQ(moved_elems, target.size_elems() * target.copies());
    ASSERT_EQ(Layout::parse(source.serialize()).serialize(), source.serialize());
  }
}

TEST(RedistributionPlan, RanksReadTheirOwnCopy) {
  const Layout whole = Layout::whole({8, 6});
  std::vector<Layout> copies;
  for (std::int32_t rank = 0; rank < 4; ++rank) copies.push_back(whole.on_ranks({{rank}}, 4));
  const Layout everywhere = Layout::replicated(copies);
  const Layout parts = Layout::block_cyclic({8, 6}, {2, 2}, {2, 2});
  for (const PairVolume& volume : transfer_volumes(everywhere, parts)) EXPECT_EQ(volume.source, volume.target);
  EXPECT_EQ(relabel(everywhere, parts, {.element_bytes = 8}).bytes_before, 0u);
  EXPECT_EQ(relabel(parts, everywhere, {.element_bytes = 8}).bytes_before, (4u * 48 - 48) * 8);
}

TEST(RedistributionPlan, ConvertsBetweenAllTypesThatCanBeConverted) {
  std::mt19937 random(31);
  constexpr int kDTypes = static_cast<int>(DType::complex128) + 1;
  const auto kind = [](DType dtype) { return is_complex(dtype) ? 2 : dtype > DType::uint64 ? 1 : 0; };
  int converted = 0;
  for (int i = 0; i < kDTypes * kDTypes; ++i) {
    const auto from = static_cast<DType>(i / kDTypes);
    const auto to = static_cast<DType>(i % kDTypes);
    const auto op = static_cast<MatrixOp>(pick(random, 0, 2));
    Index shape = testing_layouts::random_shape(random, 2);
    const Layout source = random_layout(random, shape, 5);
    if (op != MatrixOp::none) std::swap(shape[0], shape[1]);
    Case c{source, random_layout(random, shape, 5), {.dtype = to, .source_dtype = from, .op = op}, 0};
    c.ranks = std::max(c.source.ranks(), c.target.ranks());
    c.nodes = static_cast<std::int32_t>(pick(random, 1, 3));
    c.alpha = static_cast<double>(pick(random, 0, 2));
    c.beta = static_cast<double>(pick(random, 0, 1));
    if (pick(random, 0, 1) == 0) c.options.segment_bytes = static_cast<std::uint64_t>(pick(random, 1, 300));
    if (kind(from) > kind(to)) {
      EXPECT_THROW(plans_of(c), Error) << name(from) << " to " << name(to);
      continue;
    }
    ++converted;
    expect_correct(c, random);
    if (HasFailure()) FAIL() << name(from) << " to " << name(to);
  }
  EXPECT_EQ(converted, 8 * 14 + 4 * 6 + 2 * 2);
}

TEST(RedistributionPlan, TheSmallerElementsTravel) {
  const Layout rows = Layout::even({64, 64}, 2);
  const Layout columns = Layout::even({64, 64}, 2, 1);
  const auto sent_bytes = [&](DType from, DType to) {
    std::uint64_t sum = 0;
    const Case c{rows, columns, {.dtype = to, .source_dtype = from}, 2, 1.0, 0.0, 2};
    for (const Plan& plan : plans_of(c))
      for (const Step& step : plan.steps)
        if (step.kind == StepKind::send) sum += step.from.size_bytes;
    return sum;
  };
  EXPECT_EQ(sent_bytes(DType::float64, DType::float64), 2u * 32 * 32 * 8);
  EXPECT_EQ(sent_bytes(DType::float64, DType::float32), 2u * 32 * 32 * 4);
  EXPECT_EQ(sent_bytes(DType::float32, DType::float64), 2u * 32 * 32 * 4);
  EXPECT_EQ(sent_bytes(DType::complex128, DType::complex64), 2u * 32 * 32 * 8);
  EXPECT_EQ(sent_bytes(DType::bfloat16, DType::float32), 2u * 32 * 32 * 2);
}

TEST(RedistributionPlan, PartsAndLeadingDimensions) {
  std::mt19937 random(83);
  for (int i = 0; i < 200; ++i) {
    const auto op = static_cast<MatrixOp>(i % 3);
    const int dimensions = op == MatrixOp::none && i % 2 == 0 ? 1 + i % 4 : 2;
    Case c{testing_layouts::random_composed(random, testing_layouts::random_shape(random, dimensions), 6),
           testing_layouts::random_composed(random, testing_layouts::random_shape(random, dimensions), 6),
           {.dtype = i % 4 == 0 ? DType::complex64 : DType::int16, .op = op},
           0};
    c.ranks = std::max(c.source.ranks(), c.target.ranks());
    c.nodes = static_cast<std::int32_t>(pick(random, 1, 2));
    c.beta = static_cast<double>(pick(random, 0, 1));
    const Index source_shape = c.source.shape();
    for (std::size_t d = 0; d < source_shape.size(); ++d) {
      const std::int64_t room = c.target.shape()[op == MatrixOp::none ? d : 1 - d];
      c.options.shape.push_back(pick(random, 0, std::min(source_shape[d], room)));
      c.options.source_begin.push_back(pick(random, 0, source_shape[d] - c.options.shape[d]));
    }
    for (std::size_t d = 0; d < source_shape.size(); ++d) {
      const std::int64_t moved = c.options.shape[op == MatrixOp::none ? d : 1 - d];
      c.options.target_begin.push_back(pick(random, 0, c.target.shape()[d] - moved));
    }
    if (i % 7 == 0) c.options.source_begin.assign(source_shape.size(), 0);
    if (i % 7 == 0) c.options.target_begin.clear();
    if (dimensions == 2 && i % 5 != 0) {
      c.source_leading_elems = random_leading(random, c.source, c.ranks);
      c.target_leading_elems = random_leading(random, c.target, c.ranks);
    }
    expect_correct(c, random);
    if (HasFailure()) return;
  }
}

TEST(RedistributionPlan, ArraysWithAnyStridesAnywhere) {
  std::mt19937 random(47);
  for (int i = 0; i < 300; ++i) {
    const auto op = static_cast<MatrixOp>(i % 3);
    const int dimensions = op == MatrixOp::none ? 1 + i / 3 % 4 : 2;
    Index shape = testing_layouts::random_shape(random, dimensions);
    const Layout source = testing_layouts::random_composed(random, shape, 6);
    if (op != MatrixOp::none) std::swap(shape[0], shape[1]);
    const Layout target = testing_layouts::random_composed(random, shape, 6);
    Case c{source, target, {.dtype = i % 2 == 0 ? DType::complex64 : DType::float64, .op = op}, 0};
    if (i % 5 == 0) c.options.source_dtype = DType::float32;
    if (i % 4 == 0) c.options.segment_bytes = static_cast<std::uint64_t>(pick(random, 1, 300));
    c.ranks = std::max(source.ranks(), target.ranks());
    c.nodes = static_cast<std::int32_t>(pick(random, 1, 3));
    c.beta = static_cast<double>(pick(random, 0, 1));
    if (i % 7 != 0) c.source_parts = random_parts(random, source, c.ranks);
    if (i % 7 != 1) c.target_parts = random_parts(random, target, c.ranks);
    if (i % 3 == 0 && i % 2 == 0)
      for (const std::int64_t length : shape) {
        c.options.shape.push_back(pick(random, 0, length));
        c.options.source_begin.push_back(pick(random, 0, length - c.options.shape.back()));
        c.options.target_begin.push_back(pick(random, 0, length - c.options.shape.back()));
      }
    expect_correct(c, random);
    if (HasFailure()) return;
  }
}

TEST(RedistributionPlan, ABatchMovesWhatItsPairsMove) {
  std::mt19937 random(61);
  for (int i = 0; i < 60; ++i) {
    const auto op = static_cast<MatrixOp>(i % 3);
    std::vector<LayoutPair> pairs;
    Case c{Layout::whole({}), Layout::whole({}), {.dtype = DType::int32, .op = op}, 1};
    for (std::int64_t k = pick(random, 1, 4); k > 0; --k) {
      Index shape = testing_layouts::random_shape(random, 2);
      const Layout source = random_layout(random, shape, 5);
      if (op != MatrixOp::none) std::swap(shape[0], shape[1]);
      pairs.push_back({source, random_layout(random, shape, 5)});
      c.ranks = std::max({c.ranks, pairs.back().source.ranks(), pairs.back().target.ranks()});
    }
    c.nodes = static_cast<std::int32_t>(pick(random, 1, 2));
    if (i % 2 == 0) c.options.segment_bytes = static_cast<std::uint64_t>(pick(random, 1, 300));
    Team team{.node_of_rank = nodes_of(c)};
    std::vector<Plan> together;
    for (team.rank = 0; team.rank < c.ranks; ++team.rank)
      together.push_back(plan_redistribution(pairs, c.options, team));
    for (const std::string& finding : verify(together, team.node_of_rank, 4)) ADD_FAILURE() << finding;
    std::vector<plan::RankMemory> memory(together.size());
    for (std::size_t r = 0; r < memory.size(); ++r) {
      memory[r].input.resize(together[r].input_bytes);
      for (std::byte& byte : memory[r].input) byte = static_cast<std::byte>(random());
      memory[r].output.resize(together[r].output_bytes);
    }
    plan::simulate(together, {.dtype = DType::int32}, memory, random());
    // Each pair separately, on its part of the same memory.
    std::vector<std::size_t> input_at(memory.size(), 0), output_at(memory.size(), 0);
    for (const LayoutPair& pair : pairs) {
      const std::vector<Plan> alone = plans_of({pair.source, pair.target, c.options, c.ranks});
      std::vector<plan::RankMemory> part(memory.size());
      for (std::size_t r = 0; r < memory.size(); ++r) {
        const auto begin = memory[r].input.begin() + static_cast<std::ptrdiff_t>(input_at[r]);
        part[r].input.assign(begin, begin + static_cast<std::ptrdiff_t>(alone[r].input_bytes));
        part[r].output.resize(alone[r].output_bytes);
      }
      plan::simulate(alone, {.dtype = DType::int32}, part, random());
      for (std::size_t r = 0; r < memory.size(); ++r) {
        ASSERT_TRUE(std::equal(part[r].output.begin(), part[r].output.end(),
                               memory[r].output.begin() + static_cast<std::ptrdiff_t>(output_at[r])));
        input_at[r] += (alone[r].input_bytes + 63) / 64 * 64;
        output_at[r] += (alone[r].output_bytes + 63) / 64 * 64;
      }
    }
    if (HasFailure()) return;
  }
  // Small packages of all pairs fit in one message.
  const Layout rows = Layout::even({4, 4}, 2);
  const Layout columns = Layout::even({4, 4}, 2, 1);
  const std::vector<LayoutPair> small(3, {rows, columns});
  EXPECT_EQ(count(plan_redistribution(small, {}, {0, {0, 0}}), StepKind::signal), 1u);
  EXPECT_EQ(count(plan_redistribution(small, {}, {0, {0, 1}}), StepKind::send), 2u) << "with that of the barrier";
}

TEST(RedistributionPlan, BetweenNodesPairsTakeTurns) {
  constexpr std::int64_t kOrder = 2048;  // 2 MiB for each pair of nodes
  for (const std::int32_t per_node : {1, 2}) {
    const std::int32_t ranks = 4 * per_node;
    const Layout rows = Layout::even({kOrder, kOrder}, ranks);
    const Layout columns = Layout::even({kOrder, kOrder}, ranks, 1);
    Team team;
    for (std::int32_t r = 0; r < ranks; ++r) team.node_of_rank.push_back(r / per_node);
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> of_turn;  // (turn, target) → source node
    for (team.rank = 0; team.rank < ranks; ++team.rank) {
      const Plan plan = plan_redistribution(rows, columns, {}, team);
      std::vector<std::int32_t> targets;
      std::uint64_t longest_bytes = 0;
      for (const Step& step : plan.steps) {
        if (step.kind != StepKind::send || step.from.size_bytes == 0) continue;
        targets.push_back(step.peer);
        longest_bytes = std::max(longest_bytes, step.from.size_bytes);
      }
      const auto pairs = static_cast<std::uint64_t>(3 * per_node);
      ASSERT_GE(targets.size(), 4 * pairs);
      EXPECT_LE(longest_bytes, std::uint64_t{256} << 10);
      EXPECT_LE(plan.scratch_bytes, 8 * pairs * longest_bytes) << "four messages of each pair in each direction";
      for (std::size_t turn = 0; turn < pairs; ++turn) {
        EXPECT_EQ(targets[turn], targets[turn + pairs]);
        const auto [entry, is_new] =
            of_turn.try_emplace({static_cast<std::int32_t>(turn), targets[turn]}, team.rank / per_node);
        EXPECT_TRUE(is_new) << "ranks " << team.rank << " and another serve " << targets[turn] << " in one turn";
      }
    }
  }
}

TEST(RedistributionPlan, OneElementAndNone) {
  std::mt19937 random(1);
  expect_correct({Layout::whole({}, 1, 2), Layout::whole({}, 0, 1), {}, 3}, random);
  expect_correct({Layout::whole({0, 3}), Layout::even({3, 0}, 2), {.op = MatrixOp::transpose}, 2}, random);
  expect_correct({Layout::whole({5}), Layout::whole({5}), {}, 1}, random);
}

TEST(RedistributionPlan, ThereAndBackIsTheIdentity) {
  std::mt19937 random(17);
  for (int i = 0; i < 40; ++i) {
    const bool transposed = i % 2 == 1;
    Index shape = testing_layouts::random_shape(random, 2);
    const Layout source = random_layout(random, shape, 5);
    if (transposed) std::swap(shape[0], shape[1]);
    const Layout target = random_layout(random, shape, 5);
    const MatrixOp op = transposed ? MatrixOp::transpose : MatrixOp::none;
    const std::int32_t ranks = std::max(source.ranks(), target.ranks());
    const std::vector<Plan> there = plans_of({source, target, {.dtype = DType::int32, .op = op}, ranks});
    const std::vector<Plan> back = plans_of({target, source, {.dtype = DType::int32, .op = op}, ranks});
    std::vector<plan::RankMemory> first(static_cast<std::size_t>(ranks));
    for (std::size_t r = 0; r < first.size(); ++r) {
      first[r].input.resize(there[r].input_bytes);
      for (std::byte& byte : first[r].input) byte = static_cast<std::byte>(random());
      first[r].output.resize(there[r].output_bytes);
    }
    std::vector<plan::RankMemory> second(first.size());
    plan::simulate(there, {.dtype = DType::int32}, first, random());
    for (std::size_t r = 0; r < first.size(); ++r) {
      second[r].input = first[r].output;
      second[r].output.resize(back[r].output_bytes);
    }
    plan::simulate(back, {.dtype = DType::int32}, second, random());
    for (std::size_t r = 0; r < first.size(); ++r) ASSERT_TRUE(second[r].output == first[r].input);
  }
}

TEST(RedistributionPlan, SendsWithoutPackingWhatIsContiguous) {
  const Layout rows = Layout::even({64, 16}, 4);
  const Layout whole = Layout::whole({64, 16}, 0, 4);
  const Plan plan = plans_of({.source = rows, .target = whole, .options = {}, .ranks = 4, .nodes = 4})[1];
  EXPECT_EQ(plan.scratch_bytes, 0u);
  EXPECT_TRUE(plan.blocks.empty());
}

TEST(RedistributionPlan, RanksOfANodePassStagingBuffersRatherThanMessages) {
  const Layout source = Layout::block_cyclic({600, 600}, {32, 32}, {2, 2});
  const Layout target = Layout::block_cyclic({600, 600}, {128, 128}, {2, 2});
  for (const std::uint64_t limit : {std::uint64_t{1} << 20, std::uint64_t{1} << 16})
    for (const Plan& plan :
         plans_of({.source = source, .target = target, .options = {}, .ranks = 4, .shared_limit_bytes = limit})) {
      EXPECT_EQ(plan.scratch_bytes, 0u);
      EXPECT_GT(plan.shared_bytes, 0u);
      EXPECT_LT(plan.shared_bytes, limit);
      EXPECT_GT(count(plan, StepSource::peer_shared), 3u);
      EXPECT_TRUE(std::ranges::none_of(plan.steps, [](const Step& step) {
        return step.kind == StepKind::send && step.from.size_bytes > 0;
      })) << "only the barrier sends";
    }
  // Without shared memory; and if a pair needs more tags than staging buffers have.
  const Layout vast = Layout::even({1 << 20, 1 << 16}, 2);
  const Layout other = Layout::even({1 << 20, 1 << 16}, 2, 1);
  for (const Plan& plan : plans_of({source, target, {}, 4, 1.0, 0.0, 1, 0})) EXPECT_EQ(plan.shared_bytes, 0u);
  for (const Plan& plan : plans_of({vast, other, {}, 2})) EXPECT_EQ(plan.shared_bytes, 0u);
}

TEST(RedistributionPlan, RanksOfANodeOfferWhatLiesInLongRuns) {
  std::mt19937 random(37);
  // All runs are 12 rows of 16 elements.
  Case c{Layout::block_cyclic({96, 16}, {12, 16}, {2, 1}), Layout::even({96, 16}, 2), {.segment_bytes = 1024}, 2};
  const auto is_data = [](const Step& step) { return step.kind == StepKind::send && step.from.size_bytes > 0; };
  const auto kinds = [&](const Plan& plan) {
    const auto sends = static_cast<std::size_t>(std::ranges::count_if(plan.steps, is_data));
    return std::array{sends, count(plan, StepSource::peer_private), count(plan, StepSource::peer_shared)};
  };
  const auto expect_remote_reads = [&](bool packed) {
    for (const Plan& plan : plans_of(c)) {
      // Two runs of 1536 bytes go to the other rank, each as 1024 and 512.
      EXPECT_EQ(kinds(plan), (std::array<std::size_t, 3>{4, 4, 0}));
      EXPECT_EQ(plan.shared_bytes, 0u);
      EXPECT_EQ(plan.scratch_bytes > 0, packed);
      for (const Step& step : plan.steps) {
        if (!is_data(step)) continue;
        EXPECT_EQ(step.from.buffer, packed ? Buffer::scratch : Buffer::input);
        EXPECT_LE(step.from.size_bytes, 1024u);
      }
    }
    c.alpha = 2.0;
    expect_correct(c, random);
    c.alpha = 1.0;
    c.beta = 3.0;
    expect_correct(c, random);
    c.beta = 0.0;
  };
  expect_remote_reads(false);
  // Only the source knows whether its memory is contiguous.
  c.target_leading_elems = {16, 21};
  expect_remote_reads(false);
  c.source_leading_elems = {17, 17};
  expect_remote_reads(true);
  c.source_leading_elems = c.target_leading_elems = {};

  const auto expect_staging = [&](const char* why) {
    for (const Plan& plan : plans_of(c)) {
      EXPECT_EQ(count(plan, StepSource::peer_private), 0u) << why;
      EXPECT_GT(count(plan, StepSource::peer_shared), 0u) << why;
    }
    expect_correct(c, random);
  };
  c.single_copy = false;
  expect_staging("no rank can read another's memory");
  c.single_copy = true;
  c.options.source_dtype = DType::float32;
  expect_staging("it is converted");
  c.options.source_dtype = {};
  c.options.segment_bytes = std::uint64_t{1} << 20;
  expect_staging("the runs are short");
  c.options = {.op = MatrixOp::transpose, .segment_bytes = 1024};
  c.target = Layout::even({16, 96}, 2);
  expect_staging("it is transposed");
}

TEST(RedistributionPlan, BlocksAreCoalesced) {
  // Equal layouts except for the order of ranks: one block per rank, however fine the grid is.
  const Layout source = Layout::block_cyclic({128, 128}, {2, 2}, {2, 2});
  const Layout target = Layout::block_cyclic({128, 128}, {2, 2}, {2, 2}, Order::column_major);
  for (const Plan& plan : plans_of({source, target, {}, 4, 1.0, 0.0, 4})) EXPECT_LE(plan.blocks.size(), 1u);
  // Single columns become blocks with strides.
  const Layout columns = Layout::block_cyclic({8, 1024}, {8, 1}, {1, 4});
  for (const Plan& plan : plans_of({columns, Layout::even({8, 1024}, 4, 1), {}, 4, 1.0, 0.0, 4}))
    EXPECT_LE(plan.blocks.size(), 7u);
}

TEST(RedistributionPlan, SizesBeyondThirtyTwoBits) {
  const std::int64_t giga = std::int64_t{1} << 30;
  const Layout source = Layout::block_cyclic({1024 * giga, 4}, {giga, 4}, {4, 1});
  const Layout target = Layout::even({1024 * giga, 4}, 4);
  const std::vector<Plan> plans = plans_of({source, target, {.dtype = DType::float64}, 4});
  std::uint64_t sent = 0;
  for (const Plan& plan : plans) {
    EXPECT_EQ(plan.input_bytes, static_cast<std::uint64_t>(giga) * 1024 * 8);
    for (const Step& step : plan.steps)
      if (step.kind == StepKind::send) sent += step.from.size_bytes;
  }
  EXPECT_EQ(sent, relabel(source, target, {.element_bytes = 8}).bytes_before);
  EXPECT_EQ(sent, static_cast<std::uint64_t>(giga) * 1024 * 4 * 8 / 4 * 3);
}

TEST(RedistributionPlan, WrongArgumentsAreErrors) {
  const Layout layout = Layout::even({8}, 4);
  EXPECT_THROW(plans_of({layout, layout, {}, 3}), Error) << "too few ranks";
  EXPECT_THROW(plans_of({layout, Layout::whole({9}), {}, 4}), Error);
  EXPECT_THROW(plans_of({layout, layout, {.op = MatrixOp::transpose}, 4}), Error);
  const Layout vast = Layout::whole({std::int64_t{1} << 61});
  EXPECT_THROW(plans_of({vast, vast, {.dtype = DType::float64}, 1}), Error);
  const Layout square = Layout::block_cyclic({8, 8}, {2, 2}, {2, 2});
  const auto plans_with = [&](const RedistributionOptions& options) { return plans_of({square, square, options, 4}); };
  EXPECT_THROW(plans_with({.source_begin = {0, 1}}), Error) << "no shape";
  EXPECT_THROW(plans_with({.source_begin = {0, 1}, .shape = {8, 8}}), Error) << "reaches beyond the end";
  EXPECT_THROW(plans_with({.source_begin = {-1, 0}, .shape = {2, 2}}), Error);
  EXPECT_THROW(plans_with({.shape = {2, 2, 2}}), Error);
  EXPECT_THROW(plans_with({.source_leading_elems = 3}), Error) << "shorter than the local array";
  EXPECT_THROW(plans_with({.target_leading_elems = std::int64_t{1} << 62}), Error);
  EXPECT_EQ(matrix_op_from_name("C"), MatrixOp::conjugate_transpose);
  EXPECT_THROW(matrix_op_from_name("n"), Error);
}

}  // namespace
}  // namespace penstock
