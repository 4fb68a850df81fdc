#include "planner_reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <tuple>

#include "kernels/half.hpp"
#include "penstock/redistribute.hpp"
#include "plan/order.hpp"
#include "plan/step_graph.hpp"
#include "redistribute_cases.hpp"
#include "simulate.hpp"

namespace penstock::planner_reference {
namespace {

using testing_layouts::for_each_index;
using testing_layouts::pick;

// Values are small integers, exact in every type.
template <class T>
T encode(Value value) {
  if constexpr (std::is_same_v<T, Float16>)
    return kernels::to_float16(static_cast<float>(value.real()));
  else if constexpr (std::is_same_v<T, BFloat16>)
    return kernels::to_bfloat16(static_cast<float>(value.real()));
  else if constexpr (std::is_same_v<T, std::complex<float>>)
    return T(static_cast<float>(value.real()), static_cast<float>(value.imag()));
  else if constexpr (std::is_same_v<T, std::complex<double>>)
    return value;
  else
    return static_cast<T>(value.real());
}

void store(DType dtype, std::byte* at, Value value) {
  switch (dtype) {
#define PENSTOCK_DTYPE(name, type, size, numpy) \
  case DType::name: {                           \
    const type encoded = encode<type>(value);   \
    std::memcpy(at, &encoded, sizeof encoded);  \
    return;                                     \
  }
#include "penstock/dtypes.def"
#undef PENSTOCK_DTYPE
    default: return;
  }
}

template <class T>
Value decode(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return kernels::to_float(value);
  else
    return Value(value);
}

Value load(DType dtype, const std::byte* at) {
  switch (dtype) {
#define PENSTOCK_DTYPE(name, type, size, numpy) \
  case DType::name: {                           \
    type encoded;                               \
    std::memcpy(&encoded, at, sizeof encoded);  \
    return decode(encoded);                     \
  }
#include "penstock/dtypes.def"
#undef PENSTOCK_DTYPE
    default: return {};
  }
}

/// The places (rank, offset) of each element of a layout, once per copy. Leading dimensions apply to ranks with one
/// array.
using Places = std::map<Index, std::vector<std::pair<std::int32_t, std::int64_t>>>;
Places places(const Layout& layout, const std::vector<std::int64_t>& leading_elems) {
  Places result;
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank)
    for (const LayoutBlock& block : layout.local_blocks(rank))
      for_each_index(block.shape, [&](const Index& inside) {
        Index global = block.global_start;
        std::int64_t local = block.local_offset_elems;
        for (std::size_t d = 0; d < inside.size(); ++d) {
          global[d] += inside[d];
          local += inside[d] * block.strides_elems[d];
        }
        if (const std::int64_t leading = leading_elems.empty() ? 0 : leading_elems[static_cast<std::size_t>(rank)]) {
          const std::int64_t fast = layout.local_shape(rank)[layout.storage() == Order::row_major ? 1 : 0];
          local = local / fast * leading + local % fast;
        }
        result[global].emplace_back(rank, local);
      });
  return result;
}

Places places(const Layout& layout, const Parts& parts) {
  Places result;
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank) {
    const Layout& copy = layout.copy(std::max(layout.copy_of(rank), 0));
    std::vector<std::vector<Index>> indices;  // of each array, along each dimension
    for (const LayoutBox& box : copy.given_boxes()) {
      if (box.owner != rank) continue;
      auto& axes = indices.emplace_back();
      for (std::size_t d = 0; d < box.shape.size(); ++d) {
        axes.emplace_back(static_cast<std::size_t>(box.shape[d]));
        std::iota(axes.back().begin(), axes.back().end(), box.begin[d]);
      }
    }
    if (copy.given_boxes().empty())
      for (const LayoutTile& tile : layout.local_tiles(rank)) {
        auto& axes = indices.emplace_back();
        for (std::size_t d = 0; d < tile.shape.size(); ++d) {
          axes.emplace_back();
          for (std::int64_t i = 0; i < copy.shape()[d]; ++i)
            if (copy.axes()[d].interval_of(i) % copy.axes()[d].coordinates() == tile.coordinate[d])
              axes.back().push_back(i);
        }
      }
    for (std::size_t part = 0; part < indices.size(); ++part) {
      Index shape;
      for (const Index& along : indices[part]) shape.push_back(static_cast<std::int64_t>(along.size()));
      const LocalMemory::Tile& place = parts[static_cast<std::size_t>(rank)][part];
      for_each_index(shape, [&](const Index& inside) {
        Index global;
        std::int64_t local = place.offset_elems;
        for (std::size_t d = 0; d < inside.size(); ++d) {
          global.push_back(indices[part][d][static_cast<std::size_t>(inside[d])]);
          local += inside[d] * place.strides_elems[d];
        }
        result[global].emplace_back(rank, local);
      });
    }
  }
  return result;
}

LayoutPair pair_of(const Case& c, std::int32_t rank) {
  LayoutPair pair{c.source, c.target};
  const auto r = static_cast<std::size_t>(rank);
  if (!c.source_parts.empty()) pair.source_memory = c.source.placed_memory(rank, c.source_parts[r]);
  if (!c.target_parts.empty()) pair.target_memory = c.target.placed_memory(rank, c.target_parts[r]);
  return pair;
}

RedistributionOptions options_of(const Case& c, std::int32_t rank) {
  RedistributionOptions options = c.options;
  const auto r = static_cast<std::size_t>(rank);
  if (!c.source_leading_elems.empty()) options.source_leading_elems = c.source_leading_elems[r];
  if (!c.target_leading_elems.empty()) options.target_leading_elems = c.target_leading_elems[r];
  return options;
}

}  // namespace

Parts random_parts(std::mt19937& random, const Layout& layout, std::int32_t ranks) {
  Parts result;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    auto& parts = result.emplace_back();
    std::int64_t at = pick(random, 0, 5);
    for (const Index& shape : layout.local_part_shapes(rank)) {
      std::vector<std::size_t> order(shape.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      LocalMemory::Tile part{at, Index(shape.size())};
      std::int64_t stride = pick(random, 1, 2);
      for (const std::size_t d : order) {
        const bool backwards = shape[d] > 0 && pick(random, 0, 3) == 0;
        part.strides_elems[d] = backwards ? -stride : stride;
        if (backwards) part.offset_elems += (shape[d] - 1) * stride;
        stride *= shape[d] + pick(random, 0, 2);
      }
      at += stride + pick(random, 0, 3);
      parts.push_back(std::move(part));
    }
    // So the arrays' order in memory differs from their order in the list.
    if (parts.size() > 1 && pick(random, 0, 1) == 0 &&
        layout.local_part_shapes(rank).front() == layout.local_part_shapes(rank).back())
      std::swap(parts.front(), parts.back());
  }
  return result;
}

std::vector<std::int64_t> random_leading(std::mt19937& random, const Layout& layout, std::int32_t ranks) {
  std::vector<std::int64_t> leading;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const auto shape = layout.local_shape(rank);
    const bool has_one = !layout.local_tiles(rank).empty() && shape.size() == 2;
    leading.push_back(has_one ? shape[layout.storage() == Order::row_major ? 1 : 0] + pick(random, 0, 3) : 0);
  }
  return leading;
}

std::vector<std::int32_t> nodes_of(const Case& c) {
  std::vector<std::int32_t> nodes;
  for (std::int32_t rank = 0; rank < c.ranks; ++rank) nodes.push_back(rank % c.nodes);
  return nodes;
}

std::vector<Plan> plans_of(const Case& c) {
  std::vector<Plan> plans;
  Team team{.node_of_rank = nodes_of(c), .single_copy = c.single_copy, .shared_limit_bytes = c.shared_limit_bytes};
  for (team.rank = 0; team.rank < c.ranks; ++team.rank)
    plans.push_back(plan_redistribution(std::vector{pair_of(c, team.rank)}, options_of(c, team.rank), team));
  return plans;
}

std::size_t count(const Plan& plan, StepKind kind) {
  return static_cast<std::size_t>(std::ranges::count(plan.steps, kind, &Step::kind));
}

std::size_t count(const Plan& plan, StepSource source) {
  return static_cast<std::size_t>(std::ranges::count_if(
      plan.steps, [&](const Step& step) { return step.kind == StepKind::compute && step.source == source; }));
}

// So an operation with invalid arguments on some rank writes nothing.
void expect_that_no_rank_writes_before_all_have_started(std::span<const Plan> plans) {
  plan::Events events(plans);
  const plan::StepGraph graph(plans, {});
  for (plan::StepGraph::Index step = 0; step < graph.size(); ++step)
    if (plan::consumes(graph.step(step))) {
      ASSERT_NE(graph.partner(step), plan::StepGraph::kNone) << graph.words(step);
      events.add(events.start(graph.partner(step)), events.end(step));
    }
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    std::vector<bool> after;
    for (StepId id = 0; id < plans[rank].steps.size(); ++id) {
      if (plans[rank].steps[id].dependency_count > 0) continue;
      const std::vector<bool> more = events.reachable(events.start(rank, id), true);
      after.resize(more.size());
      for (std::size_t i = 0; i < more.size(); ++i) after[i] = after[i] || more[i];
    }
    for (plan::StepGraph::Index other = 0; other < graph.size(); ++other) {
      const Step& step = graph.step(other);
      const bool writes = plan::touches(step).writes && step.to.buffer == Buffer::output;
      if (graph.rank(other) == static_cast<std::int32_t>(rank) || !writes) continue;
      ASSERT_TRUE(!after.empty() && after[events.start(other)])
          << graph.words(other) << " may write before rank " << rank << " has started";
    }
  }
}

void expect_correct(const Case& c, std::mt19937& random) {
  const DType dtype = c.options.dtype;
  const std::size_t size = size_bytes(dtype);
  const DType input_dtype = c.options.input_dtype();
  const std::size_t input_size = size_bytes(input_dtype);
  const auto is_unsigned = [](DType of) { return of >= DType::uint8 && of <= DType::uint64; };
  const std::int64_t least = is_unsigned(dtype) || is_unsigned(input_dtype) ? 0 : -3;
  const auto value = [&](DType of) -> Value {
    return {static_cast<double>(pick(random, least, 3)),
            is_complex(of) ? static_cast<double>(pick(random, -3, 3)) : 0.0};
  };
  std::vector<plan::RankMemory> memory(static_cast<std::size_t>(c.ranks));
  std::vector<plan::RankMemory> expected;
  for (std::int32_t rank = 0; rank < c.ranks; ++rank) {
    auto& mine = memory[static_cast<std::size_t>(rank)];
    const RedistributionOptions options = options_of(c, rank);
    const LayoutPair pair = pair_of(c, rank);
    const LocalMemory source =
        pair.source_memory ? *pair.source_memory : c.source.local_memory(rank, options.source_leading_elems);
    const LocalMemory target =
        pair.target_memory ? *pair.target_memory : c.target.local_memory(rank, options.target_leading_elems);
    mine.input.resize(static_cast<std::size_t>(source.size_elems) * input_size);
    mine.output.resize(static_cast<std::size_t>(target.size_elems) * size);
  }
  expected = memory;
  const auto source_places =
      c.source_parts.empty() ? places(c.source, c.source_leading_elems) : places(c.source, c.source_parts);
  const auto target_places =
      c.target_parts.empty() ? places(c.target, c.target_leading_elems) : places(c.target, c.target_parts);
  const Index target_shape = moved_layouts(c.source, c.target, c.options).target.shape();
  for_each_index(target_shape, [&](Index index) {
    Index from = index;
    if (c.options.op != MatrixOp::none) std::swap(from[0], from[1]);
    for (std::size_t d = 0; d < index.size(); ++d) {
      if (!c.options.source_begin.empty()) from[d] += c.options.source_begin[d];
      if (!c.options.target_begin.empty()) index[d] += c.options.target_begin[d];
    }
    const Value b = value(input_dtype);
    const Value a = value(dtype);
    for (const auto& [rank, offset] : source_places.at(from)) {
      const std::size_t input_at = static_cast<std::size_t>(offset) * input_size;
      store(input_dtype, memory[static_cast<std::size_t>(rank)].input.data() + input_at, b);
    }
    const Value moved = c.options.op == MatrixOp::conjugate_transpose ? std::conj(b) : b;
    for (const auto& [rank, offset] : target_places.at(index)) {
      const std::size_t at = static_cast<std::size_t>(offset) * size;
      store(dtype, memory[static_cast<std::size_t>(rank)].output.data() + at, a);
      store(dtype, expected[static_cast<std::size_t>(rank)].output.data() + at, c.alpha * moved + c.beta * a);
    }
  });

  const std::vector<Plan> plans = plans_of(c);
  const std::string what = c.source.serialize() + " -> " + c.target.serialize();
  for (const std::string& finding : verify(plans, nodes_of(c), {input_size, size}))
    ADD_FAILURE() << finding << "\n" << what;
  expect_that_no_rank_writes_before_all_have_started(plans);
  const Arithmetic arithmetic{.dtype = dtype,
                              .input_dtype = input_dtype,
                              .conjugate = c.options.op == MatrixOp::conjugate_transpose,
                              .alpha = c.alpha,
                              .beta = c.beta};
  plan::simulate(plans, arithmetic, memory, random());
  for (std::size_t rank = 0; rank < memory.size(); ++rank)
    for (std::size_t at = 0; at < memory[rank].output.size(); at += size)
      ASSERT_EQ(load(dtype, memory[rank].output.data() + at), load(dtype, expected[rank].output.data() + at))
          << "rank " << rank << ", byte " << at << ", " << what;
}

}  // namespace penstock::planner_reference
