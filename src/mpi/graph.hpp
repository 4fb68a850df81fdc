// The topology of an MPI communicator as a Graph.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <memory>
#include <vector>

#include "comm/link.hpp"

namespace penstock::mpi {

/// A Cartesian, graph or distributed graph topology. The ranks agree that all have made it before they call graph(): a
/// rank that has failed must not leave the others there.
class Topology {
 public:
  /// What this rank knows of it. Local. Throws Error(mpi) if MPI fails.
  explicit Topology(MPI_Comm comm);
  /// The whole graph; nullptr if there is none, or if its sources and destinations do not match. Collective: the ranks
  /// of a distributed graph tell each other their neighbours. What it throws on one rank alone, it throws after that.
  std::shared_ptr<const Graph> graph(MPI_Comm comm);

 private:
  struct Lengths {
    int sources = 0;
    int destinations = 0;
  };

  bool is_distributed_ = false;
  std::shared_ptr<const Graph> local_;  ///< if each rank knows all
  Lengths own_;
  std::vector<int> neighbors_;    ///< of this rank: its sources, then its destinations
  std::vector<Lengths> lengths_;  ///< of all ranks
};

}  // namespace penstock::mpi
