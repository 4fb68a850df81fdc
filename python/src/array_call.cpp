#include "array_call.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "buffer.hpp"
#include "collective_options.hpp"
#include "penstock/error.hpp"

namespace nb = nanobind;

namespace penstock::python {
namespace {

/// An array's memory, by the buffer protocol alone: small messages take less time than a memoryview and an ArrayView.
class BufferView {
 public:
  BufferView() = default;
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;
  ~BufferView() {
    if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
  }

  bool acquire(nb::handle array, Access access) {
    if (!PyObject_CheckBuffer(array.ptr())) return false;
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (access == Access::write ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(array.ptr(), &buffer_, flags) == 0) return true;
    PyErr_Clear();
    return false;
  }

  std::uint64_t size_bytes() const { return static_cast<std::uint64_t>(buffer_.len); }
  std::optional<DType> dtype() const {
    return dtype_of_format(buffer_.format, static_cast<std::uint64_t>(buffer_.itemsize));
  }
  Bytes bytes() const { return {static_cast<std::byte*>(buffer_.buf), size_bytes()}; }

 private:
  Py_buffer buffer_{};
};

/// Bytes of a block. Empty if the buffers do not fit, if there are no neighbours, and if nothing is sent: MPI.IN_PLACE
/// is a buffer of no bytes, and the general path refuses it.
std::optional<std::uint64_t> neighbor_count(const Comm& comm, bool sends_blocks, std::uint64_t sent,
                                            std::uint64_t received) {
  if (comm.graph() == nullptr || sent == 0) return std::nullopt;
  const std::uint64_t blocks = sends_blocks ? comm.graph()->destinations(comm.rank()).size() : 1;
  if (blocks == 0 || sent % blocks != 0) return std::nullopt;
  const std::uint64_t count = sent / blocks;
  return received == count * comm.graph()->sources(comm.rank()).size() ? std::optional(count) : std::nullopt;
}

/// Number of elements of the operation. Empty if the buffers do not fit it.
std::optional<std::uint64_t> count_of(const Comm& comm, const Collective& collective, const BufferView& input,
                                      const BufferView& output) {
  const auto ranks = static_cast<std::uint64_t>(comm.size());
  const bool at_root = collective.root == comm.rank();
  const std::uint64_t sent = input.size_bytes();
  const std::uint64_t received = output.size_bytes();
  const auto fits = [](bool fitting, std::uint64_t count) { return fitting ? std::optional(count) : std::nullopt; };
  switch (collective.kind) {
    case CollectiveKind::barrier: return 0;
    case CollectiveKind::bcast: return received;
    case CollectiveKind::reduce: return fits(!at_root || received == sent, sent / collective.item_bytes());
    case CollectiveKind::allreduce: return fits(received == sent, sent / collective.item_bytes());
    case CollectiveKind::gather: return fits(!at_root || received == sent * ranks, sent);
    case CollectiveKind::scatter: return fits(!at_root || sent == received * ranks, received);
    case CollectiveKind::allgather: return fits(received == sent * ranks, sent);
    case CollectiveKind::alltoall: return fits(received == sent && sent % ranks == 0, sent / ranks);
    case CollectiveKind::scan: return fits(received == sent, sent / collective.item_bytes());
    // MPI.IN_PLACE is a buffer of no bytes, and rank 0 receives nothing to compare it with.
    case CollectiveKind::exscan:
      return fits(comm.rank() == 0 ? sent > 0 : received == sent, sent / collective.item_bytes());
    case CollectiveKind::reduce_scatter_block:
      return fits(sent == received * ranks, received / collective.item_bytes());
    case CollectiveKind::neighbor_allgather: return neighbor_count(comm, false, sent, received);
    case CollectiveKind::neighbor_alltoall: return neighbor_count(comm, true, sent, received);
    default: return std::nullopt;
  }
}

/// What an operation on whole arrays needs until it is complete.
struct ArrayOperation {
  Collective collective;
  BufferView from;
  BufferView to;

  /// False if it does not qualify for the fast path.
  bool prepare(const Comm& comm, const ArrayCall& call, nb::handle input, nb::handle output);
};

bool ArrayOperation::prepare(const Comm& comm, const ArrayCall& call, nb::handle input, nb::handle output) {
  const CollectiveKind kind = call.kind;
  const bool reduces = computes(kind);
  if (reduces && call.op < 0) return false;
  const bool at_root = call.root == comm.rank();
  const bool sends =
      kind != CollectiveKind::barrier && kind != CollectiveKind::bcast && (kind != CollectiveKind::scatter || at_root);
  const bool receives = kind != CollectiveKind::barrier &&
                        ((kind != CollectiveKind::reduce && kind != CollectiveKind::gather) || at_root) &&
                        (kind != CollectiveKind::exscan || comm.rank() > 0);
  const bool shows_output = kind == CollectiveKind::bcast && at_root;
  if (sends && !from.acquire(input, Access::read)) return false;
  if (receives && !to.acquire(output, shows_output ? Access::read : Access::write)) return false;

  collective.kind = kind;
  collective.root = call.root;
  if (call.options.size() > 0) {
    try {
      apply(call.options, collective);
    } catch (const Error&) {
      return false;  // the general path raises the error on all ranks
    }
  }
  if (reduces) {
    const std::optional<DType> dtype = from.dtype();
    if (!dtype || (receives && to.dtype() != dtype)) return false;
    collective.dtype = *dtype;
    collective.op = static_cast<ReduceOp>(call.op);
  }
  const std::optional<std::uint64_t> count = count_of(comm, collective, from, to);
  if (!count) return false;
  collective.count = *count;
  return true;
}

}  // namespace

bool run_on_arrays(Comm& comm, const ArrayCall& call, nb::handle input, nb::handle output) {
  ArrayOperation operation;
  if (!operation.prepare(comm, call, input, output)) return false;
  const nb::gil_scoped_release released;
  comm.run(operation.collective, operation.from.bytes(), operation.to.bytes());
  return true;
}

std::optional<PendingRequest> start_on_arrays(Comm& comm, const ArrayCall& call, nb::handle input, nb::handle output) {
  const auto operation = std::make_shared<ArrayOperation>();
  if (!operation->prepare(comm, call, input, output)) return std::nullopt;
  Request request;
  {
    const nb::gil_scoped_release released;
    request = comm.start(operation->collective, operation->from.bytes(), operation->to.bytes());
  }
  return PendingRequest(std::move(request), operation);
}

}  // namespace penstock::python
