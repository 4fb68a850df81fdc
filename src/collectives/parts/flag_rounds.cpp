#include "collectives/parts/flag_rounds.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "collectives/parts/exchange.hpp"
#include "collectives/parts/in_order.hpp"
#include "collectives/parts/node_tasks.hpp"
#include "plan/rules.hpp"

namespace penstock::collectives {
namespace {

bool publishes_in_each_round(CollectiveKind kind) {
  return kind == CollectiveKind::allreduce || kind == CollectiveKind::barrier;
}

/// A barrier has no data, whatever its count.
std::uint64_t data_bytes(const Collective& collective) {
  return collective.kind == CollectiveKind::barrier ? 0 : block_bytes(collective);
}

/// What a rank publishes in one round. Rounds are packed: short data of all of them lie in the cache line of the flag.
std::uint64_t round_bytes(const Collective& collective) { return (data_bytes(collective) + 7) / 8 * 8; }

Region published_in(std::uint32_t round, const Collective& collective) {
  return {round * round_bytes(collective), data_bytes(collective), Buffer::shared};
}

Sequence begin(const std::string& algorithm, const Team& team, std::uint64_t published_bytes) {
  Sequence sequence(algorithm, team);
  if (team.size() == 1) return sequence;
  sequence.by_flags().shared(published_bytes);
  return sequence;
}

/// Of a wait.
struct Place {
  std::uint32_t round = 0;
  StepId before = Sequence::kNone;
};

/// What the next flags come after. Where data are empty, no memory orders a rank's flags after those that it has seen.
StepId wait(Sequence& sequence, const Collective& collective, int rank, const Place& at) {
  const StepId seen = sequence.wait(rank, at.round, {at.before});
  return data_bytes(collective) == 0 ? seen : Sequence::kNone;
}

/// Domain by domain if the operation allows it: the parts of the first rounds then have a cache in common.
Group group_of(const Team& team, const Collective& collective) {
  Group group{everyone(team), team.rank};
  if (team.domain_of_rank.empty() || !collective.commutative) return group;
  std::ranges::stable_sort(group.ranks, {},
                           [&](int rank) { return team.domain_of_rank[static_cast<std::size_t>(rank)]; });
  group.self = static_cast<int>(std::ranges::find(group.ranks, team.rank) - group.ranks.begin());
  return group;
}

}  // namespace

bool few_in_flag_rounds(const Team& team, const Collective& collective) {
  const std::size_t rounds =
      publishes_in_each_round(collective.kind) ? radices_of(team.size(), collective.radix).size() : 1;
  return small_on_one_node(team, collective) && rounds <= plan::kFlagRounds &&
         rounds * round_bytes(collective) <= kFlaggedBytes;
}

Plan allreduce_in_flag_rounds(const std::string& algorithm, const Team& team, const Collective& collective) {
  const Region target = result(team, collective);
  const Group group = group_of(team, collective);
  const std::vector<PartsRound> rounds = rounds_of(group, radices_of(group.size(), collective.radix));
  Sequence sequence = begin(algorithm, team, rounds.size() * round_bytes(collective));
  Region sum = contribution(team, collective);
  if (sum.buffer == target.buffer && team.size() > 1) {
    const Region kept = sequence.scratch(sum.size_bytes);
    sequence.copy(sum, kept);
    sum = kept;
  }
  StepId here = Sequence::kNone;
  for (std::size_t i = rounds.size(); i-- > 0;) {
    const PartsRound& round = rounds[i];
    if (round.parts == 1) continue;
    const auto tag = static_cast<std::uint32_t>(rounds.size() - 1 - i);
    const Region published = published_in(tag, collective);
    if (!round.targets.empty()) sequence.copy(sum, published);
    for (const PartsRound::Peer& to : round.targets) sequence.signal(group[to.index], tag, {here});
    std::vector<int> source_of(static_cast<std::size_t>(round.parts), team.rank);
    for (const PartsRound::Peer& from : round.sources) {
      source_of[static_cast<std::size_t>(from.part)] = group[from.index];
      here = wait(sequence, collective, group[from.index], {.round = tag, .before = here});
    }
    const auto take = [&](int rank, Region to) {
      return rank == team.rank ? sequence.copy(sum, to) : sequence.read(published, rank, to);
    };
    // Saves a copy of the own sum: the first one that is taken must be copied.
    if (collective.commutative && source_of.back() == team.rank) std::swap(source_of.back(), source_of.end()[-2]);
    const Region into = i == 0 ? target : sequence.scratch(target.size_bytes);
    take(source_of.back(), into);
    for (std::size_t part = source_of.size() - 1; part-- > 0;) {
      Region other = sum;
      if (source_of[part] != team.rank) take(source_of[part], other = sequence.scratch(target.size_bytes));
      sequence.reduce(other, into);
    }
    sum = into;
  }
  sequence.copy(sum, target);
  return finish(std::move(sequence), team, collective);
}

Plan barrier_in_flag_rounds(const std::string& algorithm, const Team& team, const Collective& collective) {
  Collective without_data = collective;
  without_data.count = 0;
  return allreduce_in_flag_rounds(algorithm, team, without_data);
}

Plan bcast_in_flag_rounds(const std::string& algorithm, const Team& team, const Collective& collective) {
  const Region data = result(team, collective);
  const Region published = published_in(0, collective);
  const Tree tree = tree_of_node(team, node_group(team, collective.root));
  Sequence sequence = begin(algorithm, team, round_bytes(collective));
  StepId here = Sequence::kNone;
  if (tree.parent >= 0) here = wait(sequence, collective, tree.parent, {});
  if (tree.children.empty()) {
    if (tree.parent >= 0) sequence.read(published, tree.parent, data);
    return finish(std::move(sequence), team, collective);
  }
  if (tree.parent >= 0)
    sequence.read(published, tree.parent, published);
  else
    sequence.copy(data, published);
  for (const Tree::Edge& child : tree.children) sequence.signal(child.rank, 0, {here});
  if (tree.parent >= 0) sequence.copy(published, data);
  return finish(std::move(sequence), team, collective);
}

Plan reduce_in_flag_rounds(const std::string& algorithm, const Team& team, const Collective& collective) {
  const Region published = published_in(0, collective);
  const Tree tree =
      collective.commutative ? tree_of_node(team, node_group(team, collective.root)) : tree_in_order(team);
  const int top = collective.commutative ? collective.root : 0;
  const bool is_root = team.rank == collective.root;
  Sequence sequence = begin(algorithm, team, round_bytes(collective));
  Region sum = contribution(team, collective);
  StepId here = Sequence::kNone;
  for (std::size_t i = tree.children.size(); i-- > 0;) {  // small subtrees first: those of the next ranks
    const int child = tree.children[i].rank;
    here = wait(sequence, collective, child, {.before = here});
    const Region into = sequence.scratch(sum.size_bytes);
    sequence.read(published, child, into);
    sequence.reduce(sum, into);
    sum = into;
  }
  const int reader = team.rank != top ? tree.parent : is_root ? -1 : collective.root;
  if (reader >= 0) {
    sequence.copy(sum, published);
    sequence.signal(reader, 0, {here});
  }
  if (is_root && top != collective.root) {
    sequence.wait(top, 0);
    sequence.read(published, top, result(team, collective));
  } else if (is_root) {
    sequence.copy(sum, result(team, collective));
  }
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
