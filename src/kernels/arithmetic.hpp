// The arithmetic of plan steps on memory. All code that depends on element types is here.
#pragma once

#include <span>

#include "penstock/arithmetic.hpp"
#include "penstock/types.hpp"

namespace penstock::kernels {

// Local, non-blocking, any thread; they access only their arguments. `from` and `to` must not overlap and need no
// alignment. Preconditions that depend on the plan are asserted: verify() has checked them.

/// to[i] = from[i] (op) to[i], as MPI_Reduce_local. Sizes are equal and multiples of the element size; defined_for(op,
/// dtype) holds. Integers wrap; float16 and bfloat16 are computed in float and rounded to nearest even.
void reduce(const Arithmetic& arithmetic, ConstBytes from, Bytes to);

/// The element types of source and target of a transform.
struct ElementTypes {
  DType from;
  DType to;
};

/// How to write the target: by non-temporal stores if it is larger than the caches, or always.
enum class Stores : bool { by_size, non_temporal };

/// Moves all blocks of a step; offsets count from the start of `from` and `to`. With `scaled`, to = alpha*op(from) +
/// beta*to in the arithmetic of the dtype, where op conjugates if asked; otherwise to = from. With beta == 0 the target
/// is not read. alpha and beta must have passed check_scaling(). If the types of the two sides differ, elements of
/// `from` are converted first.
void transform(const Arithmetic& arithmetic, const ElementTypes& types, std::span<const Block> blocks, bool scaled,
               ConstBytes from, Bytes to, Stores stores = Stores::by_size);
/// The same without a conversion.
void transform(const Arithmetic& arithmetic, std::span<const Block> blocks, bool scaled, ConstBytes from, Bytes to,
               Stores stores = Stores::by_size);

/// Whether such a step copies elements of this type unchanged.
bool is_move(const Arithmetic& arithmetic, DType dtype, bool scaled);

/// The wire type: the element type of messages between an input and an output of these types, the smaller one.
DType wire_dtype(DType input, DType output);

/// Throws Error(invalid_argument) for conversions that lose more than precision: complex to real, floating point to
/// integer.
void check_conversion(DType from, DType to);

/// Throws Error(invalid_argument) if alpha or beta cannot be converted to the dtype: an imaginary part for a real type,
/// a fraction or a value out of range for an integer type. Front ends call it before they start an operation.
void check_scaling(const Arithmetic& arithmetic);

}  // namespace penstock::kernels
