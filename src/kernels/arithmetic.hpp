// What the arithmetic steps of a plan do to memory: the one place where element types become code.
#pragma once

#include <span>

#include "penstock/arithmetic.hpp"
#include "penstock/types.hpp"

namespace penstock::kernels {

// Local and non-blocking; touch nothing but their arguments; any thread. `from` and `to` must not overlap and need no
// alignment. What a plan can get wrong here is a broken invariant (assert): verify() finds it beforehand.

/// to[i] = from[i] (op) to[i], as MPI_Reduce_local. Equal sizes, whole elements, and defined_for(op, dtype).
/// Integers wrap; float16 and bfloat16 are computed in float and rounded to nearest even.
void reduce(const Arithmetic& arithmetic, ConstBytes from, Bytes to);

/// The element types of the two sides of a transform or unpack step.
struct ElementTypes {
  DType from;
  DType to;
};

/// Whether what is written is to stay in the caches: if it is shorter than they are, or never.
enum class Stores : bool { by_size, past_caches };

/// Every block of a transform step (see Block; offsets count from the start of `from` and `to`). With `scaled`
/// to = alpha*op(from) + beta*to in the arithmetic of the dtype, op conjugating on request; otherwise to = from.
/// With beta == 0 the target is not read. alpha and beta must have passed check_scaling().
/// Where the types of the two sides differ, the elements of `from` are converted first.
void transform(const Arithmetic& arithmetic, const ElementTypes& types, std::span<const Block> blocks, bool scaled,
               ConstBytes from, Bytes to, Stores stores = Stores::by_size);
/// The same without a conversion.
void transform(const Arithmetic& arithmetic, std::span<const Block> blocks, bool scaled, ConstBytes from, Bytes to,
               Stores stores = Stores::by_size);

/// Whether elements of this type stay as they are in such a step.
bool is_move(const Arithmetic& arithmetic, DType dtype, bool scaled);

/// What messages hold of an input and an output of these types: the smaller elements.
DType wire_dtype(DType input, DType output);

/// Throws Error(invalid_argument) where elements lose more than precision: from complex to real, from floating point
/// to integers.
void check_conversion(DType from, DType to);

/// Throws Error(invalid_argument) where alpha or beta cannot be converted to the dtype: an imaginary part for a real
/// type, a fraction or a value out of range for an integer. For the front ends, before anything is started.
void check_scaling(const Arithmetic& arithmetic);

}  // namespace penstock::kernels
