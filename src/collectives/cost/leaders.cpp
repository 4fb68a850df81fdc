// The costs of sums that ranks of each node lead, each a part (Rounds), and estimates of them. No plan is made.
#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <vector>

#include "collectives/cost/messages.hpp"
#include "collectives/cost/rounds.hpp"
#include "collectives/parts/arguments.hpp"
#include "collectives/parts/leaders.hpp"

namespace penstock::collectives::cost {
namespace {

// Of the idle time of the busiest core or link, what further chunks fill. These and LeaderParts::drift() are fitted to
// simulations of the plans, for machines of all kinds, which the tests compare with the estimates.
constexpr double kFilledOfCore = 0.2;
constexpr double kFilledOfLink = 0.4;
constexpr int kFollowedRingNodes = 8;  // of estimates
// Segments or batches of all slots, and the least of one: time grows by the same with each further one.
constexpr std::size_t kFollowed = 4;
constexpr std::size_t kFewest = 2;
constexpr std::size_t kFewestDoubled = 4;  // they take turns, unless there is one
constexpr int kMostRingNodes = 512;        // each is a round: more take longer to follow than a choice may

std::optional<Among> among_of(std::string_view row, bool has_one_rank_each) {
  if (row == "leader_doubling" || row == "multi_leader_doubling") return Among::doubling;
  if (row.ends_with("leader_multiplying")) return Among::multiplying;
  if (row == "leader_rabenseifner" || row.starts_with("multi_leader_")) return Among::halving;
  if (row == "leader_ring" || row == "multi_leader") return Among::ring;
  if (!has_one_rank_each) return std::nullopt;
  if (row == "recursive_doubling") return Among::doubling;
  if (row == "rabenseifner") return Among::halving;
  return row == "ring" ? std::optional(Among::ring) : std::nullopt;
}

/// By tasks inside the nodes: those that combine are ready at the beginning, unless they follow a ring, and those that
/// spread when the leaders have some of the result.
class ByTasks : Messages {
 public:
  using Messages::Messages;

  /// `alone`: what the leaders take without them.
  double seconds(double alone, Among among, std::uint64_t slots) const {
    const bool goes_down = call_.collective.kind == CollectiveKind::allreduce;
    const LeaderTasks tasks = leader_tasks(slots, goes_down ? 2 : 1);
    if (!goes_down) return tasks.up + alone;
    if (among == Among::ring && tasks.follow_ring) {
      // A leader that needs a batch publishes it with the next ones, and waits. Only messages overlap with tasks.
      const double bytes = static_cast<double>(block_bytes(call_.collective) / slots);
      const double others = static_cast<double>(nodes_ - 1) / static_cast<double>(nodes_);
      const double own = others * bytes * call_.machine.node.combine_seconds_per_byte;
      return std::max(
          {tasks.up_first + alone + tasks.last, tasks.up_in_turn + own + tasks.last, tasks.up + own + tasks.down});
    }
    // A ring has the result part by part; in the last round of halving half of it comes.
    const double in_time = among == Among::ring ? 1 : among == Among::halving ? 0.5 : 0;
    return tasks.up + alone + std::max({tasks.last, (1 - in_time) * tasks.down, tasks.down - alone / 2});
  }
};

template <class Time>
std::optional<Time> in_rounds(const Call& call, const NodeSizes& sizes, bool is_exact) {
  const Team& team = call.team;
  const bool is_known =
      call.collective.kind == CollectiveKind::allreduce ||
      (call.collective.kind == CollectiveKind::reduce && call.row.starts_with("leader_") && !is_exact);
  const int nodes = sizes.nodes;
  const int ranks = sizes.largest;
  if (!is_known || (is_exact && (!team.domain_of_rank.empty() || ranks > call.machine.node.cores)) || nodes < 2)
    return std::nullopt;
  const std::optional<Among> among = among_of(call.row, ranks == 1);
  if (!among || (is_exact && among == Among::ring && nodes > kMostRingNodes)) return std::nullopt;
  const bool by_messages = call.row.starts_with("multi_leader_");
  const bool by_tasks = !by_messages && ranks > 1 && block_bytes(call.collective) > kTaskBytes &&
                        shares_tasks(team, call.collective, nodes, ranks);
  if (by_tasks && is_exact) return std::nullopt;
  const int most_slots = by_messages                  ? static_cast<int>(kManySlots)
                         : call.row == "multi_leader" ? static_cast<int>(kRingSlots)
                                                      : 1;
  const std::uint64_t chunks = call.row == "multi_leader_pipeline" ? chunks_of(call.collective, sizes.smallest) : 1;
  const int slots = std::min(most_slots, sizes.smallest);
  // Of a long ring some rounds tell about all.
  const bool is_followed = is_exact || *among != Among::ring || nodes <= kFollowedRingNodes;
  const int followed = is_followed ? nodes : kFollowedRingNodes;
  Collective part = call.collective;
  if (!is_followed) part.count = part.count * static_cast<std::uint64_t>(followed) / static_cast<std::uint64_t>(nodes);
  Rounds<Time> rounds({call.row, team, is_followed ? call.collective : part, call.machine}, {.nodes = followed,
                                                                                             .ranks = ranks,
                                                                                             .slots = slots,
                                                                                             .among = *among,
                                                                                             .chunks = chunks,
                                                                                             .is_alone = by_tasks,
                                                                                             .in_segments_of = nodes,
                                                                                             .by_groups = !is_exact,
                                                                                             .domains = sizes.domains});
  if (!rounds.is_known() || (is_exact && (!rounds.is_exact() || chunks > 1))) return std::nullopt;
  const bool has_pairs = rounds.has_pairs();
  const auto time_of = [&](Rounds<Time> of) {
    Time time = of.time(Last::in_pairs);
    if (has_pairs && among == Among::doubling) time = std::max(time, of.time(Last::others));
    if (!is_followed) time = static_cast<double>(nodes - 1) / static_cast<double>(followed - 1) * time;
    if (chunks == 1 || ranks == 1) return time;
    // What is busy longest has work of the next chunk for a part of the time for which one chunk alone leaves it idle.
    const auto [busy, idle, is_core] = of.busiest();
    const double filled = (is_core ? kFilledOfCore : kFilledOfLink) * (has_pairs ? 0.5 : 1);
    return time + static_cast<double>(chunks - 1) * busy - filled * idle;
  };
  Time time{};
  const std::size_t many =
      std::max(among == Among::doubling ? kFewestDoubled : kFewest, kFollowed / static_cast<std::size_t>(slots));
  if (const std::size_t all = rounds.in_turns(); all > many) {
    const Time more = time_of(rounds.first(many));
    const double per_turn = 2 / static_cast<double>(many);
    time = more + static_cast<double>(all - many) * (per_turn * (more - time_of(rounds.first(many / 2))));
  } else {
    time = time_of(rounds);
  }
  time = rounds.drift() * time;
  if constexpr (std::same_as<Time, double>)
    if (by_tasks) return ByTasks(call, sizes).seconds(time, *among, static_cast<std::uint64_t>(slots));
  return time;
}

/// Of a round of an exchange of short messages.
double seconds_of_round(const RoundOfParts& round, int leaders, std::uint64_t bytes, const Machine& machine) {
  const cost_model::Prices<double> prices{machine};
  const double send = prices.overhead();
  const double pass = std::max(prices.on_process(bytes), leaders * prices.on_link(bytes));
  const double combine = prices.combine(bytes);
  const double first = send + (round.has_more ? 2 : 1) * pass + prices.latency();
  const double last = first + (round.messages - 1) * std::max(send, pass);
  return std::max(std::max(first, round.messages * send) + round.messages * (prices.overhead() + combine),
                  last + prices.overhead() + round.levels * combine);
}

}  // namespace

int best_radix(int nodes, int leaders, std::uint64_t bytes, const Machine& machine) {
  int best = 2;
  double least = std::numeric_limits<double>::infinity();
  // With fewer and fewer rounds, until what cores take in one is too much.
  for (int rounds = log2_ceil(nodes); rounds > 0; --rounds) {
    int radix = std::max(2, static_cast<int>(std::pow(nodes, 1.0 / rounds)));
    while (std::pow(radix, rounds) < nodes) ++radix;
    if (2 * (radix - 1) * machine.network.overhead_seconds > least) break;
    double seconds = 0;
    for (const RoundOfParts& each : rounds_of_parts(nodes, radices_of(nodes, radix)))
      seconds += seconds_of_round(each, leaders, bytes, machine);
    if (seconds >= least) continue;
    least = seconds;
    best = radix;
  }
  return best;
}

NodeSizes node_sizes(const Team& team) {
  const auto ranks = static_cast<std::size_t>(team.size());
  const std::vector<std::int32_t>& node_of = team.node_of_rank;
  const std::vector<int> of_node = sizes_of_nodes(team);
  std::vector<int> runs(of_node.size());
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (rank == 0 || node_of[rank] != node_of[rank - 1]) ++runs[static_cast<std::size_t>(node_of[rank])];
  NodeSizes sizes{.nodes = static_cast<int>(of_node.size()),
                  .ranks = team.size(),
                  .smallest = std::ranges::min(of_node),
                  .largest = std::ranges::max(of_node),
                  .runs = std::ranges::max(runs)};
  for (const int each : of_node) sizes.shares += (each + sizes.smallest - 1) / sizes.smallest;
  if (!team.domain_of_rank.empty()) {
    std::vector<std::vector<std::int32_t>> domains(of_node.size());
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::vector<std::int32_t>& known = domains[static_cast<std::size_t>(node_of[rank])];
      if (std::ranges::find(known, team.domain_of_rank[rank]) == known.end())
        known.push_back(team.domain_of_rank[rank]);
      sizes.domains = std::max(sizes.domains, static_cast<int>(known.size()));
    }
  }
  if (sizes.runs == 1 && sizes.smallest == sizes.largest) return sizes;
  for (std::size_t distance = 1; distance < ranks; distance *= 2) {
    std::vector<int> leaving(of_node.size());
    for (std::size_t rank = 0; rank < ranks; ++rank)
      if (node_of[rank] != node_of[(rank + distance) % ranks]) ++leaving[static_cast<std::size_t>(node_of[rank])];
    sizes.leaving.push_back(std::ranges::max(leaving));
    for (std::size_t node = 0; node < of_node.size(); ++node)
      if (leaving[node] == of_node[node]) sizes.all_leave |= distance;
  }
  return sizes;
}

template <class Time>
std::optional<Time> leaders_in_rounds(const Call& call) {
  const NodeSizes sizes = node_sizes(call.team);
  return sizes.smallest == sizes.largest ? in_rounds<Time>(call, sizes, true) : std::nullopt;
}

template std::optional<double> leaders_in_rounds<double>(const Call&);
template std::optional<Cost> leaders_in_rounds<Cost>(const Call&);

std::optional<double> estimated_leaders(const Call& call, const NodeSizes& sizes) {
  return in_rounds<double>(call, sizes, false);
}

std::optional<double> estimated_seconds(const Call& call, const NodeSizes& sizes) {
  switch (call.collective.kind) {
    case CollectiveKind::bcast:
    case CollectiveKind::reduce:
    case CollectiveKind::allreduce:
      if (const std::optional<double> seconds = estimated_tree(call, sizes)) return seconds;
      if (const std::optional<double> seconds = estimated_leaders(call, sizes)) return seconds;
      return estimated_exchange(call, sizes);
    default: return estimated_exchange(call, sizes);
  }
}

}  // namespace penstock::collectives::cost
