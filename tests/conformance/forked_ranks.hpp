// Ranks as processes of their own, made by fork(): ranks that can be killed, without an MPI.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/transport.hpp"

namespace penstock::conformance {

/// What a rank's process left behind.
struct Outcome {
  std::string text;     ///< what the body returned, or how the process ended if it did not return
  bool killed = false;  ///< by SIGKILL or SIGALRM: meant to die, or still there after `kHangSeconds`
};

/// So long a rank may take that is not meant to die: many times what a loaded machine needs.
inline constexpr unsigned kHangSeconds = 120;

/// What the body of a rank gets. Ranks of one node share memory; messages between nodes go over sockets, which tell the
/// end of a process.
struct ForkedRank {
  int rank;
  /// For the rank's next communicator, on all ranks alike; a few of them.
  std::function<std::unique_ptr<engine::Transport>()> make_transport;
  /// Waits for so many ranks to have called it.
  std::function<void(int ranks)> barrier;
  /// Forks a child that lives until the job is over.
  std::function<void()> fork_child;
};

/// Runs `body` on every rank, each in a process of its own, and returns what became of them, by rank. The calling
/// process must have one thread only.
std::vector<Outcome> run_forked(const std::vector<std::int32_t>& nodes,
                                const std::function<std::string(ForkedRank&)>& body);

}  // namespace penstock::conformance
