#include "preload/types.hpp"

#include <array>
#include <cstddef>
#include <cstring>

namespace penstock::preload {
namespace {

/// A few handles in a table of 512 places that is never full.
template <typename Handle, typename Value>
class HandleTable {
 public:
  void add(Handle handle, const Value& value) {
    std::size_t at = place(handle);
    while (entries_[at].is_used && entries_[at].handle != handle) at = (at + 1) % kPlaces;
    if (!entries_[at].is_used) entries_[at] = {handle, value, true};
  }
  const Value* find(Handle handle) const {
    for (std::size_t at = place(handle); entries_[at].is_used; at = (at + 1) % kPlaces)
      if (entries_[at].handle == handle) return &entries_[at].value;
    return nullptr;
  }

 private:
  static constexpr std::size_t kPlaces = 512;
  struct Entry {
    Handle handle{};
    Value value{};
    bool is_used = false;
  };
  static std::size_t place(Handle handle) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &handle, sizeof handle);
    return static_cast<std::size_t>((bits * 0x9E3779B97F4A7C15U) >> 55U);
  }
  std::array<Entry, kPlaces> entries_{};
};

DType integer_of(std::size_t bytes, bool is_signed) {
  switch (bytes) {
    case 1: return is_signed ? DType::int8 : DType::uint8;
    case 2: return is_signed ? DType::int16 : DType::uint16;
    case 4: return is_signed ? DType::int32 : DType::uint32;
    default: return is_signed ? DType::int64 : DType::uint64;
  }
}

HandleTable<MPI_Datatype, NamedType> make_types() {
  HandleTable<MPI_Datatype, NamedType> table;
  const auto add_bytes = [&](MPI_Datatype type) {
    int bytes = 0;
    if (type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &bytes) != MPI_SUCCESS || bytes <= 0) return;
    table.add(type, {.bytes = static_cast<std::uint64_t>(bytes)});
  };
  const auto add = [&](MPI_Datatype type, DType dtype, bool only_bits = false) {
    int bytes = 0;
    if (type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &bytes) != MPI_SUCCESS) return;
    if (size_bytes(dtype) != static_cast<std::size_t>(bytes)) return add_bytes(type);
    table.add(type, {static_cast<std::uint64_t>(bytes), true, dtype, only_bits});
  };
  const auto integer = [&](MPI_Datatype type, bool is_signed) {
    int bytes = 0;
    if (type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &bytes) != MPI_SUCCESS) return;
    add(type, integer_of(static_cast<std::size_t>(bytes), is_signed));
  };
  const auto pair_with_holes = [&](MPI_Datatype type, DType dtype) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    if (type == MPI_DATATYPE_NULL || PMPI_Type_get_extent(type, &lower, &extent) != MPI_SUCCESS) return;
    if (static_cast<std::size_t>(extent) == size_bytes(dtype)) table.add(type, {0, true, dtype});
  };
  add(MPI_BYTE, DType::uint8, true);
  add_bytes(MPI_PACKED);
  add_bytes(MPI_CHAR);
  add_bytes(MPI_WCHAR);
  add_bytes(MPI_CHARACTER);
  add_bytes(MPI_LOGICAL);  // the values of Fortran's .TRUE. differ between compilers
  for (const MPI_Datatype type : {MPI_SIGNED_CHAR, MPI_SHORT, MPI_INT, MPI_LONG, MPI_LONG_LONG_INT, MPI_INT8_T,
                                  MPI_INT16_T, MPI_INT32_T, MPI_INT64_T, MPI_AINT, MPI_OFFSET, MPI_COUNT, MPI_INTEGER,
                                  MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4, MPI_INTEGER8})
    integer(type, true);
  for (const MPI_Datatype type : {MPI_UNSIGNED_CHAR, MPI_UNSIGNED_SHORT, MPI_UNSIGNED, MPI_UNSIGNED_LONG,
                                  MPI_UNSIGNED_LONG_LONG, MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T})
    integer(type, false);
  add(MPI_FLOAT, DType::float32);
  add(MPI_DOUBLE, DType::float64);
  add(MPI_LONG_DOUBLE, DType::longdouble);
  add(MPI_REAL, DType::float32);
  add(MPI_REAL4, DType::float32);
  add(MPI_REAL8, DType::float64);
  add(MPI_DOUBLE_PRECISION, DType::float64);
  add(MPI_C_BOOL, DType::bool8);
  add(MPI_C_FLOAT_COMPLEX, DType::complex64);
  add(MPI_C_DOUBLE_COMPLEX, DType::complex128);
  add(MPI_C_LONG_DOUBLE_COMPLEX, DType::clongdouble);
  add(MPI_COMPLEX, DType::complex64);
  add(MPI_DOUBLE_COMPLEX, DType::complex128);
  add(MPI_COMPLEX8, DType::complex64);
  add(MPI_COMPLEX16, DType::complex128);
  add(MPI_2INT, DType::int32_int32);
  add(MPI_FLOAT_INT, DType::float32_int32);
  pair_with_holes(MPI_DOUBLE_INT, DType::float64_int32);
  pair_with_holes(MPI_LONG_INT, DType::int64_int32);
  pair_with_holes(MPI_SHORT_INT, DType::int16_int32);
  pair_with_holes(MPI_LONG_DOUBLE_INT, DType::longdouble_int32);
  add(MPI_2INTEGER, DType::int32_int32);
  add(MPI_2REAL, DType::float32_float32);
  add(MPI_2DOUBLE_PRECISION, DType::float64_float64);
  return table;
}

HandleTable<MPI_Op, ReduceOp> make_ops() {
  HandleTable<MPI_Op, ReduceOp> table;
  table.add(MPI_SUM, ReduceOp::sum);
  table.add(MPI_PROD, ReduceOp::prod);
  table.add(MPI_MIN, ReduceOp::min);
  table.add(MPI_MAX, ReduceOp::max);
  table.add(MPI_BAND, ReduceOp::band);
  table.add(MPI_BOR, ReduceOp::bor);
  table.add(MPI_BXOR, ReduceOp::bxor);
  table.add(MPI_LAND, ReduceOp::land);
  table.add(MPI_LOR, ReduceOp::lor);
  table.add(MPI_LXOR, ReduceOp::lxor);
  table.add(MPI_MINLOC, ReduceOp::minloc);
  table.add(MPI_MAXLOC, ReduceOp::maxloc);
  return table;
}

}  // namespace

const NamedType* named_type(MPI_Datatype type) {
  static const HandleTable<MPI_Datatype, NamedType> table = make_types();
  return table.find(type);
}

const ReduceOp* named_op(MPI_Op op) {
  static const HandleTable<MPI_Op, ReduceOp> table = make_ops();
  return table.find(op);
}

}  // namespace penstock::preload
