#include "engine/remote_read.hpp"

#include <algorithm>
#include <cstdlib>

#include "host/process_memory.hpp"
#include "kernels/arithmetic.hpp"
#include "kernels/block.hpp"
#include "plan/element_types.hpp"
#include "plan/order.hpp"

namespace penstock::engine {
namespace {

constexpr std::size_t kLongRunBytes = 8 << 10;  // for shorter runs one system call each costs more than a second copy
constexpr std::size_t kPartBytes = 64 << 10;    // stays in the second-level cache

/// Merges the rows of a block into one if they are adjacent on both sides.
Block joined(Block block) {
  const auto columns = static_cast<std::int64_t>(block.columns);
  if (block.from_row_stride_elems == columns && block.to_row_stride_elems == columns) {
    block.columns *= block.rows;
    block.rows = 1;
  }
  return block;
}

std::uint64_t advanced(std::uint64_t offset, std::uint64_t steps, std::int64_t stride) {
  return offset + static_cast<std::uint64_t>(static_cast<std::int64_t>(steps) * stride);
}

class RemoteReader {
 public:
  RemoteReader(const Step& step, const Arithmetic& arithmetic, RemoteMemory offered, Bytes to)
      : step_(step),
        arithmetic_(arithmetic),
        types_(plan::element_types(arithmetic, step)),
        from_bytes_(size_bytes(types_.from)),
        offered_(offered),
        to_(to),
        moves_(types_.from == types_.to && kernels::is_move(arithmetic, types_.to, step.scaled)) {}

  int take(const Block& given) {
    const Block block = kernels::columns_first(given);
    if (block.rows == 0 || block.columns == 0) return 0;
    if (moves_ && block.from_column_stride_elems == 1 && block.to_column_stride_elems == 1) {
      const Block runs = joined(block);
      if (runs.columns * from_bytes_ >= kLongRunBytes) return take_runs(runs);
    }
    return take_parts(block);
  }

 private:
  int take_runs(const Block& block) {
    int error = 0;
    for (std::uint64_t row = 0; row < block.rows && error == 0; ++row) {
      const std::uint64_t from = advanced(block.from_offset_elems, row, block.from_row_stride_elems);
      const std::uint64_t to = advanced(block.to_offset_elems, row, block.to_row_stride_elems);
      error = host::read_memory(offered_.process, offered_.address + from * from_bytes_,
                                to_.subspan(to * from_bytes_, block.columns * from_bytes_));
    }
    return error;
  }

  int take_parts(const Block& block) {
    const std::uint64_t most = kPartBytes / from_bytes_;
    const auto row_step = static_cast<std::uint64_t>(std::abs(block.from_row_stride_elems));
    const auto column_step = static_cast<std::uint64_t>(std::abs(block.from_column_stride_elems));
    const auto fitting = [](std::uint64_t count, std::uint64_t room, std::uint64_t stride) {
      return stride == 0 ? count : std::min(count, room / stride + 1);
    };
    const std::uint64_t columns = fitting(block.columns, most - 1, column_step);
    const std::uint64_t width = (columns - 1) * column_step + 1;
    const std::uint64_t rows = fitting(block.rows, most - width, row_step);
    int error = 0;
    for (std::uint64_t row = 0; row < block.rows && error == 0; row += rows)
      for (std::uint64_t column = 0; column < block.columns && error == 0; column += columns) {
        Block part = block;
        part.rows = std::min(rows, block.rows - row);
        part.columns = std::min(columns, block.columns - column);
        part.from_offset_elems = advanced(advanced(block.from_offset_elems, row, block.from_row_stride_elems), column,
                                          block.from_column_stride_elems);
        part.to_offset_elems = advanced(advanced(block.to_offset_elems, row, block.to_row_stride_elems), column,
                                        block.to_column_stride_elems);
        error = take_part(part);
      }
    return error;
  }

  int take_part(Block part) {
    alignas(64) thread_local std::byte near[kPartBytes];
    // The bytes before its first element, and its extent.
    std::uint64_t before = 0;
    std::uint64_t reach = 1;
    const auto extend = [&](std::uint64_t count, std::int64_t stride) {
      const std::uint64_t way = (count - 1) * static_cast<std::uint64_t>(std::abs(stride));
      if (stride < 0) before += way;
      reach += way;
    };
    extend(part.rows, part.from_row_stride_elems);
    extend(part.columns, part.from_column_stride_elems);
    const Bytes here(near, reach * from_bytes_);
    const std::uint64_t first = part.from_offset_elems - before;
    if (const int error = host::read_memory(offered_.process, offered_.address + first * from_bytes_, here))
      return error;
    part.from_offset_elems = before;
    kernels::transform(arithmetic_, types_, {&part, 1}, step_.scaled, here, to_);
    return 0;
  }

  const Step& step_;
  const Arithmetic& arithmetic_;
  const kernels::ElementTypes types_;
  const std::size_t from_bytes_;
  const RemoteMemory offered_;
  const Bytes to_;
  const bool moves_;
};

}  // namespace

int remote_read(const Plan& plan, const Step& step, const Arithmetic& arithmetic, RemoteMemory offered, Bytes to) {
  RemoteReader reader(step, arithmetic, offered, to);
  int error = 0;
  for (const Block& block : plan::blocks(plan, step))
    if ((error = reader.take(block)) != 0) break;
  return error;
}

}  // namespace penstock::engine
