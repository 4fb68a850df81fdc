// penstock.store: see python/penstock/store.py.
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
#include "penstock/error.hpp"
#include "penstock/store.hpp"

namespace nb = nanobind;
using namespace penstock;
using penstock::python::Access;
using penstock::python::ArrayView;

namespace {

/// The (offset, buffer) pairs of a call, with the buffers held.
class Regions {
 public:
  Regions(nb::handle pairs, Access access) {
    for (nb::handle pair : pairs) {
      if (!PyTuple_Check(pair.ptr()) || PyTuple_GET_SIZE(pair.ptr()) != 2 ||
          !PyIndex_Check(PyTuple_GET_ITEM(pair.ptr(), 0))) {
        throw Error(ErrorCode::invalid_argument,
                    std::string("regions are (offset, buffer) pairs, got ") + nb::repr(pair).c_str());
      }
      offsets_.push_back(offset_of(PyTuple_GET_ITEM(pair.ptr(), 0)));
      memory_.push_back(hold(PyTuple_GET_ITEM(pair.ptr(), 1), access));
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
  static std::uint64_t offset_of(nb::handle number) {
    const nb::object index = nb::steal(PyNumber_Index(number.ptr()));
    const long long offset = PyLong_AsLongLong(index.ptr());
    if (offset >= 0) return static_cast<std::uint64_t>(offset);
    PyErr_Clear();
    throw Error(ErrorCode::invalid_argument,
                std::string("the offset ") + nb::str(index).c_str() + " of a region is negative or beyond 2^63");
  }

  Bytes hold(nb::handle object, Access access) {
    // Thousands of regions are usual, and their element types do not matter: the plain way takes a fraction of the
    // time.
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

std::uint64_t write_blob(Blob& blob, nb::handle pairs) {
  const Regions regions(pairs, Access::read);
  const std::vector<WriteRegion> writes = regions.as<WriteRegion>();
  const nb::gil_scoped_release released;
  return blob.write(writes);
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

void read_blob(const Blob& blob, nb::handle pairs, std::optional<std::uint64_t> version) {
  const Regions regions(pairs, Access::write);
  const std::vector<ReadRegion> reads = regions.as<ReadRegion>();
  const nb::gil_scoped_release released;
  blob.read(reads, version.value_or(kLatest));
}

nb::list log_of(const Blob& blob, std::uint64_t first) {
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

nb::dict remove_blob(Store& store, const std::string& name) {
  GcReport report;
  {
    const nb::gil_scoped_release released;
    report = store.remove(name);
  }
  return row_of(report);
}

nb::dict collect(Store& store, std::optional<std::uint64_t> keep_last, double lease_s) {
  GcReport report;
  {
    const nb::gil_scoped_release released;
    report = store.gc({keep_last.value_or(kLatest), std::chrono::seconds(static_cast<std::int64_t>(lease_s))});
  }
  return row_of(report);
}

}  // namespace

void bind_store(nb::module_& module) {
  using released = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Snapshot>(module, "Snapshot")
      .def_prop_ro("version", &Snapshot::version)
      .def_prop_ro("size", &Snapshot::size_bytes)
      .def("read", &read_snapshot, nb::arg("regions"));
  nb::class_<Blob>(module, "Blob")
      .def_prop_ro("name", &Blob::name)
      .def_prop_ro("latest", &Blob::latest, released())
      .def_prop_ro("size", &Blob::size_bytes, released())
      .def_prop_ro("grows", &Blob::grows)
      .def("write", &write_blob, nb::arg("regions"))
      .def("append", &append_to, nb::arg("buffers"))
      .def("resize", &Blob::resize, nb::arg("size"), released())
      .def("read", &read_blob, nb::arg("regions"), nb::arg("version").none() = nb::none())
      .def(
          "snapshot",
          [](const Blob& blob, std::optional<std::uint64_t> version) {
            return blob.snapshot(version.value_or(kLatest));
          },
          nb::arg("version").none() = nb::none(), released())
      .def(
          "wait",
          [](const Blob& blob, std::uint64_t version, double timeout_s) {
            return blob.wait(version, std::chrono::nanoseconds(static_cast<std::int64_t>(timeout_s * 1e9)));
          },
          nb::arg("version"), nb::arg("timeout"), released())
      .def("log", &log_of, nb::arg("first") = 1)
      .def(
          "tag",
          [](Blob& blob, const std::string& tag, std::optional<std::uint64_t> version) {
            blob.tag(tag, version.value_or(kLatest));
          },
          nb::arg("tag"), nb::arg("version").none() = nb::none(), released())
      .def(
          "untag", [](Blob& blob, const std::string& tag) { blob.untag(tag); }, nb::arg("tag"), released())
      .def("tags",
           [](const Blob& blob) {
             nb::dict tags;
             for (const Tag& tag : blob.tags()) tags[tag.name.c_str()] = tag.version;
             return tags;
           })
      .def(
          "diff",
          [](const Blob& blob, std::uint64_t from, std::optional<std::uint64_t> to) {
            std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
            for (const Range& range : blob.diff(from, to.value_or(kLatest))) {
              ranges.emplace_back(range.offset_bytes, range.size_bytes);
            }
            return ranges;
          },
          nb::arg("old"), nb::arg("new").none() = nb::none(), released())
      .def(
          "compact", [](Blob& blob, std::optional<std::uint64_t> version) { blob.compact(version.value_or(kLatest)); },
          nb::arg("version").none() = nb::none(), released());
  nb::class_<Store>(module, "Store")
      .def(
          "__init__",
          [](Store* self, const std::string& url, bool create, bool durable) {
            new (self) Store(url, {create, durable});
          },
          nb::arg("url"), nb::arg("create") = true, nb::arg("durable") = true)
      .def_prop_ro("url", &Store::url)
      .def(
          "create",
          [](Store& store, const std::string& name, std::uint64_t size, bool grows) {
            return store.create(name, {size, grows});
          },
          nb::arg("name"), nb::arg("size") = 0, nb::arg("grows") = false, released())
      .def(
          "open", [](const Store& store, const std::string& name) { return store.open(name); }, nb::arg("name"),
          released())
      .def(
          "__contains__", [](const Store& store, const std::string& name) { return store.exists(name); },
          nb::arg("name"), released())
      .def("list", &blobs_of)
      .def(
          "clone",
          [](Store& store, const std::string& name, std::optional<std::uint64_t> version, const std::string& new_name) {
            return store.clone(name, version.value_or(kLatest), new_name);
          },
          nb::arg("name"), nb::arg("version").none(), nb::arg("new_name"), released())
      .def("remove", &remove_blob, nb::arg("name"))
      .def("check", &check_all)
      .def("gc", &collect, nb::arg("keep_last").none() = nb::none(), nb::arg("lease") = 3600.0)
      .def(
          "export",
          [](const Store& store, const std::string& name, const std::string& path,
             std::optional<std::uint64_t> version) { store.export_file(name, version.value_or(kLatest), path); },
          nb::arg("name"), nb::arg("path"), nb::arg("version").none() = nb::none(), released());
}
