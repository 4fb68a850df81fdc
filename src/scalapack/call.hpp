// Runs one call of a ScaLAPACK routine.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>

#include "penstock/redistribute.hpp"
#include "penstock/types.hpp"
#include "scalapack/operand.hpp"

namespace penstock::scalapack {

/// Which elements of a submatrix P?TRMR2D moves, as it defines them for rows that are more or fewer than the columns.
struct Trapezoid {
  char uplo = 'U';  ///< 'U' or 'L', in either case
  char diag = 'N';  ///< 'N', or 'U' for what has no diagonal

  /// The rows [begin, end) of column `column`, counted from 0, of a submatrix of rows x columns.
  struct Range {
    std::int64_t begin, end;
  };
  Range in_column(std::int64_t column, std::int64_t rows, std::int64_t columns) const;
  bool is_upper() const;
  bool has_diagonal() const;
  /// The first letter that is illegal.
  std::optional<Complaint> check() const;
};

/// A routine: a row of routines.def.
struct Routine {
  const char* name;  ///< "PDGEMR2D"
  DType dtype;
  MatrixOp op;
  Descriptors descriptors;
  Position source;
  Position target;
  int rows = 1;  ///< the position of M, which N follows
};

/// sub(target) = alpha*op(sub(source)) + beta*sub(target): the arguments of one process.
struct Call {
  std::int64_t rows = 0;  ///< of sub(target)
  std::int64_t columns = 0;
  const void* input = nullptr;
  const Int* source_descriptor = nullptr;
  Int source_row = 1, source_column = 1;
  void* output = nullptr;
  const Int* target_descriptor = nullptr;
  Int target_row = 1, target_column = 1;
  Int context = -1;  ///< of the call; has all processes of both matrices
  int context_parameter = 0;
  std::complex<double> alpha = 1.0;
  std::complex<double> beta = 0.0;
  std::optional<Trapezoid> trapezoid{};  ///< without one, all elements of the submatrix move
};

/// Collective over the context of the call. Never throws: it prints errors, and then no process moves data. Returns
/// false on all processes, without any effect, if layouts cannot describe the operands.
bool run(const Routine& routine, const Call& call) noexcept;

}  // namespace penstock::scalapack
