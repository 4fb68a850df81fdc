#include "mpi/native_types.hpp"

namespace penstock::mpi {

MPI_Datatype datatype_of(DType dtype) {
  switch (dtype) {
    case DType::int8: return MPI_INT8_T;
    case DType::int16: return MPI_INT16_T;
    case DType::int32: return MPI_INT32_T;
    case DType::int64: return MPI_INT64_T;
    case DType::uint8: return MPI_UINT8_T;
    case DType::uint16: return MPI_UINT16_T;
    case DType::uint32: return MPI_UINT32_T;
    case DType::uint64: return MPI_UINT64_T;
    case DType::float32: return MPI_FLOAT;
    case DType::float64: return MPI_DOUBLE;
    case DType::longdouble: return MPI_LONG_DOUBLE;
    case DType::complex64: return MPI_C_FLOAT_COMPLEX;
    case DType::complex128: return MPI_C_DOUBLE_COMPLEX;
    case DType::clongdouble: return MPI_C_LONG_DOUBLE_COMPLEX;
    case DType::bool8: return MPI_C_BOOL;
    case DType::float32_int32: return MPI_FLOAT_INT;
    case DType::float64_int32: return MPI_DOUBLE_INT;
    case DType::longdouble_int32: return MPI_LONG_DOUBLE_INT;
    case DType::int16_int32: return MPI_SHORT_INT;
    case DType::int32_int32: return MPI_2INT;
    case DType::int64_int32: return MPI_LONG_INT;
    // MPI has no 16-bit floating types, and some MPI libraries lack Fortran's pairs.
    case DType::float16:
    case DType::bfloat16:
    case DType::float32_float32:
    case DType::float64_float64: break;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return MPI_SUM;
    case ReduceOp::prod: return MPI_PROD;
    case ReduceOp::min: return MPI_MIN;
    case ReduceOp::max: return MPI_MAX;
    case ReduceOp::band: return MPI_BAND;
    case ReduceOp::bor: return MPI_BOR;
    case ReduceOp::bxor: return MPI_BXOR;
    case ReduceOp::land: return MPI_LAND;
    case ReduceOp::lor: return MPI_LOR;
    case ReduceOp::lxor: return MPI_LXOR;
    case ReduceOp::minloc: return MPI_MINLOC;
    case ReduceOp::maxloc: return MPI_MAXLOC;
  }
  return MPI_OP_NULL;
}

}  // namespace penstock::mpi
