// A matrix argument: descriptor, first element of the submatrix, and the grid of its context.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/layout.hpp"
#include "scalapack/host.hpp"

namespace penstock::scalapack {

/// What one process knows of an operand; all zeros where it is not in the operand's context. Processes exchange it as
/// bytes. The names of ScaLAPACK and the PBLAS in brackets.
struct Operand {
  std::int32_t present = 0;
  // Equal on all processes of the context.
  std::int32_t grid_rows = 0, grid_columns = 0;
  std::int32_t rows = 0, columns = 0;                        ///< of the whole matrix (M, N)
  std::int32_t first_row_block = 0, first_column_block = 0;  ///< (IMB, INB)
  std::int32_t row_block = 0, column_block = 0;              ///< (MB, NB)
  std::int32_t first_grid_row = 0, first_grid_column = 0;    ///< (RSRC, CSRC)
  std::int32_t row_begin = 0, column_begin = 0;              ///< of the submatrix, from 0 (IA - 1, JA - 1)
  // This process's own.
  std::int32_t leading_elems = 0;  ///< (LLD)
  std::int32_t grid_row = 0, grid_column = 0;

  bool agrees_with(const Operand& other) const;
};

/// Where an operand stands in the parameters of a routine, counted from 1: its row index (IA), then its column index,
/// then its descriptor.
struct Position {
  char name;  ///< 'A'
  int row_index;
  int descriptor() const { return row_index + 2; }
};

enum class Descriptors {
  redist,  ///< 9 entries, whose type nobody reads (P?GEMR2D)
  pblas    ///< 9 entries (type 1), or 11 with the lengths of the first blocks (type 2)
};

struct Complaint {
  int parameter;  ///< for pxerbla
  std::string text;
};

/// The entries of a descriptor where this process is in its context. Local.
Operand read_operand(const int* descriptor, int row_index, int column_index, Descriptors kind);

/// The first thing that is wrong with a submatrix of rows x columns elements, as far as this process can see. Local.
std::optional<Complaint> check(const Operand& operand, const int* descriptor, std::int64_t rows, std::int64_t columns,
                               const Position& position, Descriptors kind);

/// Whether layouts know it: not with a first block that is longer than the others.
bool is_known(const Operand& operand);

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

/// The operand as all processes of the call have told it, by rank, and what its layout is. Pure: equal on all ranks.
/// Throws Error(mismatch) where they contradict each other.
Layout layout_of(std::span<const Operand> by_rank, const Position& position);

/// As Layout::local_memory() wants it: 0 where this process has nothing.
std::int64_t leading_elems_of(const Operand& mine);

}  // namespace penstock::scalapack
