#pragma once

#include <string>

namespace penstock::mpi {

/// The environment variables of this process that affect the MPI library's own collectives, such as
/// "OMPI_MCA_coll_han_priority=100": sorted by name, separated by spaces. Empty if there are none.
std::string collective_settings();

}  // namespace penstock::mpi
