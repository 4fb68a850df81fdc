// The keywords that say how to run an operation: penstock.comm.How.
#pragma once

#include <nanobind/nanobind.h>

#include "penstock/collective.hpp"

namespace penstock::python {

/// Throws Error(invalid_argument) for what is no such keyword, or no value of it.
void apply(const nanobind::dict& how, Collective& collective);

}  // namespace penstock::python
