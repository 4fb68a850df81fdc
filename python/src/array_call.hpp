// The common call of a collective: whole arrays, one of MPI's operations, nothing said about how to run it.
#pragma once

#include <nanobind/nanobind.h>

#include "penstock/comm.hpp"

namespace penstock::python {

/// Runs the collective if this is such a call and its buffers fit each other. Otherwise returns false and has done
/// nothing; the general way then takes the call, or says what is wrong with it. `op`: a ReduceOp, -1 for others.
bool run_on_arrays(Comm& comm, CollectiveKind kind, int op, int root, nanobind::handle input, nanobind::handle output);

}  // namespace penstock::python
