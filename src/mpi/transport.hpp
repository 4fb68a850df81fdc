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

/// MPI counts are int, so longer messages travel in pieces of this size.
inline constexpr std::uint64_t kPieceBytes = 1u << 30;

/// A private duplicate of `parent`, with errors returned. Collective. Destroying it, or MPI_Finalize, whichever comes
/// first, gives up what is in flight and frees the duplicate; afterwards every call throws Error(mpi).
/// `piece_bytes` must be equal on all ranks.
PENSTOCK_API std::unique_ptr<engine::Transport> make_transport(MPI_Comm parent,
                                                               std::uint64_t piece_bytes = kPieceBytes);
/// The same, with MPI's own collectives on that duplicate.
comm::Link make_link(MPI_Comm parent);
/// penstock::make_comm, which fails on all ranks if one of them gives a `failure`: it could not take the communicator.
Comm make_comm_unless(const std::exception_ptr& failure, MPI_Comm given, const CommOptions& options);

}  // namespace penstock::mpi
