// engine::Transport over a duplicate of an MPI communicator.
#pragma once

#include PENSTOCK_MPI_HEADER

#include <cstdint>
#include <exception>
#include <memory>

#include "comm/state.hpp"
#include "engine/transport.hpp"
#include "penstock/export.hpp"

namespace penstock::mpi {

/// MPI counts are int, so a message of at least this size travels in pieces.
inline constexpr std::uint64_t kPieceBytes = 1u << 30;

/// A transport over a private duplicate of `parent`; MPI returns errors on the duplicate. Collective. The caller owns
/// the transport, which owns the duplicate. The destructor, or an earlier MPI_Finalize, gives up messages in flight and
/// frees the duplicate; after MPI_Finalize the calls that need it throw Error(mpi). `piece_bytes` must be equal on all
/// ranks.
PENSTOCK_API std::unique_ptr<engine::Transport> make_transport(MPI_Comm parent,
                                                               std::uint64_t piece_bytes = kPieceBytes);
/// The same transport with MPI's own collectives on its duplicate. The Link owns it.
comm::Link make_link(MPI_Comm parent);
/// penstock::make_comm. Fails on all ranks if one of them gives a `failure`, because it cannot use its communicator.
Comm make_comm_unless(const std::exception_ptr& failure, MPI_Comm given, const CommOptions& options);

}  // namespace penstock::mpi
