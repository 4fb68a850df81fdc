#include "collectives/parts/arguments.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "collectives/parts/blocks.hpp"
#include "collectives/parts/boxes.hpp"
#include "collectives/parts/group.hpp"
#include "collectives/parts/published.hpp"
#include "plan/rules.hpp"

namespace penstock::collectives {
namespace {

constexpr std::uint64_t kSharedBytesPerNode = 1 << 20;

bool is_root(const Team& team, const Collective& collective) { return team.rank == collective.root; }

// Whether MPI_IN_PLACE is significant on this rank.
bool in_place(const Team& team, const Collective& collective) {
  return collective.in_place && (!is_rooted(collective.kind) || is_root(team, collective));
}

Region all_parts(const Team& team, const Collective& collective, Buffer buffer) {
  return parts_of({0, 0, buffer}, collective, {0, team.size()});
}

Region whole_input(const Team& team, const Collective& collective) {
  const std::uint64_t bytes = block_bytes(collective);
  const auto none_in_place = [&](std::uint64_t size_bytes) {
    return Region{0, in_place(team, collective) ? 0 : size_bytes, Buffer::input};
  };
  switch (collective.kind) {
    case CollectiveKind::bcast:
    case CollectiveKind::barrier: return {0, 0, Buffer::input};
    case CollectiveKind::scatter:
    case CollectiveKind::scatterv:
      return {0, is_root(team, collective) ? extent_bytes(collective.send, collective, team.size()) : 0, Buffer::input};
    case CollectiveKind::alltoall:
    case CollectiveKind::alltoallv:
    case CollectiveKind::alltoallw: return none_in_place(extent_bytes(collective.send, collective, team.size()));
    case CollectiveKind::reduce_scatter_block:
    case CollectiveKind::reduce_scatter: return none_in_place(all_parts(team, collective, Buffer::input).size_bytes);
    case CollectiveKind::neighbor_allgather:
    case CollectiveKind::neighbor_allgatherv: {
      const auto exists = [](const Neighbor& each) { return each.rank != Neighbor::kNone; };
      return {0, std::ranges::any_of(destinations_of(team, collective), exists) ? bytes : 0, Buffer::input};
    }
    case CollectiveKind::neighbor_alltoall:
    case CollectiveKind::neighbor_alltoallv:
    case CollectiveKind::neighbor_alltoallw:
      return {0, extent_bytes(collective.send, collective, destinations_of(team, collective)), Buffer::input};
    case CollectiveKind::allgatherv: return none_in_place(receive_block(team, collective, team.rank).size_bytes);
    default: return none_in_place(bytes);
  }
}

}  // namespace

bool any_team(const Team&, const Collective&) { return true; }

bool power_of_two(const Team& team, const Collective&) {
  return std::has_single_bit(static_cast<std::uint32_t>(team.size()));
}

bool small_on_one_node(const Team& team, const Collective& collective) {
  for (const std::int32_t node : team.node_of_rank)
    if (node != team.node_of_rank[0]) return false;
  const std::uint64_t bytes = longest_block_bytes(team, collective);
  return bytes <= kSharedBytesPerRank && bytes * static_cast<std::uint64_t>(team.size()) <= kSharedBytesPerNode &&
         (team.size() == 1 || published_bytes(team, collective) <= team.shared_limit_bytes);
}

bool boxes_on_one_node(const Team& team, const Collective& collective) {
  const int readers = collective.kind == CollectiveKind::gatherv ? 1 : team.size() - 1;
  return node_count(team) == 1 && Boxes::fit(readers) && plan::kFlagMemoryBytes <= team.shared_limit_bytes;
}

bool is_reduce_scatter(CollectiveKind kind) {
  return kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::reduce_scatter_block;
}

bool is_prefix(CollectiveKind kind) { return kind == CollectiveKind::scan || kind == CollectiveKind::exscan; }

std::uint64_t block_bytes(const Collective& collective) { return collective.count * collective.item_bytes(); }

std::uint64_t longest_block_bytes(const Team& team, const Collective& collective) {
  if (collective.kind != CollectiveKind::allgatherv && !is_reduce_scatter(collective.kind))
    return block_bytes(collective);
  std::uint64_t longest = 0;
  for (int rank = 0; rank < team.size(); ++rank) longest = std::max(longest, part_elements(collective, rank));
  return longest * collective.item_bytes();
}

Region result(const Team& team, const Collective& collective) {
  const std::uint64_t bytes = block_bytes(collective);
  const auto size = static_cast<std::uint64_t>(team.size());
  switch (collective.kind) {
    case CollectiveKind::barrier: return {0, 0, Buffer::output};
    case CollectiveKind::bcast:
    case CollectiveKind::allreduce: return {0, bytes, Buffer::output};
    case CollectiveKind::reduce: return {0, is_root(team, collective) ? bytes : 0, Buffer::output};
    case CollectiveKind::gather: return {0, is_root(team, collective) ? bytes * size : 0, Buffer::output};
    case CollectiveKind::alltoall:
    case CollectiveKind::allgather: return {0, bytes * size, Buffer::output};
    case CollectiveKind::scatterv:
    case CollectiveKind::scatter: return {0, in_place(team, collective) ? 0 : bytes, Buffer::output};
    case CollectiveKind::scan: return {0, bytes, Buffer::output};
    case CollectiveKind::exscan: return {0, team.rank == 0 && !collective.in_place ? 0 : bytes, Buffer::output};
    case CollectiveKind::reduce_scatter_block:
    case CollectiveKind::reduce_scatter: return {0, part_of_rank({}, collective, team.rank).size_bytes, Buffer::output};
    case CollectiveKind::gatherv:
      return {0, is_root(team, collective) ? extent_bytes(collective.receive, collective, team.size()) : 0,
              Buffer::output};
    case CollectiveKind::allgatherv:
    case CollectiveKind::alltoallv:
    case CollectiveKind::alltoallw:
      return {0, extent_bytes(collective.receive, collective, team.size()), Buffer::output};
    case CollectiveKind::neighbor_allgather:
    case CollectiveKind::neighbor_allgatherv:
    case CollectiveKind::neighbor_alltoall:
    case CollectiveKind::neighbor_alltoallv:
    case CollectiveKind::neighbor_alltoallw:
      return {0, extent_bytes(collective.receive, collective, sources_of(team, collective)), Buffer::output};
  }
  return {};
}

Region contribution(const Team& team, const Collective& collective) {
  const bool lies_in_output = collective.kind == CollectiveKind::bcast || in_place(team, collective);
  if (!lies_in_output || collective.kind == CollectiveKind::scatter || collective.kind == CollectiveKind::scatterv)
    return whole_input(team, collective);
  if (is_reduce_scatter(collective.kind)) return all_parts(team, collective, Buffer::output);
  if (collective.kind == CollectiveKind::alltoall || collective.kind == CollectiveKind::alltoallv ||
      collective.kind == CollectiveKind::alltoallw)
    return result(team, collective);
  if (collective.kind == CollectiveKind::gatherv || collective.kind == CollectiveKind::allgatherv)
    return receive_block(team, collective, team.rank);
  const bool has_own_block = collective.kind == CollectiveKind::gather || collective.kind == CollectiveKind::allgather;
  const std::uint64_t bytes = block_bytes(collective);
  return {has_own_block ? bytes * static_cast<std::uint64_t>(team.rank) : 0, bytes, Buffer::output};
}

Region blocks_of(Region all, const Collective& collective, Run run) {
  const std::uint64_t bytes = block_bytes(collective);
  return {all.offset_bytes + static_cast<std::uint64_t>(run.first) * bytes,
          static_cast<std::uint64_t>(run.count) * bytes, all.buffer};
}

Region block_of(Region all, const Collective& collective, int rank) { return blocks_of(all, collective, {rank, 1}); }

Plan finish(Sequence&& sequence, const Team& team, const Collective& collective) {
  std::uint64_t output_bytes = result(team, collective).size_bytes;
  if (in_place(team, collective)) {  // the buffer has this rank's contribution, which is larger than its result
    const Region own = contribution(team, collective);
    if (own.buffer == Buffer::output && own.size_bytes > 0)
      output_bytes = std::max(output_bytes, own.offset_bytes + own.size_bytes);
  }
  Plan plan = std::move(sequence).finish(whole_input(team, collective).size_bytes, output_bytes);
  // Only the root knows whether it is in place.
  if (is_root(team, collective) && collective.in_place &&
      (collective.kind == CollectiveKind::gather || collective.kind == CollectiveKind::scatter))
    plan.stand_in_offset_bytes = block_bytes(collective) * static_cast<std::uint64_t>(team.rank);
  return plan;
}

}  // namespace penstock::collectives
