// A transport whose ranks are threads of one process. Tests run the engine over it without MPI and under sanitizers.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/transport.hpp"

namespace penstock::engine {

struct LocalTransportOptions {
  /// False imitates MPI_THREAD_FUNNELED: members throw Error(mpi) on threads that never called allgather().
  bool any_thread = true;
  /// Longer sends complete only when the receiver has taken the message, as in MPI libraries. Shorter ones are eager:
  /// they complete at once.
  std::uint64_t rendezvous_bytes = 64 << 10;
};

/// One transport per rank, in the order of `node_of_rank`, whose numbers may be any. The caller owns the transports;
/// each may outlive the others.
std::vector<std::unique_ptr<Transport>> make_local_transports(std::vector<std::int32_t> node_of_rank,
                                                              const LocalTransportOptions& options = {});

}  // namespace penstock::engine
