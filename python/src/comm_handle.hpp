// Communicators as Python owns them.
#pragma once

#include "penstock/comm.hpp"

namespace penstock::python {

/// The same communicator with a destructor that releases the GIL: it waits for threads that may be about to call
/// Python.
Comm* without_gil(const Comm& given);

}  // namespace penstock::python
