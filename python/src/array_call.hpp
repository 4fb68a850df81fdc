// The fast path of collectives: whole arrays and predefined operations.
#pragma once

#include <optional>

#include <nanobind/nanobind.h>

#include "pending_request.hpp"
#include "penstock/comm.hpp"

namespace penstock::python {

struct ArrayCall {
  CollectiveKind kind;
  int op;  ///< a ReduceOp; -1 for other operations
  int root;
  const nanobind::dict& options;  ///< keywords, see penstock.CollectiveOptions
};

/// Runs the collective if it qualifies for the fast path. Otherwise returns false without an effect; the general path
/// then runs it, or raises an error.
bool run_on_arrays(Comm& comm, const ArrayCall& call, nanobind::handle input, nanobind::handle output);
/// As run_on_arrays(); empty instead of false. The request keeps the arrays.
std::optional<PendingRequest> start_on_arrays(Comm& comm, const ArrayCall& call, nanobind::handle input,
                                              nanobind::handle output);

}  // namespace penstock::python
