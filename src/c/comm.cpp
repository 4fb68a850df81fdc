// Communicators, collectives and requests. A penstock_comm is a penstock::Comm, a penstock_request a penstock::Request.
#include "penstock/comm.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "c/handles.hpp"
#include "c/status.hpp"
#include "penstock/error.hpp"

namespace penstock::c {
namespace {

/// The arguments of a collective as C gives them.
struct Call {
  const char* function;
  CollectiveKind kind;
  const void* send = nullptr;
  void* receive = nullptr;
  std::uint64_t count = 0;
  penstock_dtype dtype = PENSTOCK_uint8;
  penstock_reduce_op op = PENSTOCK_sum;
  int root = 0;
};

constexpr int kDtypes = 0
#define PENSTOCK_DTYPE(name, type, size, numpy) +1
#include "penstock/dtypes.def"
#undef PENSTOCK_DTYPE
    ;
constexpr int kReduceOps = 0
#define PENSTOCK_REDUCE_OP(name) +1
#include "penstock/reduce_ops.def"
#undef PENSTOCK_REDUCE_OP
    ;

/// C gives no sizes: the spans are what `count` and the operation ask for, empty where a pointer is null.
Request start(penstock_comm* handle, const Call& call) {
  require(handle, call.function, "comm");
  Comm& comm = unwrap<Comm>(handle);
  const auto check_row = [&](const char* table, int given, int rows) {
    if (given >= 0 && given < rows) return;
    const std::string message = std::string(call.function) + ": " + std::to_string(given) + " is no " + table;
    comm.fail_next(message);
    throw Error(ErrorCode::invalid_argument, message);
  };
  check_row("penstock_dtype", static_cast<int>(call.dtype), kDtypes);
  check_row("penstock_reduce_op", static_cast<int>(call.op), kReduceOps);
  Collective what;
  what.kind = call.kind;
  what.count = call.count;
  what.dtype = static_cast<DType>(call.dtype);
  what.op = static_cast<ReduceOp>(call.op);
  what.root = call.root;
  what.in_place = call.send == PENSTOCK_IN_PLACE || call.receive == PENSTOCK_IN_PLACE;

  const std::uint64_t block_bytes = call.count * size_bytes(what.dtype);
  const std::uint64_t all_bytes = block_bytes * static_cast<std::uint64_t>(comm.size());
  const bool gathers = call.kind == CollectiveKind::gather || call.kind == CollectiveKind::allgather;
  const auto given = [](const void* pointer) { return pointer != nullptr && pointer != PENSTOCK_IN_PLACE; };
  ConstBytes input;
  Bytes output;
  if (given(call.send))
    input = {static_cast<const std::byte*>(call.send), call.kind == CollectiveKind::scatter ? all_bytes : block_bytes};
  if (given(call.receive)) output = {static_cast<std::byte*>(call.receive), gathers ? all_bytes : block_bytes};
  return comm.start(what, input, output);
}

int run(penstock_comm* comm, const Call& call) {
  return guarded([&] { start(comm, call).wait(); });
}

int start(penstock_comm* comm, const Call& call, penstock_request** request) {
  return guarded([&] {
    require(request, call.function, "request");
    *request = wrap<penstock_request>(start(comm, call));
  });
}

}  // namespace
}  // namespace penstock::c

using namespace penstock;
using c::Call;
using c::guarded;
using c::require;
using c::unwrap;

int penstock_comm_rank(const penstock_comm* comm) {
  int rank = 0;
  const int status = guarded([&] {
    require(comm, "penstock_comm_rank", "comm");
    rank = unwrap<Comm>(comm).rank();
  });
  return status == 0 ? rank : status;
}

int penstock_comm_size(const penstock_comm* comm) {
  int size = 0;
  const int status = guarded([&] {
    require(comm, "penstock_comm_size", "comm");
    size = unwrap<Comm>(comm).size();
  });
  return status == 0 ? size : status;
}

int penstock_comm_duplicate(const penstock_comm* comm, penstock_comm** duplicate) {
  return guarded([&] {
    require(comm, "penstock_comm_duplicate", "comm");
    require(duplicate, "penstock_comm_duplicate", "duplicate");
    *duplicate = c::wrap<penstock_comm>(unwrap<Comm>(comm).duplicate());
  });
}

void penstock_comm_free(penstock_comm* comm) { c::destroy<Comm>(comm); }

int penstock_comm_report(const penstock_comm* comm, char* text, size_t capacity, size_t* length) {
  return guarded([&] {
    require(comm, "penstock_comm_report", "comm");
    const std::string report = unwrap<Comm>(comm).report();
    if (length != nullptr) *length = report.size();
    if (capacity == 0) return;
    require(text, "penstock_comm_report", "text");
    const std::size_t copied = std::min(capacity - 1, report.size());
    std::memcpy(text, report.data(), copied);
    text[copied] = '\0';
  });
}

// Each operation twice, blocking and started; PARAMETERS and ARGUMENTS are parenthesized lists.
#define PENSTOCK_C_UNPACK(...) __VA_ARGS__
#define PENSTOCK_C_COLLECTIVE(kind_name, PARAMETERS, ...)                                                   \
  int penstock_##kind_name(penstock_comm* comm PENSTOCK_C_UNPACK PARAMETERS) {                              \
    return c::run(comm, Call{"penstock_" #kind_name, CollectiveKind::kind_name, __VA_ARGS__});              \
  }                                                                                                         \
  int penstock_i##kind_name(penstock_comm* comm PENSTOCK_C_UNPACK PARAMETERS, penstock_request** request) { \
    return c::start(comm, Call{"penstock_i" #kind_name, CollectiveKind::kind_name, __VA_ARGS__}, request);  \
  }

PENSTOCK_C_COLLECTIVE(barrier, (), nullptr, nullptr, 0, PENSTOCK_uint8, PENSTOCK_sum, 0)
PENSTOCK_C_COLLECTIVE(bcast, (, void* buffer, uint64_t count, penstock_dtype dtype, int root), nullptr, buffer, count,
                      dtype, PENSTOCK_sum, root)
PENSTOCK_C_COLLECTIVE(reduce,
                      (, const void* send, void* receive, uint64_t count, penstock_dtype dtype, penstock_reduce_op op,
                       int root),
                      send, receive, count, dtype, op, root)
PENSTOCK_C_COLLECTIVE(allreduce,
                      (, const void* send, void* receive, uint64_t count, penstock_dtype dtype, penstock_reduce_op op),
                      send, receive, count, dtype, op, 0)
PENSTOCK_C_COLLECTIVE(gather, (, const void* send, void* receive, uint64_t count, penstock_dtype dtype, int root), send,
                      receive, count, dtype, PENSTOCK_sum, root)
PENSTOCK_C_COLLECTIVE(scatter, (, const void* send, void* receive, uint64_t count, penstock_dtype dtype, int root),
                      send, receive, count, dtype, PENSTOCK_sum, root)
PENSTOCK_C_COLLECTIVE(allgather, (, const void* send, void* receive, uint64_t count, penstock_dtype dtype), send,
                      receive, count, dtype, PENSTOCK_sum, 0)

int penstock_wait(penstock_request** request) {
  return guarded([&] {
    require(request, "penstock_wait", "request");
    const std::unique_ptr<Request> mine(c::release<Request>(*request));
    if (mine != nullptr) mine->wait();
  });
}

int penstock_test(penstock_request** request, int* complete) {
  return guarded([&] {
    require(request, "penstock_test", "request");
    require(complete, "penstock_test", "complete");
    *complete = 1;
    if (*request == nullptr) return;
    std::unique_ptr<Request> mine(c::release<Request>(*request));
    if (mine->test()) return;
    *complete = 0;
    *request = c::pointer<penstock_request>(mine.release());
  });
}
