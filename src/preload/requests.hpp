// The requests of served non-blocking operations: MPI's generalized requests, which every call of MPI that completes
// requests knows. A hook in MPI's own progress completes them, so that no such call has to be intercepted.
#pragma once

#include PENSTOCK_MPI_HEADER

#include "penstock/comm.hpp"

namespace penstock::preload {

/// Whether this MPI has a hook in its progress. Equal on all ranks of a job that uses one MPI.
bool has_progress_hook();

/// Gives the operation to a new request of MPI. Local.
int make_request(Request operation, MPI_Request* request);

}  // namespace penstock::preload
