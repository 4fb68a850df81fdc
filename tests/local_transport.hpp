// A transport whose ranks are threads of one process. Tests run the engine over it without MPI and under sanitizers.
#pragma once

#include <atomic>
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
  int max_tag = 32767;  ///< what every MPI guarantees
  /// Not 0: what is complete is found in a random order and after random delays, of this seed.
  std::uint64_t shuffle_seed = 0;
  /// Counts, for a test, the messages under other tags than 0 that ranks have not received when they end.
  std::atomic<std::size_t>* left_over = nullptr;
};

/// One transport per rank, in the order of `node_of_rank`, whose numbers may be any. The caller owns the transports;
/// each may outlive the others.
std::vector<std::unique_ptr<Transport>> make_local_transports(std::vector<std::int32_t> node_of_rank,
                                                              const LocalTransportOptions& options = {});

}  // namespace penstock::engine
