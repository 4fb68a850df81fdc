// The report at MPI_Finalize: who served what.
#pragma once

#include <string>

#include "preload/communicators.hpp"

namespace penstock::preload {

/// Keeps the tallies of a communicator that ends. Communicators of one name and size share their rows, so memory stays
/// bounded. Only rank 0 of a communicator reports it.
void add_to_report(const Communicator& ended);

/// Rank 0 of MPI_COMM_WORLD gathers the rows of all ranks, prints the table on stderr and writes the JSON. `target`: ""
/// for no report, "-" for the table alone, or the path of the JSON. Collective.
void write_report(const std::string& target);

}  // namespace penstock::preload
