// Collectives: each operation in a blocking, a non-blocking and a persistent form. A penstock_persistent is a
// penstock::Persistent.
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "c/handles.hpp"
#include "c/rows.hpp"
#include "c/status.hpp"
#include "penstock/comm.hpp"
#include "penstock/error.hpp"

namespace penstock::c {
namespace {

/// The arguments of a C call.
struct Call {
  const char* function;
  CollectiveKind kind;
  const void* send = nullptr;
  void* receive = nullptr;
  std::uint64_t count = 0;
  penstock_dtype dtype = PENSTOCK_uint8;
  penstock_reduce_op op = PENSTOCK_sum;
  int root = 0;
  const std::uint64_t* send_counts = nullptr;
  const std::uint64_t* send_displacements = nullptr;
  const std::uint64_t* receive_counts = nullptr;
  const std::uint64_t* receive_displacements = nullptr;
  const penstock_op* user = nullptr;
  bool is_by = false;  ///< the function takes a penstock_op, so `user` is required
};

/// A penstock_op: a user operation, or a predefined one for reproducible reductions.
struct OpHandle {
  std::shared_ptr<const UserOp> user;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  bool reproducible = false;
};

struct Arguments {
  Collective collective;
  ConstBytes input;
  Bytes output;
  std::shared_ptr<const UserOp> user;
};

/// C passes no sizes, so spans get the sizes that counts and operation need; a null pointer gives an empty span. With
/// displacements the library computes the extent.
std::uint64_t send_bytes(const Collective& collective, std::uint64_t ranks) {
  const std::uint64_t element_bytes = collective.item_bytes();
  if (has_send_counts(collective.kind)) return std::numeric_limits<std::int64_t>::max();
  switch (collective.kind) {
    case CollectiveKind::scatter:
    case CollectiveKind::alltoall:
    case CollectiveKind::neighbor_alltoall:
    case CollectiveKind::reduce_scatter_block: return collective.count * element_bytes * ranks;
    case CollectiveKind::reduce_scatter:
      return std::accumulate(collective.receive.counts.begin(), collective.receive.counts.end(), std::uint64_t{0}) *
             element_bytes;
    default: return collective.count * element_bytes;
  }
}

std::uint64_t receive_bytes(const Collective& collective, std::uint64_t ranks, int rank) {
  const std::uint64_t element_bytes = collective.item_bytes();
  switch (collective.kind) {
    case CollectiveKind::gather:
    case CollectiveKind::allgather:
    case CollectiveKind::alltoall:
    case CollectiveKind::neighbor_allgather:
    case CollectiveKind::neighbor_alltoall: return collective.count * element_bytes * ranks;
    case CollectiveKind::reduce_scatter_block:
      return collective.count * element_bytes * (collective.in_place ? ranks : 1);
    case CollectiveKind::reduce_scatter:
      if (collective.in_place) return send_bytes(collective, ranks);
      return collective.receive.counts.empty()
                 ? 0
                 : collective.receive.counts[static_cast<std::size_t>(rank)] * element_bytes;
    default:
      if (has_receive_counts(collective.kind)) return std::numeric_limits<std::int64_t>::max();
      return collective.count * element_bytes;
  }
}

Arguments arguments(Comm& comm, const Call& call) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, std::string(call.function) + ": " + why);
  };
  check_row(call.function, "penstock_dtype", static_cast<int>(call.dtype), kDtypes);
  check_row(call.function, "penstock_reduce_op", static_cast<int>(call.op), kReduceOps);
  Arguments result;
  Collective& collective = result.collective;
  collective.kind = call.kind;
  collective.count = call.count;
  collective.dtype = static_cast<DType>(call.dtype);
  collective.op = static_cast<ReduceOp>(call.op);
  collective.root = call.root;
  if (call.is_by && call.user == nullptr) refuse("op is NULL");
  if (call.user != nullptr) {
    const OpHandle& handle = unwrap<OpHandle>(call.user);
    result.user = handle.user;
    collective.element_bytes = handle.user ? handle.user->element_bytes : 0;
    collective.dtype = handle.dtype;
    collective.op = handle.op;
    collective.reproducible = handle.reproducible;
  }
  collective.in_place = call.send == PENSTOCK_IN_PLACE || call.receive == PENSTOCK_IN_PLACE;
  const auto ranks = static_cast<std::size_t>(comm.size());
  const BlockCounts blocks = block_counts(comm, call.kind);
  const auto list = [](const std::uint64_t* given, std::size_t entries) {
    return given == nullptr ? std::vector<std::uint64_t>{} : std::vector<std::uint64_t>(given, given + entries);
  };
  if (has_counts(call.kind)) {
    collective.send = {list(call.send_counts, blocks.sent), list(call.send_displacements, blocks.sent)};
    collective.receive = {list(call.receive_counts, blocks.received),
                          list(call.receive_displacements, blocks.received)};
    const bool is_significant = !is_rooted(call.kind) || call.root == comm.rank();
    const bool needs_send = has_send_counts(call.kind) && !(has_receive_counts(call.kind) && collective.in_place);
    if (is_significant && needs_send && blocks.sent > 0 && collective.send.counts.empty())
      refuse("the send counts are NULL");
    if (is_significant && has_receive_counts(call.kind) && blocks.received > 0 && collective.receive.counts.empty())
      refuse("the receive counts are NULL");
  }

  const auto given = [](const void* pointer) { return pointer != nullptr && pointer != PENSTOCK_IN_PLACE; };
  if (given(call.send))
    result.input = {static_cast<const std::byte*>(call.send),
                    send_bytes(collective, is_neighborhood(call.kind) ? blocks.sent : ranks)};
  if (given(call.receive))
    result.output = {static_cast<std::byte*>(call.receive),
                     receive_bytes(collective, is_neighborhood(call.kind) ? blocks.received : ranks, comm.rank())};
  return result;
}

/// A call like an earlier one needs no checks but those of what may differ.
bool run_again(Comm& comm, const Call& call) {
  if (call.is_by || call.send_counts != nullptr || call.receive_counts != nullptr ||
      call.send_displacements != nullptr || call.receive_displacements != nullptr ||
      !is_row(static_cast<int>(call.dtype), kDtypes) || !is_row(static_cast<int>(call.op), kReduceOps))
    return false;
  const bool sends_in_place = call.send == PENSTOCK_IN_PLACE;
  const bool receives_in_place = call.receive == PENSTOCK_IN_PLACE;
  return comm.run_again({.kind = call.kind,
                         .dtype = static_cast<DType>(call.dtype),
                         .op = static_cast<ReduceOp>(call.op),
                         .in_place = sends_in_place || receives_in_place,
                         .root = call.root,
                         .count = call.count},
                        sends_in_place ? nullptr : call.send, receives_in_place ? nullptr : call.receive);
}

int run(penstock_comm* handle, const Call& call) {
  return guarded([&] {
    require(handle, call.function, "comm");
    Comm& comm = unwrap<Comm>(handle);
    if (run_again(comm, call)) return;
    const Arguments given = or_fail(comm, [&] { return arguments(comm, call); });
    comm.run(given.collective, given.input, given.output, given.user);
  });
}

int run(penstock_comm* handle, const Call& call, penstock_request** request) {
  return guarded([&] {
    require(handle, call.function, "comm");
    Comm& comm = unwrap<Comm>(handle);
    const Arguments given = or_fail(comm, [&] {
      require(request, call.function, "request");
      return arguments(comm, call);
    });
    *request = wrap<penstock_request>(comm.start(given.collective, given.input, given.output, given.user));
  });
}

int run(penstock_comm* handle, const Call& call, penstock_persistent** persistent) {
  return guarded([&] {
    require(handle, call.function, "comm");
    require(persistent, call.function, "persistent");
    Comm& comm = unwrap<Comm>(handle);
    const Arguments given = arguments(comm, call);
    *persistent = wrap<penstock_persistent>(comm.prepare(given.collective, given.input, given.output, given.user));
  });
}

}  // namespace
}  // namespace penstock::c

using penstock::CollectiveKind;
using penstock::c::Call;
using penstock::c::run;

// PARAMETERS is a parenthesized list.
#define PENSTOCK_C_UNPACK(...) __VA_ARGS__
#define PENSTOCK_C_FORMS(kind_name, name, PARAMETERS, ...)                                                           \
  int penstock_##name(penstock_comm* comm PENSTOCK_C_UNPACK PARAMETERS) {                                            \
    return run(comm, Call{.function = "penstock_" #name, .kind = CollectiveKind::kind_name, __VA_ARGS__});           \
  }                                                                                                                  \
  int penstock_i##name(penstock_comm* comm PENSTOCK_C_UNPACK PARAMETERS, penstock_request** request) {               \
    return run(comm, Call{.function = "penstock_i" #name, .kind = CollectiveKind::kind_name, __VA_ARGS__}, request); \
  }                                                                                                                  \
  int penstock_##name##_init(penstock_comm* comm PENSTOCK_C_UNPACK PARAMETERS, penstock_persistent** persistent) {   \
    return run(comm, Call{.function = "penstock_" #name "_init", .kind = CollectiveKind::kind_name, __VA_ARGS__},    \
               persistent);                                                                                          \
  }
#define PENSTOCK_C_COLLECTIVE(name, PARAMETERS, ...) PENSTOCK_C_FORMS(name, name, PARAMETERS, __VA_ARGS__)
#define PENSTOCK_C_REDUCTION_BY(name, PARAMETERS, ...) PENSTOCK_C_FORMS(name, name##_by, PARAMETERS, __VA_ARGS__)

PENSTOCK_C_COLLECTIVE(barrier, (), .count = 0)
PENSTOCK_C_COLLECTIVE(bcast, (, void* buffer, uint64_t count, penstock_dtype dtype, int root), .receive = buffer,
                      .count = count, .dtype = dtype, .root = root)
PENSTOCK_C_COLLECTIVE(reduce,
                      (, const void* send, void* receive, uint64_t count, penstock_dtype dtype, penstock_reduce_op op,
                       int root),
                      .send = send, .receive = receive, .count = count, .dtype = dtype, .op = op, .root = root)
PENSTOCK_C_COLLECTIVE(allreduce,
                      (, const void* send, void* receive, uint64_t count, penstock_dtype dtype, penstock_reduce_op op),
                      .send = send, .receive = receive, .count = count, .dtype = dtype, .op = op)
PENSTOCK_C_COLLECTIVE(gather, (, const void* send, void* receive, uint64_t count, penstock_dtype dtype, int root),
                      .send = send, .receive = receive, .count = count, .dtype = dtype, .root = root)
PENSTOCK_C_COLLECTIVE(gatherv,
                      (, const void* send, uint64_t send_count, void* receive, const uint64_t* counts,
                       const uint64_t* displacements, penstock_dtype dtype, int root),
                      .send = send, .receive = receive, .count = send_count, .dtype = dtype, .root = root,
                      .receive_counts = counts, .receive_displacements = displacements)
PENSTOCK_C_COLLECTIVE(scatter, (, const void* send, void* receive, uint64_t count, penstock_dtype dtype, int root),
                      .send = send, .receive = receive, .count = count, .dtype = dtype, .root = root)
PENSTOCK_C_COLLECTIVE(scatterv,
                      (, const void* send, const uint64_t* counts, const uint64_t* displacements, void* receive,
                       uint64_t receive_count, penstock_dtype dtype, int root),
                      .send = send, .receive = receive, .count = receive_count, .dtype = dtype, .root = root,
                      .send_counts = counts, .send_displacements = displacements)
PENSTOCK_C_COLLECTIVE(allgather, (, const void* send, void* receive, uint64_t count, penstock_dtype dtype),
                      .send = send, .receive = receive, .count = count, .dtype = dtype)
PENSTOCK_C_COLLECTIVE(allgatherv,
                      (, const void* send, uint64_t send_count, void* receive, const uint64_t* counts,
                       const uint64_t* displacements, penstock_dtype dtype),
                      .send = send, .receive = receive, .count = send_count, .dtype = dtype, .receive_counts = counts,
                      .receive_displacements = displacements)
PENSTOCK_C_COLLECTIVE(alltoall, (, const void* send, void* receive, uint64_t count, penstock_dtype dtype), .send = send,
                      .receive = receive, .count = count, .dtype = dtype)
PENSTOCK_C_COLLECTIVE(alltoallv,
                      (, const void* send, const uint64_t* send_counts, const uint64_t* send_displacements,
                       void* receive, const uint64_t* receive_counts, const uint64_t* receive_displacements,
                       penstock_dtype dtype),
                      .send = send, .receive = receive, .dtype = dtype, .send_counts = send_counts,
                      .send_displacements = send_displacements, .receive_counts = receive_counts,
                      .receive_displacements = receive_displacements)
PENSTOCK_C_COLLECTIVE(neighbor_allgather, (, const void* send, void* receive, uint64_t count, penstock_dtype dtype),
                      .send = send, .receive = receive, .count = count, .dtype = dtype)
PENSTOCK_C_COLLECTIVE(neighbor_allgatherv,
                      (, const void* send, uint64_t send_count, void* receive, const uint64_t* counts,
                       const uint64_t* displacements, penstock_dtype dtype),
                      .send = send, .receive = receive, .count = send_count, .dtype = dtype, .receive_counts = counts,
                      .receive_displacements = displacements)
PENSTOCK_C_COLLECTIVE(neighbor_alltoall, (, const void* send, void* receive, uint64_t count, penstock_dtype dtype),
                      .send = send, .receive = receive, .count = count, .dtype = dtype)
PENSTOCK_C_COLLECTIVE(neighbor_alltoallv,
                      (, const void* send, const uint64_t* send_counts, const uint64_t* send_displacements,
                       void* receive, const uint64_t* receive_counts, const uint64_t* receive_displacements,
                       penstock_dtype dtype),
                      .send = send, .receive = receive, .dtype = dtype, .send_counts = send_counts,
                      .send_displacements = send_displacements, .receive_counts = receive_counts,
                      .receive_displacements = receive_displacements)
PENSTOCK_C_COLLECTIVE(reduce_scatter_block,
                      (, const void* send, void* receive, uint64_t count, penstock_dtype dtype, penstock_reduce_op op),
                      .send = send, .receive = receive, .count = count, .dtype = dtype, .op = op)
PENSTOCK_C_COLLECTIVE(reduce_scatter,
                      (, const void* send, void* receive, const uint64_t* counts, penstock_dtype dtype,
                       penstock_reduce_op op),
                      .send = send, .receive = receive, .dtype = dtype, .op = op, .receive_counts = counts)
PENSTOCK_C_COLLECTIVE(scan,
                      (, const void* send, void* receive, uint64_t count, penstock_dtype dtype, penstock_reduce_op op),
                      .send = send, .receive = receive, .count = count, .dtype = dtype, .op = op)
PENSTOCK_C_COLLECTIVE(exscan,
                      (, const void* send, void* receive, uint64_t count, penstock_dtype dtype, penstock_reduce_op op),
                      .send = send, .receive = receive, .count = count, .dtype = dtype, .op = op)
PENSTOCK_C_REDUCTION_BY(reduce, (, const void* send, void* receive, uint64_t count, const penstock_op* op, int root),
                        .send = send, .receive = receive, .count = count, .root = root, .user = op, .is_by = true)
PENSTOCK_C_REDUCTION_BY(allreduce, (, const void* send, void* receive, uint64_t count, const penstock_op* op),
                        .send = send, .receive = receive, .count = count, .user = op, .is_by = true)
PENSTOCK_C_REDUCTION_BY(reduce_scatter_block,
                        (, const void* send, void* receive, uint64_t count, const penstock_op* op), .send = send,
                        .receive = receive, .count = count, .user = op, .is_by = true)
PENSTOCK_C_REDUCTION_BY(reduce_scatter,
                        (, const void* send, void* receive, const uint64_t* counts, const penstock_op* op),
                        .send = send, .receive = receive, .receive_counts = counts, .user = op, .is_by = true)
PENSTOCK_C_REDUCTION_BY(scan, (, const void* send, void* receive, uint64_t count, const penstock_op* op), .send = send,
                        .receive = receive, .count = count, .user = op, .is_by = true)
PENSTOCK_C_REDUCTION_BY(exscan, (, const void* send, void* receive, uint64_t count, const penstock_op* op),
                        .send = send, .receive = receive, .count = count, .user = op, .is_by = true)

int penstock_op_create(penstock_combine combine, void* context, uint64_t element_bytes, int commutative,
                       penstock_op** op) {
  using namespace penstock;
  return c::guarded([&] {
    c::require(reinterpret_cast<const void*>(combine), "penstock_op_create", "combine");
    c::require(op, "penstock_op_create", "op");
    if (element_bytes == 0)
      throw Error(ErrorCode::invalid_argument, "penstock_op_create: element_bytes is 0; expected 1 or more");
    const auto call = [combine, context, element_bytes](ConstBytes from, Bytes to) {
      combine(from.data(), to.data(), to.size() / element_bytes, context);
    };
    *op = c::wrap<penstock_op>(
        c::OpHandle{.user = std::make_shared<const UserOp>(
                        UserOp{.combine = call, .element_bytes = element_bytes, .commutative = commutative != 0})});
  });
}

int penstock_op_create_reproducible(penstock_dtype dtype, penstock_reduce_op reduce_op, penstock_op** op) {
  using namespace penstock;
  return c::guarded([&] {
    c::require(op, "penstock_op_create_reproducible", "op");
    c::check_row("penstock_op_create_reproducible", "penstock_dtype", static_cast<int>(dtype), c::kDtypes);
    c::check_row("penstock_op_create_reproducible", "penstock_reduce_op", static_cast<int>(reduce_op), c::kReduceOps);
    *op = c::wrap<penstock_op>(c::OpHandle{.user = nullptr,
                                           .dtype = static_cast<DType>(dtype),
                                           .op = static_cast<ReduceOp>(reduce_op),
                                           .reproducible = true});
  });
}

void penstock_op_free(penstock_op* op) { penstock::c::destroy<penstock::c::OpHandle>(op); }

int penstock_start(penstock_persistent* persistent, penstock_request** request) {
  using namespace penstock;
  return c::guarded([&] {
    c::require(persistent, "penstock_start", "persistent");
    auto& mine = c::unwrap<Persistent>(persistent);
    c::or_fail(mine, [&] { c::require(request, "penstock_start", "request"); });
    *request = c::wrap<penstock_request>(mine.start());
  });
}

void penstock_persistent_free(penstock_persistent* persistent) {
  penstock::c::destroy<penstock::Persistent>(persistent);
}
