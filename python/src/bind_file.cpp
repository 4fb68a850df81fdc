// penstock.file: see python/penstock/file.py. Memory is contiguous here; derived datatypes are packed in Python.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "buffer.hpp"
#include "penstock/error.hpp"
#include "penstock/file.hpp"

namespace nb = nanobind;
using namespace penstock;
using penstock::python::Access;
using penstock::python::ArrayView;

namespace {

/// An array, or (array, offset in bytes, size in bytes or -1, element type) as penstock.message gives it.
ArrayView memory(nb::handle given, Access access) {
  if (given.is_none()) return {};
  if (!nb::isinstance<nb::tuple>(given)) return python::view(given, access, "the buffer");
  const auto parts = nb::cast<nb::tuple>(given);
  return python::view(parts[0], access, "the buffer")
      .part(nb::cast<std::int64_t>(parts[1]), nb::cast<std::int64_t>(parts[2]));
}

/// An operation that was started, with its memory.
class PendingFileRequest {
 public:
  PendingFileRequest(FileRequest request, ArrayView view) : request_(std::move(request)), view_(std::move(view)) {}
  PendingFileRequest(PendingFileRequest&&) = default;
  ~PendingFileRequest() {
    const nb::gil_scoped_release released;
    request_ = {};
  }
  std::uint64_t wait() {
    const nb::gil_scoped_release released;
    return request_.wait();
  }
  bool test() {
    const nb::gil_scoped_release released;
    return request_.test();
  }

 private:
  FileRequest request_;
  ArrayView view_;
};

template <std::uint64_t (File::*kCall)(std::uint64_t, ConstBytes)>
std::uint64_t write_at(File& file, std::uint64_t offset, nb::handle buffer) {
  const ArrayView view = memory(buffer, Access::read);
  const nb::gil_scoped_release released;
  return (file.*kCall)(offset, view.bytes());
}

template <std::uint64_t (File::*kCall)(std::uint64_t, Bytes) const>
std::uint64_t read_at(const File& file, std::uint64_t offset, nb::handle buffer) {
  const ArrayView view = memory(buffer, Access::write);
  const nb::gil_scoped_release released;
  return (file.*kCall)(offset, view.writable_bytes());
}

template <std::uint64_t (File::*kCall)(ConstBytes)>
std::uint64_t write(File& file, nb::handle buffer) {
  const ArrayView view = memory(buffer, Access::read);
  const nb::gil_scoped_release released;
  return (file.*kCall)(view.bytes());
}

template <std::uint64_t (File::*kCall)(Bytes)>
std::uint64_t read(File& file, nb::handle buffer) {
  const ArrayView view = memory(buffer, Access::write);
  const nb::gil_scoped_release released;
  return (file.*kCall)(view.writable_bytes());
}

template <FileRequest (File::*kCall)(ConstBytes)>
PendingFileRequest start_write_next(File& file, nb::handle buffer) {
  ArrayView view = memory(buffer, Access::read);
  FileRequest request;
  {
    const nb::gil_scoped_release released;
    request = (file.*kCall)(view.bytes());
  }
  return {std::move(request), std::move(view)};
}

template <FileRequest (File::*kCall)(Bytes)>
PendingFileRequest start_read_next(File& file, nb::handle buffer) {
  ArrayView view = memory(buffer, Access::write);
  FileRequest request;
  {
    const nb::gil_scoped_release released;
    request = (file.*kCall)(view.writable_bytes());
  }
  return {std::move(request), std::move(view)};
}

template <FileRequest (File::*kCall)(std::uint64_t, ConstBytes)>
PendingFileRequest start_write(File& file, std::uint64_t offset, nb::handle buffer) {
  ArrayView view = memory(buffer, Access::read);
  FileRequest request;
  {
    const nb::gil_scoped_release released;
    request = (file.*kCall)(offset, view.bytes());
  }
  return {std::move(request), std::move(view)};
}

template <FileRequest (File::*kCall)(std::uint64_t, Bytes) const>
PendingFileRequest start_read(const File& file, std::uint64_t offset, nb::handle buffer) {
  ArrayView view = memory(buffer, Access::write);
  FileRequest request;
  {
    const nb::gil_scoped_release released;
    request = (file.*kCall)(offset, view.writable_bytes());
  }
  return {std::move(request), std::move(view)};
}

void set_view(File& file, std::uint64_t displacement_bytes, std::uint64_t etype_bytes, const Datatype& filetype) {
  const nb::gil_scoped_release released;
  file.set_view(make_view(displacement_bytes, etype_bytes, filetype));
}

File open(const Comm* comm, const std::string& url, const FileOptions& options) {
  return comm != nullptr ? File::open(*comm, url, options) : File::open(url, options);
}

}  // namespace

void bind_file(nb::module_& module) {
  using released = nb::call_guard<nb::gil_scoped_release>;
  nb::enum_<Whence>(module, "Whence")
      .value("set", Whence::set)
      .value("current", Whence::current)
      .value("end", Whence::end);
  nb::class_<PendingFileRequest>(module, "FileRequest")
      .def("wait", &PendingFileRequest::wait)
      .def("test", &PendingFileRequest::test);
  nb::class_<FileOptions>(module, "FileOptions")
      .def(nb::init<>())
      .def_rw("read", &FileOptions::read)
      .def_rw("write", &FileOptions::write)
      .def_rw("create", &FileOptions::create)
      .def_rw("exclusive", &FileOptions::exclusive)
      .def_rw("append", &FileOptions::append)
      .def_rw("durable", &FileOptions::durable);
  nb::class_<File>(module, "File")
      .def_static("open", &open, nb::arg("comm").none(), nb::arg("url"), nb::arg("options"), released())
      .def("close", &File::close, released())
      .def("set_view", &set_view, nb::arg("displacement_bytes"), nb::arg("etype_bytes"), nb::arg("filetype"))
      .def("write_at", &write_at<&File::write_at>)
      .def("write_at_all", &write_at<&File::write_at_all>)
      .def("read_at", &read_at<&File::read_at>)
      .def("read_at_all", &read_at<&File::read_at_all>)
      .def("write", &write<&File::write>)
      .def("write_all", &write<&File::write_all>)
      .def("write_ordered", &write<&File::write_ordered>)
      .def("read", &read<&File::read>)
      .def("read_all", &read<&File::read_all>)
      .def("read_ordered", &read<&File::read_ordered>)
      .def("write_shared", &write<&File::write_shared>)
      .def("read_shared", &read<&File::read_shared>)
      .def("start_write_shared", &start_write_next<&File::start_write_shared>)
      .def("start_read_shared", &start_read_next<&File::start_read_shared>)
      .def("start_write_ordered", &start_write_next<&File::start_write_ordered>)
      .def("start_read_ordered", &start_read_next<&File::start_read_ordered>)
      .def("start_write_at", &start_write<&File::start_write_at>)
      .def("start_read_at", &start_read<&File::start_read_at>)
      .def("start_write_at_all", &start_write<&File::start_write_at_all>)
      .def("start_read_at_all", &start_read<&File::start_read_at_all>)
      .def("seek", &File::seek, released())
      .def("seek_shared", &File::seek_shared, released())
      .def_prop_ro("position", &File::position)
      .def_prop_ro("position_shared", &File::position_shared, released())
      .def("byte_offset", &File::byte_offset)
      .def_prop_ro("size", &File::size_bytes, released())
      .def("set_size", &File::set_size, released())
      .def("preallocate", &File::preallocate, released())
      .def("set_atomicity", &File::set_atomicity, released())
      .def_prop_ro("atomicity", &File::atomicity)
      .def("sync", &File::sync, released())
      .def(
          "snapshot",
          [](const File& file, std::optional<std::uint64_t> version) {
            return file.snapshot(version.value_or(kLatest));
          },
          nb::arg("version").none(), released())
      .def_prop_ro("version", &File::version, released())
      .def_prop_ro("blob", [](const File& file) { return file.blob(); });
}
