// Facts about the machine for `penstock info`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "penstock/machine.hpp"

namespace nb = nanobind;

void bind_machine(nb::module_& module) {
  module.def("describe_machine", &penstock::describe_machine, nb::arg("ranks"),
             nb::call_guard<nb::gil_scoped_release>());
}
