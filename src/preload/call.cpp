#include "preload/call.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "penstock/mpi.hpp"
#include "preload/types.hpp"

namespace penstock::preload {
namespace {

constexpr std::uint64_t kUnknownBytes = std::numeric_limits<std::int64_t>::max();
constexpr const char* kRefused = "an argument that MPI refuses";

/// Which sides are significant on this rank, and how many blocks of `count` each has.
struct Roles {
  bool sends = true;
  bool receives = true;
  bool in_place = false;
  std::uint64_t sent_blocks = 1;
  std::uint64_t received_blocks = 1;
};

Roles roles_of(const Call& call, int rank, int ranks) {
  Roles roles;
  const bool is_root = rank == call.root;
  const auto all = static_cast<std::uint64_t>(ranks);
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
    default:
      roles.in_place = call.send.buffer == MPI_IN_PLACE;
      roles.sends = !roles.in_place;
      roles.received_blocks = all;
      if (call.kind == CollectiveKind::alltoall || has_send_counts(call.kind)) roles.sent_blocks = all;
  }
  return roles;
}

bool is_wrong(const Side& side, std::size_t ranks) {
  if ((side.types == nullptr && side.type == MPI_DATATYPE_NULL) || side.count < 0) return true;
  if (side.counts == nullptr) return false;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (side.count_of(rank) < 0 || (side.count_of(rank) > 0 && side.type_of(rank) == MPI_DATATYPE_NULL)) return true;
  return false;
}

Blocks lists_of(const Side& side, std::size_t ranks, std::uint64_t item_bytes) {
  Blocks blocks;
  if (side.counts == nullptr) return blocks;
  blocks.counts.resize(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    blocks.counts[rank] = static_cast<std::uint64_t>(side.count_of(rank)) * item_bytes;
  if (side.displacements == nullptr) return blocks;
  blocks.displacements.resize(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    blocks.displacements[rank] = blocks.counts[rank] == 0 ? 0
                                                          : static_cast<std::uint64_t>(side.displacement_of(rank)) *
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

const char* translate_reduction(const Call& call, int rank, int ranks, Translated& to) {
  const NamedType* type = named_type(call.receive.type);
  if (type == nullptr || !type->has_dtype) return "a datatype without a reduction in Penstock";
  const ReduceOp* op = named_op(call.op);
  if (op == nullptr) return call.op == MPI_OP_NULL ? kRefused : "an operation of the program";
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

const char* contiguous(const Side& side, std::size_t ranks, std::uint64_t item_bytes, std::uint64_t blocks,
                       Contiguous& to) {
  to.lists = lists_of(side, ranks, item_bytes);
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
void fill_items(const Side& side, std::size_t ranks, Items& items) {
  items.blocks = lists_of(side, ranks, 1);
  if (side.types != nullptr) {
    for (std::size_t rank = 0; rank < ranks; ++rank)
      items.datatypes.push_back(side.count_of(rank) == 0 ? Datatype{} : make_datatype(side.types[rank]));
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

const char* translate_movement(const Call& call, int rank, int ranks, Translated& to) {
  const Roles roles = roles_of(call, rank, ranks);
  const auto all = static_cast<std::size_t>(ranks);
  if ((roles.sends && is_wrong(call.send, all)) || (roles.receives && is_wrong(call.receive, all))) return kRefused;
  Collective& collective = to.collective;
  collective.root = call.root;
  collective.in_place = roles.in_place;
  const auto named = [](const Side& side) { return side.types == nullptr ? named_type(side.type) : nullptr; };
  const NamedType* sent = roles.sends ? named(call.send) : nullptr;
  const NamedType* received = roles.receives ? named(call.receive) : nullptr;
  if ((roles.sends && (sent == nullptr || sent->bytes == 0)) ||
      (roles.receives && (received == nullptr || received->bytes == 0))) {
    to.items = std::make_unique<Translated::Items>();
    if (roles.sends) fill_items(call.send, all, to.items->send);
    if (roles.receives) fill_items(call.receive, all, to.items->receive);
    return nullptr;
  }
  Contiguous from;
  Contiguous into;
  const char* refused = nullptr;
  if (roles.sends) refused = contiguous(call.send, all, sent->bytes, roles.sent_blocks, from);
  if (roles.receives && refused == nullptr)
    refused = contiguous(call.receive, all, received->bytes, roles.received_blocks, into);
  if (refused != nullptr) return refused;
  if (roles.sends && roles.receives && !has_counts(call.kind) && from.block_bytes != into.block_bytes) return kRefused;
  if (roles.sends) to.input = {from.data, from.span_bytes};
  if (roles.receives) to.output = {into.data, call.kind == CollectiveKind::bcast ? into.block_bytes : into.span_bytes};
  if (call.kind == CollectiveKind::scatter || call.kind == CollectiveKind::scatterv)
    if (roles.receives) to.output = {into.data, into.block_bytes};
  if (roles.receives && roles.in_place && has_counts(call.kind))
    collective.count = into.lists.counts[static_cast<std::size_t>(rank)];
  else if (roles.sends && call.kind != CollectiveKind::scatterv)
    collective.count = from.block_bytes;
  else
    collective.count = roles.receives ? into.block_bytes : 0;
  collective.send = std::move(from.lists);
  collective.receive = std::move(into.lists);
  return nullptr;
}

}  // namespace

const char* translate(const Call& call, int rank, int ranks, Translated& to) {
  to.collective.kind = call.kind;
  if (call.kind == CollectiveKind::barrier) return nullptr;
  if (is_rooted(call.kind) && (call.root < 0 || call.root >= ranks)) return kRefused;
  if (!computes(call.kind)) return translate_movement(call, rank, ranks, to);
  if (is_wrong(call.receive, static_cast<std::size_t>(ranks))) return kRefused;
  return translate_reduction(call, rank, ranks, to);
}

std::uint64_t payload_bytes(const Call& call, int rank, int ranks) {
  if (call.kind == CollectiveKind::barrier) return 0;
  const Roles roles = roles_of(call, rank, ranks);
  const bool by_send = !computes(call.kind) && roles.sends;
  const Side& side = by_send ? call.send : call.receive;
  const auto size_of = [](MPI_Datatype type) -> std::uint64_t {
    int bytes = 0;
    return type != MPI_DATATYPE_NULL && PMPI_Type_size(type, &bytes) == MPI_SUCCESS ? static_cast<std::uint64_t>(bytes)
                                                                                    : 0;
  };
  if (side.types != nullptr) {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(ranks); ++i)
      bytes += static_cast<std::uint64_t>(side.count_of(i)) * size_of(side.types[i]);
    return bytes;
  }
  const std::uint64_t item_bytes = size_of(side.type);
  std::uint64_t items = static_cast<std::uint64_t>(side.count);
  if (side.counts != nullptr) {
    items = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(ranks); ++i)
      items += static_cast<std::uint64_t>(side.count_of(i));
  } else if (by_send ? roles.sent_blocks > 1 : call.kind == CollectiveKind::reduce_scatter_block) {
    items *= static_cast<std::uint64_t>(ranks);
  }
  return items * item_bytes;
}

bool synchronises(const Call& call) {
  switch (call.kind) {
    case CollectiveKind::barrier: return true;
    case CollectiveKind::allreduce:
    case CollectiveKind::reduce_scatter_block:
    case CollectiveKind::allgather:
    case CollectiveKind::alltoall: {
      int item_bytes = 0;
      return call.receive.count > 0 && call.receive.type != MPI_DATATYPE_NULL &&
             PMPI_Type_size(call.receive.type, &item_bytes) == MPI_SUCCESS && item_bytes != 0;
    }
    default: return false;
  }
}

}  // namespace penstock::preload
