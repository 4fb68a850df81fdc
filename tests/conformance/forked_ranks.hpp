// Ranks as forked processes, which tests can kill. They need no MPI.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/transport.hpp"

namespace penstock::conformance {

/// The result of a rank's process.
struct Outcome {
  std::string text;     ///< what the body returned; if it did not return, how the process ended
  bool killed = false;  ///< by SIGKILL (on purpose) or SIGALRM (after `kHangSeconds`)
};

/// The time limit of a rank that must not die: many times what a loaded machine needs.
inline constexpr unsigned kHangSeconds = 120;

/// The argument of a rank's body. Ranks of one node share memory. Messages between nodes use sockets, which report the
/// end of a process.
struct ForkedRank {
  int rank;
  /// Makes the transport of the rank's next communicator. All ranks call it equally often: a few times at most, and
  /// once if there are more than 8. Then there are sockets between nodes only.
  std::function<std::unique_ptr<engine::Transport>()> make_transport;
  /// Waits until `ranks` ranks have called it.
  std::function<void(int ranks)> barrier;
  /// Forks a child that lives until the job ends.
  std::function<void()> fork_child;
};

/// Runs `body` on every rank (256 at most), each in its own process. Returns the outcomes by rank. The calling process
/// must have only one thread.
std::vector<Outcome> run_forked(const std::vector<std::int32_t>& nodes,
                                const std::function<std::string(ForkedRank&)>& body);

}  // namespace penstock::conformance
