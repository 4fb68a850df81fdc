// _penstock.model: analytic models. penstock.model is the public module.
#include <string>
#include <utility>

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "penstock/collective.hpp"
#include "penstock/split_model.hpp"

namespace nb = nanobind;
using namespace penstock;

void bind_model(nb::module_& module) {
  nb::module_ part = module.def_submodule("model");
  nb::class_<SplitPoint>(part, "SplitPoint")
      .def_prop_ro("n", [](const SplitPoint& self) { return self.cores.ranks; })
      .def_prop_ro("progress_cores", [](const SplitPoint& self) { return self.cores.progress; })
      .def_ro("best_s", &SplitPoint::best_split)
      .def_ro("compute", &SplitPoint::computation)
      .def_ro("t_blocking", &SplitPoint::blocking)
      .def_ro("t_communication", &SplitPoint::communication)
      .def_ro("t", &SplitPoint::overlapped)
      .def_ro("t_divided", &SplitPoint::divided);
  // A cost is (latency, time per byte).
  using Cost = std::pair<double, double>;
  nb::class_<SplitModel>(part, "SplitModel")
      .def("__init__",
           [](SplitModel* self, const std::string& op, double bytes, int radix, double segment_bytes,
              bool waiting_helps, Cost application, Cost progress) {
             new (self)
                 SplitModel{.kind = collective_kind_from_name(op),
                            .bytes = bytes,
                            .radix = radix,
                            .segment_bytes = segment_bytes,
                            .waiting_helps = waiting_helps,
                            .costs = {{application.first, application.second}, {progress.first, progress.second}}};
           })
      .def("computation_on_all_cores", &computation_on_all_cores)
      .def("advise", [](const SplitModel& self, int cores, double on_all_cores) {
        SplitAdvice advice = advise_ranks(self, cores, on_all_cores);
        return std::pair(std::move(advice.points), advice.best);
      });
}
