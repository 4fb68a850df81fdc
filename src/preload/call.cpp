#include "preload/call.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "penstock/mpi.hpp"
#include "preload/types.hpp"

namespace penstock::preload {
namespace {

constexpr std::uint64_t kUnknownBytes = std::numeric_limits<std::int64_t>::max();
constexpr const char* kRefused = "an argument that MPI refuses";

/// Which sides are significant on this rank, and the blocks that each has.
struct Roles {
  bool sends = true;
  bool receives = true;
  bool in_place = false;
  std::uint64_t sent_blocks = 1;
  std::uint64_t received_blocks = 1;
  std::span<const Neighbor> destinations{};  ///< in a neighbourhood: of each block
  std::span<const Neighbor> sources{};
};

Roles roles_of(const Call& call, const Members& members) {
  Roles roles;
  const bool is_root = members.rank == call.root;
  const auto all = static_cast<std::uint64_t>(members.ranks);
  switch (call.kind) {
    case CollectiveKind::bcast: roles.sends = false; break;
    case CollectiveKind::gather:
    case CollectiveKind::gatherv:
      roles.receives = is_root;
      roles.in_place = is_root && call.send.buffer == MPI_IN_PLACE;
      roles.sends = !roles.in_place;
      roles.received_blocks = all;
      break;
    case CollectiveKind::scatter:
    case CollectiveKind::scatterv:
      roles.sends = is_root;
      roles.in_place = is_root && call.receive.buffer == MPI_IN_PLACE;
      roles.receives = !roles.in_place;
      roles.sent_blocks = all;
      break;
    case CollectiveKind::neighbor_allgather:
    case CollectiveKind::neighbor_allgatherv:
    case CollectiveKind::neighbor_alltoall:
    case CollectiveKind::neighbor_alltoallv:
    case CollectiveKind::neighbor_alltoallw:
      roles.destinations = members.graph->destinations(members.rank);
      roles.sources = members.graph->sources(members.rank);
      roles.sends = !roles.destinations.empty();
      roles.receives = !roles.sources.empty();
      if (call.kind != CollectiveKind::neighbor_allgather && call.kind != CollectiveKind::neighbor_allgatherv)
        roles.sent_blocks = roles.destinations.size();
      roles.received_blocks = roles.sources.size();
      break;
    default:
      roles.in_place = call.send.buffer == MPI_IN_PLACE;
      roles.sends = !roles.in_place;
      roles.received_blocks = all;
      if (call.kind == CollectiveKind::alltoall || has_send_counts(call.kind)) roles.sent_blocks = all;
  }
  return roles;
}

/// Blocks of neighbours that do not exist have no elements; MPI ignores their displacements and datatypes.
std::int64_t count_of(const Side& side, std::size_t block, std::span<const Neighbor> neighbors) {
  return !neighbors.empty() && neighbors[block].rank == Neighbor::kNone ? 0 : side.count_of(block);
}

bool is_wrong(const Side& side, std::size_t blocks) {
  if ((side.types == nullptr && side.type == MPI_DATATYPE_NULL) || side.count < 0) return true;
  if (side.counts == nullptr) return false;
  for (std::size_t block = 0; block < blocks; ++block)
    if (side.count_of(block) < 0 || (side.count_of(block) > 0 && side.type_of(block) == MPI_DATATYPE_NULL)) return true;
  return false;
}

Blocks lists_of(const Side& side, std::size_t entries, std::uint64_t item_bytes,
                std::span<const Neighbor> neighbors = {}) {
  Blocks blocks;
  if (side.counts == nullptr) return blocks;
  blocks.counts.resize(entries);
  for (std::size_t i = 0; i < entries; ++i)
    blocks.counts[i] = static_cast<std::uint64_t>(count_of(side, i, neighbors)) * item_bytes;
  if (side.displacements == nullptr) return blocks;
  blocks.displacements.resize(entries);
  for (std::size_t i = 0; i < entries; ++i)
    blocks.displacements[i] = blocks.counts[i] == 0 ? 0
                                                    : static_cast<std::uint64_t>(side.displacement_of(i)) *
                                                          item_bytes;  // negative ones: see shift()
  return blocks;
}

/// MPI's displacements may be negative. Moves the buffer so that none is. `unit_bytes`: of a displacement.
std::int64_t shift(Blocks& blocks, std::int64_t unit_bytes) {
  std::int64_t least = 0;
  for (const std::uint64_t at : blocks.displacements) least = std::min(least, static_cast<std::int64_t>(at));
  if (least == 0) return 0;
  for (std::size_t rank = 0; rank < blocks.displacements.size(); ++rank)
    if (blocks.counts[rank] != 0) blocks.displacements[rank] -= static_cast<std::uint64_t>(least);
  return least * unit_bytes;
}

const char* why_never_reduced(const Call& call) {
  const NamedType* type = named_type(call.receive.type);
  if (type == nullptr || !type->has_dtype) return "a datatype without a reduction in Penstock";
  if (named_op(call.op) != nullptr) return nullptr;
  return call.op == MPI_OP_NULL ? kRefused : "an operation of the program";
}

std::uint64_t size_bytes_of(MPI_Datatype type) {
  if (const NamedType* named = named_type(type); named != nullptr && named->bytes > 0) return named->bytes;
  int bytes = 0;
  return type != MPI_DATATYPE_NULL && PMPI_Type_size(type, &bytes) == MPI_SUCCESS ? static_cast<std::uint64_t>(bytes)
                                                                                  : 0;
}

/// Whether the ranks exchange no byte. MPI wants the length of a block to be equal on all ranks where the operation has
/// no list of lengths.
bool is_empty(const Call& call) {
  if (has_counts(call.kind) || call.receive.counts != nullptr || is_neighborhood(call.kind)) return false;
  const Side* side = &call.receive;
  switch (call.kind) {
    case CollectiveKind::barrier: return false;
    case CollectiveKind::scatter:
      if (call.receive.buffer == MPI_IN_PLACE) side = &call.send;
      break;
    case CollectiveKind::gather:
    case CollectiveKind::allgather:
    case CollectiveKind::alltoall:
      if (call.send.buffer != MPI_IN_PLACE) side = &call.send;
      break;
    default: break;
  }
  return side->count == 0 || size_bytes_of(side->type) == 0;
}

const char* translate_reduction(const Call& call, int rank, int ranks, Translated& to) {
  if (const char* never = why_never_reduced(call)) return never;
  const NamedType* type = named_type(call.receive.type);
  const ReduceOp* op = named_op(call.op);
  const bool is_bitwise = *op == ReduceOp::band || *op == ReduceOp::bor || *op == ReduceOp::bxor;
  if (!defined_for(*op, type->dtype) || (type->only_bits && !is_bitwise)) return kRefused;
  Collective& collective = to.collective;
  collective.dtype = type->dtype;
  collective.op = *op;
  collective.root = call.root;
  collective.in_place = call.send.buffer == MPI_IN_PLACE;
  const std::uint64_t element_bytes = size_bytes(type->dtype);
  std::uint64_t sent = static_cast<std::uint64_t>(call.receive.count);
  std::uint64_t received = sent;
  if (call.kind == CollectiveKind::reduce_scatter) {
    collective.receive = lists_of(call.receive, static_cast<std::size_t>(ranks), 1);
    sent = std::accumulate(collective.receive.counts.begin(), collective.receive.counts.end(), std::uint64_t{0});
    received = collective.in_place ? sent : collective.receive.counts[static_cast<std::size_t>(rank)];
    // All ranks have the same list, so all do the same. Short messages have a faster algorithm as blocks of one length.
    const std::vector<std::uint64_t>& counts = collective.receive.counts;
    if (std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>{}) == counts.end()) {
      collective.kind = CollectiveKind::reduce_scatter_block;
      collective.count = counts.front();
      collective.receive = {};
    }
  } else {
    collective.count = sent;
    if (call.kind == CollectiveKind::reduce_scatter_block) {
      sent *= static_cast<std::uint64_t>(ranks);
      if (collective.in_place) received = sent;
    }
  }
  if (!collective.in_place) {
    if (call.send.buffer == nullptr && sent > 0) return kRefused;
    to.input = {static_cast<const std::byte*>(call.send.buffer), sent * element_bytes};
  }
  if (call.kind != CollectiveKind::reduce || rank == call.root) {
    if (call.receive.buffer == nullptr && received > 0) return kRefused;
    to.output = {static_cast<std::byte*>(const_cast<void*>(call.receive.buffer)), received * element_bytes};
  }
  return nullptr;
}

/// One side of contiguous items, as bytes.
struct Contiguous {
  std::byte* data = nullptr;
  std::uint64_t span_bytes = 0;  ///< with lists: unknown
  std::uint64_t block_bytes = 0;
  Blocks lists{};
};

const char* contiguous(const Side& side, std::uint64_t item_bytes, std::uint64_t blocks,
                       std::span<const Neighbor> neighbors, Contiguous& to) {
  to.lists = lists_of(side, blocks, item_bytes, neighbors);
  to.block_bytes = static_cast<std::uint64_t>(side.count) * item_bytes;
  to.span_bytes = side.counts != nullptr ? kUnknownBytes : to.block_bytes * blocks;
  const std::uint64_t bytes = side.counts == nullptr
                                  ? to.span_bytes
                                  : std::accumulate(to.lists.counts.begin(), to.lists.counts.end(), std::uint64_t{0});
  if (side.buffer == nullptr && bytes > 0) return kRefused;
  to.data = static_cast<std::byte*>(const_cast<void*>(side.buffer)) + shift(to.lists, 1);
  return nullptr;
}

template <typename Items>
void fill_items(const Side& side, std::size_t blocks, std::span<const Neighbor> neighbors, Items& items) {
  items.blocks = lists_of(side, blocks, 1, neighbors);
  if (side.types != nullptr) {
    for (std::size_t i = 0; i < blocks; ++i)
      items.datatypes.push_back(items.blocks.counts[i] == 0 ? Datatype{} : make_datatype(side.types[i]));
    items.data = const_cast<void*>(side.buffer);
    return;
  }
  items.count = static_cast<std::uint64_t>(side.count);
  items.datatype = make_datatype(side.type);
  const std::int64_t moved = shift(items.blocks, items.datatype.extent_bytes());
  // As a number: the buffer may be MPI_BOTTOM.
  items.data =
      reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(side.buffer) + static_cast<std::uintptr_t>(moved));
}

const char* translate_movement(const Call& call, const Members& members, Translated& to) {
  const Roles roles = roles_of(call, members);
  const auto rank = static_cast<std::size_t>(members.rank);
  if ((roles.sends && is_wrong(call.send, roles.sent_blocks)) ||
      (roles.receives && is_wrong(call.receive, roles.received_blocks)))
    return kRefused;
  Collective& collective = to.collective;
  collective.root = call.root;
  collective.in_place = roles.in_place;
  const auto named = [](const Side& side) { return side.types == nullptr ? named_type(side.type) : nullptr; };
  const NamedType* sent = roles.sends ? named(call.send) : nullptr;
  const NamedType* received = roles.receives ? named(call.receive) : nullptr;
  if ((roles.sends && (sent == nullptr || sent->bytes == 0)) ||
      (roles.receives && (received == nullptr || received->bytes == 0))) {
    to.items = std::make_unique<Translated::Items>();
    if (roles.sends) fill_items(call.send, roles.sent_blocks, roles.destinations, to.items->send);
    if (roles.receives) fill_items(call.receive, roles.received_blocks, roles.sources, to.items->receive);
    return nullptr;
  }
  Contiguous from;
  Contiguous into;
  const char* refused = nullptr;
  if (roles.sends) refused = contiguous(call.send, sent->bytes, roles.sent_blocks, roles.destinations, from);
  if (roles.receives && refused == nullptr)
    refused = contiguous(call.receive, received->bytes, roles.received_blocks, roles.sources, into);
  if (refused != nullptr) return refused;
  if (roles.sends && roles.receives && !has_counts(call.kind) && from.block_bytes != into.block_bytes) return kRefused;
  if (roles.sends) to.input = {from.data, from.span_bytes};
  if (roles.receives) to.output = {into.data, call.kind == CollectiveKind::bcast ? into.block_bytes : into.span_bytes};
  if (call.kind == CollectiveKind::scatter || call.kind == CollectiveKind::scatterv)
    if (roles.receives) to.output = {into.data, into.block_bytes};
  if (roles.receives && roles.in_place && has_counts(call.kind))
    collective.count = into.lists.counts[rank];
  else if (roles.sends && call.kind != CollectiveKind::scatterv)
    collective.count = from.block_bytes;
  else
    collective.count = roles.receives ? into.block_bytes : 0;
  collective.send = std::move(from.lists);
  collective.receive = std::move(into.lists);
  return nullptr;
}

/// MPI compares the lengths at both ends of an edge only, so the blocks that a rank sends may have another length than
/// those that it receives, and the count of a rank without neighbours means nothing. Penstock's own forms with one
/// count compare it on all ranks; those with counts do not.
class WithCounts {
 public:
  WithCounts(const Call& call, const Graph& graph, int rank) : call_(call) {
    const bool gathers = call.kind == CollectiveKind::neighbor_allgather;
    call_.kind = gathers ? CollectiveKind::neighbor_allgatherv : CollectiveKind::neighbor_alltoallv;
    list(call_.receive, graph.sources(rank).size(), received_);
    if (!gathers) list(call_.send, graph.destinations(rank).size(), sent_);
  }
  WithCounts(const WithCounts&) = delete;
  WithCounts& operator=(const WithCounts&) = delete;

  const Call& call() const { return call_; }

 private:
  struct Lists {
    std::vector<MPI_Count> counts;
    std::vector<MPI_Aint> displacements;
  };

  static void list(Side& side, std::size_t blocks, Lists& lists) {
    if (blocks == 0) return;
    lists.counts.assign(blocks, side.count);
    for (std::size_t i = 0; i < blocks; ++i)
      lists.displacements.push_back(static_cast<MPI_Aint>(side.count) * static_cast<MPI_Aint>(i));
    side.counts = lists.counts.data();
    side.displacements = lists.displacements.data();
    side.has_large_counts = side.has_large_displacements = true;
    side.count = 0;
  }

  Call call_;
  Lists sent_;
  Lists received_;
};

const char* translate_among_neighbors(const Call& call, const Members& members, Translated& to) {
  if (call.send.buffer == MPI_IN_PLACE || call.receive.buffer == MPI_IN_PLACE) return kRefused;
  if (members.graph == nullptr) return "a communicator without neighbours, or whose sources and destinations differ";
  if (has_counts(call.kind)) return translate_movement(call, members, to);
  const WithCounts general(call, *members.graph, members.rank);
  to.collective.kind = general.call().kind;
  return translate_movement(general.call(), members, to);
}

}  // namespace

const char* why_always_native(const Call& call) {
  if (computes(call.kind))
    if (const char* reason = why_never_reduced(call)) return reason;
  return is_empty(call) ? "nothing to move or to reduce" : nullptr;
}

const char* translate(const Call& call, const Members& members, Translated& to) {
  to.collective.kind = call.kind;
  if (call.kind == CollectiveKind::barrier) return nullptr;
  if (is_rooted(call.kind) && (call.root < 0 || call.root >= members.ranks)) return kRefused;
  if (is_neighborhood(call.kind)) return translate_among_neighbors(call, members, to);
  if (!computes(call.kind)) return translate_movement(call, members, to);
  if (is_wrong(call.receive, static_cast<std::size_t>(members.ranks))) return kRefused;
  return translate_reduction(call, members.rank, members.ranks, to);
}

ListLengths list_lengths(const Call& call, const Members& members) {
  const Roles roles = roles_of(call, members);
  return {.sent = roles.sends && call.send.counts != nullptr ? roles.sent_blocks : 0,
          .received = roles.receives && call.receive.counts != nullptr ? roles.received_blocks : 0};
}

std::uint64_t payload_bytes(const Call& call, const Members& members) {
  if (call.kind == CollectiveKind::barrier || (is_neighborhood(call.kind) && members.graph == nullptr)) return 0;
  const auto of_lists = [&](const Side& side, std::size_t blocks, std::span<const Neighbor> neighbors) {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < blocks; ++i)
      if (const std::int64_t count = count_of(side, i, neighbors); count > 0)
        bytes += static_cast<std::uint64_t>(count) * size_bytes_of(side.type_of(i));
    return bytes;
  };
  const auto all = static_cast<std::uint64_t>(members.ranks);
  if (computes(call.kind)) {
    if (call.receive.counts != nullptr) return of_lists(call.receive, all, {});
    const std::uint64_t blocks = call.kind == CollectiveKind::reduce_scatter_block ? all : 1;
    return static_cast<std::uint64_t>(call.receive.count) * blocks * size_bytes_of(call.receive.type);
  }
  const Roles roles = roles_of(call, members);
  const Side& side = roles.sends ? call.send : call.receive;
  const std::size_t blocks = roles.sends ? roles.sent_blocks : roles.received_blocks;
  if (side.counts != nullptr) return of_lists(side, blocks, roles.sends ? roles.destinations : roles.sources);
  return static_cast<std::uint64_t>(side.count) * (roles.sends ? roles.sent_blocks : 1) * size_bytes_of(side.type);
}

namespace {

/// Of a call of two ranks that has_own_lists().
std::uint64_t exchanged_bytes(const Call& call, const Members& members) {
  const auto of = [&](const Side& side) -> std::uint64_t {
    const std::size_t peer = members.rank == 0 ? 1 : 0;
    const std::int64_t count = side.counts == nullptr ? side.count : side.count_of(peer);
    return count <= 0 ? 0 : static_cast<std::uint64_t>(count) * size_bytes_of(side.type_of(peer));
  };
  const bool is_root = members.rank == call.root;
  switch (call.kind) {
    case CollectiveKind::gatherv: return of(is_root ? call.receive : call.send);
    case CollectiveKind::scatterv: return of(is_root ? call.send : call.receive);
    default: return std::max(call.send.buffer == MPI_IN_PLACE ? 0 : of(call.send), of(call.receive));
  }
}

}  // namespace

std::optional<std::uint64_t> agreed_bytes(const Call& call, const Members& members) {
  const auto of = [&](const Side& side) {
    std::uint64_t count = static_cast<std::uint64_t>(side.count);
    if (side.counts != nullptr)
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(members.ranks); ++rank)
        count += static_cast<std::uint64_t>(side.count_of(rank));
    return count * size_bytes_of(side.type);
  };
  if (members.ranks == 2 && has_own_lists(call.kind)) return exchanged_bytes(call, members);
  if (!knows_lengths(call.kind)) return std::nullopt;
  switch (call.kind) {
    case CollectiveKind::barrier: return 0;
    case CollectiveKind::gather:
      return of(members.rank == call.root && call.send.buffer == MPI_IN_PLACE ? call.receive : call.send);
    case CollectiveKind::scatter:
      return of(members.rank == call.root && call.receive.buffer == MPI_IN_PLACE ? call.send : call.receive);
    default: return of(call.receive);
  }
}

std::optional<BlockBytes> block_bytes(const Call& call, const Members& members) {
  if (is_rooted(call.kind) && (call.root < 0 || call.root >= members.ranks)) return std::nullopt;
  const Roles roles = roles_of(call, members);
  BlockBytes made{.in_place = roles.in_place};
  const auto fill = [](const Side& side, std::uint64_t blocks, std::vector<int>& to) {
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    std::int64_t left = kMost;
    to.reserve(blocks);
    for (std::size_t i = 0; i < blocks; ++i) {
      const std::int64_t count = side.counts == nullptr ? side.count : side.count_of(i);
      if (count < 0 || count > kMost) return false;
      const auto size = count == 0 ? 0 : static_cast<std::int64_t>(size_bytes_of(side.type_of(i)));
      if (size > kMost || count * size > left) return false;
      left -= count * size;
      to.push_back(static_cast<int>(count * size));
    }
    return true;
  };
  if (roles.sends && !fill(call.send, roles.sent_blocks, made.sent)) return std::nullopt;
  if (roles.receives && !fill(call.receive, roles.received_blocks, made.received)) return std::nullopt;
  return made;
}

bool synchronises(const Call& call) {
  switch (call.kind) {
    case CollectiveKind::barrier: return true;
    case CollectiveKind::allreduce:
    case CollectiveKind::reduce_scatter_block:
    case CollectiveKind::allgather:
    case CollectiveKind::alltoall: return call.receive.count > 0 && size_bytes_of(call.receive.type) > 0;
    default: return false;
  }
}

}  // namespace penstock::preload
