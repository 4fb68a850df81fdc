// Finds ranks that have died, and prints stall warnings. One per engine. Threads that find nothing to do call it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/failures.hpp"
#include "engine/operation.hpp"

namespace penstock::engine {

class Core;

/// The engine's lock protects it.
class FailureDetector {
 public:
  explicit FailureDetector(Core& core);

  /// Checks which processes of the node have ended.
  void find_new();
  const std::vector<bool>& gone() const { return gone_; }  ///< by local rank: it has died and receives nothing more
  bool is_gone(std::uint32_t local_rank) const { return gone_[local_rank]; }
  bool has_gone_ranks() const { return has_gone_ranks_; }
  bool knows_of_any() const { return has_gone_ranks_ || dead_.rank >= 0; }

  /// The rank has died before it completed this operation, so it completes none after it.
  void note_death(int rank, std::uint64_t sequence);
  /// A rank whose process has ended or that has released the communicator; -1 if there is none.
  int find_dead() const;
  /// A rank that died before it completed the operation, whether or not this rank waits for it; or -1. So all ranks
  /// learn of a death, including those that exchange nothing with the dead rank.
  int find_gone_in(const Operation& operation) const;
  static PeerGone gone_error(int peer, const std::string& where);
  /// The memory of the peer, which is of this node, could not be accessed. May be called without the lock.
  [[noreturn]] void throw_unreachable(const Operation& operation, int peer, int system_error) const;

  /// Fails the operation if it waits for a rank that has died. Sends probes to the other ranks from time to time.
  void check(Operation& operation, const std::vector<int>& peers);
  /// See Engine::set_timeout.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  /// Prints a stall warning when the operation has waited for stall_timeout_ms without progress, unless one that is not
  /// over was told to wait for the same ranks. It names the ranks of `absent`, from which nothing has come yet; if
  /// there are none, those of `peers`, for which the operation waits. Fails the operation when the timeout of
  /// set_timeout() is over. `mark` changes whenever something comes for the operation.
  void watch_stall(Operation& operation, std::vector<int> peers, std::vector<int> absent, std::uint64_t mark);
  std::string report() const;

 private:
  struct Watched {
    std::uint64_t sequence = ~std::uint64_t{0};  ///< of the operation that the rest belongs to
    std::uint32_t probes_sent = 0;
    std::uint64_t mark = ~std::uint64_t{0};
    std::chrono::steady_clock::time_point still_since{};
    bool is_told = false;
  };

  Core& core_;
  std::vector<bool> gone_;
  bool has_gone_ranks_ = false;
  struct Dead {
    int rank = -1;
    std::uint64_t from_sequence = 0;  ///< the first operation that it did not complete, as far as known
  };
  Dead dead_;  ///< a dead rank of any node, found here or reported by others
  PerOperation<Watched> watched_;
  std::chrono::milliseconds timeout_{0};
  std::uint64_t stalls_ = 0;  ///< operations
  struct Told {
    std::uint64_t sequence = 0;
    std::string whom;
  };
  std::vector<Told> told_;
  std::string last_stall_;
};

}  // namespace penstock::engine
