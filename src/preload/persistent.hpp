// Persistent operations. Each has a persistent request of MPI: a receive, by MPI_Recv_init, of an empty message that
// the process sends to itself when the operation completes. So every call of MPI that completes requests works on it;
// only those that start and free requests are intercepted.
#pragma once

#include PENSTOCK_MPI_HEADER

#include "preload/call.hpp"
#include "preload/communicators.hpp"

namespace penstock::preload {

/// Initialises the call on Penstock. Returns nullptr and sets `request`, or why the call is left to MPI, equally on all
/// ranks. Collective. Throws what MPI or memory refuses on this rank.
const char* make_persistent(Communicator& on, const Call& call, MPI_Request* request);

/// Counts the starts of a request that MPI made, for the report.
void watch_native(const Communicator& on, const Call& call, MPI_Request request);

/// Whether any persistent request is known here.
bool has_persistent() noexcept;

/// Starts the operation of a request that MPI has just started. Returns MPI's code. Other requests are left alone.
int start_persistent(MPI_Request request);

/// The program has set the error handler of `comm`: failures of its persistent operations follow it.
void set_persistent_handler(MPI_Comm comm, MPI_Errhandler handler);

/// The communicator of a request that Penstock serves, which has the error handler; MPI_COMM_NULL for other requests.
MPI_Comm served_on(MPI_Request request);

/// `request` is about to be freed.
void forget_persistent(MPI_Request request);

/// At MPI_Finalize: forgets all.
void forget_persistent();

}  // namespace penstock::preload
