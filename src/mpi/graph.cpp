#include "mpi/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

#include "mpi/check.hpp"
#include "mpi/ranks.hpp"
#include "penstock/error.hpp"

namespace penstock::mpi {
namespace {

std::int32_t neighbor_of(int rank) { return rank == MPI_PROC_NULL ? Neighbor::kNone : rank; }

using RankLists = std::vector<std::vector<std::int32_t>>;

/// nullptr if the sources and destinations do not match: MPI allows such a graph, but no communication along it.
std::shared_ptr<const Graph> matched(const RankLists& sources, const RankLists& destinations) {
  try {
    return std::make_shared<const Graph>(sources, destinations);
  } catch (const Error&) {
    return nullptr;
  }
}

std::shared_ptr<const Graph> cartesian(MPI_Comm comm) {
  int dimensions = 0;
  check(MPI_Cartdim_get(comm, &dimensions), "MPI_Cartdim_get");
  std::vector<int> extents(static_cast<std::size_t>(dimensions));
  std::vector<int> wraps(extents.size());
  std::vector<int> coordinates(extents.size());
  check(MPI_Cart_get(comm, dimensions, extents.data(), wraps.data(), coordinates.data()), "MPI_Cart_get");
  return std::make_shared<const Graph>(Graph::cartesian(extents, {wraps.begin(), wraps.end()}));
}

/// Every rank knows the whole graph. The neighbours of a rank are its sources and its destinations.
std::shared_ptr<const Graph> graph_of(MPI_Comm comm) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  RankLists lists(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    int count = 0;
    check(MPI_Graph_neighbors_count(comm, rank, &count), "MPI_Graph_neighbors_count");
    std::vector<int> neighbors(static_cast<std::size_t>(count));
    check(MPI_Graph_neighbors(comm, rank, count, neighbors.data()), "MPI_Graph_neighbors");
    for (const int each : neighbors) lists[static_cast<std::size_t>(rank)].push_back(neighbor_of(each));
  }
  return matched(lists, lists);
}

}  // namespace

Topology::Topology(MPI_Comm comm) {
  int kind = MPI_UNDEFINED;
  check(MPI_Topo_test(comm, &kind), "MPI_Topo_test");
  if (kind == MPI_CART) local_ = cartesian(comm);
  if (kind == MPI_GRAPH) local_ = graph_of(comm);
  if (kind != MPI_DIST_GRAPH) return;
  is_distributed_ = true;
  int size = 0;
  int is_weighted = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  lengths_.resize(static_cast<std::size_t>(size));
  check(MPI_Dist_graph_neighbors_count(comm, &own_.sources, &own_.destinations, &is_weighted),
        "MPI_Dist_graph_neighbors_count");
  neighbors_.resize(static_cast<std::size_t>(own_.sources + own_.destinations));
  std::vector<int> weights(neighbors_.size() + 1);
  int* const destinations = neighbors_.data() + own_.sources;
  check(MPI_Dist_graph_neighbors(comm, own_.sources, neighbors_.data(),
                                 is_weighted != 0 ? weights.data() : MPI_UNWEIGHTED, own_.destinations, destinations,
                                 is_weighted != 0 ? weights.data() + own_.sources : MPI_UNWEIGHTED),
        "MPI_Dist_graph_neighbors");
}

std::shared_ptr<const Graph> Topology::graph(MPI_Comm comm) {
  if (!is_distributed_) return local_;
  check(MPI_Allgather(&own_, 2, MPI_INT, lengths_.data(), 2, MPI_INT, comm), "MPI_Allgather");
  std::vector<int> counts;
  std::vector<int> places;
  std::vector<int> all;
  RankLists sources;
  RankLists destinations;
  std::exception_ptr failure;
  try {
    int count = 0;
    for (const Lengths& each : lengths_) {
      places.push_back(count);
      counts.push_back(each.sources + each.destinations);
      count += counts.back();
      sources.emplace_back(static_cast<std::size_t>(each.sources));
      destinations.emplace_back(static_cast<std::size_t>(each.destinations));
    }
    all.resize(static_cast<std::size_t>(count));
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  require_all(comm, failure);
  check(MPI_Allgatherv(neighbors_.data(), static_cast<int>(neighbors_.size()), MPI_INT, all.data(), counts.data(),
                       places.data(), MPI_INT, comm),
        "MPI_Allgatherv");
  auto next = all.cbegin();
  for (std::size_t rank = 0; rank < lengths_.size(); ++rank)
    for (std::vector<std::int32_t>* const list : {&sources[rank], &destinations[rank]})
      for (std::int32_t& each : *list) each = neighbor_of(*next++);
  return matched(sources, destinations);
}

}  // namespace penstock::mpi
