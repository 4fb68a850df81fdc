// Python arrays as bytes: anything with the buffer protocol (bytes, memoryview, NumPy, array.array) or DLPack.
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

/// Memory of a Python object, contiguous in C or Fortran order unless it was made by strided_view(), which stays alive
/// and in place as long as this does. Make, move and destroy it with the GIL held; the memory may be used without.
class ArrayView {
 public:
  ArrayView() = default;  ///< no object: an empty span

  ConstBytes bytes() const { return {data_, size_bytes_}; }
  /// Only for Access::write.
  Bytes writable_bytes() const { return {data_, size_bytes_}; }
  std::uint64_t size_bytes() const { return size_bytes_; }
  std::uint64_t item_bytes() const { return item_bytes_; }
  std::uint64_t count() const { return item_bytes_ == 0 ? 0 : size_bytes_ / item_bytes_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  const std::vector<std::int64_t>& strides_bytes() const { return strides_bytes_; }
  bool is_contiguous() const { return c_contiguous_ || fortran_contiguous_; }
  /// The address of the element with all indices 0.
  std::byte* data() const { return data_; }
  bool c_contiguous() const { return c_contiguous_; }
  bool fortran_contiguous() const { return fortran_contiguous_; }

  /// Empty where the elements are none of dtypes.def (structures, foreign byte order); see dtype().
  std::optional<DType> known_dtype() const { return dtype_; }
  /// Throws Error(invalid_argument) that names the argument and what it holds.
  DType dtype() const;

  /// The bytes from `offset_bytes` on, `size_bytes` of them or all that follow if negative, as a 1-d view. Throws
  /// Error(invalid_argument) for a part that is not inside.
  ArrayView part(std::int64_t offset_bytes, std::int64_t size_bytes) const;
  /// The same bytes as elements of another type, 1-d; an empty type is one that known_dtype() does not know.
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
  std::string held_;              ///< element type in the exporter's words, for messages
  nanobind::object owner_;        ///< a memoryview
  std::shared_ptr<void> tensor_;  ///< or the DLPack tensor
};

/// A view of `object`, the argument called `argument` in messages. Copies nothing. Throws Error(invalid_argument) for
/// what is no array, not contiguous, read-only though Access::write, or not in this process's memory.
/// bfloat16 arrays of ml_dtypes are taken too.
ArrayView view(nanobind::handle object, Access access, const char* argument);
/// The same of arrays with any strides.
ArrayView strided_view(nanobind::handle object, Access access, const char* argument);

/// Of a format of the struct module with one element, as PEP 3118 extends it ("<f", "Zd"); nullptr means bytes. Empty
/// where the elements are none of dtypes.def.
std::optional<DType> dtype_of_format(const char* format, std::uint64_t item_bytes);

/// dtypes.def's type as NumPy spells it: "<f4"; "bfloat16" for what NumPy lacks.
std::string numpy_name(DType dtype);

}  // namespace penstock::python
