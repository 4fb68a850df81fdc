// Programs in Fortran.
#pragma once

namespace penstock::preload {

/// Leads the calls of MPI's own Fortran libraries that are loaded now to this library's functions. May be called again.
void lead_fortran_here();

/// Whether MPI's Fortran library, if one is loaded, writes into the requests of operations with lists, which must then
/// be MPI's own. Open MPI's does since version 5: it takes them for its type of request.
bool fortran_writes_into_requests();

}  // namespace penstock::preload
