#include "scalapack/operand.hpp"

#include <algorithm>
#include <iterator>

#include "penstock/error.hpp"

namespace penstock::scalapack {
namespace {

constexpr int kBlockCyclic = 1;
constexpr int kBlockCyclicFirst = 2;

bool is_replicated(std::int64_t first_process) { return first_process < 0; }

bool has_first_blocks(const Int* descriptor, Descriptors kind) {
  return kind == Descriptors::pblas && descriptor[0] == kBlockCyclicFirst;
}

Axis axis(std::int64_t length, std::int64_t block, std::int64_t first_block, std::int64_t processes) {
  return Axis::cyclic(length, block, processes, block - first_block);
}

/// One dimension of an operand. Its processes are a row (column) of the grid, or a single one if the matrix is
/// replicated.
struct Dimension {
  Axis axis;
  std::int64_t coordinate;  ///< of this process: how many steps after the process with the first block it stands
};

Axis row_axis(const Operand& operand) {
  return axis(operand.rows, operand.row_block, operand.first_row_block,
              is_replicated(operand.first_grid_row) ? 1 : operand.grid_rows);
}

Axis column_axis(const Operand& operand) {
  return axis(operand.columns, operand.column_block, operand.first_column_block,
              is_replicated(operand.first_grid_column) ? 1 : operand.grid_columns);
}

std::int64_t coordinate(std::int64_t process, std::int64_t first, std::int64_t processes) {
  return is_replicated(first) ? 0 : (process - first + processes) % processes;
}

Dimension row_dimension(const Operand& mine) {
  return {row_axis(mine), coordinate(mine.grid_row, mine.first_grid_row, mine.grid_rows)};
}

Dimension column_dimension(const Operand& mine) {
  return {column_axis(mine), coordinate(mine.grid_column, mine.first_grid_column, mine.grid_columns)};
}

std::int64_t local_length(const Dimension& dimension) { return dimension.axis.local_length(dimension.coordinate); }

/// The order of the processes, starting at the one with the first block; a replicated matrix has one order of a single
/// process per copy.
std::vector<std::vector<std::int32_t>> orders(std::int64_t processes, std::int64_t first) {
  std::vector<std::vector<std::int32_t>> copies;
  if (is_replicated(first)) {
    for (std::int32_t process = 0; process < processes; ++process) copies.push_back({process});
    return copies;
  }
  copies.emplace_back();
  for (std::int64_t step = 0; step < processes; ++step)
    copies[0].push_back(static_cast<std::int32_t>((first + step) % processes));
  return copies;
}

}  // namespace

bool Operand::agrees_with(const Operand& other) const {
  Operand same = other;
  same.leading_elems = leading_elems;
  same.grid_row = grid_row;
  same.grid_column = grid_column;
  const auto words = [](const Operand& operand) {
    static_assert(std::is_trivially_copyable_v<Operand> && sizeof(Operand) % sizeof(std::int64_t) == 0);
    return std::span(reinterpret_cast<const std::int64_t*>(&operand), sizeof(Operand) / sizeof(std::int64_t));
  };
  return std::ranges::equal(words(*this), words(same));
}

Operand read_operand(const Int* descriptor, Int row_index, Int column_index, Descriptors kind) {
  const Grid grid = grid_of(descriptor[1]);
  if (!grid.has_me()) return {};
  Operand operand;
  operand.present = 1;
  operand.grid_rows = grid.rows;
  operand.grid_columns = grid.columns;
  operand.grid_row = grid.row;
  operand.grid_column = grid.column;
  operand.rows = descriptor[2];
  operand.columns = descriptor[3];
  const Int* const blocks = descriptor + (has_first_blocks(descriptor, kind) ? 6 : 4);
  operand.first_row_block = descriptor[4];
  operand.first_column_block = descriptor[5];
  operand.row_block = blocks[0];
  operand.column_block = blocks[1];
  operand.first_grid_row = blocks[2];
  operand.first_grid_column = blocks[3];
  operand.leading_elems = blocks[4];
  operand.row_begin = row_index - 1;
  operand.column_begin = column_index - 1;
  return operand;
}

std::optional<Complaint> check(const Operand& operand, const Int* descriptor, std::int64_t rows, std::int64_t columns,
                               const Position& position, Descriptors kind) {
  if (operand.present == 0) return std::nullopt;
  const std::string matrix(1, position.name);
  const int shift = has_first_blocks(descriptor, kind) ? 2 : 0;
  const auto entry = [&](int number, const char* name, std::int64_t given, const std::string& expected) {
    return Complaint{100 * position.descriptor() + number, "DESC" + matrix + "(" + std::to_string(number) + "), " +
                                                               name + ", is " + std::to_string(given) + "; expected " +
                                                               expected};
  };
  if (kind == Descriptors::pblas && descriptor[0] != kBlockCyclic && descriptor[0] != kBlockCyclicFirst)
    return entry(1, "DTYPE", descriptor[0], "1 or 2");
  if (operand.rows < 0) return entry(3, "M", operand.rows, "at least 0");
  if (operand.columns < 0) return entry(4, "N", operand.columns, "at least 0");
  if (operand.first_row_block < 1) return entry(5, shift != 0 ? "IMB" : "MB", operand.first_row_block, "at least 1");
  if (operand.first_column_block < 1)
    return entry(6, shift != 0 ? "INB" : "NB", operand.first_column_block, "at least 1");
  if (operand.row_block < 1) return entry(5 + shift, "MB", operand.row_block, "at least 1");
  if (operand.column_block < 1) return entry(6 + shift, "NB", operand.column_block, "at least 1");
  const int least = kind == Descriptors::pblas ? -1 : 0;  // -1: replicated
  const auto process = [&](std::int64_t given, std::int64_t count) { return given >= least && given < count; };
  if (!process(operand.first_grid_row, operand.grid_rows))
    return entry(7 + shift, "RSRC", operand.first_grid_row,
                 "a row of the process grid, 0 to " + std::to_string(operand.grid_rows - 1));
  if (!process(operand.first_grid_column, operand.grid_columns))
    return entry(8 + shift, "CSRC", operand.first_grid_column,
                 "a column of the process grid, 0 to " + std::to_string(operand.grid_columns - 1));

  const auto outside = [&](int parameter, const char* index, std::int64_t begin, std::int64_t count, const char* length,
                           std::int64_t whole) {
    return Complaint{parameter, std::string(index) + matrix + " is " + std::to_string(begin + 1) +
                                    "; expected at least 1, "
                                    "and that the " +
                                    std::to_string(count) + " " + length + " from there on lie inside of the " +
                                    std::to_string(whole) + " of " + matrix};
  };
  if (operand.row_begin < 0 || operand.row_begin + rows > operand.rows)
    return outside(position.row_index, "I", operand.row_begin, rows, "rows", operand.rows);
  if (operand.column_begin < 0 || operand.column_begin + columns > operand.columns)
    return outside(position.row_index + 1, "J", operand.column_begin, columns, "columns", operand.columns);
  if (!fits_layout(operand)) return std::nullopt;
  const std::int64_t local_rows = local_length(row_dimension(operand));
  const std::int64_t local_columns = local_length(column_dimension(operand));
  if (local_rows > 0 && local_columns > 0 && operand.leading_elems < local_rows)
    return entry(9 + shift, "LLD", operand.leading_elems,
                 "at least " + std::to_string(local_rows) + ", the rows that this process has");
  return std::nullopt;
}

bool fits_layout(const Operand& operand) {
  return operand.present == 0 ||
         (operand.first_row_block <= operand.row_block && operand.first_column_block <= operand.column_block);
}

std::int64_t leading_elems_of(const Operand& mine) {
  if (mine.present == 0) return 0;
  const std::int64_t local_rows = local_length(row_dimension(mine));
  const std::int64_t local_columns = local_length(column_dimension(mine));
  return local_rows > 0 && local_columns > 0 ? mine.leading_elems : 0;
}

namespace {

/// `begin` and `end` of each dimension are counted in the submatrix.
LocalPart local_part(const Operand& mine, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
                     std::int64_t column_end) {
  LocalPart part;
  if (mine.present == 0) return part;
  const auto range = [](const Dimension& whole, std::int64_t begin, std::int64_t end, std::int64_t& first,
                        std::int64_t& length) {
    first = whole.axis.local_length_before(whole.coordinate, begin);
    length = whole.axis.local_length_before(whole.coordinate, end) - first;
  };
  range(row_dimension(mine), mine.row_begin + row_begin, mine.row_begin + row_end, part.row, part.rows);
  range(column_dimension(mine), mine.column_begin + column_begin, mine.column_begin + column_end, part.column,
        part.columns);
  part.leading_elems = leading_elems_of(mine);
  return part;
}

}  // namespace

LocalPart local_part(const Operand& mine, std::int64_t rows, std::int64_t columns) {
  return local_part(mine, 0, rows, 0, columns);
}

LocalPart local_part_of_column(const Operand& mine, std::int64_t column, std::int64_t begin, std::int64_t end) {
  return local_part(mine, begin, end, column, column + 1);
}

Layout layout_of(std::span<const Operand> by_rank, const Position& position) {
  const std::string matrix(1, position.name);
  const auto first =
      std::find_if(by_rank.begin(), by_rank.end(), [](const Operand& operand) { return operand.present != 0; });
  if (first == by_rank.end())
    throw Error(ErrorCode::mismatch,
                "no process of the call is in the context of " + matrix + ", DESC" + matrix + "(2)");
  const Operand& shared = *first;
  const auto processes = static_cast<std::size_t>(shared.grid_rows) * static_cast<std::size_t>(shared.grid_columns);
  std::vector<std::int32_t> rank_of(processes, -1);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const Operand& operand = by_rank[rank];
    if (operand.present == 0) continue;
    if (!operand.agrees_with(shared))
      throw Error(ErrorCode::mismatch,
                  "process " + std::to_string(rank) + " gives another DESC" + matrix + ", I" + matrix + " or J" +
                      matrix + " than process " + std::to_string(first - by_rank.begin()) +
                      "; give the same everywhere",
                  static_cast<int>(rank));
    rank_of[static_cast<std::size_t>(operand.grid_row) * static_cast<std::size_t>(shared.grid_columns) +
            static_cast<std::size_t>(operand.grid_column)] = static_cast<std::int32_t>(rank);
  }
  if (const auto missing = std::find(rank_of.begin(), rank_of.end(), -1); missing != rank_of.end())
    throw Error(ErrorCode::mismatch,
                "process {" + std::to_string((missing - rank_of.begin()) / shared.grid_columns) + "," +
                    std::to_string((missing - rank_of.begin()) % shared.grid_columns) + "} of the context of " +
                    matrix + " is not in the context of the call, which has to hold all processes of both matrices");
  std::vector<Layout> copies;
  for (const std::vector<std::int32_t>& rows : orders(shared.grid_rows, shared.first_grid_row))
    for (const std::vector<std::int32_t>& columns : orders(shared.grid_columns, shared.first_grid_column)) {
      std::vector<std::int32_t> owners;
      for (const std::int32_t row : rows)
        for (const std::int32_t column : columns)
          owners.push_back(rank_of[static_cast<std::size_t>(row) * static_cast<std::size_t>(shared.grid_columns) +
                                   static_cast<std::size_t>(column)]);
      copies.push_back(Layout::from_axes({row_axis(shared), column_axis(shared)}, std::move(owners),
                                         static_cast<std::int32_t>(by_rank.size()), Order::column_major));
    }
  return Layout::replicated(std::move(copies));
}

}  // namespace penstock::scalapack
