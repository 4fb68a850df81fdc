#pragma once

#include <string>

namespace penstock::mpi {

/// What this process's environment sets about the MPI library's own collectives, such as
/// "OMPI_MCA_coll_han_priority=100": names in order, with a space between two. Empty where it sets nothing.
std::string collective_settings();

}  // namespace penstock::mpi
