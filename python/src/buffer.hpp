// Python arrays as bytes: objects with the buffer protocol (bytes, memoryview, NumPy, array.array) or DLPack.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "penstock/types.hpp"

namespace penstock::python {

enum class Access { read, write };

/// Memory of a Python object, kept alive by this view. Contiguous in C or Fortran order, unless strided_view() made it.
/// Make, move and destroy it with the GIL held. Its memory may be used without the GIL.
class ArrayView {
 public:
  ArrayView() = default;  ///< no object, an empty span

  ConstBytes bytes() const { return {data_, size_bytes_}; }
  /// Requires Access::write.
  Bytes writable_bytes() const { return {data_, size_bytes_}; }
  std::uint64_t size_bytes() const { return size_bytes_; }
  std::uint64_t item_bytes() const { return item_bytes_; }
  std::uint64_t count() const { return item_bytes_ == 0 ? 0 : size_bytes_ / item_bytes_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  const std::vector<std::int64_t>& strides_bytes() const { return strides_bytes_; }
  bool is_contiguous() const { return c_contiguous_ || fortran_contiguous_; }
  /// Address of the element with all indices 0.
  std::byte* data() const { return data_; }
  bool c_contiguous() const { return c_contiguous_; }
  bool fortran_contiguous() const { return fortran_contiguous_; }

  /// Empty if the element type is not in dtypes.def (structures, foreign byte order); see dtype().
  std::optional<DType> known_dtype() const { return dtype_; }
  /// Throws Error(invalid_argument), which names the argument and its element type.
  DType dtype() const;

  /// The bytes from `offset_bytes` on, as a 1-d view: `size_bytes` of them, or all that follow if negative. Throws
  /// Error(invalid_argument) if they do not lie inside.
  ArrayView part(std::int64_t offset_bytes, std::int64_t size_bytes) const;
  /// The same bytes with another element type, 1-d. An empty type is one that known_dtype() does not know.
  ArrayView reinterpreted(std::optional<DType> dtype) const;

 private:
  friend ArrayView strided_view(nanobind::handle object, Access access, const char* argument);

  std::byte* data_ = nullptr;
  std::uint64_t size_bytes_ = 0;
  std::uint64_t item_bytes_ = 1;
  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> strides_bytes_;
  std::optional<DType> dtype_;
  bool c_contiguous_ = true;
  bool fortran_contiguous_ = true;
  std::string argument_;
  std::string held_;              ///< element type as the exporter names it, for messages
  nanobind::object owner_;        ///< a memoryview
  std::shared_ptr<void> tensor_;  ///< the DLPack tensor, if not a memoryview
};

/// A view of `object`, which messages call `argument`. Copies nothing. Accepts bfloat16 arrays of ml_dtypes. Throws
/// Error(invalid_argument) if `object` is not an array, not contiguous, not in this process's memory, or read-only
/// despite Access::write.
ArrayView view(nanobind::handle object, Access access, const char* argument);
/// As view(), for arrays with any strides.
ArrayView strided_view(nanobind::handle object, Access access, const char* argument);

/// The type of a struct-module format with one element, as PEP 3118 extends it ("<f", "Zd"). nullptr means bytes. Empty
/// if the type is not in dtypes.def.
std::optional<DType> dtype_of_format(const char* format, std::uint64_t item_bytes);

/// A type of dtypes.def as NumPy spells it: "<f4". "bfloat16" if NumPy lacks it.
std::string numpy_name(DType dtype);

}  // namespace penstock::python
