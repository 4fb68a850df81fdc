// Programs in Fortran.
#pragma once

namespace penstock::preload {

/// Leads the calls of MPI's own Fortran libraries that are loaded now to this library's functions. May be called again.
void lead_fortran_here();

}  // namespace penstock::preload
