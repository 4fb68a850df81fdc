// What the steps of a plan do to memory: which elements, and what they become.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "penstock/types.hpp"

namespace penstock {

/// One 2-d block that a `transform`, `unpack` or `remote_read` step moves: to[j][i] (transposed) or to[i][j] =
/// alpha*op(from[i][j]) + beta*to. Offsets are relative to the step's regions; strides between neighbouring rows and
/// columns are in elements.
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

/// A reduction operation of the caller's own.
struct UserOp {
  /// to[i] = from[i] (op) to[i] for all elements of two ranges of one size, which begin at multiples of the element
  /// size from memory aligned for any type or from the start of the caller's buffers. Has to be associative. Called by
  /// any thread, by several at once, and in any process of the node; what it throws fails the operation on all ranks.
  std::function<void(ConstBytes from, Bytes to)> combine;
  std::uint64_t element_bytes = 1;
  bool commutative =
      true;  ///< false: the elements are combined in the order of the ranks, `from` having the lower ones
};

/// What the arithmetic steps of a plan compute; given when a plan is run, not when it is built.
struct Arithmetic {
  DType dtype = DType::uint8;  ///< element type of reduce and transform
  /// Element type of the input, where transforms convert; messages, scratch and shared memory then hold the smaller of
  /// the two types, and the arithmetic is that of `dtype`.
  std::optional<DType> input_dtype = {};
  ReduceOp op = ReduceOp::sum;
  bool reproducible = false;  ///< shared tasks combine their sources as `reduce_sorted` does
  bool conjugate = false;     ///< with `scaled`: conjugate the source elements
  std::complex<double> alpha = 1.0;
  std::complex<double> beta = 0.0;       ///< with 0 the target is not read, so it may hold NaN
  std::shared_ptr<const UserOp> user{};  ///< of reduce, instead of dtype and op, where it is not null
};

}  // namespace penstock
