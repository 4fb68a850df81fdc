// Messages between ranks that share no memory, and how many of them are on their way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "penstock/plan.hpp"
#include "redistribute/member.hpp"
#include "redistribute/overlaps.hpp"
#include "redistribute/turns.hpp"

namespace penstock::redistribute {

/// Part of a segment or a whole one, in what travels at once.
struct Share {
  Member* member;
  Segment segment;
  std::uint64_t offset_bytes;
};

/// What travels at once: consecutive segments, also of several pairs.
struct Bundle {
  std::vector<Share> shares;
  std::uint64_t size_bytes = 0;
};

struct Message {
  Turn turn;
  std::int32_t peer;
  std::uint32_t tag;
  Bundle bundle;
};

/// The messages of one rank in one direction, in the order of their turns: their scratch memory, and which of them wait
/// for which. Two of each pair are in flight while two more are packed or unpacked; whoever is slow holds up nobody
/// else, and what is in flight to one node does not overflow what the way to it can hold.
class Window {
 public:
  Window(PlanBuilder& builder, const std::vector<Message>& messages) : builder_(builder) {
    std::unordered_map<std::int32_t, std::size_t> pairs;
    for (const Message& message : messages) {
      longest_bytes_ = std::max(longest_bytes_, message.bundle.size_bytes);
      ++pairs[message.peer];
    }
    regions_.resize(std::min({messages.size(), 2 * kInFlight * pairs.size(), kMostRegions}));
    last_uses_.resize(regions_.size());
  }

  /// The length of messages between nodes.
  static std::uint64_t message_bytes(const Team& team);

  Region next(std::uint64_t size_bytes) {
    Region& region = regions_[count_ % regions_.size()];
    if (region.size_bytes == 0) region = builder_.scratch(longest_bytes_);
    return {region.offset_bytes, size_bytes, region.buffer};
  }
  /// The steps before which next() may not be written.
  std::span<const StepId> busy_until() const { return last_uses_[count_ % regions_.size()]; }
  /// The step before which the next message from or to a peer may not move.
  StepId turn(std::int32_t peer) { return peers_[peer].moves[0]; }
  void moved_by(std::int32_t peer, StepId step) {
    std::vector<StepId>& moves = peers_[peer].moves;
    std::rotate(moves.begin(), moves.begin() + 1, moves.end());
    moves.back() = step;
  }
  /// Of what next() returned.
  void used_by(std::span<const StepId> last_use) {
    last_uses_[count_++ % regions_.size()].assign(last_use.begin(), last_use.end());
  }

 private:
  static constexpr std::size_t kInFlight = 2;  // of a pair
  static constexpr std::size_t kMostRegions = 64;

  struct Peer {
    std::vector<StepId> moves = std::vector<StepId>(kInFlight, PlanBuilder::kNone);  // the last ones
  };

  PlanBuilder& builder_;
  std::uint64_t longest_bytes_ = 0;
  std::size_t count_ = 0;
  std::vector<Region> regions_;
  std::vector<std::vector<StepId>> last_uses_;  // by region
  std::unordered_map<std::int32_t, Peer> peers_;
};

}  // namespace penstock::redistribute
