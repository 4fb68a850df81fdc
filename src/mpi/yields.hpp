#pragma once

namespace penstock::mpi {

/// Whether each call that looks for messages and finds none lets other threads have the core: Open MPI's
/// mpi_yield_when_idle, which it sets itself if ranks outnumber cores. MPI must be initialized.
bool yields_when_idle() noexcept;

}  // namespace penstock::mpi
