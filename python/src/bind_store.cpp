// _penstock.Store, Blob and Snapshot, on which penstock.store is built.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "buffer.hpp"
#include "natural.hpp"
#include "penstock/error.hpp"
#include "penstock/store.hpp"

namespace nb = nanobind;
using namespace penstock;
using penstock::python::Access;
using penstock::python::ArrayView;

namespace {

using BlobSize = python::Natural<"size">;
using Version = python::Natural<"version">;
using OptionalVersion = std::optional<Version>;

std::uint64_t number(const OptionalVersion& version) { return version ? std::uint64_t{*version} : kLatest; }

/// From any float. Negative numbers and NaN become -1 s.
std::chrono::nanoseconds duration(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>((seconds >= 0 ? std::min(seconds, 1e9) : -1) * 1e9));
}

/// The (offset, buffer) pairs of a call. Keeps the buffers alive.
class Regions {
 public:
  Regions(nb::handle pairs, Access access) {
    for (nb::handle pair : pairs) {
      if (!PyTuple_Check(pair.ptr()) || PyTuple_Size(pair.ptr()) != 2 ||
          !PyIndex_Check(PyTuple_GetItem(pair.ptr(), 0))) {
        throw Error(ErrorCode::invalid_argument,
                    std::string("regions are (offset, buffer) pairs, got ") + nb::repr(pair).c_str());
      }
      offsets_.push_back(python::Natural<"the offset of a region">::of(PyTuple_GetItem(pair.ptr(), 0)));
      memory_.push_back(hold(PyTuple_GetItem(pair.ptr(), 1), access));
    }
  }
  ~Regions() {
    for (Py_buffer& buffer : buffers_) PyBuffer_Release(&buffer);
  }
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  template <typename Region>
  std::vector<Region> as() const {
    std::vector<Region> regions;
    regions.reserve(memory_.size());
    for (std::size_t i = 0; i < memory_.size(); ++i) regions.push_back({offsets_[i], memory_[i]});
    return regions;
  }

 private:
  Bytes hold(nb::handle object, Access access) {
    // Calls often have thousands of regions, and element types do not matter here: the buffer protocol alone takes a
    // fraction of the time.
    if (Py_buffer buffer; PyObject_CheckBuffer(object.ptr()) != 0) {
      if (PyObject_GetBuffer(object.ptr(), &buffer, access == Access::write ? PyBUF_WRITABLE : PyBUF_SIMPLE) == 0) {
        buffers_.push_back(buffer);
        return {static_cast<std::byte*>(buffer.buf), static_cast<std::size_t>(buffer.len)};
      }
      PyErr_Clear();
    }
    views_.push_back(python::view(object, access, "the buffer of a region"));
    return views_.back().writable_bytes();
  }

  std::vector<std::uint64_t> offsets_;
  std::vector<Bytes> memory_;
  std::vector<Py_buffer> buffers_;
  std::vector<ArrayView> views_;
};

std::uint64_t write_blob(Blob& blob, nb::handle pairs, const OptionalVersion& parent) {
  const Regions regions(pairs, Access::read);
  const std::vector<WriteRegion> writes = regions.as<WriteRegion>();
  const nb::gil_scoped_release released;
  return parent ? blob.write_if(*parent, writes) : blob.write(writes);
}

std::pair<std::uint64_t, std::uint64_t> append_to(Blob& blob, nb::handle buffers) {
  std::vector<ArrayView> views;
  std::vector<ConstBytes> pieces;
  for (nb::handle buffer : buffers) {
    views.push_back(python::view(buffer, Access::read, "a buffer to append"));
    pieces.push_back(views.back().bytes());
  }
  const nb::gil_scoped_release released;
  const Blob::Appended appended = blob.append(pieces);
  return {appended.version, appended.offset_bytes};
}

void read_snapshot(const Snapshot& snapshot, nb::handle pairs) {
  const Regions regions(pairs, Access::write);
  const std::vector<ReadRegion> reads = regions.as<ReadRegion>();
  const nb::gil_scoped_release released;
  snapshot.read(reads);
}

void read_blob(const Blob& blob, nb::handle pairs, const OptionalVersion& version) {
  const Regions regions(pairs, Access::write);
  const std::vector<ReadRegion> reads = regions.as<ReadRegion>();
  const nb::gil_scoped_release released;
  blob.read(reads, number(version));
}

nb::list log_of(const Blob& blob, const python::Natural<"first">& first) {
  std::vector<LogEntry> entries;
  {
    const nb::gil_scoped_release released;
    entries = blob.log(first);
  }
  nb::list rows;
  for (const LogEntry& entry : entries) {
    nb::dict row;
    row["version"] = entry.version;
    row["time"] = static_cast<double>(entry.time_ns) * 1e-9;
    row["writer"] = entry.writer;
    row["kind"] = entry.kind;
    row["bytes"] = entry.bytes;
    row["regions"] = entry.regions;
    rows.append(row);
  }
  return rows;
}

nb::list blobs_of(const Store& store) {
  std::vector<BlobInfo> blobs;
  {
    const nb::gil_scoped_release released;
    blobs = store.list();
  }
  nb::list rows;
  for (const BlobInfo& blob : blobs) {
    nb::dict row;
    row["name"] = blob.name;
    row["size"] = blob.size_bytes;
    row["first_version"] = blob.first_version;
    row["latest_version"] = blob.latest_version;
    row["grows"] = blob.grows;
    row["damage"] = blob.damage;
    rows.append(row);
  }
  return rows;
}

nb::dict check_all(const Store& store) {
  CheckReport report;
  {
    const nb::gil_scoped_release released;
    report = store.check();
  }
  nb::dict row;
  row["blobs"] = report.blobs;
  row["versions"] = report.versions;
  row["objects"] = report.objects;
  row["bytes"] = report.bytes;
  row["garbage_objects"] = report.garbage_objects;
  row["garbage_bytes"] = report.garbage_bytes;
  row["lost_versions"] = report.lost_versions;
  row["problems"] = report.problems;
  return row;
}

nb::dict row_of(const GcReport& report) {
  nb::dict row;
  row["versions_removed"] = report.versions_removed;
  row["objects_removed"] = report.objects_removed;
  row["bytes_freed"] = report.bytes_freed;
  return row;
}

nb::dict repair_all(Store& store, bool apply, bool drop_damaged_data) {
  RepairReport report;
  {
    const nb::gil_scoped_release released;
    report = store.repair({.apply = apply, .drop_damaged_data = drop_damaged_data});
  }
  nb::list actions;
  for (const RepairAction& action : report.actions) {
    nb::dict row;
    row["blob"] = action.blob;
    row["object"] = action.object;
    row["reason"] = action.reason;
    row["action"] = action.action;
    actions.append(row);
  }
  nb::dict row;
  row["applied"] = apply;
  row["actions"] = actions;
  row["remaining"] = report.remaining;
  return row;
}

nb::dict remove_blob(Store& store, const std::string& name) {
  GcReport report;
  {
    const nb::gil_scoped_release released;
    report = store.remove(name);
  }
  return row_of(report);
}

nb::dict collect(Store& store, const std::optional<python::Natural<"keep_last">>& keep_last, double keep_for_s,
                 double lease_s) {
  GcReport report;
  {
    const nb::gil_scoped_release released;
    GcOptions options{.keep_for = std::chrono::ceil<std::chrono::seconds>(duration(keep_for_s)),
                      .lease = std::chrono::floor<std::chrono::seconds>(duration(lease_s))};
    if (keep_last) options.keep_last = *keep_last;
    report = store.gc(options);
  }
  return row_of(report);
}

}  // namespace

void bind_store(nb::module_& module) {
  using released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Snapshot>(module, "Snapshot")
      .def_prop_ro("version", &Snapshot::version)
      .def_prop_ro("size", &Snapshot::size_bytes)
      .def_prop_ro("damage", &Snapshot::damage)
      .def("read", &read_snapshot, nb::arg("regions"),
           nb::sig("def read(self, regions: collections.abc.Iterable[tuple[int, object]]) -> None"));
  nb::class_<Blob>(module, "Blob")
      .def_prop_ro("name", &Blob::name)
      .def_prop_ro("latest", &Blob::latest, released())
      .def_prop_ro("size", &Blob::size_bytes, released())
      .def_prop_ro("grows", &Blob::grows)
      .def("write", &write_blob, nb::arg("regions"), nb::arg("parent").none() = nb::none(),
           nb::sig("def write(self, regions: collections.abc.Iterable[tuple[int, object]], parent: int | None = None) "
                   "-> int"))
      .def("append", &append_to, nb::arg("buffers"),
           nb::sig("def append(self, buffers: collections.abc.Iterable[object]) -> tuple[int, int]"))
      .def(
          "resize", [](Blob& blob, const BlobSize& size) { return blob.resize(size); }, nb::arg("size"), released())
      .def("read", &read_blob, nb::arg("regions"), nb::arg("version").none() = nb::none(),
           nb::sig("def read(self, regions: collections.abc.Iterable[tuple[int, object]], version: int | None = None) "
                   "-> None"))
      .def(
          "snapshot", [](const Blob& blob, const OptionalVersion& version) { return blob.snapshot(number(version)); },
          nb::arg("version").none() = nb::none(), released())
      .def(
          "wait",
          [](const Blob& blob, const Version& version, double timeout_s) {
            return blob.wait(version, duration(timeout_s));
          },
          nb::arg("version"), nb::arg("timeout"), released())
      .def("log", &log_of, nb::arg("first") = 1,
           nb::sig("def log(self, first: int = 1) -> list[penstock.store.LogEntry]"))
      .def(
          "tag",
          [](Blob& blob, const std::string& tag, const OptionalVersion& version) { blob.tag(tag, number(version)); },
          nb::arg("tag"), nb::arg("version").none() = nb::none(), released())
      .def(
          "untag", [](Blob& blob, const std::string& tag) { blob.untag(tag); }, nb::arg("tag"), released())
      .def(
          "tags",
          [](const Blob& blob) {
            const std::vector<Tag> found = [&] {
              const nb::gil_scoped_release released;
              return blob.tags();
            }();
            nb::dict tags;
            for (const Tag& tag : found) tags[tag.name.c_str()] = tag.version;
            return tags;
          },
          nb::sig("def tags(self) -> dict[str, int]"))
      .def(
          "diff",
          [](const Blob& blob, const Version& from, const OptionalVersion& to) {
            std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
            for (const Range& range : blob.diff(from, number(to))) {
              ranges.emplace_back(range.offset_bytes, range.size_bytes);
            }
            return ranges;
          },
          nb::arg("old"), nb::arg("new").none() = nb::none(), released())
      .def(
          "compact", [](Blob& blob, const OptionalVersion& version) { blob.compact(number(version)); },
          nb::arg("version").none() = nb::none(), released());
  nb::class_<Store>(module, "Store")
      .def(
          "__init__",
          [](Store* self, const std::string& url, bool create, bool durable, int compress_level) {
            new (self) Store(url, {create, durable, compress_level});
          },
          nb::arg("url"), nb::arg("create") = true, nb::arg("durable") = true, nb::arg("compress_level") = 0,
          released())
      .def_prop_ro("url", &Store::url)
      .def(
          "create",
          [](Store& store, const std::string& name, const BlobSize& size, bool grows) {
            return store.create(name, {size, grows});
          },
          nb::arg("name"), nb::arg("size") = 0, nb::arg("grows") = false, released())
      .def(
          "open", [](const Store& store, const std::string& name) { return store.open(name); }, nb::arg("name"),
          released())
      .def(
          "__contains__", [](const Store& store, const std::string& name) { return store.exists(name); },
          nb::arg("name"), released())
      .def("list", &blobs_of, nb::sig("def list(self) -> builtins.list[penstock.store.BlobInfo]"))
      .def(
          "clone",
          [](Store& store, const std::string& name, const OptionalVersion& version, const std::string& new_name) {
            return store.clone(name, number(version), new_name);
          },
          nb::arg("name"), nb::arg("version").none(), nb::arg("new_name"), released())
      .def("remove", &remove_blob, nb::arg("name"), nb::sig("def remove(self, name: str) -> dict[str, int]"))
      .def("check", &check_all, nb::sig("def check(self) -> penstock.store.CheckReport"))
      .def("repair", &repair_all, nb::arg("apply"), nb::arg("drop_damaged_data"),
           nb::sig("def repair(self, apply: bool, drop_damaged_data: bool) -> penstock.store.RepairReport"))
      .def("gc", &collect, nb::arg("keep_last").none(), nb::arg("keep_for"), nb::arg("lease"),
           nb::sig("def gc(self, keep_last: int | None, keep_for: float, lease: float) -> dict[str, int]"))
      .def(
          "export",
          [](const Store& store, const std::string& name, const std::string& path, const OptionalVersion& version) {
            store.export_file(name, number(version), path);
          },
          nb::arg("name"), nb::arg("path"), nb::arg("version").none() = nb::none(), released());
}
