// _penstock.Checkpointer and _penstock.CheckpointHandle. penstock.checkpoint adds trees of arrays.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "buffer.hpp"
#include "penstock/checkpoint.hpp"
#include "penstock/error.hpp"

namespace nb = nanobind;

namespace penstock::python {
namespace {

CheckpointLevel level_from_name(const std::string& level) {
  if (level == "copying") return CheckpointLevel::copying;
  if (level == "staged") return CheckpointLevel::staged;
  if (level == "fast") return CheckpointLevel::fast;
  if (level == "drained") return CheckpointLevel::drained;
  throw Error(ErrorCode::invalid_argument, "'" + level + "' is not a level; expected staged, fast or drained");
}

std::optional<std::chrono::milliseconds> limit_of(std::optional<double> timeout_s) {
  if (!timeout_s) return std::nullopt;
  // About thirty years, so that the sum with the time of day does not overflow.
  constexpr double kMost = 1e9;
  if (!(*timeout_s >= 0))
    throw Error(ErrorCode::invalid_argument,
                "timeout_s is " + std::to_string(*timeout_s) + "; expected seconds from 0 on, or None");
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(*timeout_s, kMost) * 1e3));
}

/// A NumPy array that keeps the bytes alive.
nb::object array_of(const RestoredArray& array) {
  auto* kept = new std::shared_ptr<std::byte>(array.memory);
  const nb::capsule owner(kept, [](void* memory) noexcept { delete static_cast<std::shared_ptr<std::byte>*>(memory); });
  return nb::cast(nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(array.local.data(), {array.local.size()}, owner));
}

nb::list arrays_of(const CheckpointInfo& info) {
  nb::list arrays;
  for (const SavedArray& array : info.arrays) {
    arrays.append(nb::make_tuple(array.name, std::string(name(array.dtype)), array.layout));
  }
  return arrays;
}

/// Closable: close() destroys the checkpointer while Python may still hold this.
class PyCheckpointer {
 public:
  PyCheckpointer(const std::string& url, const std::string& burst_buffer, std::int64_t keep, std::uint64_t keep_every,
                 std::uint64_t chunk_bytes, std::int64_t undrained_max, std::uint64_t staging_bytes,
                 std::int64_t staging_buffers, const std::string& run, std::int64_t keep_best,
                 const std::string& best_metric, bool best_is_highest, double keep_younger_s, double drain_bytes_per_s,
                 bool partner_copies, std::int64_t compress_level, std::optional<double> timeout_s, const Comm* comm) {
    CheckpointerOptions options;
    options.keep_best = static_cast<int>(std::clamp<std::int64_t>(keep_best, -1, 1 << 30));
    options.best_metric = best_metric;
    options.best_is_highest = best_is_highest;
    options.keep_younger_s = keep_younger_s;
    options.drain_bytes_per_s = drain_bytes_per_s;
    options.partner_copies = partner_copies;
    options.run = run;
    options.timeout = limit_of(timeout_s);
    options.compress_level = static_cast<int>(std::clamp<std::int64_t>(compress_level, -1, 1 << 10));
    options.burst_buffer = burst_buffer;
    options.keep = static_cast<int>(std::clamp<std::int64_t>(keep, -1, 1 << 30));
    options.keep_every = keep_every;
    options.chunk_bytes = chunk_bytes;
    options.undrained_max = static_cast<int>(std::clamp<std::int64_t>(undrained_max, -1, 1 << 30));
    options.staging_bytes = staging_bytes;
    options.staging_buffers = static_cast<int>(std::clamp<std::int64_t>(staging_buffers, -1, 1 << 10));
    const nb::gil_scoped_release released;
    checkpointer_ = std::make_unique<Checkpointer>(url, options, comm ? std::optional(*comm) : std::nullopt);
  }
  ~PyCheckpointer() { close(); }

  Checkpointer& get() const {
    if (!checkpointer_) throw Error(ErrorCode::invalid_argument, "this Checkpointer has been closed");
    return *checkpointer_;
  }

  void close() {
    const nb::gil_scoped_release released;
    checkpointer_.reset();
  }

  /// Each of `arrays` is (name, dtype, layout, memory or None). `later`: the places of those that are copied later; the
  /// caller keeps their memory.
  CheckpointHandle save(std::uint64_t step, const nb::list& arrays, const std::string& metadata,
                        const CheckpointMetrics& metrics, const std::vector<std::size_t>& later) {
    std::vector<ArrayView> views;
    std::vector<CheckpointArray> given;
    std::optional<Error> wrong;
    try {
      for (const nb::handle item : arrays) {
        const auto array = nb::cast<nb::tuple>(item);
        const auto name = nb::cast<std::string>(array[0]);
        views.push_back(array[3].is_none() ? ArrayView() : view(array[3], Access::read, name.c_str()));
        given.push_back({name, dtype_from_name(nb::cast<std::string>(array[1])), nb::cast<const Layout&>(array[2]),
                         views.back().bytes()});
      }
      for (const std::size_t place : later) given.at(place).copied_later = true;
    } catch (const Error& error) {
      wrong = error;
    }
    Checkpointer& checkpointer = get();
    const nb::gil_scoped_release released;
    if (wrong) checkpointer.fail_save(step, *wrong);
    return checkpointer.save(step, given, metadata, metrics);
  }

  void fail_save(std::uint64_t step, const std::string& message) {
    Checkpointer& checkpointer = get();
    const nb::gil_scoped_release released;
    checkpointer.fail_save(step, Error(ErrorCode::invalid_argument, message));
  }

  /// `choose` is called with (step, [(name, dtype, layout)], metadata) and returns (layouts, into, names or None).
  /// Returns (step, [(name, dtype, layout, memory)], metadata, warnings), or None if there is no checkpoint.
  nb::object restore(std::optional<std::uint64_t> step, const nb::callable& choose) {
    RestoreOptions options;
    options.step = step;
    std::vector<ArrayView> views;
    options.choose = [&](const CheckpointInfo& info, RestoreOptions& chosen) {
      const nb::gil_scoped_acquire acquired;
      views.clear();
      try {
        const auto [layouts, into, only] =
            nb::cast<std::tuple<nb::dict, nb::dict, std::optional<std::vector<std::string>>>>(
                choose(info.step, arrays_of(info), info.metadata));
        for (const auto& [name, layout] : layouts) {
          chosen.layouts.emplace(nb::cast<std::string>(name), nb::cast<const Layout&>(layout));
        }
        for (const auto& [name, memory] : into) {
          const auto text = nb::cast<std::string>(name);
          views.push_back(view(memory, Access::write, text.c_str()));
          chosen.into.emplace(text, views.back().writable_bytes());
        }
        if (only) chosen.only.emplace(only->begin(), only->end());
      } catch (nb::python_error& error) {
        // The other ranks must learn of it.
        const nb::object value = nb::borrow(error.value());
        const nb::object message = nb::getattr(value, "message", nb::none());
        throw Error(ErrorCode::invalid_argument, nb::cast<std::string>(message.is_none() ? nb::str(value) : message));
      }
    };
    Checkpointer& checkpointer = get();
    std::optional<Restored> restored;
    {
      const nb::gil_scoped_release released;
      restored = checkpointer.try_restore(options);
    }
    if (!restored) return nb::none();
    nb::list arrays;
    for (const RestoredArray& array : restored->arrays) {
      arrays.append(nb::make_tuple(array.name, std::string(name(array.dtype)), array.layout,
                                   array.memory ? array_of(array) : nb::none()));
    }
    return nb::make_tuple(restored->step, arrays, restored->metadata, restored->warnings);
  }

  /// Returns (step, [(name, dtype, layout)], metadata, metrics, seconds since 1970).
  nb::tuple inspect(std::optional<std::uint64_t> step) const {
    Checkpointer& checkpointer = get();
    CheckpointInfo info;
    {
      const nb::gil_scoped_release released;
      info = checkpointer.inspect(step);
    }
    return nb::make_tuple(info.step, arrays_of(info), info.metadata, info.metrics, info.saved_at_s);
  }

 private:
  std::unique_ptr<Checkpointer> checkpointer_;
};

nb::dict row_of(const CheckpointEntry& entry) {
  nb::dict row;
  row["step"] = entry.step;
  row["generation"] = entry.generation;
  row["sequence"] = entry.sequence;
  row["fast"] = entry.fast;
  row["drained"] = entry.drained;
  row["state"] = std::string(name(entry.state));
  row["superseded"] = entry.superseded;
  row["ranks"] = entry.ranks;
  row["bytes"] = entry.size_bytes;
  row["metrics"] = entry.metrics;
  row["saved_at_s"] = entry.saved_at_s;
  row["damage"] = entry.damage;
  return row;
}

nb::list rows_of(const std::vector<CheckpointEntry>& entries) {
  nb::list rows;
  for (const CheckpointEntry& entry : entries) rows.append(row_of(entry));
  return rows;
}

void bind_maintenance(nb::module_& module) {
  module.def(
      "list_checkpoints",
      [](const std::string& url, const std::string& burst_buffer, const std::string& run) {
        std::vector<CheckpointEntry> entries;
        {
          const nb::gil_scoped_release released;
          entries = list_checkpoints({url, burst_buffer, run});
        }
        return rows_of(entries);
      },
      nb::arg("url"), nb::arg("burst_buffer"), nb::arg("run"),
      nb::sig("def list_checkpoints(url: str, burst_buffer: str, run: str) -> list[dict[str, typing.Any]]"));
  module.def(
      "inspect_checkpoint",
      [](const std::string& url, const std::string& burst_buffer, const std::string& run,
         std::optional<std::uint64_t> step) {
        CheckpointInfo info;
        {
          const nb::gil_scoped_release released;
          info = inspect_checkpoint({url, burst_buffer, run}, step);
        }
        return nb::make_tuple(info.step, arrays_of(info), info.metadata, info.metrics, info.saved_at_s);
      },
      nb::arg("url"), nb::arg("burst_buffer"), nb::arg("run"), nb::arg("step").none(),
      nb::sig("def inspect_checkpoint(url: str, burst_buffer: str, run: str, step: int | None) -> "
              "tuple[int, list[tuple[str, str, Layout]], str, dict[str, float], float]"));
  module.def(
      "verify_checkpoints",
      [](const std::string& url, const std::string& burst_buffer, const std::string& run,
         std::optional<std::uint64_t> step) {
        std::vector<CheckpointVerified> results;
        {
          const nb::gil_scoped_release released;
          results = verify_checkpoints({url, burst_buffer, run}, step);
        }
        nb::list rows;
        for (const CheckpointVerified& result : results) {
          nb::dict row;
          row["step"] = result.step;
          row["generation"] = result.generation;
          row["tier"] = result.tier;
          row["bytes"] = result.verified_bytes;
          row["problems"] = result.problems;
          row["objects_elsewhere"] = result.elsewhere;
          rows.append(row);
        }
        return rows;
      },
      nb::arg("url"), nb::arg("burst_buffer"), nb::arg("run"), nb::arg("step").none(),
      nb::sig("def verify_checkpoints(url: str, burst_buffer: str, run: str, step: int | None) -> "
              "list[dict[str, typing.Any]]"));
  module.def(
      "remove_checkpoint",
      [](const std::string& url, const std::string& burst_buffer, const std::string& run, std::uint64_t step) {
        std::vector<CheckpointEntry> entries;
        {
          const nb::gil_scoped_release released;
          entries = remove_checkpoint({url, burst_buffer, run}, step);
        }
        return rows_of(entries);
      },
      nb::arg("url"), nb::arg("burst_buffer"), nb::arg("run"), nb::arg("step"),
      nb::sig(
          "def remove_checkpoint(url: str, burst_buffer: str, run: str, step: int) -> list[dict[str, typing.Any]]"));
}

}  // namespace
}  // namespace penstock::python

void bind_checkpoint(nb::module_& module) {
  using released = nb::call_guard<nb::gil_scoped_release>;
  using namespace penstock;
  using python::PyCheckpointer;

  python::bind_maintenance(module);
  nb::class_<CheckpointHandle>(module, "CheckpointHandle")
      .def_prop_ro("step", &CheckpointHandle::step)
      .def_prop_ro("level", [](const CheckpointHandle& handle) { return name(handle.level()); })
      .def_prop_ro("failed", &CheckpointHandle::failed)
      .def_prop_ro("stall_s", &CheckpointHandle::stall_s)
      .def_prop_ro("waited_s", &CheckpointHandle::waited_s)
      .def(
          "wait",
          [](CheckpointHandle& handle, const std::string& level, std::optional<double> timeout_s) {
            const CheckpointLevel wanted = python::level_from_name(level);
            const auto limit = python::limit_of(timeout_s);
            const nb::gil_scoped_release released;
            handle.wait(wanted, limit);
          },
          nb::arg("level"), nb::arg("timeout_s") = nb::none());

  nb::class_<PyCheckpointer>(module, "Checkpointer")
      .def(nb::init<const std::string&, const std::string&, std::int64_t, std::uint64_t, std::uint64_t, std::int64_t,
                    std::uint64_t, std::int64_t, const std::string&, std::int64_t, const std::string&, bool, double,
                    double, bool, std::int64_t, std::optional<double>, const Comm*>(),
           nb::arg("url"), nb::arg("burst_buffer"), nb::arg("keep"), nb::arg("keep_every"), nb::arg("chunk_bytes"),
           nb::arg("undrained_max"), nb::arg("staging_bytes"), nb::arg("staging_buffers"), nb::arg("run"),
           nb::arg("keep_best"), nb::arg("best_metric"), nb::arg("best_is_highest"), nb::arg("keep_younger_s"),
           nb::arg("drain_bytes_per_s"), nb::arg("partner_copies"), nb::arg("compress_level"),
           nb::arg("timeout_s").none(), nb::arg("comm").none())
      .def("save", &PyCheckpointer::save,
           nb::sig("def save(self, step: int, arrays: list[tuple[str, str, Layout, "
                   "numpy.typing.NDArray[typing.Any] | None]], metadata: str, metrics: dict[str, float], later: "
                   "list[int], /) -> "
                   "CheckpointHandle"))
      .def("fail_save", &PyCheckpointer::fail_save)
      .def("restore", &PyCheckpointer::restore, nb::arg("step").none(), nb::arg("choose"),
           nb::sig("def restore(self, step: int | None, "
                   "choose: collections.abc.Callable[[int, list[tuple[str, str, Layout]], str], "
                   "tuple[dict[str, Layout], dict[str, numpy.typing.NDArray[typing.Any]], list[str] | None]]) -> "
                   "tuple[int, list[tuple[str, str, Layout, numpy.typing.NDArray[numpy.uint8] | None]], str, "
                   "list[str]] | None"))
      .def("inspect", &PyCheckpointer::inspect, nb::arg("step").none(),
           nb::sig("def inspect(self, step: int | None) -> "
                   "tuple[int, list[tuple[str, str, Layout]], str, dict[str, float], float]"))
      .def(
          "steps", [](const PyCheckpointer& self) { return self.get().steps(); }, released())
      .def(
          "latest", [](const PyCheckpointer& self) { return self.get().latest(); }, released())
      .def("reserve",
           [](const PyCheckpointer& self, std::uint64_t local_bytes, int buffers) {
             Checkpointer& checkpointer = self.get();
             const nb::gil_scoped_release released;
             checkpointer.reserve(local_bytes, buffers);
           })
      .def("resume_drains",
           [](const PyCheckpointer& self) {
             Checkpointer& checkpointer = self.get();
             const nb::gil_scoped_release released;
             return checkpointer.resume_drains();
           })
      .def(
          "finish",
          [](const PyCheckpointer& self, std::optional<double> timeout_s) {
            Checkpointer& checkpointer = self.get();
            const auto limit = python::limit_of(timeout_s);
            const nb::gil_scoped_release released;
            checkpointer.finish(limit);
          },
          nb::arg("timeout_s") = nb::none())
      .def(
          "settle",
          [](const PyCheckpointer& self, std::uint64_t step) {
            Checkpointer& checkpointer = self.get();
            const nb::gil_scoped_release released;
            checkpointer.settle(step);
          },
          nb::arg("step"))
      .def("any_of",
           [](const PyCheckpointer& self, std::uint64_t flags) {
             Checkpointer& checkpointer = self.get();
             const nb::gil_scoped_release released;
             return checkpointer.any_of(flags);
           })
      .def("close", &PyCheckpointer::close, nb::lock_self())
      .def("warnings", [](const PyCheckpointer& self) { return self.get().warnings(); })
      .def("report", [](const PyCheckpointer& self) { return self.get().report(); });
}
