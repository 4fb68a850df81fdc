// What the arithmetic steps of a plan do to memory: the one place where element types become code.
#pragma once

#include <span>

#include "penstock/plan.hpp"
#include "penstock/types.hpp"

namespace penstock::plan {

// Local and non-blocking; touch nothing but their arguments; any thread. `from` and `to` must not overlap and need no
// alignment. What a plan can get wrong here is a broken invariant (assert): verify() finds it beforehand.

/// to[i] = from[i] (op) to[i], as MPI_Reduce_local. Equal sizes, whole elements, and defined_for(op, dtype).
/// Integers wrap; float16 and bfloat16 are computed in float and rounded to nearest even.
void reduce(const Arithmetic& arithmetic, ConstBytes from, Bytes to);

/// Every block of a transform step (see Block; offsets count from the start of `from` and `to`). With `scaled`
/// to = alpha*op(from) + beta*to in the arithmetic of the dtype, op conjugating on request; otherwise to = from.
/// With beta == 0 the target is not read. alpha and beta are converted to the dtype (for real types the imaginary
/// part, for integers also the fraction, must be zero).
void transform(const Arithmetic& arithmetic, std::span<const Block> blocks, bool scaled, ConstBytes from, Bytes to);

}  // namespace penstock::plan
