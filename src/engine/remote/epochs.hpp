// When the tags of an operation between nodes may be used again.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/remote/message_counts.hpp"
#include "engine/remote/packets.hpp"
#include "engine/remote/remote_plans.hpp"

namespace penstock::engine {

/// Invariant: may_post() is true only if every message that this rank and the peer have sent each other under the tags
/// of the operation, for an earlier one, has been received, and no receive for one is posted; see
/// docs/design/network.md. Messages that no step takes are found by the counts of both ranks, and received here. The
/// engine's lock protects this class.
class Epochs {
 public:
  Epochs(Core& core, const RemotePlans& plans, Packets& packets, InFlight& in_flight)
      : core_(core), plans_(plans), packets_(packets), in_flight_(in_flight) {}

  /// Whether messages of the operation may be posted between this rank and the peer.
  bool may_post(int peer, std::uint64_t sequence) const {
    if (const Recent& recent = recent_of(peer); recent.peer == peer) return sequence < recent.pair->may_post_before;
    const auto found = pairs_.find(peer);
    return sequence < (found == pairs_.end() ? first_of(MessageCounts::kAhead) : found->second.may_post_before);
  }
  /// A message is about to be posted: what follows needs no memory.
  void expect(int peer) { pair(peer); }
  /// A message waits for may_post().
  void want_to_post(int peer, std::uint64_t sequence);
  void note_sent(int peer, std::uint64_t sequence) { pair(peer).counts.note_sent(plans_.tags.epoch(sequence)); }
  void note_received(int peer, std::uint64_t sequence) { pair(peer).counts.note_received(plans_.tags.epoch(sequence)); }
  /// Whether the peer may have been sent something in the operation's epoch; true if that is forgotten.
  bool may_have_sent(int peer, std::uint64_t sequence) const {
    const auto found = pairs_.find(peer);
    return found != pairs_.end() && found->second.counts.may_have_sent_in(plans_.tags.epoch(sequence));
  }
  /// Whether may_post() may have become true since the last call.
  bool take_news() { return std::exchange(has_news_, false); }

  /// After each change of what is over here, if the transport may be called.
  void close();
  bool has_to_close() const { return plans_.tags.epoch(core_.operations.base()) != closed_; }
  /// The counts of the peer have come.
  void hear(const Header& header);
  bool has_heard() const { return !hearing_.empty(); }
  /// Compares counts that have come with what was received. `unsettled`: the first operation whose messages are still
  /// being received by its settlement; or none.
  bool clear(std::optional<std::uint64_t> unsettled);
  /// The peer has received less than it was told: lists for it what was sent.
  void on_recount(int peer, std::uint64_t epoch);
  /// Such a list has come. Receives what no plan receives.
  void on_recounted(int peer, std::uint64_t epoch, const std::vector<SentMessage>& sent);
  void has_received_excess(int peer, std::uint64_t sequence);
  /// What was received for the operation although its plan does not.
  Settlement::Received excess(std::uint64_t sequence) const {
    const auto found = excess_.find(sequence);
    return found == excess_.end() ? Settlement::Received{} : found->second;
  }
  /// The peer's process has ended.
  void stop_hearing(int peer) { std::erase(hearing_, peer); }

  /// Fails all operations, from now on: no wrong data is delivered.
  void give_up_communicator(int peer, const std::string& why);
  const std::optional<Error>& unusable() const { return unusable_; }

 private:
  struct Pair {
    MessageCounts counts;
    std::uint64_t may_post_before = 0;  ///< messages of operations below
    std::uint32_t excess = 0;           ///< messages that are being received because no plan does
    enum class Recount : std::uint8_t { none, asked, answered } recount = Recount::none;
  };

  struct Recent {
    int peer = -1;
    Pair* pair = nullptr;
  };

  Pair& pair(int peer) {
    const Recent& recent = recent_of(peer);
    return recent.peer == peer ? *recent.pair : find_pair(peer);
  }
  Pair& find_pair(int peer);
  const Recent& recent_of(int peer) const { return recent_[static_cast<unsigned>(peer) % recent_.size()]; }
  void set_limit(Pair& of) const { of.may_post_before = first_of(of.counts.may_post_before()); }
  std::uint64_t first_of(std::uint64_t epoch) const { return epoch * plans_.tags.operations_per_epoch(); }
  void tell(int peer, std::uint64_t epoch);
  bool clear(int peer, std::optional<std::uint64_t> unsettled);

  Core& core_;
  const RemotePlans& plans_;
  Packets& packets_;
  InFlight& in_flight_;
  std::unordered_map<int, Pair> pairs_;  ///< by rank: of those with which there were messages
  std::array<Recent, 8> recent_;         ///< of pair(), each of one of the peers with its remainder
  std::uint64_t closed_ = 0;             ///< all operations of these epochs are over here
  bool has_news_ = false;
  std::vector<int> hearing_;                              ///< peers that have told counts which are not cleared
  std::map<std::uint64_t, Settlement::Received> excess_;  ///< by operation
  std::optional<Error> unusable_;                         ///< the communicator
};

}  // namespace penstock::engine
