// _penstock.trace, and the table of options.
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "penstock/options.hpp"
#include "penstock/trace.hpp"

namespace nb = nanobind;
using namespace penstock;

namespace {

/// A span that Python opens and closes. C++ reads the clock, so that Python's and C++'s spans fit together.
class PythonSpan {
 public:
  PythonSpan(const std::string& name, const std::string& lane, std::uint64_t bytes)
      : event_{trace::intern(name), trace::intern(lane), 0, 0, bytes, 0} {}

  void enter() { event_.begin_ns = trace::detail::now_ns(); }
  void exit() {
    event_.end_ns = trace::detail::now_ns();
    if (trace::enabled()) trace::detail::record(event_);
  }
  double seconds() const { return static_cast<double>(event_.end_ns - event_.begin_ns) * 1e-9; }

 private:
  trace::Event event_;
};

using EventRow =
    std::tuple<std::string, std::string, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::int32_t>;

std::vector<EventRow> take() {
  std::vector<EventRow> rows;
  for (const trace::Event& event : trace::take())
    rows.emplace_back(event.name, event.lane, event.begin_ns, event.end_ns, event.bytes, event.thread, event.core);
  return rows;
}

}  // namespace

void bind_trace(nb::module_& module) {
  nb::module_ part = module.def_submodule("trace");
  part.def("start", &trace::start);
  part.def("stop", &trace::stop);
  part.def("enabled", &trace::enabled);
  part.def("now_ns", &trace::detail::now_ns);
  part.def("take", &take);
  part.def(
      "take_json", [](int process) { return trace::to_json(trace::take(), process); }, nb::arg("process"));
  nb::class_<PythonSpan>(part, "Span")
      .def(nb::init<const std::string&, const std::string&, std::uint64_t>(), nb::arg("name"),
           nb::arg("lane") = "application", nb::arg("nbytes") = 0)
      .def(
          "__enter__",
          [](nb::handle self) {
            nb::cast<PythonSpan&>(self).enter();
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> Span"), nb::lock_self())
      .def(
          "__exit__", [](PythonSpan& self, nb::object, nb::object, nb::object) { self.exit(); }, nb::arg("type").none(),
          nb::arg("value").none(), nb::arg("traceback").none(), nb::lock_self())
      .def_prop_ro("seconds", &PythonSpan::seconds);
  module.def("option_table", [] {
    std::vector<std::tuple<std::string, std::string, std::string, std::string, std::string>> rows;
    for (const OptionRow& row : option_table())
      rows.emplace_back(row.name, row.environment, row.type, row.value, row.meaning);
    return rows;
  });
  module.def(
      "set_option", [](const std::string& name, const std::string& value) { options().set(name, value); },
      nb::arg("name"), nb::arg("value"));
}
