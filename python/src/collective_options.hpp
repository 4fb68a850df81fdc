// Keyword arguments of collectives: penstock.CollectiveOptions.
#pragma once

#include <nanobind/nanobind.h>

#include "penstock/collective.hpp"

namespace penstock::python {

/// Sets `collective` from keywords. Throws Error(invalid_argument) for an unknown keyword or an invalid value.
void apply(const nanobind::dict& options, Collective& collective);

}  // namespace penstock::python
