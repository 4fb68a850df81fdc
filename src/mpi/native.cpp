#include "mpi/native.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "mpi/at_finalize.hpp"
#include "mpi/check.hpp"
#include "mpi/native_types.hpp"
#include "penstock/error.hpp"

namespace penstock::mpi {
namespace {

/// The arguments of a call as MPI wants them, and what they need to live.
struct Call {
  const void* send = nullptr;
  void* receive = nullptr;
  int count = 0;
  MPI_Datatype type = MPI_BYTE;
  MPI_Op op = MPI_OP_NULL;
  int root = 0;
  std::vector<int> counts{};         ///< of allgatherv and reduce_scatter
  std::vector<int> displacements{};  ///< of allgatherv
  std::vector<std::byte> nowhere{};  ///< for results that MPI says are none
};

/// Without a request the blocking form.
void call(CollectiveKind kind, Call& c, MPI_Comm comm, MPI_Request* request) {
// MPI_Ibcast is spelled with a small letter where MPI_Bcast has a large one.
#define PENSTOCK_NATIVE(large, small, ...)                                           \
  check(request == nullptr ? MPI_##large(__VA_ARGS__ __VA_OPT__(, ) comm)            \
                           : MPI_I##small(__VA_ARGS__ __VA_OPT__(, ) comm, request), \
        "MPI_" #large)
  switch (kind) {
    case CollectiveKind::barrier: PENSTOCK_NATIVE(Barrier, barrier); return;
    case CollectiveKind::bcast: PENSTOCK_NATIVE(Bcast, bcast, c.receive, c.count, c.type, c.root); return;
    case CollectiveKind::reduce:
      PENSTOCK_NATIVE(Reduce, reduce, c.send, c.receive, c.count, c.type, c.op, c.root);
      return;
    case CollectiveKind::allreduce:
      PENSTOCK_NATIVE(Allreduce, allreduce, c.send, c.receive, c.count, c.type, c.op);
      return;
    case CollectiveKind::gather:
      PENSTOCK_NATIVE(Gather, gather, c.send, c.count, c.type, c.receive, c.count, c.type, c.root);
      return;
    case CollectiveKind::scatter:
      PENSTOCK_NATIVE(Scatter, scatter, c.send, c.count, c.type, c.receive, c.count, c.type, c.root);
      return;
    case CollectiveKind::allgather:
      PENSTOCK_NATIVE(Allgather, allgather, c.send, c.count, c.type, c.receive, c.count, c.type);
      return;
    case CollectiveKind::allgatherv:
      PENSTOCK_NATIVE(Allgatherv, allgatherv, c.send, c.count, c.type, c.receive, c.counts.data(),
                      c.displacements.data(), c.type);
      return;
    case CollectiveKind::alltoall:
      PENSTOCK_NATIVE(Alltoall, alltoall, c.send, c.count, c.type, c.receive, c.count, c.type);
      return;
    case CollectiveKind::reduce_scatter_block:
      PENSTOCK_NATIVE(Reduce_scatter_block, reduce_scatter_block, c.send, c.receive, c.count, c.type, c.op);
      return;
    case CollectiveKind::reduce_scatter:
      PENSTOCK_NATIVE(Reduce_scatter, reduce_scatter, c.send, c.receive, c.counts.data(), c.type, c.op);
      return;
    case CollectiveKind::scan: PENSTOCK_NATIVE(Scan, scan, c.send, c.receive, c.count, c.type, c.op); return;
    case CollectiveKind::exscan: PENSTOCK_NATIVE(Exscan, exscan, c.send, c.receive, c.count, c.type, c.op); return;
    case CollectiveKind::gatherv:
    case CollectiveKind::scatterv:
    case CollectiveKind::alltoallv: break;
  }
#undef PENSTOCK_NATIVE
  throw Error(ErrorCode::internal, std::string(name(kind)) + " is not left to MPI");
}

class MpiPending final : public comm::Native::Pending {
 public:
  explicit MpiPending(Call arguments) : arguments_(std::move(arguments)) {}
  void begin(CollectiveKind kind, MPI_Comm comm) { call(kind, arguments_, comm, &request_); }

  bool test() override {
    if (!running()) throw Error(ErrorCode::mpi, "MPI_Finalize has been called before this operation was complete");
    int complete = 0;
    check(MPI_Test(&request_, &complete, MPI_STATUS_IGNORE), "MPI_Test");
    return complete != 0;
  }

 private:
  Call arguments_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class MpiNative final : public comm::Native {
 public:
  MpiNative(MPI_Comm comm, bool may_block)
      : comm_(comm), may_block_(may_block), at_finalize_([this] { comm_ = MPI_COMM_NULL; }) {
    check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
  }

  bool may_block() const override { return may_block_; }

  bool serves(const Collective& what) const override {
    if (what.kind == CollectiveKind::gatherv || what.kind == CollectiveKind::scatterv ||
        what.kind == CollectiveKind::alltoallv)
      return false;  // whether MPI's int can hold the counts is known to one rank alone
    if (computes(what.kind) && (what.element_bytes != 0 || what.reproducible ||
                                datatype_of(what.dtype) == MPI_DATATYPE_NULL || !defined_for(what.op, what.dtype)))
      return false;
    constexpr std::uint64_t kMost = std::numeric_limits<int>::max();
    std::uint64_t largest = what.count;
    for (const auto* list : {&what.receive.counts, &what.receive.displacements})
      for (const std::uint64_t value : *list) largest = std::max(largest, value);
    // Displacements may be one rank's own; those that follow from the counts are everybody's.
    if (!what.receive.displacements.empty()) return false;
    return largest <= kMost / static_cast<std::uint64_t>(size_);
  }

  void run(const Collective& what, ConstBytes input, Bytes output) override {
    Call arguments = arguments_of(what, input, output);
    call(what.kind, arguments, open(), nullptr);
  }

  std::unique_ptr<Pending> start(const Collective& what, ConstBytes input, Bytes output) override {
    auto pending = std::make_unique<MpiPending>(arguments_of(what, input, output));
    pending->begin(what.kind, open());
    return pending;
  }

 private:
  MPI_Comm open() const {
    if (comm_ == MPI_COMM_NULL)
      throw Error(ErrorCode::mpi, "this communicator's MPI connection is closed: MPI_Finalize has been called", rank_);
    return comm_;
  }

  Call arguments_of(const Collective& what, ConstBytes input, Bytes output) const {
    Call c;
    c.send = input.data();
    c.receive = output.data();
    c.count = static_cast<int>(what.count);
    c.root = what.root;
    if (computes(what.kind)) {
      c.type = datatype_of(what.dtype);
      c.op = op_of(what.op);
    }
    // Of bytes that are moved every type is the same, and normalized operations count in them.
    const bool at_root = what.root == rank_;
    if (what.in_place && (!is_rooted(what.kind) || at_root)) {
      if (what.kind == CollectiveKind::scatter)
        c.receive = MPI_IN_PLACE;
      else
        c.send = MPI_IN_PLACE;
    }
    if (what.kind == CollectiveKind::allgatherv || what.kind == CollectiveKind::reduce_scatter) {
      const auto ranks = static_cast<std::size_t>(size_);
      c.counts.assign(ranks, c.count);
      for (std::size_t i = 0; i < what.receive.counts.size(); ++i)
        c.counts[i] = static_cast<int>(what.receive.counts[i]);
      c.displacements.assign(ranks, 0);
      for (std::size_t i = 1; i < ranks; ++i) c.displacements[i] = c.displacements[i - 1] + c.counts[i - 1];
      c.count = c.counts[static_cast<std::size_t>(rank_)];
    }
    if (what.kind == CollectiveKind::exscan && rank_ == 0 && !what.in_place) {
      c.nowhere.resize(input.size());
      c.receive = c.nowhere.data();
    }
    return c;
  }

  MPI_Comm comm_;
  const bool may_block_;
  int rank_ = 0;
  int size_ = 1;
  AtFinalize at_finalize_;
};

}  // namespace

std::unique_ptr<comm::Native> make_native(MPI_Comm comm, bool may_block) {
  return std::make_unique<MpiNative>(comm, may_block);
}

}  // namespace penstock::mpi
