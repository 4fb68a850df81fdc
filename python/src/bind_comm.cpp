// _penstock.Comm and _penstock.Request. penstock.comm builds the mpi4py communicator on them.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "array_call.hpp"
#include "buffer.hpp"
#include "collective_options.hpp"
#include "comm_handle.hpp"
#include "pending_request.hpp"
#include "penstock/comm.hpp"
#include "penstock/error.hpp"
#include "penstock/tuning.hpp"

namespace nb = nanobind;

namespace penstock::python {
namespace {

/// One collective as Python describes it. Element type and count follow from the buffers.
struct Call {
  CollectiveKind kind;
  std::optional<ReduceOp> op;
  int root;
  bool in_place;
  ArrayView input;
  ArrayView output;
  Blocks send{};  ///< in bytes; of reduce_scatter in elements
  Blocks receive{};
  std::shared_ptr<const UserOp> user{};
};

/// A Python callable as an operation. It is called, and released, with the GIL held.
std::shared_ptr<const UserOp> user_op(nb::handle given) {
  if (given.is_none()) return nullptr;
  const auto parts = nb::cast<nb::tuple>(given);
  auto* owned = new nb::object(nb::borrow(parts[0]));
  const std::shared_ptr<nb::object> callable(owned, [](nb::object* object) {
    const nb::gil_scoped_acquire acquired;
    delete object;
  });
  const auto combine = [callable](ConstBytes from, Bytes to) {
    const nb::gil_scoped_acquire acquired;
    try {
      const auto view = [](const std::byte* memory, std::size_t size, int access) {
        return nb::steal(PyMemoryView_FromMemory(reinterpret_cast<char*>(const_cast<std::byte*>(memory)),
                                                 static_cast<Py_ssize_t>(size), access));
      };
      (*callable)(view(from.data(), from.size(), PyBUF_READ), view(to.data(), to.size(), PyBUF_WRITE));
    } catch (nb::python_error& error) {
      const std::string text = error.what();
      throw Error(ErrorCode::invalid_argument,
                  "the reduction operation raised " + text.substr(text.rfind('\n', text.size() - 2) + 1));
    }
  };
  return std::make_shared<const UserOp>(UserOp{
      .combine = combine, .element_bytes = nb::cast<std::uint64_t>(parts[1]), .commutative = nb::cast<bool>(parts[2])});
}

/// Memory of a buffer specification: (object, offset in bytes, size in bytes or -1 for the rest, element type). The
/// type is a name, None for the object's own, or "" for one that Penstock can only move.
ArrayView message(nb::handle given, Access access, const char* argument) {
  if (given.is_none()) return {};
  if (!nb::isinstance<nb::tuple>(given)) return view(given, access, argument);
  const auto parts = nb::cast<nb::tuple>(given);
  const auto offset_bytes = nb::cast<std::int64_t>(parts[1]);
  const auto size_bytes = nb::cast<std::int64_t>(parts[2]);
  ArrayView whole = view(parts[0], access, argument);
  ArrayView part = whole.part(offset_bytes, size_bytes);
  if (parts[3].is_none()) return part;
  const auto dtype = nb::cast<std::string>(parts[3]);
  return part.reinterpreted(dtype.empty() ? std::nullopt : std::optional(dtype_from_name(dtype)));
}

std::uint64_t blocks_of(std::uint64_t count, const Comm& comm, const char* argument) {
  const auto ranks = static_cast<std::uint64_t>(comm.size());
  if (count % ranks != 0)
    throw Error(ErrorCode::invalid_argument, std::string(argument) + " has " + std::to_string(count) +
                                                 " elements, which cannot be divided evenly among " +
                                                 std::to_string(ranks) + " ranks");
  return count / ranks;
}

const Graph& graph_of(const Comm& comm) {
  if (comm.graph() == nullptr)
    throw Error(ErrorCode::invalid_argument,
                "the communicator has no neighbours; make it from a Cartcomm, Graphcomm or Distgraphcomm of mpi4py");
  return *comm.graph();
}

/// The bytes of a block of neighbor_allgather or neighbor_alltoall, by a buffer that has any.
std::uint64_t neighbor_block_bytes(const Comm& comm, const Call& call) {
  const Graph& graph = graph_of(comm);
  const std::size_t sources = graph.sources(comm.rank()).size();
  const std::size_t destinations = graph.destinations(comm.rank()).size();
  const auto part = [](const ArrayView& whole, std::size_t blocks, const char* argument) {
    if (whole.size_bytes() % blocks != 0)
      throw Error(ErrorCode::invalid_argument, std::string(argument) + " has " + std::to_string(whole.size_bytes()) +
                                                   " bytes, which cannot be divided evenly among " +
                                                   std::to_string(blocks) + " neighbours");
    return whole.size_bytes() / blocks;
  };
  if (call.kind == CollectiveKind::neighbor_allgather) {
    // Whoever sends to nobody may give no send buffer.
    return destinations > 0 || sources == 0 ? call.input.size_bytes() : part(call.output, sources, "recvbuf");
  }
  if (destinations > 0) return part(call.input, destinations, "sendbuf");
  return sources > 0 ? part(call.output, sources, "recvbuf") : 0;
}

/// Operations that only move data count in bytes, so their buffers may have any type.
Collective describe(const Comm& comm, const Call& call) {
  Collective collective;
  collective.kind = call.kind;
  collective.root = call.root;
  collective.in_place = call.in_place;
  const bool at_root = call.root == comm.rank();
  switch (call.kind) {
    case CollectiveKind::barrier: break;
    case CollectiveKind::bcast: collective.count = call.output.size_bytes(); break;
    case CollectiveKind::reduce:
    case CollectiveKind::allreduce:
    case CollectiveKind::scan:
    case CollectiveKind::exscan:
    case CollectiveKind::reduce_scatter_block:
    case CollectiveKind::reduce_scatter: {
      const bool receives = call.kind == CollectiveKind::reduce   ? at_root
                            : call.kind == CollectiveKind::exscan ? call.in_place || comm.rank() > 0
                                                                  : true;
      const bool from_output = call.in_place && receives;
      const ArrayView& mine = from_output ? call.output : call.input;
      std::uint64_t count = 0;
      if (call.user) {
        collective.element_bytes = call.user->element_bytes;
        count = mine.size_bytes() / collective.element_bytes;
      } else {
        collective.dtype = mine.dtype();
        count = mine.count();
      }
      collective.count = count;  // a remainder is reported as a wrong size
      if (call.kind == CollectiveKind::reduce_scatter_block)
        collective.count = blocks_of(count, comm, from_output ? "recvbuf" : "sendbuf");
      if (call.kind == CollectiveKind::reduce_scatter) collective.count = 0;
      collective.op = *call.op;
      if (!call.user && !from_output && receives && call.output.dtype() != collective.dtype)
        throw Error(ErrorCode::invalid_argument, "sendbuf holds " + std::string(name(collective.dtype)) +
                                                     " and recvbuf holds " + std::string(name(call.output.dtype())) +
                                                     "; expected the same type in both");
      break;
    }
    case CollectiveKind::gather:
      collective.count =
          at_root && call.in_place ? blocks_of(call.output.size_bytes(), comm, "recvbuf") : call.input.size_bytes();
      break;
    case CollectiveKind::scatter:
      collective.count = at_root ? blocks_of(call.input.size_bytes(), comm, "sendbuf") : call.output.size_bytes();
      break;
    case CollectiveKind::allgather:
      collective.count = call.in_place ? blocks_of(call.output.size_bytes(), comm, "recvbuf") : call.input.size_bytes();
      break;
    case CollectiveKind::alltoall: {
      const bool from_output = call.in_place;
      collective.count =
          blocks_of((from_output ? call.output : call.input).size_bytes(), comm, from_output ? "recvbuf" : "sendbuf");
      break;
    }
    case CollectiveKind::gatherv: collective.count = at_root && call.in_place ? 0 : call.input.size_bytes(); break;
    case CollectiveKind::scatterv: collective.count = call.output.size_bytes(); break;
    case CollectiveKind::allgatherv: collective.count = call.input.size_bytes(); break;
    case CollectiveKind::alltoallv:
    case CollectiveKind::alltoallw:
    case CollectiveKind::neighbor_alltoallv:
    case CollectiveKind::neighbor_alltoallw: break;
    case CollectiveKind::neighbor_allgather:
    case CollectiveKind::neighbor_alltoall: collective.count = neighbor_block_bytes(comm, call); break;
    case CollectiveKind::neighbor_allgatherv: collective.count = call.input.size_bytes(); break;
  }
  collective.send = call.send;
  collective.receive = call.receive;
  return collective;
}

using List = std::vector<std::uint64_t>;

Call parse(const Comm& comm, const std::string& kind, nb::handle input, nb::handle output, const std::string& op,
           int root, bool in_place, const nb::handle blocks) {
  Call call{collective_kind_from_name(kind), {}, root, in_place, {}, {}};
  if (!blocks.is_none()) {
    const auto lists = nb::cast<std::vector<std::optional<std::vector<std::uint64_t>>>>(blocks);
    call.send = {lists.at(0).value_or(List{}), lists.at(1).value_or(List{})};
    call.receive = {lists.at(2).value_or(List{}), lists.at(3).value_or(List{})};
  }
  if (computes(call.kind)) call.op = reduce_op_from_name(op);
  call.input = message(input, Access::read, "sendbuf");
  if (call.kind == CollectiveKind::bcast)
    call.output = message(output, root == comm.rank() ? Access::read : Access::write, "buf");
  else
    call.output = message(output, Access::write, "recvbuf");
  return call;
}

/// Whether Penstock has kernels for the element type of this rank's contribution.
bool has_plan(const Call& call) {
  if (!computes(call.kind) || call.user) return true;
  return (call.in_place ? call.output : call.input).known_dtype().has_value();
}

struct Started {
  Collective collective;
  Call call;
};

/// Empty if there is no plan; then start nothing.
std::optional<Started> to_start(Comm& comm, const std::string& kind, nb::handle input, nb::handle output,
                                const std::string& op, int root, bool in_place, const nb::dict& options,
                                nb::handle blocks, nb::handle user) {
  try {
    Started wanted;
    wanted.call = parse(comm, kind, input, output, op, root, in_place, blocks);
    wanted.call.user = user_op(user);
    if (!has_plan(wanted.call)) return std::nullopt;
    wanted.collective = describe(comm, wanted.call);
    apply(options, wanted.collective);
    return wanted;
  } catch (const Error& error) {
    const nb::gil_scoped_release released;
    comm.fail_next(error.message());
    throw;
  }
}

/// Empty if there is no plan; then nothing was started.
std::optional<PendingRequest> start(Comm& comm, const std::string& kind, nb::handle input, nb::handle output,
                                    const std::string& op, int root, bool in_place, const nb::dict& options,
                                    nb::handle blocks, nb::handle user) {
  std::optional<Started> wanted = to_start(comm, kind, input, output, op, root, in_place, options, blocks, user);
  if (!wanted) return std::nullopt;
  Call& call = wanted->call;
  Request request;
  {
    const nb::gil_scoped_release released;
    request = comm.start(wanted->collective, call.input.bytes(), call.output.writable_bytes(), std::move(call.user));
  }
  // Not a list of them, which would be copied.
  return PendingRequest(std::move(request), std::make_shared<std::array<ArrayView, 2>>(
                                                std::array{std::move(call.input), std::move(call.output)}));
}

/// False if there is no plan.
bool run(Comm& comm, const std::string& kind, nb::handle input, nb::handle output, const std::string& op, int root,
         bool in_place, const nb::dict& options, nb::handle blocks, nb::handle user) {
  std::optional<Started> wanted = to_start(comm, kind, input, output, op, root, in_place, options, blocks, user);
  if (!wanted) return false;
  Call& call = wanted->call;
  const nb::gil_scoped_release released;
  comm.run(wanted->collective, call.input.bytes(), call.output.writable_bytes(), std::move(call.user));
  return true;
}

std::uint64_t signature_of_native(const std::string& kind) {
  return 0x6e61746976650000u + static_cast<std::uint64_t>(collective_kind_from_name(kind));
}

/// A barrier in place of an operation that this rank runs natively. If other ranks have started a plan for the
/// operation, it fails on all ranks; otherwise they would wait for each other in two libraries.
PendingRequest guard(Comm& comm, const std::string& kind) {
  auto plan = std::make_shared<const Plan>(plan_collective(comm.team(), {}));
  const nb::gil_scoped_release released;
  return PendingRequest(comm.start(std::move(plan), {}, {}, {}, signature_of_native(kind)), nullptr);
}

/// A collective of MPI that a Python function starts: it returns the address of the MPI_Request, which it keeps, or 0
/// if it failed. Its members are called without the GIL.
class StartedByPython final : public ExternalOperation {
 public:
  using TestRequest = bool (*)(void* mpi_request);
  StartedByPython(nb::object function, std::uintptr_t test_request)
      : function_(std::move(function)), test_request_(reinterpret_cast<TestRequest>(test_request)) {}
  ~StartedByPython() override {
    const nb::gil_scoped_acquire acquired;
    function_.reset();
  }
  void start() override {
    const nb::gil_scoped_acquire acquired;
    request_ = nb::cast<std::uintptr_t>(function_());
  }
  bool test() override { return request_ == 0 || test_request_(reinterpret_cast<void*>(request_)); }

 private:
  nb::object function_;
  TestRequest test_request_;
  std::uintptr_t request_ = 0;
};

PendingRequest start_native(Comm& comm, const std::string& kind, nb::object function, std::uintptr_t test_request) {
  auto operation = std::make_unique<StartedByPython>(std::move(function), test_request);
  const nb::gil_scoped_release released;
  return PendingRequest(comm.start_external(std::move(operation), signature_of_native(kind)), nullptr);
}

using CommFromAddress = Comm* (*)(const void* mpi_comm, const CommOptions* options);

Comm* comm_from_address(std::uintptr_t function, std::uintptr_t mpi_comm, int progress_cores) {
  const nb::gil_scoped_release released;
  const CommOptions options{.progress_cores = progress_cores};
  const std::unique_ptr<const Comm> made(
      reinterpret_cast<CommFromAddress>(function)(reinterpret_cast<const void*>(mpi_comm), &options));
  return without_gil(*made);
}

std::string explain(const Comm& comm, const std::string& kind, std::uint64_t size_bytes, const std::string& dtype,
                    const std::string& op, int root, const nb::dict& options) {
  Collective collective;
  collective.kind = collective_kind_from_name(kind);
  collective.dtype = dtype_from_name(dtype);
  collective.op = reduce_op_from_name(op);
  collective.root = root;
  const std::uint64_t item_bytes = penstock::size_bytes(collective.dtype);
  if (computes(collective.kind) && size_bytes % item_bytes != 0)
    throw Error(ErrorCode::invalid_argument,
                std::to_string(size_bytes) + " bytes are not a whole number of " + dtype + " elements");
  if (!computes(collective.kind)) collective.dtype = DType::uint8;
  collective.count = size_bytes / penstock::size_bytes(collective.dtype);
  apply(options, collective);
  return comm.explain(collective);
}

/// Runs one of the tasks that the tuner measures, on buffers of four segments each. Blocking and collective.
void run_task(Comm& comm, const std::string& algorithm, const std::vector<std::string>& stages, nb::handle input,
              nb::handle output) {
  static const std::map<std::string, Stage> kStages{
      {"sr", Stage::sr}, {"ir", Stage::ir}, {"ib", Stage::ib}, {"sb", Stage::sb}};
  const ArrayView from = view(input, Access::read, "input");
  ArrayView to = view(output, Access::write, "output");
  Collective collective{.kind = CollectiveKind::allreduce, .count = from.count() / 4, .dtype = from.dtype()};
  collective.algorithm = algorithm;
  std::vector<Stage> wanted;
  std::uint64_t signature = 0x7461736b00000000u + collective.count * 16;
  for (const std::string& stage : stages) {
    wanted.push_back(kStages.at(stage));
    signature += std::uint64_t{1} << static_cast<unsigned>(wanted.back());
  }
  // Tasks run many times, so their plans are cached.
  thread_local std::map<std::string, std::shared_ptr<const Plan>> plans;
  const std::string key = comm.tuning_key() + algorithm + std::to_string(signature) + std::to_string(comm.rank());
  std::shared_ptr<const Plan>& plan = plans[key];
  if (plan == nullptr) plan = std::make_shared<const Plan>(plan_task(comm.team(), collective, wanted));
  const nb::gil_scoped_release released;
  comm.start(plan, from.bytes(), to.writable_bytes(), {.dtype = collective.dtype, .op = ReduceOp::sum}, signature)
      .wait();
}

}  // namespace

Comm* without_gil(const Comm& given) {
  auto inner = std::make_unique<const Comm>(given);
  comm::State* const state = &inner->state();
  const auto end = [kept = inner.get()](comm::State*) {
    // The limited API has no PyGILState_Check: a thread without the lock has no dictionary.
    std::optional<nb::gil_scoped_release> released;
    if (Py_IsInitialized() != 0 && PyThreadState_GetDict() != nullptr) released.emplace();
    delete kept;
  };
  const std::shared_ptr<comm::State> shared(state, end);
  static_cast<void>(inner.release());
  return new Comm(shared);
}

}  // namespace penstock::python

void bind_comm(nb::module_& module) {
  using namespace penstock;
  using python::PendingRequest;

  // Where there is no GIL, lock_self() does for an object what the GIL does: calls that wait give it up, too.
  nb::class_<PendingRequest>(module, "Request")
      .def("wait", &PendingRequest::wait, nb::lock_self())
      .def("test", &PendingRequest::test, nb::lock_self());

  nb::class_<Comm>(module, "Comm")
      .def_prop_ro("rank", &Comm::rank)
      .def_prop_ro("size", &Comm::size)
      .def_prop_ro("degrees",
                   [](const Comm& comm) {
                     const Graph& graph = python::graph_of(comm);
                     return std::pair(graph.sources(comm.rank()).size(), graph.destinations(comm.rank()).size());
                   })
      .def("start", &python::start, nb::arg("kind"), nb::arg("input").none(), nb::arg("output").none(), nb::arg("op"),
           nb::arg("root"), nb::arg("in_place"), nb::arg("options"), nb::arg("blocks") = nb::none(),
           nb::arg("user") = nb::none(),
           nb::sig("def start(self, kind: str, input: object, output: object, op: str, root: int, in_place: bool, "
                   "options: collections.abc.Mapping[str, object], "
                   "blocks: collections.abc.Sequence[list[int] | None] | None = None, "
                   "user: tuple[collections.abc.Callable[[memoryview, memoryview], object], int, bool] | None = None) "
                   "-> Request | None"))
      .def("run", &python::run, nb::arg("kind"), nb::arg("input").none(), nb::arg("output").none(), nb::arg("op"),
           nb::arg("root"), nb::arg("in_place"), nb::arg("options"), nb::arg("blocks") = nb::none(),
           nb::arg("user") = nb::none(),
           nb::sig("def run(self, kind: str, input: object, output: object, op: str, root: int, in_place: bool, "
                   "options: collections.abc.Mapping[str, object], "
                   "blocks: collections.abc.Sequence[list[int] | None] | None = None, "
                   "user: tuple[collections.abc.Callable[[memoryview, memoryview], object], int, bool] | None = None) "
                   "-> bool"))
      .def(
          "run_on_arrays",
          [](Comm& comm, int kind, int op, int root, nb::handle input, nb::handle output, const nb::dict& options) {
            return python::run_on_arrays(
                comm, {.kind = static_cast<CollectiveKind>(kind), .op = op, .root = root, .options = options}, input,
                output);
          },
          nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(),
          nb::sig("def run_on_arrays(self, kind: int, op: int, root: int, input: object, output: object, "
                  "options: collections.abc.Mapping[str, object], /) -> bool"))
      .def(
          "start_on_arrays",
          [](Comm& comm, int kind, int op, int root, nb::handle input, nb::handle output, const nb::dict& options) {
            return python::start_on_arrays(
                comm, {.kind = static_cast<CollectiveKind>(kind), .op = op, .root = root, .options = options}, input,
                output);
          },
          nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(),
          nb::sig("def start_on_arrays(self, kind: int, op: int, root: int, input: object, output: object, "
                  "options: collections.abc.Mapping[str, object], /) -> Request | None"))
      .def_prop_ro("any_thread", &Comm::any_thread)
      .def("guard", &python::guard)
      .def("start_native", &python::start_native,
           nb::sig("def start_native(self, kind: str, function: collections.abc.Callable[[], int], "
                   "test_request: int) -> Request"))
      .def("fail_next", &Comm::fail_next, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "set_timeout",
          [](Comm& comm, double seconds) {
            comm.set_timeout(std::chrono::milliseconds(static_cast<std::int64_t>(std::min(seconds, 1e9) * 1e3)));
          },
          nb::arg("seconds"), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "duplicate", [](const Comm& comm) { return python::without_gil(comm.duplicate()); },
          nb::rv_policy::take_ownership, nb::call_guard<nb::gil_scoped_release>())
      .def("tuning_key", &Comm::tuning_key)
      .def(
          "machine",
          [](Comm& comm, bool again) {
            const MeasuredMachine found = comm.machine(again);
            std::vector<std::tuple<std::string, std::uint64_t, std::string, std::uint64_t>> rows;
            for (const RowTime& each : found.rows)
              rows.emplace_back(name(each.algorithm->kind), each.bytes, each.algorithm->name, each.nanoseconds);
            return std::tuple(to_json(found.machine), found.has_network, found.has_node, found.source, found.seconds,
                              std::move(rows));
          },
          nb::arg("again"), nb::call_guard<nb::gil_scoped_release>())
      .def("run_task", &python::run_task)
      .def("explain", &python::explain,
           nb::sig("def explain(self, kind: str, size_bytes: int, dtype: str, op: str, root: int, "
                   "options: collections.abc.Mapping[str, object], /) -> str"))
      .def("report", &Comm::report);

  // Numbers for run_on_arrays() and start_on_arrays().
  nb::dict kinds;
#define PENSTOCK_COLLECTIVE(name, rooted, computes) kinds[#name] = static_cast<int>(CollectiveKind::name);
#include "penstock/collectives.def"
#undef PENSTOCK_COLLECTIVE
  module.attr("COLLECTIVES") = kinds;
  nb::dict ops;
#define PENSTOCK_REDUCE_OP(name) ops[#name] = static_cast<int>(ReduceOp::name);
#include "penstock/reduce_ops.def"
#undef PENSTOCK_REDUCE_OP
  module.attr("REDUCE_OPS") = ops;

  module.def("dtype_bytes", [](const std::string& name) { return size_bytes(dtype_from_name(name)); });
  module.def("sleep_in_waits", &sleep_in_waits);
  module.def("comm_from_address", &python::comm_from_address, nb::rv_policy::take_ownership, nb::arg("function"),
             nb::arg("mpi_comm"), nb::arg("progress_cores"));
}
