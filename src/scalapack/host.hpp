// The BLACS and ScaLAPACK's error handler of the calling program, found at run time.
#pragma once

#include <string>

#include "penstock/comm.hpp"

namespace penstock::scalapack {

/// A process grid as one process sees it; rows < 0 if the process is not in it.
struct Grid {
  int rows = -1;
  int columns = -1;
  int row = -1;
  int column = -1;

  bool has_me() const { return row >= 0 && column >= 0 && row < rows && column < columns; }
};

/// Local. Throws Error(unsupported) if this process has no BLACS.
Grid grid_of(int context);

/// The communicator of all processes of a context. This process must be in it. The first call for these processes is
/// collective over the context, later ones are local.
Comm& comm_of(int context);

/// Reports an illegal argument as ScaLAPACK does: prints `text` and calls pxerbla with the number of the parameter (for
/// an entry of a descriptor 100 * parameter + entry).
void complain(int context, const char* routine, int parameter, const std::string& text) noexcept;

/// Prints another error on stderr.
void warn(int context, const char* routine, const std::string& text) noexcept;

}  // namespace penstock::scalapack
