// The BLACS and ScaLAPACK's error handler of the calling program, found at run time.
#pragma once

#include <string>

#include "penstock/comm.hpp"
#include "scalapack/integer.hpp"

namespace penstock::scalapack {

/// A process grid as one process sees it; rows < 0 if the process is not in it.
struct Grid {
  Int rows = -1;
  Int columns = -1;
  Int row = -1;
  Int column = -1;

  bool has_me() const { return row >= 0 && column >= 0 && row < rows && column < columns; }
};

/// Local. Throws Error(unsupported) if this process has no BLACS, or one with integers of another length.
Grid grid_of(Int context);

/// The communicator of all processes of a context. This process must be in it. The first call for these processes is
/// collective over the context, later ones are local.
Comm& comm_of(Int context);

/// Reports an illegal argument as ScaLAPACK does: prints `text` and calls pxerbla with the number of the parameter (for
/// an entry of a descriptor 100 * parameter + entry).
void complain(Int context, const char* routine, int parameter, const std::string& text) noexcept;

/// Prints another error on stderr.
void warn(Int context, const char* routine, const std::string& text) noexcept;

}  // namespace penstock::scalapack
