// The costs of algorithms in which all nodes do the same: the plans of one node are simulated, which sends to itself.
#include <algorithm>
#include <bit>
#include <concepts>
#include <numeric>
#include <span>
#include <vector>

#include "collectives/cost/costs.hpp"
#include "collectives/parts/arguments.hpp"
#include "collectives/parts/group.hpp"
#include "collectives/parts/leaders.hpp"
#include "cost_model/alike_nodes.hpp"
#include "cost_model/prices.hpp"
#include "plan/eager.hpp"

namespace penstock::collectives::cost {
namespace {

// Steps of all ranks together that are simulated one by one.
constexpr std::size_t kFewSteps = 320;
constexpr std::size_t kManySteps = 12'000;    // if there is no other way
constexpr std::uint64_t kBytesPerStep = 512;  // long data may take more of one node: a choice for them may take longer
constexpr std::size_t kFirstRanks = 16;
constexpr std::size_t kUnlikely = 4;  // so many times as many steps as may be
constexpr int kFewRanks = 8;          // to simulate all of them takes little longer than to simulate one node
// Nodes of alike rounds that are simulated: more than exchange with a rank at the same time. Those of few ranks take
// few steps, and more of them average over rounds of unequal length.
constexpr int kMoreNodes = 16;
constexpr int kFewerNodes = 12;
constexpr int kTimesSmallNodes = 4;
constexpr std::size_t kSmallNode = 4;
// Of many chunks: the first ones, and so many fewer to know what each further one adds.
constexpr std::uint64_t kFollowedChunks = 6;
constexpr std::uint64_t kChunksBetween = 4;
constexpr int kFewDrifting = 8;
// Blocks of all ranks together beyond which planners cut longer pieces, so that the length of plans stays bounded.
constexpr std::uint64_t kMostCutBytes = 512 * plan::kEagerBytes;

const Algorithm& row_of(const Call& call) {
  for (const Algorithm& row : algorithms())
    if (row.kind == call.collective.kind && row.name == call.row) return row;
  return algorithms().front();  // not reached: the caller is a row
}

template <class Time>
std::optional<Time> time_of(const Call& call, std::span<const int> ranks, std::size_t most_steps = ~std::size_t{0}) {
  const Algorithm& row = row_of(call);
  // Planning for a rank looks at all ranks.
  const std::size_t steps_per_plan = static_cast<std::size_t>(call.team.size()) / 16;
  if (steps_per_plan > most_steps / ranks.size()) return std::nullopt;
  Team team = call.team;
  std::vector<Plan> plans;
  std::size_t steps = 0;
  for (const int rank : ranks) {
    team.rank = rank;
    plans.push_back(row.plan(team, call.collective));
    steps += plans.back().steps.size() + steps_per_plan;
    if (steps > most_steps) return std::nullopt;
    // The first ranks tell about all.
    if (plans.size() == kFirstRanks && steps / kFirstRanks > kUnlikely * (most_steps / ranks.size()))
      return std::nullopt;
    if (cost_model::least_seconds_of(plans.back(), call.team, call.machine) > call.most_seconds) return std::nullopt;
  }
  return cost_model::time_of_alike_nodes<Time>(plans, team, call.machine, call.most_seconds);
}

template <class Time>
std::optional<Time> time_of_all(const Call& call, std::size_t most_steps) {
  std::vector<int> ranks(static_cast<std::size_t>(call.team.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return time_of<Time>(call, ranks, most_steps);
}

bool are_equal(std::span<const std::vector<int>> nodes) {
  return std::ranges::all_of(nodes, [&](const std::vector<int>& node) { return node.size() == nodes[0].size(); });
}

bool has_power_of_two_nodes(const Call& call) {
  return std::has_single_bit(static_cast<unsigned>(node_count(call.team)));
}

/// Each leads a part of the data.
std::uint64_t slots_of(const Call& call) {
  if (!call.row.starts_with("multi_leader")) return 1;
  return std::min(kManySlots, ranks_by_node(call.team, 0)[0].size());
}

/// Into how many parts halves cut the data.
std::uint64_t parts_between_nodes(const Call& call) {
  return static_cast<std::uint64_t>(ExtraRanks(node_count(call.team)).full) * slots_of(call);
}

/// The ranks of the first nodes.
Team first_nodes(const Team& team, int nodes) {
  Team first = team;
  first.rank = 0;
  first.node_of_rank.clear();
  first.domain_of_rank.clear();
  for (std::size_t rank = 0; rank < team.node_of_rank.size(); ++rank) {
    if (team.node_of_rank[rank] >= nodes) continue;
    first.node_of_rank.push_back(team.node_of_rank[rank]);
    if (!team.domain_of_rank.empty()) first.domain_of_rank.push_back(team.domain_of_rank[rank]);
  }
  return first;
}

/// The same nodes and further ones of the size of the first.
Team more_nodes(const Team& team, int nodes) {
  Team more = team;
  const std::vector<int> like = ranks_by_node(team, 0)[0];
  for (int node = node_count(team); node < nodes; ++node)
    for (const int rank : like) {
      more.node_of_rank.push_back(node);
      if (!team.domain_of_rank.empty())
        more.domain_of_rank.push_back(team.domain_of_rank[static_cast<std::size_t>(rank)]);
    }
  return more;
}

/// Exchanges in rounds between the leaders of nodes of equal size. Unless their number is a power of two, the first
/// ones come in pairs (ExtraRanks): one hands its data to the other, which has the result for both. If these pairs stay
/// behind each other in all rounds, one pair stands for all; if others come in, so does one of those. With few pairs
/// the rounds take as long as if half of the nodes that stay had one: the last one waits for them in each round.
template <class Time>
std::optional<Time> time_of_rounds(const Call& call, std::size_t most_steps) {
  if (has_power_of_two_nodes(call)) return time_of<Time>(call, ranks_by_node(call.team, 0).back(), most_steps);
  const int nodes = node_count(call.team);
  const int full = ExtraRanks(nodes).full;
  const bool has_others = 2 * (nodes - full) <= full;
  const Team team = has_others ? more_nodes(call.team, full + full / 2) : call.team;
  const std::vector<std::vector<int>> by_node = ranks_by_node(team, 0);
  std::vector<int> ranks = by_node[0];
  ranks.insert(ranks.end(), by_node[1].begin(), by_node[1].end());
  if (has_others) {
    const std::vector<int>& other = by_node[static_cast<std::size_t>(full)];
    ranks.insert(ranks.end(), other.begin(), other.end());
  }
  return time_of<Time>({call.row, team, call.collective, call.machine, call.most_seconds}, ranks, most_steps);
}

/// Whether a leader sends no more than one segment at once: of a part of its slot's data.
bool has_one_segment(const Call& call, std::uint64_t parts) {
  const std::uint64_t segment = block_bytes(call.collective) > kTaskBytes ? plan::kEagerBytes : call.team.message_bytes;
  return call.collective.segment_bytes == 0 && block_bytes(call.collective) / slots_of(call) / parts <= segment;
}

bool is_between_leaders(const Call& call) {
  return call.row.starts_with("leader_") || call.row.starts_with("multi_leader");
}

/// Of short data several leaders take up to a seventh longer than time_of_rounds(): unless the number of nodes is a
/// power of two, the last ones begin late with the others inside their nodes.
bool has_rounds(const Call& call) {
  if (has_power_of_two_nodes(call)) return true;
  return are_equal(ranks_by_node(call.team, 0)) &&
         (!call.row.starts_with("multi_leader") || block_bytes(call.collective) > call.team.message_bytes);
}

}  // namespace

template <class Time>
std::optional<Time> few_ranks(const Call& call) {
  return time_of_all<Time>(call, kFewSteps);
}

template <class Time>
std::optional<Time> all_ranks(const Call& call) {
  return time_of_all<Time>(call, node_count(call.team) == 1 ? ~std::size_t{0} : kManySteps);
}

// The first node can be special: it has no data to rotate.
template <class Time>
std::optional<Time> alike_nodes(const Call& call) {
  if (node_count(call.team) == 1) return all_ranks<Time>(call);
  if (is_between_leaders(call))
    if (const std::optional<Time> time = leaders_in_rounds<Time>(call)) return time;
  const std::vector<std::vector<int>> nodes = ranks_by_node(call.team, 0);
  if (call.team.size() <= kFewRanks || !are_equal(nodes))
    if (const std::optional<Time> time = few_ranks<Time>(call)) return time;
  const std::size_t most_steps = kManySteps + block_bytes(call.collective) / kBytesPerStep;
  return are_equal(nodes) ? time_of<Time>(call, nodes.back(), most_steps) : std::nullopt;
}

template <class Time>
std::optional<Time> alike_rounds(const Call& call) {
  const int nodes = node_count(call.team);
  const std::uint64_t bytes = block_bytes(call.collective) * static_cast<std::uint64_t>(call.team.size());
  const std::vector<std::vector<int>> by_node = ranks_by_node(call.team, 0);
  const int times = by_node[0].size() <= kSmallNode ? kTimesSmallNodes : 1;
  const int more_nodes = times * kMoreNodes;
  const int fewer_nodes = times * kFewerNodes;
  if (nodes <= more_nodes || bytes > kMostCutBytes) return alike_nodes<Time>(call);
  if (!are_equal(by_node)) return few_ranks<Time>(call);
  const auto time_of_first = [&](int count) {
    const Team team = first_nodes(call.team, count);
    return time_of<Time>({call.row, team, call.collective, call.machine, call.most_seconds},
                         ranks_by_node(team, 0).back(), kManySteps);
  };
  const std::optional<Time> more = time_of_first(more_nodes);
  const std::optional<Time> fewer = time_of_first(fewer_nodes);
  if (!more || !fewer) return std::nullopt;
  const double per_node = 1.0 / (more_nodes - fewer_nodes);
  return *more + static_cast<double>(nodes - more_nodes) * (per_node * (*more - *fewer));
}

template <class Time>
std::optional<Time> alike_ranks(const Call& call) {
  return node_count(call.team) == call.team.size() ? alike_nodes<Time>(call) : all_ranks<Time>(call);
}

template <class Time>
std::optional<Time> alike_powers_of_two(const Call& call) {
  if (has_power_of_two_nodes(call)) return alike_nodes<Time>(call);
  if (is_between_leaders(call))
    if (const std::optional<Time> time = leaders_in_rounds<Time>(call)) return time;
  if (const std::optional<Time> time = all_ranks<Time>(call)) return time;
  // Of few segments: nodes without a pair can be ahead of the others by as many.
  if (!is_between_leaders(call) || !has_rounds(call) || block_bytes(call.collective) / slots_of(call) > kTaskBytes)
    return std::nullopt;
  return time_of_rounds<Time>(call, 2 * kManySteps);
}

template <class Time>
std::optional<Time> alike_halves(const Call& call) {
  if (const std::optional<Time> time = leaders_in_rounds<Time>(call)) return time;
  const bool are_alike = has_power_of_two_nodes(call);
  const bool are_equal_parts = call.collective.count % parts_between_nodes(call) == 0;
  // One segment: inside the nodes as well, or of the longest half.
  const bool is_one = are_equal_parts && has_one_segment(call, 2);
  const bool is_short = is_one || block_bytes(call.collective) <= call.team.message_bytes;
  if (const std::optional<Time> time = is_short && are_alike ? alike_nodes<Time>(call) : all_ranks<Time>(call))
    return time;
  // With more, nodes drift apart: it takes up to a sixth longer than if they did not, and more with halves of different
  // lengths. It counts only if there are too many steps to simulate them all.
  constexpr double kDrift = 1.08;
  if (!are_equal_parts || !has_rounds(call)) return std::nullopt;
  const std::optional<Time> time = are_alike ? alike_nodes<Time>(call) : time_of_rounds<Time>(call, 2 * kManySteps);
  return time ? std::optional<Time>((is_one ? 1 : kDrift) * *time) : std::nullopt;
}

template <class Time>
std::optional<Time> alike_rounds_of_leaders(const Call& call) {
  const std::optional<Time> time = leaders_in_rounds<Time>(call);
  return time ? time : all_ranks<Time>(call);
}

template <class Time>
std::optional<Time> alike_chunks(const Call& call) {
  const int nodes = node_count(call.team);
  const std::vector<std::vector<int>> by_node = ranks_by_node(call.team, 0);
  // Of one rank they have nothing to combine, and chunks overtake each other.
  const bool are_alike = nodes > 1 && by_node[0].size() > 1 && are_equal(by_node);
  const std::uint64_t chunks = chunks_of(call.team, call.collective);
  if (chunks <= kFollowedChunks || !are_alike)
    if (const std::optional<Time> time = all_ranks<Time>(call)) return time;
  if (!are_alike || !has_rounds(call)) return std::nullopt;
  const auto time_of_first = [&](std::uint64_t count) {
    Collective collective = call.collective;
    collective.segment_bytes = (block_bytes(call.collective) + chunks - 1) / chunks;
    collective.count = call.collective.count * count / chunks;
    return time_of_rounds<Time>({call.row, call.team, collective, call.machine, call.most_seconds},
                                2 * kManySteps + block_bytes(call.collective) / kBytesPerStep);
  };
  if (chunks <= kFollowedChunks) return time_of_first(chunks);
  const std::optional<Time> more = time_of_first(kFollowedChunks);
  const std::optional<Time> fewer = more ? time_of_first(kFollowedChunks - kChunksBetween) : std::nullopt;
  if (!fewer) return std::nullopt;
  // Many nodes drift apart.
  const double drift = nodes > kFewDrifting ? 1.03 : 1;
  return drift * (*more + static_cast<double>(chunks - kFollowedChunks) * (1.0 / kChunksBetween * (*more - *fewer)));
}

template <class Time>
std::optional<Time> equal_parts(const Call& call) {
  const std::vector<std::uint64_t>& counts = call.collective.receive.counts;
  const bool are_equal = std::ranges::all_of(counts, [&](std::uint64_t count) { return count == counts[0]; });
  if (!are_equal) return all_ranks<Time>(call);
  Collective collective = call.collective;
  collective.kind = CollectiveKind::reduce_scatter_block;
  if (!counts.empty()) collective.count = counts[0];
  collective.receive = {};
  const Algorithm& row = row_of({call.row, call.team, collective, call.machine});
  if constexpr (std::same_as<Time, double>)
    return row.seconds_up_to(call.team, collective, call.machine, call.most_seconds);
  else
    return row.seconds_by_term(call.team, collective, call.machine);
}

#define PENSTOCK_COST(name)                                 \
  template std::optional<double> name<double>(const Call&); \
  template std::optional<Cost> name<Cost>(const Call&);
PENSTOCK_COST(few_ranks)
PENSTOCK_COST(all_ranks)
PENSTOCK_COST(alike_nodes)
PENSTOCK_COST(alike_rounds)
PENSTOCK_COST(alike_ranks)
PENSTOCK_COST(alike_powers_of_two)
PENSTOCK_COST(alike_halves)
PENSTOCK_COST(alike_rounds_of_leaders)
PENSTOCK_COST(alike_chunks)
PENSTOCK_COST(equal_parts)
#undef PENSTOCK_COST

}  // namespace penstock::collectives::cost
