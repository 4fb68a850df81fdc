// The operations between nodes that have failed and are not settled.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "engine/remote/epochs.hpp"
#include "engine/remote/packets.hpp"
#include "engine/remote/remote_plans.hpp"
#include "engine/remote/remote_ranks.hpp"
#include "engine/remote/settlement.hpp"

namespace penstock::engine {

/// Invariant: when an operation is settled, each message that was sent to this rank for it has been received, and no
/// receive of it is posted; see docs/design/network.md. The engine's lock protects this class.
class Settlements {
 public:
  /// What this rank has sent, by receiver.
  using Sent = std::map<int, std::vector<SentMessage>>;

  Settlements(Core& core, const RemoteRanks& ranks, const RemotePlans& plans, Packets& packets, Epochs& epochs,
              InFlight& in_flight)
      : core_(core), ranks_(ranks), plans_(plans), packets_(packets), epochs_(epochs), in_flight_(in_flight) {}

  bool empty() const { return settlements_.empty(); }
  bool contains(std::uint64_t sequence) const { return settlements_.contains(sequence); }
  /// The first operation that is not settled.
  std::optional<std::uint64_t> first() const {
    return settlements_.empty() ? std::nullopt : std::optional(settlements_.begin()->first);
  }

  /// The operation has failed, and no receive of it is posted any more. Tells the other nodes what this rank has sent.
  void end(std::uint64_t sequence, Settlement::Received received, Sent sent);
  /// It may have been completed here; then what its plan sends was sent, and what it receives was received. Once.
  void has_failed_elsewhere(std::uint64_t sequence);
  /// This rank leaves, and begins no more operations: for those that others have failed it has sent nothing.
  void end_those_not_begun();
  /// All that the peer has sent for it. What it tells again is ignored.
  void hear(std::uint64_t sequence, int peer, std::vector<SentMessage> sent);
  /// The peer has forgotten what it has sent for it. If it has failed here, the communicator is given up.
  void on_forgotten(std::uint64_t sequence, int peer);
  /// Receives what is known to be on its way.
  bool settle();
  void has_sunk(std::uint64_t sequence) { settlements_.at(sequence).has_sunk(); }
  void stop_hearing(int peer) {
    for (auto& [sequence, settlement] : settlements_) settlement.stop_hearing(peer);
  }
  /// The peer's process has ended.
  void give_up(int peer) {
    for (auto& [sequence, settlement] : settlements_) settlement.give_up(peer);
  }

 private:
  void note_settled(std::uint64_t sequence);

  Core& core_;
  const RemoteRanks& ranks_;
  const RemotePlans& plans_;
  Packets& packets_;
  Epochs& epochs_;
  InFlight& in_flight_;
  std::map<std::uint64_t, Settlement> settlements_;
  std::set<std::uint64_t> settled_;  ///< that are not over here, or were not when they were settled
};

}  // namespace penstock::engine
