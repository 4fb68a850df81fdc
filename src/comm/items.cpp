#include "comm/items.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "penstock/error.hpp"

namespace penstock::comm {
namespace {

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    throw Error(ErrorCode::invalid_argument, std::to_string(a) + " times " + std::to_string(b) +
                                                 " bytes of items are 2^63 bytes or more; give fewer items");
  return static_cast<std::uint64_t>(product);
}

std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum))
    throw Error(ErrorCode::invalid_argument, "the blocks have 2^63 bytes or more together; give fewer items");
  return static_cast<std::uint64_t>(sum);
}

bool scatters(CollectiveKind kind) { return kind == CollectiveKind::scatter || kind == CollectiveKind::scatterv; }
bool gathers(CollectiveKind kind) { return kind == CollectiveKind::gather || kind == CollectiveKind::gatherv; }

/// Which buffers are significant on this rank.
struct Roles {
  bool sends = true;
  bool receives = true;
  bool keeps = false;  ///< in place: the rank's own part lies in the receive buffer
  std::uint64_t sent_blocks = 1;
  std::uint64_t received_blocks = 1;
};

const Graph& neighbors_of(const Collective& collective) {
  if (collective.graph != nullptr) return *collective.graph;
  throw Error(ErrorCode::invalid_argument, std::string(name(collective.kind)) +
                                               ": the communicator has no neighbours; make it from one of MPI's with a "
                                               "topology, or give a graph");
}

Roles roles(const Collective& collective, int rank, std::uint64_t ranks) {
  const bool is_root = rank == collective.root;
  Roles result;
  if (collective.kind == CollectiveKind::bcast) {
    result.sends = false;
    result.keeps = is_root;
  } else if (gathers(collective.kind)) {
    result.receives = is_root;
    result.keeps = is_root && collective.in_place;
    result.sends = !result.keeps;
    result.received_blocks = ranks;
  } else if (scatters(collective.kind)) {
    result.sends = is_root;
    result.receives = !(is_root && collective.in_place);
    result.sent_blocks = ranks;
  } else if (is_neighborhood(collective.kind)) {
    const Graph& graph = neighbors_of(collective);
    result.sends = !graph.destinations(rank).empty();
    result.receives = !graph.sources(rank).empty();
    result.received_blocks = graph.sources(rank).size();
    if (collective.kind == CollectiveKind::neighbor_alltoall || has_send_counts(collective.kind))
      result.sent_blocks = graph.destinations(rank).size();
  } else {
    result.keeps = collective.in_place;
    result.sends = !collective.in_place;
    result.received_blocks = ranks;
    if (collective.kind == CollectiveKind::alltoall || has_send_counts(collective.kind)) result.sent_blocks = ranks;
  }
  return result;
}

std::string blocks_text(CollectiveKind kind) { return is_neighborhood(kind) ? " neighbours" : " ranks"; }

void check_lists(const Collective& collective, const char* side, const Blocks& blocks,
                 const std::vector<Datatype>& datatypes, std::size_t ranks) {
  if (datatypes.size() != (has_datatypes(collective.kind) ? ranks : 0))
    throw Error(ErrorCode::invalid_argument,
                std::string(name(collective.kind)) + ": the items that it " + side + " have " +
                    std::to_string(datatypes.size()) + " datatypes; expected " +
                    (has_datatypes(collective.kind)
                         ? "one for each of " + std::to_string(ranks) + blocks_text(collective.kind)
                         : std::string("none: only alltoallw and neighbor_alltoallw have a list of them")));
  if (blocks.counts.size() == ranks && (blocks.displacements.empty() || blocks.displacements.size() == ranks)) return;
  throw Error(ErrorCode::invalid_argument, std::string(name(collective.kind)) + ": the items that it " + side +
                                               " have " + std::to_string(blocks.counts.size()) + " counts and " +
                                               std::to_string(blocks.displacements.size()) +
                                               " displacements; expected a count for each of " + std::to_string(ranks) +
                                               blocks_text(collective.kind) + ", and as many displacements or none");
}

/// The blocks without those of neighbours that do not exist, whose places have no meaning.
Blocks existing(const Collective& collective, int rank, bool is_send, const Blocks& given) {
  Blocks blocks = given;
  if (!is_neighborhood(collective.kind)) return blocks;
  const std::span<const Neighbor> neighbors =
      is_send ? collective.graph->destinations(rank) : collective.graph->sources(rank);
  if (blocks.displacements.empty()) return blocks;
  for (std::size_t i = 0; i < neighbors.size(); ++i)
    if (neighbors[i].rank == Neighbor::kNone) blocks.counts[i] = 0;
  return blocks;
}

}  // namespace

ItemMemory::ItemMemory(const Datatype& datatype, std::byte* data, std::uint64_t count, std::uint64_t block_count)
    : data_(data), places_{{datatype, 0, times(count, block_count)}} {
  lay_out(false);
}

ItemMemory::ItemMemory(const Datatype& datatype, std::byte* data, const Blocks& blocks,
                       const std::vector<Datatype>& datatypes)
    : data_(data) {
  std::int64_t next = 0;
  for (std::size_t i = 0; i < blocks.counts.size(); ++i) {
    const Datatype& its = datatypes.empty() ? datatype : datatypes[i];
    const std::int64_t unit_bytes = datatypes.empty() ? its.extent_bytes() : 1;
    const std::int64_t item_units = datatypes.empty() ? 1 : its.extent_bytes();
    if (!blocks.displacements.empty()) next = static_cast<std::int64_t>(blocks.displacements[i]);
    // Where MPI gives no meaning to a displacement, it may be any number.
    const bool is_empty = blocks.counts[i] == 0 || its.size_bytes() == 0;
    std::int64_t at_bytes = 0;
    if (!is_empty && __builtin_mul_overflow(next, unit_bytes, &at_bytes))
      throw Error(ErrorCode::invalid_argument, "the block of rank " + std::to_string(i) + " has the displacement " +
                                                   std::to_string(next) + ", which is beyond all memory");
    places_.push_back({its, at_bytes, blocks.counts[i]});
    next += static_cast<std::int64_t>(blocks.counts[i]) * item_units;
  }
  lay_out(true);
}

void ItemMemory::lay_out(bool has_lists) {
  std::uint64_t size_bytes = 0;
  std::uint64_t end_bytes = 0;  // of the memory, if the items are contiguous
  bool is_contiguous = true;
  for (Place& place : places_) {
    place.size_bytes = times(place.count, place.datatype.size_bytes());
    size_bytes = plus(size_bytes, place.size_bytes);
    if (place.size_bytes == 0) continue;
    if (data_ == nullptr && !place.datatype.is_absolute())
      throw Error(ErrorCode::invalid_argument,
                  std::to_string(place.size_bytes) + " bytes of items given at the address NULL; pass their buffer");
    is_contiguous = is_contiguous && place.datatype.is_contiguous() && place.displacement_bytes >= 0;
    if (is_contiguous)
      end_bytes = std::max(end_bytes, plus(static_cast<std::uint64_t>(place.displacement_bytes), place.size_bytes));
  }
  for (const Place& place : places_) {
    if (!has_lists) break;
    blocks_.counts.push_back(place.size_bytes);
    if (is_contiguous) blocks_.displacements.push_back(static_cast<std::uint64_t>(place.displacement_bytes));
  }
  if (is_contiguous) {
    bytes_ = {data_, end_bytes};
  } else {
    packed_ = std::make_unique_for_overwrite<std::byte[]>(size_bytes);
    bytes_ = {packed_.get(), size_bytes};
  }
}

void ItemMemory::for_places(
    const std::function<void(const Datatype&, std::byte*, std::uint64_t, Bytes)>& action) const {
  if (packed_ == nullptr) return;
  std::size_t next = 0;
  for (const Place& place : places_) {
    // As a number: `data` is null if the datatype has absolute addresses.
    const auto address =
        reinterpret_cast<std::uintptr_t>(data_) + static_cast<std::uintptr_t>(place.displacement_bytes);
    action(place.datatype, reinterpret_cast<std::byte*>(address), place.count, bytes_.subspan(next, place.size_bytes));
    next += place.size_bytes;
  }
}

void ItemMemory::pack() const {
  for_places([](const Datatype& datatype, const std::byte* items, std::uint64_t count, Bytes packed) {
    datatype.pack(items, count, packed);
  });
}

void ItemMemory::unpack() const {
  for_places([](const Datatype& datatype, std::byte* items, std::uint64_t count, Bytes packed) {
    datatype.unpack(packed, items, count);
  });
}

ItemCall item_call(Collective collective, int rank, int ranks, const SendItems& send, const ReceiveItems& receive) {
  if (computes(collective.kind) || collective.kind == CollectiveKind::barrier)
    throw Error(ErrorCode::invalid_argument,
                std::string(name(collective.kind)) +
                    " takes no items of datatypes; use a UserOp, which combines elements of any size, with holes too");
  const auto blocks = static_cast<std::uint64_t>(ranks);
  const Roles role = roles(collective, rank, blocks);
  const bool has_sent_lists = has_send_counts(collective.kind);
  const bool has_received_lists = has_receive_counts(collective.kind);
  if (has_sent_lists && role.sends) check_lists(collective, "sends", send.blocks, send.datatypes, role.sent_blocks);
  if (has_received_lists && role.receives)
    check_lists(collective, "receives", receive.blocks, receive.datatypes, role.received_blocks);

  ItemCall call;
  const auto memory = [&](const auto& side, std::uint64_t block_count, bool has_lists) {
    auto* const data = static_cast<std::byte*>(const_cast<void*>(side.data));
    const bool is_send = &side.blocks == &send.blocks;
    return has_lists ? ItemMemory(side.datatype, data, existing(collective, rank, is_send, side.blocks), side.datatypes)
                     : ItemMemory(side.datatype, data, side.count, block_count);
  };
  if (role.sends) call.send = memory(send, role.sent_blocks, has_sent_lists);
  if (role.receives) call.receive = memory(receive, role.received_blocks, has_received_lists);
  const std::uint64_t sent_bytes = send.count * send.datatype.size_bytes();
  const std::uint64_t received_bytes = receive.count * receive.datatype.size_bytes();
  if (!has_counts(collective.kind) && role.sends && role.receives && sent_bytes != received_bytes)
    throw Error(ErrorCode::invalid_argument, std::string(name(collective.kind)) + ": a block of " +
                                                 std::to_string(sent_bytes) + " bytes is sent and one of " +
                                                 std::to_string(received_bytes) +
                                                 " is received; give both the same size");
  collective.dtype = DType::uint8;
  collective.element_bytes = 0;
  const bool has_own_block = has_received_lists && role.keeps;
  if (has_own_block)
    collective.count = call.receive.blocks().counts[static_cast<std::size_t>(rank)];
  else if (role.sends && collective.kind != CollectiveKind::scatterv)
    collective.count = sent_bytes;
  else
    collective.count = role.receives ? received_bytes : 0;
  collective.send = call.send.blocks();
  collective.receive = call.receive.blocks();
  if (role.sends) call.send.pack();
  // Unpacking must not change the blocks of neighbours that do not exist.
  if (role.keeps || is_neighborhood(collective.kind)) call.receive.pack();
  call.unpacks = role.receives && !(collective.kind == CollectiveKind::bcast && role.keeps);
  call.collective = std::move(collective);
  return call;
}

void Unpacking::finish() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_open_, false) && call_.unpacks) call_.receive.unpack();
}

void Unpacking::drop() noexcept {
  const std::lock_guard lock(mutex_);
  is_open_ = false;
}

}  // namespace penstock::comm
