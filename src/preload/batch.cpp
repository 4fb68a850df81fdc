#include "preload/batch.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "preload/own_calls.hpp"
#include "preload/requests.hpp"

namespace penstock::preload {
namespace {

void start_native(const Call& call, MPI_Request* request) {
  const void* const from = call.send.buffer;
  void* const to = const_cast<void*>(call.receive.buffer);
  const int sent = static_cast<int>(call.send.count);
  const int count = static_cast<int>(call.receive.count);
  const auto* const sent_counts = static_cast<const int*>(call.send.counts);
  const auto* const sent_at = static_cast<const int*>(call.send.displacements);
  const auto* const counts = static_cast<const int*>(call.receive.counts);
  const auto* const at = static_cast<const int*>(call.receive.displacements);
  const MPI_Datatype type = call.receive.type;
  const MPI_Comm comm = call.comm;
  const MPI_Op op = call.op;
  const int root = call.root;
  switch (call.kind) {
    case CollectiveKind::barrier: PMPI_Ibarrier(comm, request); break;
    case CollectiveKind::bcast: PMPI_Ibcast(to, count, type, root, comm, request); break;
    case CollectiveKind::reduce: PMPI_Ireduce(from, to, count, type, op, root, comm, request); break;
    case CollectiveKind::allreduce: PMPI_Iallreduce(from, to, count, type, op, comm, request); break;
    case CollectiveKind::scan: PMPI_Iscan(from, to, count, type, op, comm, request); break;
    case CollectiveKind::exscan: PMPI_Iexscan(from, to, count, type, op, comm, request); break;
    case CollectiveKind::reduce_scatter_block:
      PMPI_Ireduce_scatter_block(from, to, count, type, op, comm, request);
      break;
    case CollectiveKind::reduce_scatter: PMPI_Ireduce_scatter(from, to, counts, type, op, comm, request); break;
    case CollectiveKind::gather: PMPI_Igather(from, sent, type, to, count, type, root, comm, request); break;
    case CollectiveKind::gatherv: PMPI_Igatherv(from, sent, type, to, counts, at, type, root, comm, request); break;
    case CollectiveKind::scatter: PMPI_Iscatter(from, sent, type, to, count, type, root, comm, request); break;
    case CollectiveKind::scatterv:
      PMPI_Iscatterv(from, sent_counts, sent_at, type, to, count, type, root, comm, request);
      break;
    case CollectiveKind::allgather: PMPI_Iallgather(from, sent, type, to, count, type, comm, request); break;
    case CollectiveKind::allgatherv: PMPI_Iallgatherv(from, sent, type, to, counts, at, type, comm, request); break;
    case CollectiveKind::alltoallv:
      PMPI_Ialltoallv(from, sent_counts, sent_at, type, to, counts, at, type, comm, request);
      break;
    case CollectiveKind::alltoallw:
      PMPI_Ialltoallw(from, sent_counts, sent_at, call.send.types, to, counts, at, call.receive.types, comm, request);
      break;
    default: PMPI_Ialltoall(from, sent, type, to, count, type, comm, request);
  }
}

}  // namespace

std::uint64_t blocks_of(CollectiveKind kind, int ranks) {
  switch (kind) {
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::allgather:
    case CollectiveKind::alltoall:
    case CollectiveKind::reduce_scatter_block: return static_cast<std::uint64_t>(ranks);
    default: return 1;
  }
}

Pattern::Lists Pattern::one_after_the_other(std::vector<int> counts) {
  Lists lists{std::move(counts), {}};
  lists.displacements.resize(lists.counts.size());
  std::exclusive_scan(lists.counts.begin(), lists.counts.end(), lists.displacements.begin(), 0);
  return lists;
}

Pattern::Pattern(const Call& like, std::uint64_t bytes, const Members& members)
    : like_{.kind = like.kind, .comm = like.comm, .op = like.op, .root = like.root},
      sent_bytes_(bytes * blocks_of(like.kind, members.ranks)),
      received_bytes_(sent_bytes_) {
  int size_bytes = 1;
  if (computes(like.kind)) PMPI_Type_size(like.receive.type, &size_bytes);
  const MPI_Datatype type = computes(like.kind) ? like.receive.type : MPI_BYTE;
  const int count = static_cast<int>(bytes / static_cast<std::uint64_t>(size_bytes));
  like_.send = like_.receive = side(nullptr, count, type);
  if (like.kind != CollectiveKind::allgatherv && like.kind != CollectiveKind::reduce_scatter) return;
  std::vector<int> counts(static_cast<std::size_t>(members.ranks), count / members.ranks);
  counts.back() += count % members.ranks;
  like_.receive.count = 0;
  if (like.kind == CollectiveKind::allgatherv) like_.send.count = counts[static_cast<std::size_t>(members.rank)];
  received_ = one_after_the_other(std::move(counts));
}

Pattern::Pattern(const Call& like, BlockBytes blocks)
    : like_{.kind = like.kind, .comm = like.comm, .root = like.root},
      in_place_(blocks.in_place),
      sent_bytes_(bytes_of(blocks.sent)),
      received_bytes_(bytes_of(blocks.received)) {
  like_.send = like_.receive = side(nullptr, 0, MPI_BYTE);
  types_.assign(has_datatypes(like.kind) ? std::max(blocks.sent.size(), blocks.received.size()) : 0, MPI_BYTE);
  if (has_send_counts(like.kind))
    sent_ = one_after_the_other(std::move(blocks.sent));
  else if (!blocks.sent.empty())
    like_.send.count = blocks.sent.front();
  if (has_receive_counts(like.kind))
    received_ = one_after_the_other(std::move(blocks.received));
  else if (!blocks.received.empty())
    like_.receive.count = blocks.received.front();
}

Call Pattern::call(void* from, void* to) const {
  Call made = like_;
  const auto fill = [this](Side& side, const Lists& lists) {
    if (lists.counts.empty()) return;
    side.counts = lists.counts.data();
    if (like_.kind != CollectiveKind::reduce_scatter) side.displacements = lists.displacements.data();
    if (!types_.empty()) side.types = types_.data();
  };
  const bool receives_in_place = in_place_ && like_.kind == CollectiveKind::scatterv;
  made.send.buffer = in_place_ && !receives_in_place ? MPI_IN_PLACE : from;
  made.receive.buffer = receives_in_place ? MPI_IN_PLACE : to;
  fill(made.send, sent_);
  fill(made.receive, received_);
  return made;
}

Batch::Batch(std::vector<Pattern> patterns, std::size_t operations, const Members& members)
    : patterns_(std::move(patterns)), members_(members), requests_(operations, MPI_REQUEST_NULL) {
  for (const Pattern& each : patterns_) {
    sent_bytes_ = std::max(sent_bytes_, each.sent_bytes());
    received_bytes_ = std::max(received_bytes_, each.received_bytes());
  }
  from_.resize(sent_bytes_ * operations);
  to_.resize(received_bytes_ * operations);
}

void Batch::run(Server server, Comm& penstock) {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const Pattern& pattern = patterns_[next_++ % patterns_.size()];
    const Call call = pattern.call(from_.data() + i * sent_bytes_, to_.data() + i * received_bytes_);
    if (server == Server::mpi) {
      start_native(call, &requests_[i]);
      continue;
    }
    Translated translated;
    Request started;
    {
      const OwnCall own;
      translate(call, members_, translated);
      started = penstock.start(translated.collective, translated.input, translated.output);
    }
    make_request(std::move(started), &requests_[i]);
  }
  PMPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
}

}  // namespace penstock::preload
