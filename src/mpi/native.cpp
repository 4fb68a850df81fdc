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

/// One entry per rank; empty if not significant on this rank.
struct Lists {
  std::vector<int> counts;
  std::vector<int> displacements;
};

/// The arguments of an MPI call, with the memory that they refer to.
struct Call {
  const void* send = nullptr;
  void* receive = nullptr;
  int count = 0;
  MPI_Datatype type = MPI_BYTE;
  MPI_Op op = MPI_OP_NULL;
  int root = 0;
  Lists from{};                       ///< of operations with has_send_counts()
  Lists into{};                       ///< of operations with has_receive_counts()
  std::vector<MPI_Datatype> types{};  ///< of alltoallw: all are bytes
  std::vector<std::byte> nowhere{};   ///< receives results that are not significant
};

/// The blocking form if there is no request.
void call(CollectiveKind kind, Call& c, MPI_Comm comm, MPI_Request* request) {
// MPI_Ibcast has a lower-case letter where MPI_Bcast has an upper-case one.
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
      PENSTOCK_NATIVE(Allgatherv, allgatherv, c.send, c.count, c.type, c.receive, c.into.counts.data(),
                      c.into.displacements.data(), c.type);
      return;
    case CollectiveKind::alltoall:
      PENSTOCK_NATIVE(Alltoall, alltoall, c.send, c.count, c.type, c.receive, c.count, c.type);
      return;
    case CollectiveKind::reduce_scatter_block:
      PENSTOCK_NATIVE(Reduce_scatter_block, reduce_scatter_block, c.send, c.receive, c.count, c.type, c.op);
      return;
    case CollectiveKind::reduce_scatter:
      PENSTOCK_NATIVE(Reduce_scatter, reduce_scatter, c.send, c.receive, c.into.counts.data(), c.type, c.op);
      return;
    case CollectiveKind::scan: PENSTOCK_NATIVE(Scan, scan, c.send, c.receive, c.count, c.type, c.op); return;
    case CollectiveKind::exscan: PENSTOCK_NATIVE(Exscan, exscan, c.send, c.receive, c.count, c.type, c.op); return;
    case CollectiveKind::gatherv:
      PENSTOCK_NATIVE(Gatherv, gatherv, c.send, c.count, c.type, c.receive, c.into.counts.data(),
                      c.into.displacements.data(), c.type, c.root);
      return;
    case CollectiveKind::scatterv:
      PENSTOCK_NATIVE(Scatterv, scatterv, c.send, c.from.counts.data(), c.from.displacements.data(), c.type, c.receive,
                      c.count, c.type, c.root);
      return;
    case CollectiveKind::alltoallv:
      PENSTOCK_NATIVE(Alltoallv, alltoallv, c.send, c.from.counts.data(), c.from.displacements.data(), c.type,
                      c.receive, c.into.counts.data(), c.into.displacements.data(), c.type);
      return;
    case CollectiveKind::alltoallw:
      PENSTOCK_NATIVE(Alltoallw, alltoallw, c.send, c.from.counts.data(), c.from.displacements.data(), c.types.data(),
                      c.receive, c.into.counts.data(), c.into.displacements.data(), c.types.data());
      return;
    case CollectiveKind::neighbor_allgather:
    case CollectiveKind::neighbor_allgatherv:
    case CollectiveKind::neighbor_alltoall:
    case CollectiveKind::neighbor_alltoallv:
    case CollectiveKind::neighbor_alltoallw: break;  // serves() refuses them: MPI's duplicate has no topology
  }
#undef PENSTOCK_NATIVE
}

class MpiOperation final : public ExternalOperation {
 public:
  MpiOperation(CollectiveKind kind, Call arguments, MPI_Comm comm)
      : kind_(kind), arguments_(std::move(arguments)), comm_(comm) {}
  void start() override { call(kind_, arguments_, comm_, &request_); }
  bool test() override { return test_request(request_); }

 private:
  CollectiveKind kind_;
  Call arguments_;
  MPI_Comm comm_;
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

  bool serves(const Collective& collective) const override {
    if (is_neighborhood(collective.kind)) return false;
    if (computes(collective.kind) &&
        (collective.element_bytes != 0 || collective.reproducible ||
         datatype_of(collective.dtype) == MPI_DATATYPE_NULL || !defined_for(collective.op, collective.dtype)))
      return false;
    // Only one rank may know some counts and displacements; it then fails alone, see lists_of().
    if (has_counts(collective.kind)) return true;
    return collective.count <= kMost / static_cast<std::uint64_t>(size_);
  }

  void run(const Collective& collective, ConstBytes input, Bytes output) override {
    Call arguments = arguments_of(collective, input, output);
    call(collective.kind, arguments, open(), nullptr);
  }

  std::unique_ptr<ExternalOperation> prepare(const Collective& collective, ConstBytes input, Bytes output) override {
    return std::make_unique<MpiOperation>(collective.kind, arguments_of(collective, input, output), open());
  }

 private:
  MPI_Comm open() const {
    if (comm_ == MPI_COMM_NULL)
      throw Error(ErrorCode::mpi, "this communicator's MPI connection is closed: MPI_Finalize has been called", rank_);
    return comm_;
  }

  static constexpr std::uint64_t kMost = std::numeric_limits<int>::max();

  static int as_int(const Collective& collective, std::uint64_t value) {
    if (value <= kMost) return static_cast<int>(value);
    throw Error(ErrorCode::unsupported, std::string(name(collective.kind)) +
                                            ": MPI's own collective was asked for, but " + std::to_string(value) +
                                            " elements are more than its int can count; use " +
                                            "one of Penstock's algorithms on all ranks");
  }

  /// As MPI's ints. Missing counts are all equal; missing displacements follow from the counts.
  Lists lists_of(const Collective& collective, const Blocks& blocks) const {
    Lists lists;
    if (is_rooted(collective.kind) && collective.root != rank_) return lists;
    std::uint64_t next = 0;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(size_); ++rank) {
      const std::uint64_t count = blocks.counts.empty() ? collective.count : blocks.counts[rank];
      lists.counts.push_back(as_int(collective, count));
      lists.displacements.push_back(
          as_int(collective, blocks.displacements.empty() ? next : blocks.displacements[rank]));
      next += count;
    }
    return lists;
  }

  Call arguments_of(const Collective& collective, ConstBytes input, Bytes output) const {
    Call c;
    c.send = input.data();
    c.receive = output.data();
    c.root = collective.root;
    if (computes(collective.kind)) {
      c.type = datatype_of(collective.dtype);
      c.op = op_of(collective.op);
    }
    // Normalized operations that only move data count in bytes.
    const bool at_root = collective.root == rank_;
    if (collective.in_place && (!is_rooted(collective.kind) || at_root)) {
      if (collective.kind == CollectiveKind::scatter)
        c.receive = MPI_IN_PLACE;
      else
        c.send = MPI_IN_PLACE;
    }
    if (has_counts(collective.kind)) {
      c.from = lists_of(collective, collective.send);
      c.into = lists_of(collective, collective.receive);
      if (has_datatypes(collective.kind)) c.types.assign(static_cast<std::size_t>(size_), MPI_BYTE);
      const auto own = static_cast<std::size_t>(rank_);
      c.count =
          collective.kind == CollectiveKind::allgatherv ? c.into.counts[own] : as_int(collective, collective.count);
    } else {
      c.count = static_cast<int>(collective.count);
    }
    if (collective.kind == CollectiveKind::exscan && rank_ == 0 && !collective.in_place) {
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

bool test_request(MPI_Request& request) {
  if (!running()) throw Error(ErrorCode::mpi, "MPI_Finalize has been called before this operation was complete");
  int complete = 0;
  check(MPI_Test(&request, &complete, MPI_STATUS_IGNORE), "MPI_Test");
  return complete != 0;
}

std::unique_ptr<comm::Native> make_native(MPI_Comm comm, bool may_block) {
  return std::make_unique<MpiNative>(comm, may_block);
}

}  // namespace penstock::mpi
