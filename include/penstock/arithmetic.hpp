// What the steps of a plan do to memory: which elements, and what they become.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "penstock/types.hpp"

namespace penstock {

/// One 2-d block that a `transform` moves: to[j][i] (transposed) or to[i][j] = alpha*op(from[i][j]) + beta*to. Offsets
/// are relative to the step's regions; strides between neighbouring rows and columns are in elements.
struct Block {
  std::uint64_t from_offset_elems = 0;
  std::uint64_t to_offset_elems = 0;
  std::uint64_t rows = 0;  ///< rows and columns of the block as it lies in `from`
  std::uint64_t columns = 0;
  std::int64_t from_row_stride_elems = 0;
  std::int64_t from_column_stride_elems = 0;
  std::int64_t to_row_stride_elems = 0;     ///< step in `to` for the next row of `from`
  std::int64_t to_column_stride_elems = 0;  ///< step in `to` for the next column of `from`
};

/// A reduction operation of the caller, as MPI_Op_create makes. Must be associative.
struct UserOp {
  /// to[i] = from[i] (op) to[i] for all elements of two ranges of the same size. Each range begins at a multiple of the
  /// element size, counted from memory aligned for any type or from the start of the caller's buffer. Any thread of any
  /// process of the node may call it, several at once. If it throws, the operation fails on all ranks.
  std::function<void(ConstBytes from, Bytes to)> combine;
  std::uint64_t element_bytes = 1;
  bool commutative = true;  ///< false: elements are combined in rank order; `from` has the lower ranks
};

/// What the arithmetic steps of a plan compute. Given when a plan is run, not when it is built.
struct Arithmetic {
  DType dtype = DType::uint8;  ///< element type of reduce and transform
  /// Element type of the input, if transforms convert. Messages, scratch and shared memory then hold the smaller of the
  /// two types (the wire type). Arithmetic is done in `dtype`.
  std::optional<DType> input_dtype = {};
  ReduceOp op = ReduceOp::sum;
  bool reproducible = false;  ///< tasks combine their sources as `reduce_sorted` does
  bool conjugate = false;     ///< with `scaled`: conjugate the source elements
  std::complex<double> alpha = 1.0;
  std::complex<double> beta = 0.0;       ///< with 0 the target is not read, so it may hold NaN
  std::shared_ptr<const UserOp> user{};  ///< of reductions; replaces dtype and op unless it is nullptr
};

}  // namespace penstock
