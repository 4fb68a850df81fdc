#include "arrays/planned_redistribution.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <string>
#include <utility>

#include "arrays/disjoint.hpp"
#include "base/hash.hpp"
#include "kernels/arithmetic.hpp"
#include "penstock/error.hpp"

namespace penstock::arrays {
namespace {

void check_size(const char* what, std::uint64_t given_bytes, std::uint64_t expected_bytes, DType dtype) {
  if (given_bytes == expected_bytes) return;
  throw Error(ErrorCode::invalid_argument,
              std::string("redistribute: the ") + what + " has " + std::to_string(given_bytes) + " bytes; expected " +
                  std::to_string(expected_bytes) + ", the " + std::to_string(expected_bytes / size_bytes(dtype)) +
                  " elements of " + std::string(name(dtype)) + " that its layout gives to this rank");
}

/// The smallest address range that contains all ranges.
template <class Range>
Range hull(std::span<const Range> ranges) {
  auto* begin = ranges[0].data();
  auto* end = begin;
  const std::less<const std::byte*> before;
  for (const Range& range : ranges) {
    if (range.empty()) continue;
    const bool is_first = begin == end;
    if (is_first || before(range.data(), begin)) begin = range.data();
    if (is_first || before(end, range.data() + range.size())) end = range.data() + range.size();
  }
  return {begin, end};
}

/// Adds the memory of this rank's tiles, for memory that is not dense.
void add_tiles(std::vector<StridedRange>& ranges, const Layout& layout, int rank, const LocalMemory& memory,
               const std::byte* base, std::uint64_t element_bytes, const char* what, bool is_written) {
  const std::vector<LayoutTile> tiles = layout.local_tiles(rank);
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const auto bytes = static_cast<std::int64_t>(element_bytes);
    StridedRange range{base + memory.tiles[i].offset_elems * bytes,
                       tiles[i].shape,
                       memory.tiles[i].strides_elems,
                       bytes,
                       what,
                       is_written};
    for (std::int64_t& stride : range.strides_bytes) stride *= bytes;
    ranges.push_back(std::move(range));
  }
}

/// The memory of one side of one pair: its lowest byte, and the placement of its arrays relative to that.
struct Placed {
  const std::byte* base = nullptr;
  std::optional<LocalMemory> memory;  ///< empty: as the layout says
  std::uint64_t size_bytes = 0;
};

/// Offset of the lowest byte from the first element, for negative strides.
std::int64_t lowest_bytes(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides_elems,
                          std::int64_t element_bytes) {
  std::int64_t lowest = 0;
  for (std::size_t d = 0; d < std::min(shape.size(), strides_elems.size()); ++d) {
    std::int64_t length = 0;
    if (__builtin_mul_overflow(std::min<std::int64_t>(strides_elems[d], 0), (shape[d] - 1) * element_bytes, &length) ||
        __builtin_add_overflow(lowest, length, &lowest))
      throw Error(ErrorCode::invalid_argument, "redistribute: the strides of a local array reach beyond 2^63 bytes");
  }
  return lowest;
}

template <class Parts>
Placed place(const Layout& layout, int rank, const Parts& parts, DType dtype, const char* what) {
  const std::vector<std::vector<std::int64_t>> shapes = layout.local_part_shapes(rank);
  if (parts.size() != shapes.size())
    throw Error(ErrorCode::invalid_argument, std::string("redistribute: the ") + what + " consists of " +
                                                 std::to_string(parts.size()) + " arrays; expected " +
                                                 std::to_string(shapes.size()) + ", as the layout gives to rank " +
                                                 std::to_string(rank));
  const auto element_bytes = static_cast<std::int64_t>(size_bytes(dtype));
  Placed placed;
  const std::less<const std::byte*> before;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (std::ranges::find(shapes[i], 0) != shapes[i].end()) continue;
    const std::byte* const lowest = parts[i].data + lowest_bytes(shapes[i], parts[i].strides_elems, element_bytes);
    if (placed.base == nullptr || before(lowest, placed.base)) placed.base = lowest;
  }
  std::vector<LocalMemory::Tile> tiles;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    LocalMemory::Tile& tile = tiles.emplace_back();
    tile.strides_elems = parts[i].strides_elems;
    if (std::ranges::find(shapes[i], 0) != shapes[i].end()) continue;
    const std::int64_t offset_bytes = parts[i].data - placed.base;
    if (offset_bytes % element_bytes != 0)
      throw Error(ErrorCode::invalid_argument, std::string("redistribute: two arrays of the ") + what + " lie " +
                                                   std::to_string(offset_bytes) +
                                                   " bytes apart, which is not a multiple of the " +
                                                   std::to_string(element_bytes) + " of an element; copy one of them");
    tile.offset_elems = offset_bytes / element_bytes;
  }
  LocalMemory memory = layout.placed_memory(rank, tiles);
  placed.size_bytes = static_cast<std::uint64_t>(memory.size_elems * element_bytes);
  if (memory != layout.local_memory(rank)) placed.memory = std::move(memory);
  return placed;
}

constexpr std::uint64_t kScratchAlignment = 64;
constexpr std::uint64_t kNearBytes = 2 << 20;  // tiles of one array, or arrays that share a huge page
constexpr std::size_t kMostPlacements = 4;

}  // namespace

Arithmetic PlannedRedistribution::arithmetic(const Factors& factors) const {
  return {.dtype = options_.dtype,
          .input_dtype = options_.input_dtype(),
          .conjugate = options_.op == MatrixOp::conjugate_transpose,
          .alpha = factors.alpha,
          .beta = factors.beta};
}

std::uint64_t PlannedRedistribution::workspace_bytes(const Team& team) {
  const std::lock_guard lock(mutex_);
  if (!workspace_bytes_) {
    // Contiguous data is sent in place. So most workspace is needed if nothing is contiguous.
    MemoryPlacement spread;
    const auto memory_of = [&](const Layout& layout) {
      LocalMemory memory = layout.local_memory(team.rank);
      memory.size_elems *= 2;
      for (LocalMemory::Tile& tile : memory.tiles) {
        tile.offset_elems *= 2;
        for (std::int64_t& stride : tile.strides_elems) stride *= 2;
      }
      return memory;
    };
    for (const LayoutPair& pair : pairs_) {
      spread.inputs.emplace_back(memory_of(pair.source));
      spread.outputs.emplace_back(memory_of(pair.target));
    }
    const LocalRedistribution local(pairs_, options_, team, std::move(spread));
    const std::uint64_t bytes = std::max(local.plan()->scratch_bytes, planned_->plan()->scratch_bytes);
    workspace_bytes_ = bytes == 0 ? 0 : bytes + kScratchAlignment - 1;
  }
  return *workspace_bytes_;
}

std::shared_ptr<LocalRedistribution> PlannedRedistribution::local_for(const MemoryPlacement& placement,
                                                                      const Team& team) {
  if (placement == planned_->placement()) return planned_;
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(placed_, [&](const auto& each) { return each->placement() == placement; });
  if (found != placed_.end()) {
    placed_.splice(placed_.begin(), placed_, found);
    return placed_.front();
  }
  placed_.push_front(std::make_shared<LocalRedistribution>(pairs_, options_, team, placement));
  if (placed_.size() > kMostPlacements) placed_.pop_back();
  return placed_.front();
}

void PlannedRedistribution::check_count(std::size_t inputs, std::size_t outputs) const {
  if (inputs != size() || outputs != size())
    throw Error(ErrorCode::invalid_argument, "redistribute: " + std::to_string(inputs) + " sources and " +
                                                 std::to_string(outputs) + " targets given; expected " +
                                                 std::to_string(size()) + " of each, one for each pair of the batch");
}

Bytes PlannedRedistribution::scratch_in(const Workspace& workspace, const Team& team) {
  if (!workspace) return {};
  const std::uint64_t needed_bytes = workspace_bytes(team);
  if (workspace->size() < needed_bytes)
    throw Error(ErrorCode::invalid_argument, "redistribute: the workspace has " + std::to_string(workspace->size()) +
                                                 " bytes; expected at least " + std::to_string(needed_bytes) +
                                                 ", the plan's workspace_bytes on this rank");
  if (needed_bytes == 0) return {};
  const auto begin = std::bit_cast<std::uintptr_t>(workspace->data());
  return workspace->subspan((kScratchAlignment - begin % kScratchAlignment) % kScratchAlignment)
      .first(needed_bytes - (kScratchAlignment - 1));
}

std::vector<ConstBytes> PlannedRedistribution::check(const LocalRedistribution& local,
                                                     std::span<const ConstBytes> inputs, std::span<const Bytes> outputs,
                                                     const Workspace& workspace) const {
  const int rank = local.plan()->rank;
  std::vector<StridedRange> ranges;
  ranges.reserve(2 * size() + 1);
  for (std::size_t i = 0; i < size(); ++i) {
    check_size("source", inputs[i].size(), local.input_bytes(i), options_.input_dtype());
    check_size("target", outputs[i].size(), local.output_bytes(i), options_.dtype);
    const auto add = [&](const Layout& layout, const std::optional<LocalMemory>& memory, ConstBytes bytes, DType dtype,
                         const char* what, bool is_written) {
      if (memory)
        add_tiles(ranges, layout, rank, *memory, bytes.data(), size_bytes(dtype), what, is_written);
      else
        ranges.push_back(dense_range(bytes.data(), bytes.size(), what, is_written));
    };
    const MemoryPlacement& placement = local.placement();
    add(pairs_[i].source, placement.inputs[i], inputs[i], options_.input_dtype(), "source", false);
    add(pairs_[i].target, placement.outputs[i], outputs[i], options_.dtype, "target", true);
  }
  const bool is_dense = ranges.size() == 2 && ranges[0].shape.empty() && ranges[1].shape.empty();
  const std::size_t arrays = ranges.size();
  if (workspace) ranges.push_back(dense_range(workspace->data(), workspace->size(), "workspace", true));
  OrderedRanges ordered(std::span<const StridedRange>(ranges).first(arrays));
  std::vector<ConstBytes> parts;
  if (!is_dense) parts = ordered.joined(kNearBytes);
  if (workspace) ordered.add(ranges.back());
  ordered.check_disjoint();
  return parts;
}

Request PlannedRedistribution::start(Comm& comm, std::span<const ConstBytes> inputs, std::span<const Bytes> outputs,
                                     const Factors& factors, const Workspace& workspace,
                                     const MemoryPlacement* placement) {
  Bytes scratch;
  std::vector<ConstBytes> parts;
  std::shared_ptr<LocalRedistribution> local = planned_;
  try {
    check_count(inputs.size(), outputs.size());
    if (placement != nullptr) local = local_for(*placement, comm.team());
    parts = check(*local, inputs, outputs, workspace);
    kernels::check_scaling(arithmetic(factors));
    scratch = scratch_in(workspace, comm.team());
  } catch (const std::exception& error) {
    comm.fail_next(error.what());
    throw;
  }
  std::uint64_t signature = signature_;
  for (const double part : {factors.alpha.real(), factors.alpha.imag(), factors.beta.real(), factors.beta.imag()})
    signature = base::mix(signature, std::bit_cast<std::uint64_t>(part));
  const ConstBytes input = hull(inputs);
  const Bytes output = hull(outputs);
  return comm.start(local->plan_for(inputs, outputs, input, output), input, output, arithmetic(factors), signature,
                    scratch, parts);
}

Request PlannedRedistribution::start_parts(Comm& comm, std::span<const ConstStridedParts> inputs,
                                           std::span<const StridedParts> outputs, const Factors& factors,
                                           const Workspace& workspace) {
  MemoryPlacement placement;
  std::vector<ConstBytes> input_memory;
  std::vector<Bytes> output_memory;
  try {
    check_count(inputs.size(), outputs.size());
    for (std::size_t i = 0; i < size(); ++i) {
      Placed from = place(pairs_[i].source, comm.rank(), inputs[i], options_.input_dtype(), "source");
      Placed to = place(pairs_[i].target, comm.rank(), outputs[i], options_.dtype, "target");
      input_memory.emplace_back(from.base, from.size_bytes);
      output_memory.emplace_back(const_cast<std::byte*>(to.base), to.size_bytes);
      placement.inputs.push_back(std::move(from.memory));
      placement.outputs.push_back(std::move(to.memory));
    }
  } catch (const std::exception& error) {
    comm.fail_next(error.what());
    throw;
  }
  return start(comm, input_memory, output_memory, factors, workspace, &placement);
}

}  // namespace penstock::arrays
