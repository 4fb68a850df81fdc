#include "buffer.hpp"

#include <bit>
#include <string_view>

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "penstock/error.hpp"

namespace nb = nanobind;

namespace penstock::python {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

std::string python_type(nb::handle object) {
  return nb::cast<std::string>(nb::handle(object.type()).attr("__qualname__"));
}

/// `kind`: 'i' signed, 'u' unsigned, 'f' floating point, 'c' complex.
std::optional<DType> find_dtype(char kind, std::uint64_t item_bytes) {
#define PENSTOCK_DTYPE(name, type, size, numpy) \
  if (kind == numpy[0] && item_bytes == (size)) return DType::name;
#define PENSTOCK_OTHER_DTYPE PENSTOCK_DTYPE
#include "penstock/dtypes.def"
#undef PENSTOCK_OTHER_DTYPE
#undef PENSTOCK_DTYPE
  return std::nullopt;
}

/// Bytes of an element, with all its lanes.
std::uint64_t item_bytes_of(nb::dlpack::dtype dtype) { return (std::uint64_t{dtype.bits} * dtype.lanes + 7) / 8; }

std::optional<DType> dtype_of_dlpack(nb::dlpack::dtype dtype) {
  if (dtype.bits % 8 != 0) return std::nullopt;
  const std::uint64_t item_bytes = item_bytes_of(dtype);
  const auto code = static_cast<nb::dlpack::dtype_code>(dtype.code);
  // Older exporters describe complex numbers as two lanes.
  if (dtype.lanes == 2 && code == nb::dlpack::dtype_code::Float) return find_dtype('c', item_bytes);
  if (dtype.lanes != 1) return std::nullopt;
  switch (code) {
    case nb::dlpack::dtype_code::Int: return find_dtype('i', item_bytes);
    case nb::dlpack::dtype_code::UInt: return find_dtype('u', item_bytes);
    case nb::dlpack::dtype_code::Float: return find_dtype('f', item_bytes);
    case nb::dlpack::dtype_code::Complex: return find_dtype('c', item_bytes);
    case nb::dlpack::dtype_code::Bfloat: return DType::bfloat16;
    case nb::dlpack::dtype_code::Bool: return find_dtype('b', item_bytes);
    default: return std::nullopt;
  }
}

/// The bits as uint16: bfloat16 arrays of ml_dtypes export neither a buffer nor DLPack.
nb::object bits_of_bfloat16(nb::handle object) {
  if (!nb::hasattr(object, "dtype") || !nb::hasattr(object, "view")) return {};
  const nb::object dtype = object.attr("dtype");
  if (!nb::hasattr(dtype, "name") || !nb::hasattr(dtype, "itemsize")) return {};
  const nb::object dtype_name = dtype.attr("name");
  if (!nb::isinstance<nb::str>(dtype_name) || nb::cast<std::string>(dtype_name) != "bfloat16") return {};
  return object.attr("view")("uint16");
}

void check_contiguous(bool c_contiguous, bool fortran_contiguous, const std::string& argument) {
  if (!c_contiguous && !fortran_contiguous)
    refuse(argument + " is not contiguous in memory; pass numpy.ascontiguousarray(" + argument +
           "), or an array of your own that the slice is copied to");
}

/// Of a buffer, at the end of a block.
struct Released {
  Py_buffer& buffer;
  ~Released() { PyBuffer_Release(&buffer); }
};

}  // namespace

std::optional<DType> dtype_of_format(const char* format, std::uint64_t item_bytes) {
  std::string_view text = format == nullptr ? "B" : format;
  if (text.starts_with('@') || text.starts_with('=')) text.remove_prefix(1);
  constexpr char kNative = std::endian::native == std::endian::little ? '<' : '>';
  if (text.starts_with(kNative)) text.remove_prefix(1);
  if (text.size() == 2 && text[0] == 'Z') return find_dtype('c', item_bytes);
  if (text.size() != 1) return std::nullopt;
  const auto is_one_of = [&](std::string_view letters) { return letters.find(text[0]) != std::string_view::npos; };
  if (is_one_of("bhilqn")) return find_dtype('i', item_bytes);
  if (is_one_of("BHILQNc")) return find_dtype('u', item_bytes);
  if (is_one_of("efdg")) return find_dtype('f', item_bytes);
  if (text == "?") return find_dtype('b', item_bytes);
  return std::nullopt;
}

DType ArrayView::dtype() const {
  if (dtype_) return *dtype_;
  std::string known;
#define PENSTOCK_DTYPE(name, type, size, numpy) known += known.empty() ? #name : ", " #name;
#define PENSTOCK_OTHER_DTYPE PENSTOCK_DTYPE
#include "penstock/dtypes.def"
#undef PENSTOCK_OTHER_DTYPE
#undef PENSTOCK_DTYPE
  refuse(argument_ + " holds elements of type " + held_ + "; expected one of " + known + " in native byte order");
}

ArrayView ArrayView::part(std::int64_t offset_bytes, std::int64_t size_bytes) const {
  const auto whole_bytes = static_cast<std::int64_t>(size_bytes_);
  if (size_bytes < 0) size_bytes = whole_bytes - offset_bytes;
  if (offset_bytes < 0 || offset_bytes > whole_bytes || size_bytes < 0 || size_bytes > whole_bytes - offset_bytes)
    refuse(argument_ + " has " + std::to_string(whole_bytes) + " bytes; " + std::to_string(size_bytes) + " from byte " +
           std::to_string(offset_bytes) + " on were asked for");
  ArrayView result = *this;
  result.data_ += offset_bytes;
  result.size_bytes_ = static_cast<std::uint64_t>(size_bytes);
  result.shape_ = {static_cast<std::int64_t>(result.count())};
  return result;
}

ArrayView ArrayView::reinterpreted(std::optional<DType> dtype) const {
  ArrayView result = *this;
  result.dtype_ = dtype;
  result.item_bytes_ = dtype ? penstock::size_bytes(*dtype) : 1;
  result.shape_ = {static_cast<std::int64_t>(result.count())};
  return result;
}

ArrayView view(nb::handle object, Access access, const char* argument) {
  ArrayView result = strided_view(object, access, argument);
  check_contiguous(result.c_contiguous(), result.fortran_contiguous(), argument);
  return result;
}

ArrayView strided_view(nb::handle object, Access access, const char* argument) {
  ArrayView result;
  result.argument_ = argument;

  nb::object memory;
  nb::object bits;
  nb::handle source = object;
  if (PyObject_CheckBuffer(object.ptr())) {
    memory = nb::steal(PyMemoryView_FromObject(object.ptr()));
    if (!memory.is_valid()) {
      nb::python_error error;
      bits = bits_of_bfloat16(object);
      if (!bits.is_valid())
        refuse(std::string(argument) + " (" + python_type(object) + ") does not give its memory: " + error.what());
      source = bits;
      memory = nb::steal(PyMemoryView_FromObject(bits.ptr()));
    }
  }

  if (memory.is_valid()) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(memory.ptr(), &buffer, PyBUF_FULL_RO) != 0) nb::raise_python_error();
    const Released released{buffer};  // the view keeps the memory
    result.c_contiguous_ = PyBuffer_IsContiguous(&buffer, 'C') != 0;
    result.fortran_contiguous_ = PyBuffer_IsContiguous(&buffer, 'F') != 0;
    if (access == Access::write && buffer.readonly != 0)
      refuse(std::string(argument) + " (" + python_type(object) + ") is read-only, and this call writes to it");
    result.data_ = static_cast<std::byte*>(buffer.buf);
    result.size_bytes_ = static_cast<std::uint64_t>(buffer.len);
    result.item_bytes_ = static_cast<std::uint64_t>(buffer.itemsize);
    if (buffer.shape != nullptr) result.shape_.assign(buffer.shape, buffer.shape + buffer.ndim);
    if (buffer.strides != nullptr) result.strides_bytes_.assign(buffer.strides, buffer.strides + buffer.ndim);
    result.dtype_ = dtype_of_format(buffer.format, result.item_bytes_);
    result.held_ = std::string("'") + (buffer.format == nullptr ? "B" : buffer.format) + "'";
    result.owner_ = memory;
  } else if (nb::hasattr(source, "__dlpack__")) {
    nb::ndarray<nb::ro> array;
    if (!nb::try_cast(nb::borrow(source), array))
      refuse(std::string(argument) + " (" + python_type(object) + ") has __dlpack__, which did not give an array");
    if (array.device_type() != nb::device::cpu::value)
      refuse(std::string(argument) + " (" + python_type(object) + ") is not in main memory; copy it there first");
    nb::ndarray<> writable;
    if (access == Access::write && !nb::try_cast(nb::borrow(source), writable))
      refuse(std::string(argument) + " (" + python_type(object) + ") is read-only, and this call writes to it");
    std::int64_t dense = 1;
    for (std::size_t d = array.ndim(); d-- > 0; dense *= static_cast<std::int64_t>(array.shape(d)))
      result.c_contiguous_ = result.c_contiguous_ && (array.shape(d) == 1 || array.stride(d) == dense);
    dense = 1;
    for (std::size_t d = 0; d < array.ndim(); dense *= static_cast<std::int64_t>(array.shape(d)), ++d)
      result.fortran_contiguous_ = result.fortran_contiguous_ && (array.shape(d) == 1 || array.stride(d) == dense);
    if (array.size() == 0) result.c_contiguous_ = result.fortran_contiguous_ = true;
    result.data_ = static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(array.data())));
    result.item_bytes_ = item_bytes_of(array.dtype());  // nanobind ignores lanes
    result.size_bytes_ = array.size() * result.item_bytes_;
    for (std::size_t d = 0; d < array.ndim(); ++d) {
      result.shape_.push_back(static_cast<std::int64_t>(array.shape(d)));
      result.strides_bytes_.push_back(array.stride(d) * static_cast<std::int64_t>(result.item_bytes_));
    }
    result.dtype_ = dtype_of_dlpack(array.dtype());
    result.held_ = "DLPack code " + std::to_string(array.dtype().code) + ", " + std::to_string(array.dtype().bits) +
                   " bits" + (array.dtype().lanes == 1 ? "" : ", " + std::to_string(array.dtype().lanes) + " lanes");
    // The exporter keeps DLPack memory alive for the tensor: hold the tensor, not only the Python object.
    result.tensor_ = std::make_shared<nb::ndarray<nb::ro>>(std::move(array));
  } else {
    refuse(std::string(argument) + " is a " + python_type(object) +
           "; expected an array with the buffer protocol or DLPack (NumPy array, memoryview, bytes, tensor)");
  }
  if (bits.is_valid()) result.dtype_ = DType::bfloat16;
  return result;
}

std::string numpy_name(DType dtype) {
  std::string text;
  switch (dtype) {
#define PENSTOCK_DTYPE(name, type, size, numpy) \
  case DType::name:                             \
    text = numpy;                               \
    break;
#define PENSTOCK_OTHER_DTYPE PENSTOCK_DTYPE
#include "penstock/dtypes.def"
#undef PENSTOCK_OTHER_DTYPE
#undef PENSTOCK_DTYPE
  }
  if (text == "bfloat16") return text;
  constexpr char kNative = std::endian::native == std::endian::little ? '<' : '>';
  const char order = size_bytes(dtype) == 1 ? '|' : kNative;
  return order + text;
}

}  // namespace penstock::python
