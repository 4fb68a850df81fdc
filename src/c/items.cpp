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

struct Call {
  Collective what;
  SendItems send;
  ReceiveItems receive;
};

/// Fills in a SendItems or ReceiveItems; returns whether the rank's own part lies on the other side.
template <class Side>
bool read_side(const penstock_items* given, std::size_t ranks, Side& side) {
  if (given == nullptr) return false;
  const auto list = [ranks](const std::uint64_t* from) {
    return from == nullptr ? std::vector<std::uint64_t>{} : std::vector<std::uint64_t>(from, from + ranks);
  };
  side.count = given->count;
  if (given->datatype != nullptr) side.datatype = unwrap<Datatype>(given->datatype);
  side.blocks = {list(given->counts), list(given->displacements)};
  if (given->buffer == PENSTOCK_IN_PLACE) return true;
  side.data = given->buffer;
  return false;
}

Call read(Comm& comm, const char* function, penstock_collective collective, const penstock_items* send,
          const penstock_items* receive, int root) {
  Call call;
  try {
    call.what.kind = collective_kind(function, collective);
  } catch (const Error& error) {
    comm.fail_next(error.what());
    throw;
  }
  call.what.root = root;
  const auto ranks = static_cast<std::size_t>(comm.size());
  const bool sends_in_place = read_side(send, ranks, call.send);
  call.what.in_place = read_side(receive, ranks, call.receive) || sends_in_place;
  return call;
}

}  // namespace
}  // namespace penstock::c

using namespace penstock;

void penstock_datatype_free(penstock_datatype* datatype) { c::destroy<Datatype>(datatype); }

int penstock_collective_items(penstock_comm* comm, penstock_collective collective, const penstock_items* send,
                              const penstock_items* receive, int root) {
  return c::guarded([&] {
    c::require(comm, "penstock_collective_items", "comm");
    const c::Call call = c::read(c::unwrap<Comm>(comm), "penstock_collective_items", collective, send, receive, root);
    c::unwrap<Comm>(comm).run_items(call.what, call.send, call.receive);
  });
}

int penstock_icollective_items(penstock_comm* comm, penstock_collective collective, const penstock_items* send,
                               const penstock_items* receive, int root, penstock_request** request) {
  return c::guarded([&] {
    c::require(comm, "penstock_icollective_items", "comm");
    c::require(request, "penstock_icollective_items", "request");
    const c::Call call = c::read(c::unwrap<Comm>(comm), "penstock_icollective_items", collective, send, receive, root);
    *request = c::wrap<penstock_request>(c::unwrap<Comm>(comm).start_items(call.what, call.send, call.receive));
  });
}

int penstock_collective_items_init(penstock_comm* comm, penstock_collective collective, const penstock_items* send,
                                   const penstock_items* receive, int root, penstock_persistent** persistent) {
  return c::guarded([&] {
    c::require(comm, "penstock_collective_items_init", "comm");
    c::require(persistent, "penstock_collective_items_init", "persistent");
    const c::Call call =
        c::read(c::unwrap<Comm>(comm), "penstock_collective_items_init", collective, send, receive, root);
    *persistent = c::wrap<penstock_persistent>(c::unwrap<Comm>(comm).prepare_items(call.what, call.send, call.receive));
  });
}
