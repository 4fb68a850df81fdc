#include "collectives/parts/arguments.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "collectives/parts/blocks.hpp"

namespace penstock::collectives {
namespace {

constexpr std::uint64_t kSharedBytesPerRank = 64 << 10;  // the engine never has less where it has any
constexpr std::uint64_t kSharedBytesPerNode = 1 << 20;

bool is_root(const Team& team, const Collective& what) { return team.rank == what.root; }

// Whether MPI_IN_PLACE has a meaning on this rank.
bool in_place(const Team& team, const Collective& what) {
  return what.in_place && (!is_rooted(what.kind) || is_root(team, what));
}

Region all_parts(const Team& team, const Collective& what, Buffer buffer) {
  return parts_of({0, 0, buffer}, what, {0, team.size()});
}

Region whole_input(const Team& team, const Collective& what) {
  const std::uint64_t bytes = block_bytes(what);
  const auto none_in_place = [&](std::uint64_t size_bytes) {
    return Region{0, in_place(team, what) ? 0 : size_bytes, Buffer::input};
  };
  switch (what.kind) {
    case CollectiveKind::bcast:
    case CollectiveKind::barrier: return {0, 0, Buffer::input};
    case CollectiveKind::scatter:
    case CollectiveKind::scatterv:
      return {0, is_root(team, what) ? extent_bytes(what.send, what, team.size()) : 0, Buffer::input};
    case CollectiveKind::alltoall:
    case CollectiveKind::alltoallv: return none_in_place(extent_bytes(what.send, what, team.size()));
    case CollectiveKind::reduce_scatter_block:
    case CollectiveKind::reduce_scatter: return none_in_place(all_parts(team, what, Buffer::input).size_bytes);
    case CollectiveKind::allgatherv: return none_in_place(receive_block(team, what, team.rank).size_bytes);
    default: return none_in_place(bytes);
  }
}

}  // namespace

bool any_team(const Team&, const Collective&) { return true; }

bool power_of_two(const Team& team, const Collective&) {
  return std::has_single_bit(static_cast<std::uint32_t>(team.size()));
}

bool small_on_one_node(const Team& team, const Collective& what) {
  for (const std::int32_t node : team.node_of_rank)
    if (node != team.node_of_rank[0]) return false;
  const std::uint64_t bytes = block_bytes(what);
  return bytes <= kSharedBytesPerRank && bytes * static_cast<std::uint64_t>(team.size()) <= kSharedBytesPerNode;
}

std::uint64_t block_bytes(const Collective& what) { return what.count * what.item_bytes(); }

Region result(const Team& team, const Collective& what) {
  const std::uint64_t bytes = block_bytes(what);
  const auto size = static_cast<std::uint64_t>(team.size());
  switch (what.kind) {
    case CollectiveKind::barrier: return {0, 0, Buffer::output};
    case CollectiveKind::bcast:
    case CollectiveKind::allreduce: return {0, bytes, Buffer::output};
    case CollectiveKind::reduce: return {0, is_root(team, what) ? bytes : 0, Buffer::output};
    case CollectiveKind::gather: return {0, is_root(team, what) ? bytes * size : 0, Buffer::output};
    case CollectiveKind::alltoall:
    case CollectiveKind::allgather: return {0, bytes * size, Buffer::output};
    case CollectiveKind::scatterv:
    case CollectiveKind::scatter: return {0, in_place(team, what) ? 0 : bytes, Buffer::output};
    case CollectiveKind::scan: return {0, bytes, Buffer::output};
    case CollectiveKind::exscan: return {0, team.rank == 0 && !what.in_place ? 0 : bytes, Buffer::output};
    case CollectiveKind::reduce_scatter_block:
    case CollectiveKind::reduce_scatter: return {0, part_of_rank({}, what, team.rank).size_bytes, Buffer::output};
    case CollectiveKind::gatherv:
      return {0, is_root(team, what) ? extent_bytes(what.receive, what, team.size()) : 0, Buffer::output};
    case CollectiveKind::allgatherv:
    case CollectiveKind::alltoallv: return {0, extent_bytes(what.receive, what, team.size()), Buffer::output};
  }
  return {};
}

Region contribution(const Team& team, const Collective& what) {
  const bool lies_in_output = what.kind == CollectiveKind::bcast || in_place(team, what);
  if (!lies_in_output || what.kind == CollectiveKind::scatter || what.kind == CollectiveKind::scatterv)
    return whole_input(team, what);
  if (what.kind == CollectiveKind::reduce_scatter_block || what.kind == CollectiveKind::reduce_scatter)
    return all_parts(team, what, Buffer::output);
  if (what.kind == CollectiveKind::alltoall || what.kind == CollectiveKind::alltoallv) return result(team, what);
  if (what.kind == CollectiveKind::gatherv || what.kind == CollectiveKind::allgatherv)
    return receive_block(team, what, team.rank);
  const bool has_own_block = what.kind == CollectiveKind::gather || what.kind == CollectiveKind::allgather;
  const std::uint64_t bytes = block_bytes(what);
  return {has_own_block ? bytes * static_cast<std::uint64_t>(team.rank) : 0, bytes, Buffer::output};
}

Region blocks_of(Region all, const Collective& what, Run run) {
  const std::uint64_t bytes = block_bytes(what);
  return {all.offset_bytes + static_cast<std::uint64_t>(run.first) * bytes,
          static_cast<std::uint64_t>(run.count) * bytes, all.buffer};
}

Region block_of(Region all, const Collective& what, int rank) { return blocks_of(all, what, {rank, 1}); }

Plan finish(Sequence&& sequence, const Team& team, const Collective& what) {
  std::uint64_t output_bytes = result(team, what).size_bytes;
  if (in_place(team, what)) {  // the parts that this rank contributes lie there, and more of them than it gets
    const Region own = contribution(team, what);
    if (own.buffer == Buffer::output && own.size_bytes > 0)
      output_bytes = std::max(output_bytes, own.offset_bytes + own.size_bytes);
  }
  Plan plan = std::move(sequence).finish(whole_input(team, what).size_bytes, output_bytes);
  // In place on the root alone, which the others do not know.
  if (is_root(team, what) && what.in_place &&
      (what.kind == CollectiveKind::gather || what.kind == CollectiveKind::scatter))
    plan.stand_in_offset_bytes = block_bytes(what) * static_cast<std::uint64_t>(team.rank);
  return plan;
}

}  // namespace penstock::collectives
