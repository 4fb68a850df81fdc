// Collectives on items of datatypes. A penstock_datatype is a penstock::Datatype.
#include <cstdint>
#include <string>
#include <vector>

#include "c/handles.hpp"
#include "c/rows.hpp"
#include "c/status.hpp"
#include "penstock/comm.hpp"
#include "penstock/datatype.hpp"
#include "penstock/error.hpp"

namespace penstock::c {
namespace {

struct ItemsCall {
  Collective collective;
  SendItems send;
  ReceiveItems receive;
};

/// Fills a SendItems or ReceiveItems. Returns whether it is PENSTOCK_IN_PLACE.
template <class Side>
bool read_side(const penstock_items* given, std::size_t entries, Side& side) {
  if (given == nullptr) return false;
  const auto list = [entries](const std::uint64_t* from) {
    return from == nullptr ? std::vector<std::uint64_t>{} : std::vector<std::uint64_t>(from, from + entries);
  };
  side.count = given->count;
  if (given->datatype != nullptr) side.datatype = unwrap<Datatype>(given->datatype);
  side.blocks = {list(given->counts), list(given->displacements)};
  for (std::size_t i = 0; given->datatypes != nullptr && i < entries; ++i)
    side.datatypes.push_back(given->datatypes[i] == nullptr ? Datatype{} : unwrap<Datatype>(given->datatypes[i]));
  if (given->buffer == PENSTOCK_IN_PLACE) return true;
  side.data = given->buffer;
  return false;
}

struct Given {
  const char* function;
  penstock_collective collective;
  const penstock_items* send;
  const penstock_items* receive;
  int root;
};

ItemsCall read(const Comm& comm, const Given& given) {
  ItemsCall call;
  call.collective.kind = collective_kind(given.function, given.collective);
  call.collective.root = given.root;
  const BlockCounts blocks = block_counts(comm, call.collective.kind);
  const bool sends_in_place = read_side(given.send, blocks.sent, call.send);
  call.collective.in_place = read_side(given.receive, blocks.received, call.receive) || sends_in_place;
  return call;
}

}  // namespace
}  // namespace penstock::c

using namespace penstock;

void penstock_datatype_free(penstock_datatype* datatype) { c::destroy<Datatype>(datatype); }

int penstock_collective_items(penstock_comm* comm, penstock_collective collective, const penstock_items* send,
                              const penstock_items* receive, int root) {
  return c::guarded([&] {
    const c::Given given{"penstock_collective_items", collective, send, receive, root};
    c::require(comm, given.function, "comm");
    auto& on = c::unwrap<Comm>(comm);
    const c::ItemsCall call = c::or_fail(on, [&] { return c::read(on, given); });
    on.run_items(call.collective, call.send, call.receive);
  });
}

int penstock_icollective_items(penstock_comm* comm, penstock_collective collective, const penstock_items* send,
                               const penstock_items* receive, int root, penstock_request** request) {
  return c::guarded([&] {
    const c::Given given{"penstock_icollective_items", collective, send, receive, root};
    c::require(comm, given.function, "comm");
    auto& on = c::unwrap<Comm>(comm);
    const c::ItemsCall call = c::or_fail(on, [&] {
      c::require(request, given.function, "request");
      return c::read(on, given);
    });
    *request = c::wrap<penstock_request>(on.start_items(call.collective, call.send, call.receive));
  });
}

int penstock_collective_items_init(penstock_comm* comm, penstock_collective collective, const penstock_items* send,
                                   const penstock_items* receive, int root, penstock_persistent** persistent) {
  return c::guarded([&] {
    const c::Given given{"penstock_collective_items_init", collective, send, receive, root};
    c::require(comm, given.function, "comm");
    c::require(persistent, given.function, "persistent");
    const auto& on = c::unwrap<Comm>(comm);
    const c::ItemsCall call = c::read(on, given);
    *persistent = c::wrap<penstock_persistent>(on.prepare_items(call.collective, call.send, call.receive));
  });
}
