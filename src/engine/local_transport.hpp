// A transport whose ranks are threads of one process: the engine is tested without MPI, and under sanitizers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/transport.hpp"

namespace penstock::engine {

struct LocalTransportOptions {
  /// Off: as under MPI_THREAD_FUNNELED, members throw Error(mpi) on threads that never called allgather().
  bool any_thread = true;
  /// Longer messages are complete for the sender only when the receiver has taken them, as in MPI libraries.
  std::uint64_t rendezvous_bytes = 64 << 10;
  int max_tag = 32767;  ///< what every MPI guarantees
  /// Not 0: what is complete is found in a random order and after random delays, of this seed.
  std::uint64_t shuffle_seed = 0;
  /// Counts, for a test, the messages under other tags than 0 that ranks have not received when they end.
  std::atomic<std::size_t>* left_over = nullptr;
};

/// One transport per entry of `node_of_rank` (any numbers), in the order of the ranks. Each may outlive the others.
std::vector<std::unique_ptr<Transport>> make_local_transports(std::vector<std::int32_t> node_of_rank,
                                                              const LocalTransportOptions& options = {});

}  // namespace penstock::engine
