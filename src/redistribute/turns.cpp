#include "redistribute/turns.hpp"

#include <map>

namespace penstock::redistribute {

Turns::Turns(const Team& team) {
  std::map<std::int32_t, std::int32_t> numbers;
  for (const std::int32_t node : team.node_of_rank) {
    const auto [entry, is_new] = numbers.try_emplace(node, static_cast<std::int32_t>(numbers.size()));
    if (is_new) ranks_of_node_.push_back(0);
    places_.push_back({entry->second, ranks_of_node_[static_cast<std::size_t>(entry->second)]++});
  }
}

Turn Turns::of(std::int32_t source, std::int32_t target, std::size_t messages_left) const {
  const Place from = places_[static_cast<std::size_t>(source)];
  const Place to = places_[static_cast<std::size_t>(target)];
  const auto modulo = [](std::int32_t value, std::int32_t divisor) { return (value % divisor + divisor) % divisor; };
  return {messages_left, modulo(to.node - from.node, static_cast<std::int32_t>(ranks_of_node_.size())),
          modulo(to.in_node - from.in_node, ranks_of_node_[static_cast<std::size_t>(to.node)]), source, target};
}

}  // namespace penstock::redistribute
