// Finds ranks of other nodes for which an operation waits in vain.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/remote/epochs.hpp"
#include "engine/remote/packets.hpp"
#include "engine/remote/remote_plans.hpp"
#include "engine/remote/remote_ranks.hpp"

namespace penstock::engine {

/// A rank that waits sends probes. If its plan and the peer's do not fit, none of their messages may ever meet, so the
/// answer is what the peer's plan sends and receives. The engine's lock protects this class.
class RemoteChecks {
 public:
  RemoteChecks(Core& core, const RemoteRanks& ranks, const RemotePlans& plans, Packets& packets, const Epochs& epochs)
      : core_(core), ranks_(ranks), plans_(plans), packets_(packets), epochs_(epochs) {}

  /// Of these ranks, for which the operation waits, one that has left and sends and receives nothing more for it; or
  /// -1. The failure detector calls it once per check.
  int find_left(const Operation& operation, const std::vector<int>& peers);
  /// Fails the operation if a peer has sent a message for it that its plan does not receive. Needs no answer of the
  /// peer, which may have completed its own call and wait inside the transport's library for this rank. The failure
  /// detector calls it once per check.
  void look_for_foreign(Operation& operation);
  /// False if the probe is to be answered as one of the node.
  bool answer_probe(const Header& header);
  /// What the peer's plan sends to this rank or receives from it.
  void compare(Operation& operation, int peer, ListKind kind, const std::vector<SentMessage>& there);
  /// The peer, for which the operation waits, has completed it too long ago to know its plan.
  void on_forgotten(Operation& operation, int peer);

 private:
  struct State {
    std::uint64_t sequence = ~std::uint64_t{0};  ///< of the operation that the rest belongs to
    std::uint32_t forgotten_by_peers = 0;        ///< answers
    std::uint32_t checks = 0;                    ///< of the failure detector
    std::uint32_t checks_since_left = 0;         ///< of the failure detector, since a rank that it waits for has left
  };

  Core& core_;
  const RemoteRanks& ranks_;
  const RemotePlans& plans_;
  Packets& packets_;
  const Epochs& epochs_;
  PerOperation<State> states_;
};

}  // namespace penstock::engine
