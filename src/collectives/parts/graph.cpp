#include "penstock/graph.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "base/hash.hpp"
#include "penstock/error.hpp"

namespace penstock {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::invalid_argument, "graph: " + why); }

std::string edge_text(std::int32_t from, std::int32_t to) {
  return "from rank " + std::to_string(from) + " to rank " + std::to_string(to);
}

}  // namespace

Graph::Graph(const std::vector<std::vector<std::int32_t>>& sources,
             const std::vector<std::vector<std::int32_t>>& destinations) {
  if (sources.size() != destinations.size() || sources.empty())
    refuse("sources of " + std::to_string(sources.size()) + " ranks and destinations of " +
           std::to_string(destinations.size()) + " given; expected both of every rank");
  const auto ranks = static_cast<std::int32_t>(sources.size());
  // The number of edges between two ranks so far, per (from, to).
  using Counts = std::map<std::pair<std::int32_t, std::int32_t>, std::uint32_t>;
  const auto numbered = [&](const std::vector<std::vector<std::int32_t>>& given, bool is_source, Lists& lists) {
    Counts counts;
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      std::vector<Neighbor> list;
      for (const std::int32_t other : given[static_cast<std::size_t>(rank)]) {
        if (other == Neighbor::kNone) {
          list.push_back({});
          continue;
        }
        if (other < 0 || other >= ranks)
          refuse("rank " + std::to_string(rank) + " has the neighbour " + std::to_string(other) +
                 "; expected a rank from 0 to " + std::to_string(ranks - 1));
        std::uint32_t& count = counts[is_source ? std::pair(other, rank) : std::pair(rank, other)];
        if (count == kMostEdges)
          refuse("more than " + std::to_string(kMostEdges) + " edges " +
                 (is_source ? edge_text(other, rank) : edge_text(rank, other)));
        list.push_back({other, count++});
      }
      lists.add(list);
    }
    return counts;
  };
  const Counts arriving = numbered(sources, true, sources_);
  const Counts leaving = numbered(destinations, false, destinations_);
  const auto compare = [](const Counts& these, const Counts& others, const char* here, const char* there) {
    for (const auto& [ends, count] : these) {
      const auto other = others.find(ends);
      const std::uint32_t its = other == others.end() ? 0 : other->second;
      if (its != count)
        refuse(std::to_string(count) + " edges " + edge_text(ends.first, ends.second) + " among the " + here +
               ", and " + std::to_string(its) + " among the " + there + "; expected equally many");
    }
  };
  compare(leaving, arriving, "destinations", "sources");
  compare(arriving, leaving, "sources", "destinations");
  finish();
}

Graph Graph::cartesian(std::span<const std::int32_t> dimensions, const std::vector<bool>& periodic) {
  if (dimensions.size() != periodic.size())
    refuse(std::to_string(dimensions.size()) + " dimensions, of which " + std::to_string(periodic.size()) +
           " are said to be periodic or not; expected one for each");
  std::int64_t ranks = 1;
  for (const std::int32_t dimension : dimensions) {
    if (dimension < 1) refuse("a dimension is " + std::to_string(dimension) + "; expected 1 or more");
    if (__builtin_mul_overflow(ranks, dimension, &ranks) || ranks > INT32_MAX)
      refuse("the dimensions have more than 2^31 ranks");
  }
  Graph graph;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    std::vector<Neighbor> sources;
    std::vector<Neighbor> destinations;
    auto stride = static_cast<std::int32_t>(ranks);
    for (std::size_t d = 0; d < dimensions.size(); ++d) {
      const std::int32_t extent = dimensions[d];
      stride /= extent;
      const std::int32_t at = rank / stride % extent;
      const auto upwards = static_cast<std::uint32_t>(2 * d);
      for (const std::int32_t step : {-1, 1}) {
        const bool exists = periodic[d] || (at + step >= 0 && at + step < extent);
        const std::int32_t other = rank + ((at + step + extent) % extent - at) * stride;
        // Edges are told apart by their direction.
        sources.push_back(exists ? Neighbor{other, upwards + (step < 0 ? 0 : 1)} : Neighbor{});
        destinations.push_back(exists ? Neighbor{other, upwards + (step < 0 ? 1 : 0)} : Neighbor{});
      }
    }
    graph.sources_.add(sources);
    graph.destinations_.add(destinations);
  }
  graph.finish();
  return graph;
}

void Graph::finish() {
  std::uint64_t mixed = base::kSeed;
  for (const Lists* lists : {&sources_, &destinations_}) {
    for (const std::size_t begin : lists->begin) mixed = base::mix(mixed, static_cast<std::uint64_t>(begin));
    for (const Neighbor& each : lists->all)
      mixed = base::mix(mixed, std::uint64_t{static_cast<std::uint32_t>(each.rank)} << 32 | each.edge);
  }
  hash_ = mixed;
}

std::size_t Graph::index_at_source(std::int32_t rank, const Neighbor& source) const {
  const std::span<const Neighbor> list = destinations(source.rank);
  return static_cast<std::size_t>(std::ranges::find(list, Neighbor{rank, source.edge}) - list.begin());
}

std::size_t Graph::index_at_destination(std::int32_t rank, const Neighbor& destination) const {
  const std::span<const Neighbor> list = sources(destination.rank);
  return static_cast<std::size_t>(std::ranges::find(list, Neighbor{rank, destination.edge}) - list.begin());
}

}  // namespace penstock
