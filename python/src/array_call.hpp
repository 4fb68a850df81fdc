// The common call of a collective: whole arrays and one of MPI's operations.
#pragma once

#include <nanobind/nanobind.h>

#include "penstock/comm.hpp"

namespace penstock::python {

struct ArrayCall {
  CollectiveKind kind;
  int op;  ///< a ReduceOp; -1 for others
  int root;
  const nanobind::dict& how;  ///< penstock.comm.How
};

/// Runs the collective if this is such a call and its buffers fit each other. Otherwise returns false and has done
/// nothing; the general way then takes the call, or says what is wrong with it.
bool run_on_arrays(Comm& comm, const ArrayCall& call, nanobind::handle input, nanobind::handle output);

}  // namespace penstock::python
