// A matrix argument: descriptor, first element of the submatrix, and the grid of its context.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/layout.hpp"
#include "scalapack/host.hpp"
#include "scalapack/integer.hpp"

namespace penstock::scalapack {

/// What one process knows about an operand; all zeros if it is not in the operand's context. Processes exchange it as
/// bytes. ScaLAPACK's and the PBLAS's names in brackets.
struct Operand {
  std::int64_t present = 0;
  // Equal on all processes of the context.
  std::int64_t grid_rows = 0, grid_columns = 0;
  std::int64_t rows = 0, columns = 0;                        ///< of the whole matrix (M, N)
  std::int64_t first_row_block = 0, first_column_block = 0;  ///< (IMB, INB)
  std::int64_t row_block = 0, column_block = 0;              ///< (MB, NB)
  std::int64_t first_grid_row = 0, first_grid_column = 0;    ///< (RSRC, CSRC)
  std::int64_t row_begin = 0, column_begin = 0;              ///< of the submatrix, from 0 (IA - 1, JA - 1)
  // This process's own.
  std::int64_t leading_elems = 0;  ///< (LLD)
  std::int64_t grid_row = 0, grid_column = 0;

  bool agrees_with(const Operand& other) const;
};

/// The position of an operand in the parameters of a routine, counted from 1: its row index (IA), followed by its
/// column index and its descriptor.
struct Position {
  char name;  ///< 'A'
  int row_index;
  int descriptor() const { return row_index + 2; }
};

enum class Descriptors {
  redist,  ///< 9 entries, whose type is ignored (P?GEMR2D)
  pblas    ///< 9 entries (type 1), or 11 with the lengths of the first blocks (type 2)
};

/// An illegal argument, as pxerbla reports it.
struct Complaint {
  int parameter;  ///< for pxerbla
  std::string text;
};

/// Reads a descriptor, if this process is in its context. Local.
Operand read_operand(const Int* descriptor, Int row_index, Int column_index, Descriptors kind);

/// The first error of a submatrix of rows x columns elements that this process can find. Local.
std::optional<Complaint> check(const Operand& operand, const Int* descriptor, std::int64_t rows, std::int64_t columns,
                               const Position& position, Descriptors kind);

/// Whether a Layout can describe it: not if the first block is longer than the others.
bool fits_layout(const Operand& operand);

/// The elements of the submatrix that one process has, in its local array.
struct LocalPart {
  std::int64_t row = 0, rows = 0;
  std::int64_t column = 0, columns = 0;
  std::int64_t leading_elems = 0;

  bool empty() const { return rows == 0 || columns == 0; }
  std::int64_t begin_elems() const { return column * leading_elems + row; }
  std::int64_t end_elems() const {
    return empty() ? begin_elems() : begin_elems() + (columns - 1) * leading_elems + rows;
  }
};
LocalPart local_part(const Operand& mine, std::int64_t rows, std::int64_t columns);
/// The same of the rows [begin, end) of one column of the submatrix, counted from 0; empty if another process has it.
LocalPart local_part_of_column(const Operand& mine, std::int64_t column, std::int64_t begin, std::int64_t end);

/// The layout of an operand, from what all processes know about it, by rank. Pure, so equal on all ranks. Throws
/// Error(mismatch) if they contradict each other.
Layout layout_of(std::span<const Operand> by_rank, const Position& position);

/// The argument for Layout::local_memory(); 0 if this process has no elements.
std::int64_t leading_elems_of(const Operand& mine);

}  // namespace penstock::scalapack
