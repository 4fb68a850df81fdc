// _penstock.Typemap: moves what a derived datatype describes, by its flattened form.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "buffer.hpp"
#include "penstock/error.hpp"

namespace nb = nanobind;

namespace penstock::python {
namespace {

class Typemap {
 public:
  /// Rows of (offset, size) in bytes, int64, in the order in which MPI lists the data of one item.
  Typemap(nb::handle pieces, std::int64_t extent) : extent_(extent) {
    const ArrayView rows = view(pieces, Access::read, "pieces");
    if (rows.dtype() != DType::int64 || rows.count() % 2 != 0)
      throw Error(ErrorCode::invalid_argument, "pieces are rows of (offset, size) as int64");
    pieces_.resize(rows.count() / 2);
    if (!pieces_.empty()) std::memcpy(pieces_.data(), rows.bytes().data(), rows.size_bytes());
    for (const Piece& piece : pieces_) {
      size_bytes_ += piece.size_bytes;
      lower_ = std::min(lower_, piece.offset_bytes);
      upper_ = std::max(upper_, piece.offset_bytes + piece.size_bytes);
    }
  }

  std::int64_t size_bytes() const { return size_bytes_; }

  void pack(nb::handle memory, std::int64_t offset_bytes, std::int64_t count, nb::handle packed) const {
    const ArrayView from = view(memory, Access::read, "buffer");
    const ArrayView to = view(packed, Access::write, "packed");
    const std::byte* at = begin(from.bytes(), offset_bytes, count, to.size_bytes());
    std::byte* next = to.writable_bytes().data();
    const nb::gil_scoped_release released;
    for (std::int64_t item = 0; item < count; ++item, at += extent_)
      for (const Piece& piece : pieces_) {
        std::memcpy(next, at + piece.offset_bytes, static_cast<std::size_t>(piece.size_bytes));
        next += piece.size_bytes;
      }
  }

  void unpack(nb::handle packed, nb::handle memory, std::int64_t offset_bytes, std::int64_t count) const {
    const ArrayView from = view(packed, Access::read, "packed");
    const ArrayView to = view(memory, Access::write, "buffer");
    std::byte* at =
        to.writable_bytes().data() + (begin(to.bytes(), offset_bytes, count, from.size_bytes()) - to.bytes().data());
    const std::byte* next = from.bytes().data();
    const nb::gil_scoped_release released;
    for (std::int64_t item = 0; item < count; ++item, at += extent_)
      for (const Piece& piece : pieces_) {
        std::memcpy(at + piece.offset_bytes, next, static_cast<std::size_t>(piece.size_bytes));
        next += piece.size_bytes;
      }
  }

 private:
  struct Piece {
    std::int64_t offset_bytes;
    std::int64_t size_bytes;
  };

  /// Where the first item lies, when all of them lie inside.
  const std::byte* begin(ConstBytes memory, std::int64_t offset_bytes, std::int64_t count,
                         std::uint64_t packed_bytes) const {
    const auto whole_bytes = static_cast<std::int64_t>(memory.size());
    std::int64_t last = 0;
    if (count < 0 || __builtin_mul_overflow(count > 0 ? count - 1 : 0, extent_, &last) ||
        static_cast<std::uint64_t>(count * size_bytes_) != packed_bytes)
      throw Error(ErrorCode::invalid_argument, std::to_string(count) + " items of a datatype do not have " +
                                                   std::to_string(packed_bytes) + " bytes");
    const std::int64_t first_byte = offset_bytes + lower_ + std::min<std::int64_t>(0, last);
    const std::int64_t end_byte = offset_bytes + upper_ + std::max<std::int64_t>(0, last);
    if (count > 0 && size_bytes_ > 0 && (first_byte < 0 || end_byte > whole_bytes))
      throw Error(ErrorCode::invalid_argument, std::to_string(count) + " items of a derived datatype reach from byte " +
                                                   std::to_string(first_byte) + " to " + std::to_string(end_byte) +
                                                   " of a buffer of " + std::to_string(whole_bytes));
    return memory.data() + offset_bytes;
  }

  std::vector<Piece> pieces_;
  std::int64_t extent_;
  std::int64_t size_bytes_ = 0;
  std::int64_t lower_ = 0;
  std::int64_t upper_ = 0;
};

}  // namespace
}  // namespace penstock::python

void bind_datatype(nb::module_& module) {
  using penstock::python::Typemap;
  nb::class_<Typemap>(module, "Typemap")
      .def(nb::init<nb::handle, std::int64_t>(), nb::arg("pieces"), nb::arg("extent"))
      .def_prop_ro("size_bytes", &Typemap::size_bytes)
      .def("pack", &Typemap::pack, nb::arg("memory"), nb::arg("offset_bytes"), nb::arg("count"), nb::arg("packed"))
      .def("unpack", &Typemap::unpack, nb::arg("packed"), nb::arg("memory"), nb::arg("offset_bytes"), nb::arg("count"));
}
