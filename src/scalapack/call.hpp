// One call of a routine, from its arguments to the moved matrix.
#pragma once

#include <complex>
#include <cstdint>

#include "penstock/redistribute.hpp"
#include "penstock/types.hpp"
#include "scalapack/operand.hpp"

namespace penstock::scalapack {

/// What a routine does, whatever its arguments: a row of routines.def.
struct Routine {
  const char* name;  ///< "PDGEMR2D"
  DType dtype;
  MatrixOp op;
  Descriptors descriptors;
  Position source;
  Position target;
};

/// sub(target) = alpha*op(sub(source)) + beta*sub(target), all of it from one process's view.
struct Call {
  std::int64_t rows = 0;  ///< of sub(target)
  std::int64_t columns = 0;
  const void* input = nullptr;
  const int* source_descriptor = nullptr;
  int source_row = 1, source_column = 1;
  void* output = nullptr;
  const int* target_descriptor = nullptr;
  int target_row = 1, target_column = 1;
  int context = -1;  ///< of the call: holds all processes of both
  int context_parameter = 0;
  std::complex<double> alpha = 1.0;
  std::complex<double> beta = 0.0;
};

/// Collective over the context of the call. Never throws: what is wrong is printed, and no process moves anything.
/// False where layouts do not know the operands, on all processes alike; nothing has happened then.
bool run(const Routine& routine, const Call& call) noexcept;

}  // namespace penstock::scalapack
