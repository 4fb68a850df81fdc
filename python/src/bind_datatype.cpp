// _penstock.Datatype: an MPI datatype, flattened, and what packs and unpacks its items.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "buffer.hpp"
#include "penstock/datatype.hpp"
#include "penstock/error.hpp"

namespace nb = nanobind;

namespace penstock::python {
namespace {

/// Where in `memory` the first item lies, when all of them lie inside.
std::int64_t first_item(const Datatype& datatype, ConstBytes memory, std::int64_t offset_bytes, std::int64_t count) {
  std::int64_t last = 0;
  if (count < 0 || __builtin_mul_overflow(count > 0 ? count - 1 : 0, datatype.extent_bytes(), &last))
    throw Error(ErrorCode::invalid_argument, "there cannot be " + std::to_string(count) + " items of a datatype");
  const std::int64_t first_byte = offset_bytes + datatype.begin_bytes() + std::min<std::int64_t>(0, last);
  const std::int64_t end_byte = offset_bytes + datatype.end_bytes() + std::max<std::int64_t>(0, last);
  if (count > 0 && datatype.size_bytes() > 0 && (first_byte < 0 || end_byte > static_cast<std::int64_t>(memory.size())))
    throw Error(ErrorCode::invalid_argument, std::to_string(count) + " items of a derived datatype reach from byte " +
                                                 std::to_string(first_byte) + " to " + std::to_string(end_byte) +
                                                 " of a buffer of " + std::to_string(memory.size()));
  return offset_bytes;
}

void pack(const Datatype& datatype, nb::handle memory, std::int64_t offset_bytes, std::int64_t count,
          nb::handle packed) {
  const ArrayView from = view(memory, Access::read, "buffer");
  const ArrayView to = view(packed, Access::write, "packed");
  const std::byte* items = from.bytes().data() + first_item(datatype, from.bytes(), offset_bytes, count);
  const nb::gil_scoped_release released;
  datatype.pack(items, static_cast<std::uint64_t>(count), to.writable_bytes());
}

void unpack(const Datatype& datatype, nb::handle packed, nb::handle memory, std::int64_t offset_bytes,
            std::int64_t count) {
  const ArrayView from = view(packed, Access::read, "packed");
  const ArrayView to = view(memory, Access::write, "buffer");
  std::byte* items = to.writable_bytes().data() + first_item(datatype, to.bytes(), offset_bytes, count);
  const nb::gil_scoped_release released;
  datatype.unpack(from.bytes(), items, static_cast<std::uint64_t>(count));
}

std::vector<std::pair<std::int64_t, std::int64_t>> pieces(const Datatype& datatype) {
  std::vector<std::pair<std::int64_t, std::int64_t>> rows;
  for (const Datatype::Piece& piece : datatype.pieces()) rows.emplace_back(piece.offset_bytes, piece.size_bytes);
  return rows;
}

using FromAddress = Datatype* (*)(const void* mpi_datatype);

Datatype* from_address(std::uintptr_t function, std::uintptr_t mpi_datatype) {
  return reinterpret_cast<FromAddress>(function)(reinterpret_cast<const void*>(mpi_datatype));
}

}  // namespace
}  // namespace penstock::python

void bind_datatype(nb::module_& module) {
  namespace python = penstock::python;
  using penstock::Datatype;
  nb::class_<Datatype>(module, "Datatype")
      .def_prop_ro("size_bytes", &Datatype::size_bytes)
      .def_prop_ro("extent_bytes", &Datatype::extent_bytes)
      .def_prop_ro("pieces", &python::pieces)
      .def("pack", &python::pack, nb::arg("memory"), nb::arg("offset_bytes"), nb::arg("count"), nb::arg("packed"))
      .def("unpack", &python::unpack, nb::arg("packed"), nb::arg("memory"), nb::arg("offset_bytes"), nb::arg("count"));
  module.def("datatype_from_address", &python::from_address, nb::rv_policy::take_ownership, nb::arg("function"),
             nb::arg("mpi_datatype"));
}
