// The requests of served non-blocking operations: MPI's generalized requests, which every call of MPI that completes
// requests knows. A hook in MPI's own progress completes them, so that no such call has to be intercepted. It completes
// those of persistent operations (persistent.hpp), too.
#pragma once

#include PENSTOCK_MPI_HEADER

#include "penstock/comm.hpp"

namespace penstock::preload {

/// Whether this MPI has a hook in its progress. Equal on all ranks of a job that uses one MPI.
bool has_progress_hook();

/// An operation in flight whose request the hook completes.
struct Watched {
  Request operation;
  int result = MPI_SUCCESS;  ///< MPI's code of its failure
  /// Called once, when it has completed or failed, on a thread that is inside MPI. It may have been deleted when this
  /// returns.
  virtual void complete() = 0;

  Watched() = default;
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 protected:
  ~Watched() = default;
};

/// Lets the hook watch a started operation. Any thread.
void watch(Watched& started);

/// Gives the operation to a new request of MPI. Local.
int make_request(Request operation, MPI_Request* request);

}  // namespace penstock::preload
