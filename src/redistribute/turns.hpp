// The order of the messages of all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "penstock/plan.hpp"

namespace penstock::redistribute {

/// The position of a message in the order of all messages. Pairs take turns, those with the most messages left first.
/// In one turn each node sends to one other node and receives from one other, and its ranks share the link. Every rank
/// sends and receives in this order. It is equal on all ranks, so there is no cyclic wait, however few messages are in
/// flight.
struct Turn {
  std::size_t messages_left = 0;  ///< of the pair
  std::int32_t node_distance = 0;
  std::int32_t shift = 0;  ///< from the source's to the target's position in its node
  std::int32_t source = 0;
  std::int32_t target = 0;

  friend bool operator<(const Turn& a, const Turn& b) {
    return std::tie(b.messages_left, a.node_distance, a.shift, a.source, a.target) <
           std::tie(a.messages_left, b.node_distance, b.shift, b.source, b.target);
  }
};

/// Computes the turns of pairs of ranks.
class Turns {
 public:
  explicit Turns(const Team& team);

  Turn of(std::int32_t source, std::int32_t target, std::size_t messages_left) const;

 private:
  struct Place {
    std::int32_t node = 0;
    std::int32_t in_node = 0;
  };
  std::vector<Place> places_;                // by rank
  std::vector<std::int32_t> ranks_of_node_;  // number of ranks, by node
};

}  // namespace penstock::redistribute
