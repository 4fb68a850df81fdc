// The topology of an MPI communicator as a Graph.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <memory>

#include "comm/link.hpp"

namespace penstock::mpi {

/// Of a Cartesian, graph or distributed graph topology; nullptr if there is none, or if its sources and
/// destinations do not match. Collective: all ranks of a distributed graph tell each other their neighbours. Throws
/// Error(mpi) if MPI fails.
std::shared_ptr<const Graph> graph_of(MPI_Comm comm);

}  // namespace penstock::mpi
