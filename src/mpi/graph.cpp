#include "mpi/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "mpi/check.hpp"
#include "penstock/error.hpp"

namespace penstock::mpi {
namespace {

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
std::shared_ptr<const Graph> graph(MPI_Comm comm) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  RankLists lists(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    int count = 0;
    check(MPI_Graph_neighbors_count(comm, rank, &count), "MPI_Graph_neighbors_count");
    std::vector<int> neighbors(static_cast<std::size_t>(count));
    check(MPI_Graph_neighbors(comm, rank, count, neighbors.data()), "MPI_Graph_neighbors");
    for (const int each : neighbors)
      lists[static_cast<std::size_t>(rank)].push_back(each == MPI_PROC_NULL ? Neighbor::kNone : each);
  }
  return matched(lists, lists);
}

/// The lists of all ranks.
RankLists gathered(MPI_Comm comm, const std::vector<int>& mine, int size) {
  const int own = static_cast<int>(mine.size());
  const auto ranks = static_cast<std::size_t>(size);
  std::vector<int> counts(ranks);
  check(MPI_Allgather(&own, 1, MPI_INT, counts.data(), 1, MPI_INT, comm), "MPI_Allgather");
  std::vector<int> places(ranks);
  std::exclusive_scan(counts.begin(), counts.end(), places.begin(), 0);
  std::vector<int> all(static_cast<std::size_t>(places.back() + counts.back()));
  check(MPI_Allgatherv(mine.data(), own, MPI_INT, all.data(), counts.data(), places.data(), MPI_INT, comm),
        "MPI_Allgatherv");
  RankLists lists(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (int i = 0; i < counts[rank]; ++i) {
      const int each = all[static_cast<std::size_t>(places[rank] + i)];
      lists[rank].push_back(each == MPI_PROC_NULL ? Neighbor::kNone : each);
    }
  return lists;
}

std::shared_ptr<const Graph> distributed_graph(MPI_Comm comm) {
  int size = 0;
  int source_count = 0;
  int destination_count = 0;
  int is_weighted = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  check(MPI_Dist_graph_neighbors_count(comm, &source_count, &destination_count, &is_weighted),
        "MPI_Dist_graph_neighbors_count");
  std::vector<int> sources(static_cast<std::size_t>(source_count));
  std::vector<int> destinations(static_cast<std::size_t>(destination_count));
  std::vector<int> weights(sources.size() + destinations.size() + 1);
  check(MPI_Dist_graph_neighbors(comm, source_count, sources.data(), is_weighted != 0 ? weights.data() : MPI_UNWEIGHTED,
                                 destination_count, destinations.data(),
                                 is_weighted != 0 ? weights.data() + sources.size() : MPI_UNWEIGHTED),
        "MPI_Dist_graph_neighbors");
  const RankLists all_sources = gathered(comm, sources, size);
  const RankLists all_destinations = gathered(comm, destinations, size);
  return matched(all_sources, all_destinations);
}

}  // namespace

std::shared_ptr<const Graph> graph_of(MPI_Comm comm) {
  int kind = MPI_UNDEFINED;
  check(MPI_Topo_test(comm, &kind), "MPI_Topo_test");
  if (kind == MPI_CART) return cartesian(comm);
  if (kind == MPI_GRAPH) return graph(comm);
  if (kind == MPI_DIST_GRAPH) return distributed_graph(comm);
  return nullptr;
}

}  // namespace penstock::mpi
