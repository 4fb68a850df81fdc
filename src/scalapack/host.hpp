// What the program that called us brings along: the BLACS, and ScaLAPACK's error handler.
#pragma once

#include <string>

#include "penstock/comm.hpp"

namespace penstock::scalapack {

/// A process grid as one process sees it; rows < 0 where the process is not in it.
struct Grid {
  int rows = -1;
  int columns = -1;
  int row = -1;
  int column = -1;

  bool has_me() const { return row >= 0 && column >= 0 && row < rows && column < columns; }
};

/// Local. Throws Error(unsupported) when there is no BLACS in this process.
Grid grid_of(int context);

/// The communicator of all processes of a context that this process is in. Collective over the context at the first
/// call for these processes, local afterwards.
Comm& comm_of(int context);

/// Tells the user that an argument is illegal, as ScaLAPACK does: its pxerbla with the number of the parameter (or
/// 100 * its number + the number of the entry of a descriptor), preceded by a sentence that says what is wrong.
void complain(int context, const char* routine, int parameter, const std::string& text) noexcept;

/// Something that is no argument's fault, on stderr.
void warn(int context, const char* routine, const std::string& text) noexcept;

}  // namespace penstock::scalapack
