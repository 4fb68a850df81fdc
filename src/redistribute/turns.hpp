// In which order the messages of all ranks go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "penstock/plan.hpp"

namespace penstock::redistribute {

/// Where a message stands among those of all ranks. Pairs take turns, those with the most messages first. In a turn
/// each node sends to one other and receives from one other, and its ranks share the link. Each rank sends and receives
/// in this order; since it is the same everywhere, no circle of ranks waits for one another however few messages each
/// has in flight.
struct Turn {
  std::size_t messages_left = 0;  ///< of the pair
  std::int32_t node_distance = 0;
  std::int32_t shift = 0;  ///< between the places that source and target have in their nodes
  std::int32_t source = 0;
  std::int32_t target = 0;

  friend bool operator<(const Turn& a, const Turn& b) {
    return std::tie(b.messages_left, a.node_distance, a.shift, a.source, a.target) <
           std::tie(a.messages_left, b.node_distance, b.shift, b.source, b.target);
  }
};

/// Knows which turn a pair of ranks has.
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
  std::vector<std::int32_t> ranks_of_node_;  // how many
};

}  // namespace penstock::redistribute
