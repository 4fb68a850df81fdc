// _penstock.File, on which penstock.file is built. Memory is contiguous here; Python packs derived datatypes.
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "buffer.hpp"
#include "natural.hpp"
#include "penstock/error.hpp"
#include "penstock/file.hpp"

namespace nb = nanobind;
using namespace penstock;
using penstock::python::Access;
using penstock::python::ArrayView;

namespace {

using Offset = python::Natural<"the offset">;
using FileSize = python::Natural<"the size">;

/// An array, or (array, offset in bytes, size in bytes or -1, element type), as penstock.message returns them.
ArrayView memory(nb::handle given, Access access) {
  if (given.is_none()) return {};
  if (!nb::isinstance<nb::tuple>(given)) return python::view(given, access, "the buffer");
  const auto parts = nb::cast<nb::tuple>(given);
  return python::view(parts[0], access, "the buffer")
      .part(nb::cast<std::int64_t>(parts[1]), nb::cast<std::int64_t>(parts[2]));
}

/// A started operation and its memory.
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

enum class Called { locally, together };

/// The result of `prepare`, which converts the arguments of a call. If it throws in a collective call, the call fails
/// on all ranks: nobody waits for this one.
template <Called kCalled, typename Prepare>
auto prepared(File& file, const Prepare& prepare) {
  try {
    return prepare();
  } catch (const Error& error) {
    const nb::gil_scoped_release released;
    if (kCalled == Called::together) file.fail_next(error.message());
    throw;
  }
}

/// A method of File that reads or writes the caller's memory, with or without a `Position`. A started operation keeps
/// the memory alive.
template <auto kCall, Called kCalled, Access kAccess, typename... Position>
auto transfer(File& file, const Position&... position, nb::handle buffer) {
  ArrayView view = prepared<kCalled>(file, [&] {
    (position.check(), ...);
    return memory(buffer, kAccess);
  });
  const auto call = [&] {
    const nb::gil_scoped_release released;
    if constexpr (kAccess == Access::read)
      return (file.*kCall)(position..., view.bytes());
    else
      return (file.*kCall)(position..., view.writable_bytes());
  };
  auto result = call();
  if constexpr (std::is_same_v<decltype(result), FileRequest>)
    return PendingFileRequest(std::move(result), std::move(view));
  else
    return result;
}

void set_view(File& file, const python::Natural<"the displacement of a view">& displacement_bytes,
              std::uint64_t etype_bytes, const Datatype& filetype) {
  FileView view =
      prepared<Called::together>(file, [&] { return make_view(displacement_bytes, etype_bytes, filetype); });
  const nb::gil_scoped_release released;
  file.set_view(std::move(view));
}

/// Binds set_size or preallocate.
template <auto kCall>
std::uint64_t resize(File& file, const FileSize& size) {
  prepared<Called::together>(file, [&] { size.check(); });
  const nb::gil_scoped_release released;
  return (file.*kCall)(size);
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
      .def("wait", &PendingFileRequest::wait, nb::lock_self())
      .def("test", &PendingFileRequest::test, nb::lock_self());
  nb::class_<FileOptions>(module, "FileOptions")
      .def(nb::init<>())
      .def_rw("read", &FileOptions::read)
      .def_rw("write", &FileOptions::write)
      .def_rw("create", &FileOptions::create)
      .def_rw("exclusive", &FileOptions::exclusive)
      .def_rw("append", &FileOptions::append)
      .def_rw("durable", &FileOptions::durable)
      .def_rw("delete_on_close", &FileOptions::delete_on_close);
  nb::class_<File>(module, "File")
      .def_static("open", &open, nb::arg("comm").none(), nb::arg("url"), nb::arg("options"), released())
      .def("close", &File::close, released())
      .def("set_view", &set_view, nb::arg("displacement_bytes"), nb::arg("etype_bytes"), nb::arg("filetype"))
      .def("write_at", &transfer<&File::write_at, Called::locally, Access::read, Offset>)
      .def("write_at_all", &transfer<&File::write_at_all, Called::together, Access::read, Offset>)
      .def("read_at", &transfer<&File::read_at, Called::locally, Access::write, Offset>)
      .def("read_at_all", &transfer<&File::read_at_all, Called::together, Access::write, Offset>)
      .def("write", &transfer<&File::write, Called::locally, Access::read>)
      .def("write_all", &transfer<&File::write_all, Called::together, Access::read>)
      .def("write_ordered", &transfer<&File::write_ordered, Called::together, Access::read>)
      .def("read", &transfer<&File::read, Called::locally, Access::write>)
      .def("read_all", &transfer<&File::read_all, Called::together, Access::write>)
      .def("read_ordered", &transfer<&File::read_ordered, Called::together, Access::write>)
      .def("write_shared", &transfer<&File::write_shared, Called::locally, Access::read>)
      .def("read_shared", &transfer<&File::read_shared, Called::locally, Access::write>)
      .def("start_write_shared", &transfer<&File::start_write_shared, Called::locally, Access::read>)
      .def("start_read_shared", &transfer<&File::start_read_shared, Called::locally, Access::write>)
      .def("start_write_ordered", &transfer<&File::start_write_ordered, Called::together, Access::read>)
      .def("start_read_ordered", &transfer<&File::start_read_ordered, Called::together, Access::write>)
      .def("start_write_at", &transfer<&File::start_write_at, Called::locally, Access::read, Offset>)
      .def("start_read_at", &transfer<&File::start_read_at, Called::locally, Access::write, Offset>)
      .def("start_write_at_all", &transfer<&File::start_write_at_all, Called::together, Access::read, Offset>)
      .def("start_read_at_all", &transfer<&File::start_read_at_all, Called::together, Access::write, Offset>)
      .def("seek", &File::seek, released())
      .def("seek_shared", &File::seek_shared, released())
      .def_prop_ro("position", &File::position)
      .def_prop_ro("position_shared", &File::position_shared, released())
      .def("byte_offset", [](const File& file, const Offset& offset) { return file.byte_offset(offset); })
      .def_prop_ro("size", &File::size_bytes, released())
      .def("set_size", &resize<&File::set_size>)
      .def("preallocate", &resize<&File::preallocate>)
      .def("fail_next", &File::fail_next, released())
      .def("set_atomicity", &File::set_atomicity, released())
      .def_prop_ro("atomicity", &File::atomicity)
      .def("sync", &File::sync, released())
      .def(
          "snapshot",
          [](const File& file, const std::optional<python::Natural<"version">>& version) {
            return file.snapshot(version ? std::uint64_t{*version} : kLatest);
          },
          nb::arg("version").none(), released())
      .def_prop_ro("version", &File::version, released())
      .def_prop_ro("blob", [](const File& file) { return file.blob(); });
}
