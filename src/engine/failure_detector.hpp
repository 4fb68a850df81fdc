// Which ranks have died, and who is waited for: one detector per engine, asked by whoever finds nothing to do.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/failures.hpp"
#include "engine/operation.hpp"

namespace penstock::engine {

class Core;

/// Protected by the engine's lock.
class FailureDetector {
 public:
  explicit FailureDetector(Core& core);

  /// Looks which processes of the node have ended: true if there is a new one.
  bool find_new();
  const std::vector<bool>& gone() const { return gone_; }  ///< by local rank: gets no messages any more
  bool is_gone(std::uint32_t local_rank) const { return gone_[local_rank]; }
  bool has_gone_ranks() const { return has_gone_ranks_; }
  bool knows_of_any() const { return has_gone_ranks_ || dead_.rank >= 0; }

  /// The rank will never complete this operation, and so none after it.
  void note_death(int rank, std::uint64_t sequence);
  /// A rank whose process has ended, or that has given up the communicator; -1 if there is none.
  int find_dead() const;
  /// A rank that went before it had completed the operation, whether or not this rank waits for it; or -1. All ranks
  /// hear of a death like this, also those whose part of an algorithm does without the dead one.
  int find_gone_in(const Operation& operation) const;
  static PeerGone has_gone(int peer, const std::string& where);

  /// Fails the operation if it waits for a rank that has gone; asks the others now and then what they call.
  void check(Operation& operation, const std::vector<int>& peers);
  /// See Engine::set_timeout.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  /// Names, once for each operation, the ranks that do not come: of `peers`, those of which nothing has come; fails it
  /// when the timeout is over. `mark` differs whenever something has come for the operation.
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

  Watched& watched(const Operation& operation);

  Core& core_;
  std::vector<bool> gone_;
  bool has_gone_ranks_ = false;
  struct Dead {
    int rank = -1;
    std::uint64_t from_sequence = 0;  ///< the first operation that it has not completed, as far as known
  };
  Dead dead_;  ///< of any node; what others found out, too
  PerOperation<Watched> watched_;
  std::chrono::milliseconds timeout_{0};
  std::uint64_t stalls_ = 0;
  std::string last_stall_;
};

}  // namespace penstock::engine
