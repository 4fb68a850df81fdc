// _penstock.Datatype: a flattened MPI datatype, which packs and unpacks its items.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "buffer.hpp"
#include "penstock/datatype.hpp"
#include "penstock/error.hpp"

namespace nb = nanobind;

namespace penstock::python {
namespace {

/// The memory of the items: an array; or all memory, with addresses as offsets, for None, which stands for MPI.BOTTOM.
ArrayView memory_of(nb::handle memory, Access access) {
  return memory.is_none() ? ArrayView() : view(memory, access, "buffer");
}

/// The address of the first item. Throws if not all items lie inside the memory.
std::byte* first_item(const Datatype& datatype, nb::handle given, const ArrayView& memory, std::int64_t offset_bytes,
                      std::int64_t count) {
  const bool is_absolute = given.is_none();
  std::int64_t last = 0;
  std::int64_t first_byte = 0;
  std::int64_t end_byte = 0;
  if (count < 0 || __builtin_mul_overflow(count > 0 ? count - 1 : 0, datatype.extent_bytes(), &last) ||
      __builtin_add_overflow(offset_bytes, datatype.begin_bytes() + std::min<std::int64_t>(0, last), &first_byte) ||
      __builtin_add_overflow(offset_bytes, datatype.end_bytes() + std::max<std::int64_t>(0, last), &end_byte))
    throw Error(
        ErrorCode::invalid_argument,
        std::to_string(count) + " items of a derived datatype given; expected 0 or more, in fewer than 2^63 bytes");
  const bool has_bytes = count > 0 && datatype.size_bytes() > 0;
  const auto size_bytes = static_cast<std::int64_t>(memory.size_bytes());
  if (is_absolute && has_bytes && !datatype.is_absolute())
    throw Error(ErrorCode::invalid_argument, std::to_string(count) + " items of a derived datatype lie at address " +
                                                 std::to_string(first_byte) +
                                                 "; a datatype for MPI.BOTTOM needs absolute addresses");
  if (!is_absolute && has_bytes && (first_byte < 0 || end_byte > size_bytes))
    throw Error(ErrorCode::invalid_argument, std::to_string(count) + " items of a derived datatype reach from byte " +
                                                 std::to_string(first_byte) + " to " + std::to_string(end_byte) +
                                                 " of a buffer of " + std::to_string(size_bytes));
  const auto base = is_absolute ? std::uintptr_t{0} : reinterpret_cast<std::uintptr_t>(memory.data());
  return reinterpret_cast<std::byte*>(base + static_cast<std::uintptr_t>(offset_bytes));
}

void check(const Datatype& datatype, nb::handle memory, std::int64_t offset_bytes, std::int64_t count, bool writes) {
  first_item(datatype, memory, memory_of(memory, writes ? Access::write : Access::read), offset_bytes, count);
}

void pack(const Datatype& datatype, nb::handle memory, std::int64_t offset_bytes, std::int64_t count,
          nb::handle packed) {
  const ArrayView from = memory_of(memory, Access::read);
  const ArrayView to = view(packed, Access::write, "packed");
  const std::byte* items = first_item(datatype, memory, from, offset_bytes, count);
  const nb::gil_scoped_release released;
  datatype.pack(items, static_cast<std::uint64_t>(count), to.writable_bytes());
}

void unpack(const Datatype& datatype, nb::handle packed, nb::handle memory, std::int64_t offset_bytes,
            std::int64_t count) {
  const ArrayView from = view(packed, Access::read, "packed");
  const ArrayView to = memory_of(memory, Access::write);
  std::byte* items = first_item(datatype, memory, to, offset_bytes, count);
  const nb::gil_scoped_release released;
  datatype.unpack(from.bytes(), items, static_cast<std::uint64_t>(count));
}

/// What penstock.message needs of an array: (size in bytes, bytes per element, type or "").
std::tuple<std::uint64_t, std::uint64_t, std::string> array_memory(nb::handle array) {
  const ArrayView memory = view(array, Access::read, "buffer");
  const std::optional<DType> dtype = memory.known_dtype();
  return {memory.size_bytes(), memory.item_bytes(), dtype ? std::string(name(*dtype)) : std::string()};
}

std::vector<std::pair<std::int64_t, std::int64_t>> pieces(const Datatype& datatype) {
  std::vector<std::pair<std::int64_t, std::int64_t>> rows;
  for (const Datatype::Piece& piece : datatype.pieces()) rows.emplace_back(piece.offset_bytes, piece.size_bytes);
  return rows;
}

using DatatypeFromAddress = Datatype* (*)(const void* mpi_datatype);

Datatype* datatype_from_address(std::uintptr_t function, std::uintptr_t mpi_datatype) {
  return reinterpret_cast<DatatypeFromAddress>(function)(reinterpret_cast<const void*>(mpi_datatype));
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
      .def("check", &python::check, nb::arg("memory").none(), nb::arg("offset_bytes"), nb::arg("count"),
           nb::arg("writes") = false)
      .def("pack", &python::pack, nb::arg("memory").none(), nb::arg("offset_bytes"), nb::arg("count"),
           nb::arg("packed"))
      .def("unpack", &python::unpack, nb::arg("packed"), nb::arg("memory").none(), nb::arg("offset_bytes"),
           nb::arg("count"));
  module.def("memory_of", &python::array_memory, nb::arg("array"));
  module.def("datatype_from_address", &python::datatype_from_address, nb::rv_policy::take_ownership,
             nb::arg("function"), nb::arg("mpi_datatype"));
}
