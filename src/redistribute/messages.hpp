// Messages between nodes, and their flow control.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "penstock/plan.hpp"
#include "redistribute/member.hpp"
#include "redistribute/segmenter.hpp"
#include "redistribute/turns.hpp"

namespace penstock::redistribute {

/// A segment, or a part of one, in a bundle.
struct Fragment {
  Member* member;
  Segment segment;
  std::uint64_t offset_bytes;
};

/// The data of one message: consecutive segments, of one or several members.
struct Bundle {
  std::vector<Fragment> fragments;
  std::uint64_t size_bytes = 0;
};

/// One message between this rank and `peer`.
struct Message {
  Turn turn;
  std::int32_t peer;
  std::uint32_t tag;
  Bundle bundle;
};

/// The messages of one rank in one direction, in the order of their turns: their scratch memory and their dependencies.
/// Two messages per pair are in flight while two more are packed or unpacked. A slow peer delays no other, and the
/// messages in flight to a node do not overflow its queues.
class MessageWindow {
 public:
  MessageWindow(PlanBuilder& builder, const std::vector<Message>& messages) : builder_(builder) {
    std::unordered_map<std::int32_t, std::size_t> pairs;
    for (const Message& message : messages) {
      longest_bytes_ = std::max(longest_bytes_, message.bundle.size_bytes);
      ++pairs[message.peer];
    }
    regions_.resize(std::min({messages.size(), 2 * kInFlight * pairs.size(), kMostRegions}));
    last_uses_.resize(regions_.size());
  }

  /// Length of messages between nodes.
  static std::uint64_t message_bytes(const Team& team);

  /// The scratch memory of the next message. used_by() ends the message.
  Region next(std::uint64_t size_bytes) {
    Region& region = regions_[count_ % regions_.size()];
    if (region.size_bytes == 0) region = builder_.scratch(longest_bytes_);
    return {region.offset_bytes, size_bytes, region.buffer};
  }
  /// The steps that must be complete before the memory of next() is written.
  std::span<const StepId> busy_until() const { return last_uses_[count_ % regions_.size()]; }
  /// The step that must be complete before the next message to or from a peer starts.
  StepId turn(std::int32_t peer) { return peers_[peer].moves[0]; }
  /// Sets the step that transfers the message to or from the peer.
  void moved_by(std::int32_t peer, StepId step) {
    std::vector<StepId>& moves = peers_[peer].moves;
    std::rotate(moves.begin(), moves.begin() + 1, moves.end());
    moves.back() = step;
  }
  /// Sets the last steps that use the memory of next().
  void used_by(std::span<const StepId> last_use) {
    last_uses_[count_++ % regions_.size()].assign(last_use.begin(), last_use.end());
  }

 private:
  static constexpr std::size_t kInFlight = 2;  // messages per pair
  static constexpr std::size_t kMostRegions = 64;

  struct Peer {
    std::vector<StepId> moves = std::vector<StepId>(kInFlight, PlanBuilder::kNone);  // the last transfers
  };

  PlanBuilder& builder_;
  std::uint64_t longest_bytes_ = 0;
  std::size_t count_ = 0;
  std::vector<Region> regions_;
  std::vector<std::vector<StepId>> last_uses_;  // by region
  std::unordered_map<std::int32_t, Peer> peers_;
};

}  // namespace penstock::redistribute
