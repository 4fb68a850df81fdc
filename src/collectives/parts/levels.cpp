#include "collectives/parts/levels.hpp"

#include <algorithm>
#include <array>

#include "penstock/error.hpp"

namespace penstock::collectives {
namespace {

constexpr int kFewRanks = 8;  // per node: with so few, reductions by messages have less waiting than tasks

constexpr std::array kRows = {
#define PENSTOCK_LEVELS(name, between, inside) LevelsRow{#name, Between::between, Inside::inside},
#include "collectives/parts/levels.def"
#undef PENSTOCK_LEVELS
};

std::vector<Tree> trees_between(const Group& leaders, Between between) {
  if (!leaders.contains_self()) return {};
  switch (between) {
    case Between::binomial: return {binomial(leaders)};
    case Between::postal: return {postal(leaders)};
    case Between::binary: return {binary(leaders)};
    case Between::chain: return {chain(leaders)};
    case Between::two_tree: return {two_tree(leaders, 0), two_tree(leaders, 1)};
  }
  return {};
}

std::vector<Stage> stages_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::bcast: return {Stage::ib, Stage::sb};
    case CollectiveKind::reduce: return {Stage::sr, Stage::ir};
    default: return {Stage::sr, Stage::ir, Stage::ib, Stage::sb};
  }
}

Plan plan_levels(const Team& team, const Collective& collective, const LevelsRow& row) {
  Sequence sequence(std::string(name(collective.kind)) + "/" + std::string(row.name), team);
  Levels levels(sequence, team, collective, row);
  for (const Levels::Batch& batch : levels.batches())
    for (const Stage stage : stages_of(collective.kind)) levels.run(stage, batch);
  return finish(std::move(sequence), team, collective);
}

}  // namespace

#define PENSTOCK_LEVELS(name, between, inside)                            \
  Plan bcast_##name(const Team& team, const Collective& collective) {     \
    return plan_levels(team, collective, *levels_row(#name));             \
  }                                                                       \
  Plan reduce_##name(const Team& team, const Collective& collective) {    \
    return plan_levels(team, collective, *levels_row(#name));             \
  }                                                                       \
  Plan allreduce_##name(const Team& team, const Collective& collective) { \
    return plan_levels(team, collective, *levels_row(#name));             \
  }
#include "collectives/parts/levels.def"
#undef PENSTOCK_LEVELS

bool uses_tasks(const Team& team, const Collective& collective, Inside inside) {
  if (inside != Inside::automatic) return inside == Inside::tasks;
  return uses_tasks(team, collective, inside, node_count(team), largest_node(team));
}

bool uses_tasks(const Team& team, const Collective& collective, Inside inside, int nodes, int largest) {
  if (inside != Inside::automatic) return inside == Inside::tasks;
  // Communication cores run tasks, but messages only of one rank.
  const bool has_workers = team.progress_cores > 0;
  if (collective.kind == CollectiveKind::reduce && largest <= kFewRanks && !has_workers) return false;
  return block_bytes(collective) > kTaskBytes && shares_tasks(team, collective, nodes, largest);
}

int leader_at_root(const Team& team, const Collective& collective, bool by_tasks) {
  const int root = is_rooted(collective.kind) ? collective.root : 0;
  if (!by_tasks || team.progress_cores == 0) return root;
  const auto here = team.node_of_rank.begin();
  return static_cast<int>(std::find(here, team.node_of_rank.end(), node_of(team, root)) - here);
}

std::uint32_t segments_per_batch(CollectiveKind kind, std::uint32_t segments, bool has_other_leader) {
  const std::uint32_t most = kMaxTaskGroups / (kind == CollectiveKind::allreduce || has_other_leader ? 2 : 1);
  return (segments + most - 1) / most;
}

const LevelsRow* levels_row(std::string_view name) {
  const auto row = std::ranges::find(kRows, name, &LevelsRow::name);
  return row == kRows.end() ? nullptr : &*row;
}

Levels::Levels(Sequence& sequence, const Team& team, const Collective& collective, const LevelsRow& row)
    : sequence_(sequence),
      collective_(collective),
      segments_(collective),
      by_tasks_(uses_tasks(team, collective, row.inside)),
      own_(contribution(team, collective)),
      target_(result(team, collective)) {
  const int leader = leader_at_root(team, collective, by_tasks_);
  const bool has_other_leader = is_rooted(collective.kind) && leader != collective.root;
  node_ = node_group(team, leader);
  if (has_other_leader && team.same_node(leader, team.rank))
    root_slot_ = static_cast<std::size_t>(std::ranges::find(node_.ranks, collective.root) - node_.ranks.begin());
  const Group between = leaders(team, leader);
  trees_ = trees_between(between, row.between);
  const bool reduces = collective.kind != CollectiveKind::bcast;
  if (row.between == Between::binomial) levels_between_ = log2_ceil(between.size());
  std::uint32_t per_batch = 1;
  if (by_tasks_) {
    per_batch = segments_per_batch(collective.kind, segments_.count(), has_other_leader);
    // The same region on all ranks of the node: the root's output, or scratch memory of another leader.
    const std::uint64_t bytes = block_bytes(collective);
    const bool has_room = collective.kind == CollectiveKind::allreduce || node_[0] == collective.root;
    sum_of_node_ = {0, bytes, has_room ? Buffer::output : Buffer::scratch};
    if (reduces && !has_room && node_.self == 0 && node_.size() > 1) sequence_.scratch(bytes);
  } else {
    sequence_.tree_levels(levels_between_ + levels_of_nodes(team));
    inner_ = tree_of_node(team, node_);
    if (reduces)
      up_inside_.emplace(sequence_, inner_, segments_, StageId{.number = 0, .levels_above = levels_between_});
  }
  if (reduces)
    for (std::size_t i = 0; i < trees_.size(); ++i)
      up_between_.emplace_back(sequence_, trees_[i], segments_, StageId{.number = static_cast<std::uint32_t>(1 + i)});
  sums_.resize(segments_.count());
  for (std::uint32_t s = 0; s < segments_.count(); ++s)
    sums_[s] = segments_.of(by_tasks_ && node_.size() > 1 ? sum_of_node_ : own_, s);
  for (std::uint32_t first = 0; first < segments_.count(); first += per_batch)
    batches_.push_back({first, std::min(per_batch, segments_.count() - first)});
}

void Levels::run(Stage stage, Batch batch) {
  switch (stage) {
    case Stage::sr: return sr(batch);
    case Stage::ir: return ir(batch);
    case Stage::ib: return ib(batch);
    case Stage::sb: return sb(batch);
  }
}

Region Levels::into(std::uint32_t segment) const {
  if (root_slot_ && collective_.kind == CollectiveKind::reduce) return segments_.of(sum_of_node_, segment);
  return target_.size_bytes > 0 ? segments_.of(target_, segment) : Region{};
}

void Levels::sr(Batch batch) {
  if (by_tasks_) {
    // If the root has no input, its output stands for it in the tasks of the others.
    const Region from =
        collective_.kind == CollectiveKind::reduce ? Region{0, block_bytes(collective_), Buffer::input} : own_;
    combine_on_node(sequence_, node_, collective_, segments_.of(from, batch.first, batch.count),
                    segments_.of(sum_of_node_, batch.first, batch.count), {.segment = batch.first});
    combined_ = sequence_.publish_tasks();
    return;
  }
  for (std::uint32_t s = batch.first; s < batch.first + batch.count; ++s)
    sums_[s] = up_inside_->run(s, segments_.of(own_, s), into(s));
}

void Levels::ir(Batch batch) {
  for (std::uint32_t s = batch.first; s < batch.first + batch.count && !trees_.empty(); ++s) {
    sums_[s] = up_between_[s % trees_.size()].run(s / static_cast<std::uint32_t>(trees_.size()), sums_[s], into(s));
    if (tree(s).parent < 0) sequence_.copy(sums_[s], into(s));
  }
  if (root_slot_) hand_to_root(batch);
}

void Levels::hand_to_root(Batch batch) {
  const Region sum = segments_.of(sum_of_node_, batch.first, batch.count);
  copy_on_node(sequence_, node_, collective_, sum, std::array{collective_.root},
               {sum.offset_bytes, sum.size_bytes, Buffer::output}, {.segment = batch.first});
  // Tasks have read the output of a root in place before. Only the root's own calls see that they have.
  sequence_.publish_tasks({own_.buffer == Buffer::output ? combined_ : Sequence::kNone});
}

void Levels::ib(Batch batch) {
  if (root_slot_ && collective_.kind == CollectiveKind::bcast) {
    spread_on_node(sequence_, node_, collective_, segments_.of(target_, batch.first, batch.count),
                   {.segment = batch.first, .slot = *root_slot_});
    sequence_.publish_tasks();
  }
  if (trees_.empty()) return;
  for (std::uint32_t s = batch.first; s < batch.first + batch.count; ++s)
    bcast_stage(sequence_, tree(s), into(s), s, {.number = 3});
}

void Levels::sb(Batch batch) {
  if (root_slot_) return;  // ib() began with it, from the root
  if (by_tasks_) {
    spread_on_node(sequence_, node_, collective_, segments_.of(target_, batch.first, batch.count),
                   {.segment = batch.first});
    sequence_.publish_tasks();
    return;
  }
  for (std::uint32_t s = batch.first; s < batch.first + batch.count; ++s)
    bcast_stage(sequence_, inner_, into(s), s, {.number = 4, .levels_above = levels_between_});
}

}  // namespace penstock::collectives
