// One message per pair of ranks and segment. Each element crosses memory once when it is packed and once when it is
// unpacked, the second time in the caches. A package is a sequence of tiles, small enough that either side of one stays
// in few pages: looking up addresses costs more than the copy when every row lies on another page.
// COSTA, Algorithm 3, transforming upon receipt.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>

#include "penstock/error.hpp"
#include "penstock/redistribute.hpp"
#include "redistribute/boxes.hpp"
#include "redistribute/overlay.hpp"

namespace penstock {
namespace {

using redistribute::BlockList;
using redistribute::BoxSide;
using redistribute::Pairing;
using redistribute::Run;
using redistribute::SharedRuns;
using redistribute::Side;

/// What one cell of the source and one of the target share: a product of runs.
struct Piece {
  std::int64_t source_cell = 0;
  std::int64_t target_cell = 0;
  std::vector<const SharedRuns*> axes;  ///< per dimension of the source

  std::int64_t elems() const {
    std::int64_t product = 1;
    for (const SharedRuns* shared : axes) product *= shared->elems;
    return product;
  }
};

/// Everything that one rank has for another, in the order in which both sides list it.
using Package = std::vector<Piece>;

std::int64_t elems_of(const Package& package) {
  std::int64_t sum = 0;
  for (const Piece& piece : package) sum += piece.elems();
  return sum;
}

enum class Route : std::uint8_t { source_to_package, package_to_target, source_to_target };

class Planner {
 public:
  Planner(const Layout& source, const Layout& target, const RedistributionOptions& options, const Team& team)
      : pairing_(source, target, options.op),
        element_bytes_(size_bytes(options.dtype)),
        segment_bytes_(options.segment_bytes),
        rank_(team.rank),
        size_(team.size()),
        builder_("redistribute", team.rank, team.size()) {
    const std::int32_t needed = std::max(source.ranks(), target.ranks());
    if (needed > size_)
      throw Error(ErrorCode::invalid_argument, "redistribute: the layouts are for " + std::to_string(needed) +
                                                   " ranks, the communicator has " + std::to_string(size_));
    std::int64_t total_bytes = 0;
    if (__builtin_mul_overflow(source.size_elems(), static_cast<std::int64_t>(element_bytes_), &total_bytes))
      throw Error(ErrorCode::invalid_argument, "redistribute: " + std::to_string(source.size_elems()) +
                                                   " elements of " + std::to_string(element_bytes_) +
                                                   " bytes do not fit into 63 bits");
    input_ = {0, bytes(source.local_size_elems(rank_)), Buffer::input};
    output_ = {0, bytes(target.local_size_elems(rank_)), Buffer::output};
  }

  Plan plan() && {
    const std::map<std::int32_t, Package> outgoing = packages(Side::source);
    const std::map<std::int32_t, Package> incoming = packages(Side::target);
    const StepId all_started = barrier();
    // Peers in the order of their distance, so that not everybody sends to rank 0 first.
    for (std::int32_t distance = 1; distance < size_; ++distance) {
      const std::int32_t peer = (rank_ + distance) % size_;
      if (const auto found = outgoing.find(peer); found != outgoing.end()) send(found->second, peer);
    }
    if (const auto found = outgoing.find(rank_); found != outgoing.end()) keep(found->second, all_started);
    for (std::int32_t distance = 1; distance < size_; ++distance) {
      const std::int32_t peer = (rank_ - distance + size_) % size_;
      if (const auto found = incoming.find(peer); found != incoming.end()) receive(found->second, peer, all_started);
    }
    return std::move(builder_).finish(input_.size_bytes, output_.size_bytes);
  }

 private:
  static constexpr std::uint32_t kFirstBarrierTag = 0;
  static constexpr std::uint32_t kFirstDataTag = 32;  // a barrier of 2^31 ranks has fewer rounds
  static constexpr std::int64_t kMaxSegments = 1 << 12;
  static constexpr std::size_t kSlots = 4;         // segments in flight per peer and direction
  static constexpr std::int64_t kTileElems = 128;  // side of a tile
  static constexpr std::int64_t kPartElems = 512;  // side of a square of tiles, where the two memories differ in order

  std::uint64_t bytes(std::int64_t elems) const { return static_cast<std::uint64_t>(elems) * element_bytes_; }
  std::uint64_t bytes(std::uint64_t elems) const { return elems * element_bytes_; }

  /// A dissemination barrier of empty messages; the last step is complete when all ranks have started.
  StepId barrier() {
    StepId heard = PlanBuilder::kNone;
    std::uint32_t tag = kFirstBarrierTag;
    for (std::int64_t distance = 1; distance < size_; distance *= 2, ++tag) {
      const auto to = static_cast<std::int32_t>((rank_ + distance) % size_);
      const auto from = static_cast<std::int32_t>((rank_ - distance + size_) % size_);
      builder_.send({0, 0, Buffer::scratch}, to, tag, {heard});
      heard = builder_.recv({0, 0, Buffer::scratch}, from, tag, {heard});
    }
    return heard;
  }

  /// The packages of this rank as a source (by receiver) or as a target (by sender).
  std::map<std::int32_t, Package> packages(Side side) {
    const Layout& mine = side == Side::source ? pairing_.source() : pairing_.target();
    const Layout& other = side == Side::source ? pairing_.target() : pairing_.source();
    const std::size_t dimensions = pairing_.dimensions();
    std::map<std::int32_t, Package> by_rank;
    for (const LayoutCell& cell : mine.local_cells(rank_)) {
      std::vector<const std::vector<SharedRuns>*> lists(dimensions);
      std::vector<std::int64_t> strides = pairing_.target_cell_strides();
      for (std::size_t d = 0; d < dimensions; ++d)
        lists[d] = &runs(side, d, cell.coordinate[side == Side::source ? d : pairing_.target_dimension(d)]);
      if (side == Side::target) {
        std::int64_t stride = 1;
        for (std::size_t d = dimensions; d-- > 0; stride *= other.axes()[d].coordinates()) strides[d] = stride;
      }
      std::vector<const SharedRuns*> chosen(dimensions);
      const auto visit = [&](auto&& self, std::size_t d, std::int64_t other_cell) -> void {
        if (d < dimensions) {
          for (const SharedRuns& shared : *lists[d]) {
            chosen[d] = &shared;
            self(self, d + 1, other_cell + shared.other * strides[d]);
          }
          return;
        }
        const std::int32_t peer = other.owners()[static_cast<std::size_t>(other_cell)];
        const bool forward = side == Side::source;
        by_rank[peer].push_back({forward ? cell.index : other_cell, forward ? other_cell : cell.index, chosen});
      };
      visit(visit, 0, 0);
    }
    for (auto& [peer, package] : by_rank)
      std::sort(package.begin(), package.end(), [](const Piece& a, const Piece& b) {
        return std::pair(a.source_cell, a.target_cell) < std::pair(b.source_cell, b.target_cell);
      });
    return by_rank;
  }

  const std::vector<SharedRuns>& runs(Side side, std::size_t d, std::int64_t coordinate) {
    auto& known = runs_[side == Side::source ? 0 : 1];
    known.resize(pairing_.dimensions());
    const auto [entry, is_new] = known[d].try_emplace(coordinate);
    if (is_new)
      entry->second = redistribute::shared_runs(pairing_.source_axis(d), pairing_.target_axis(d), side, coordinate);
    return entry->second;
  }

  /// The dimensions of the source in the order of a layout's memory, the slowest first.
  std::vector<std::size_t> memory_order(Side side) const {
    const bool is_source = side == Side::source;
    const bool row_major = (is_source ? pairing_.source() : pairing_.target()).storage() == Order::row_major;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < pairing_.dimensions(); ++i) {
      const std::size_t d = row_major ? i : pairing_.dimensions() - 1 - i;
      order.push_back(is_source ? d : pairing_.target_dimension(d));
    }
    return order;
  }

  struct TileSide {
    std::int64_t length = 0;
    std::int64_t source_stride = 0;
    std::int64_t target_stride = 0;
  };
  /// A product of runs; dense in the package, in the order of the source's memory.
  struct Tile {
    std::int64_t source_offset = 0;
    std::int64_t target_offset = 0;
    std::int64_t elems = 0;
    std::size_t first_side = 0;  // into tile_sides_, one per dimension, the slowest of the source first
  };
  /// Consecutive tiles that travel together.
  struct Segment {
    std::size_t first_tile = 0;
    std::size_t end_tile = 0;
    std::int64_t elems = 0;
  };

  static std::vector<Run> cut_runs(const std::vector<Run>& runs, std::int64_t limit) {
    std::vector<Run> result;
    for (const Run& run : runs)
      for (std::int64_t at = 0; at < run.length; at += limit)
        result.push_back({run.source + at * run.source_step, run.target + at * run.target_step,
                          std::min(limit, run.length - at), run.source_step, run.target_step});
    return result;
  }

  /// Fills tiles_ with a package, in the order in which it travels: that of the source's memory, or square parts in
  /// that order where the target's memory is ordered differently. Both ranks of a pair come to the same tiles.
  void tile(const Package& package) {
    const std::vector<std::size_t> order = memory_order(Side::source);
    const bool same_order = order == memory_order(Side::target);
    const std::int64_t segment_elems = elems_per_segment(package);
    tiles_.clear();
    tile_sides_.clear();
    for (const Piece& piece : package) {
      const LayoutCell source = pairing_.source().cell(piece.source_cell);
      const LayoutCell target = pairing_.target().cell(piece.target_cell);
      std::vector<std::vector<Run>> runs(order.size());
      std::vector<std::vector<std::size_t>> parts(order.size());  // borders among the runs
      bool is_dense = same_order;                                 // all faster dimensions are whole on both sides
      std::int64_t faster_elems = 1;
      for (std::size_t i = order.size(); i-- > 0;) {
        const std::size_t d = order[i];
        const SharedRuns& shared = *piece.axes[d];
        const std::int64_t limit = is_dense ? std::max<std::int64_t>(segment_elems / faster_elems, 1) : kTileElems;
        runs[d] = cut_runs(shared.runs, limit);
        is_dense = is_dense && shared.runs.size() == 1 && shared.elems == source.shape[d] &&
                   shared.elems == target.shape[pairing_.target_dimension(d)];
        faster_elems *= shared.elems;
        parts[d].push_back(0);
        std::int64_t part_elems = 0;
        for (std::size_t k = 0; k < runs[d].size(); ++k) {
          part_elems += runs[d][k].length;
          if (k + 1 < runs[d].size() && (same_order || part_elems < kPartElems)) continue;
          parts[d].push_back(k + 1);
          part_elems = 0;
        }
      }
      std::vector<std::size_t> part(order.size());
      std::vector<const Run*> chosen(order.size());
      const auto visit_runs = [&](auto&& self, std::size_t i) -> void {
        if (i == order.size()) return add_tile(source, target, order, chosen);
        const std::size_t d = order[i];
        for (std::size_t k = parts[d][part[d]]; k < parts[d][part[d] + 1]; ++k) {
          chosen[d] = &runs[d][k];
          self(self, i + 1);
        }
      };
      const auto visit_parts = [&](auto&& self, std::size_t i) -> void {
        if (i == order.size()) return visit_runs(visit_runs, 0);
        const std::size_t d = order[i];
        for (part[d] = 0; part[d] + 1 < parts[d].size(); ++part[d]) self(self, i + 1);
      };
      visit_parts(visit_parts, 0);
    }
  }

  void add_tile(const LayoutCell& source, const LayoutCell& target, const std::vector<std::size_t>& order,
                const std::vector<const Run*>& runs) {
    Tile tile{source.local_offset_elems, target.local_offset_elems, 1, tile_sides_.size()};
    for (const std::size_t d : order) {
      const std::int64_t source_stride = source.strides_elems[d];
      const std::int64_t target_stride = target.strides_elems[pairing_.target_dimension(d)];
      tile.source_offset += runs[d]->source * source_stride;
      tile.target_offset += runs[d]->target * target_stride;
      tile.elems *= runs[d]->length;
      tile_sides_.push_back(
          {runs[d]->length, source_stride * runs[d]->source_step, target_stride * runs[d]->target_step});
    }
    tiles_.push_back(tile);
  }

  std::int64_t elems_per_segment(const Package& package) const {
    const std::uint64_t wanted = std::max<std::uint64_t>(segment_bytes_ / element_bytes_, 1);
    const std::int64_t least = elems_of(package) / kMaxSegments + 1;
    return wanted > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
               ? std::numeric_limits<std::int64_t>::max()
               : std::max(static_cast<std::int64_t>(wanted), least);
  }

  /// tiles_ in consecutive segments.
  std::vector<Segment> segments(const Package& package) const {
    const std::int64_t full = elems_per_segment(package);
    std::vector<Segment> result;
    for (std::size_t i = 0; i < tiles_.size(); ++i) {
      if (result.empty() || result.back().elems >= full) result.push_back({i, i, 0});
      result.back().end_tile = i + 1;
      result.back().elems += tiles_[i].elems;
    }
    return result;
  }

  /// Fills list_ with the blocks of a segment.
  void lay_out(const Segment& segment, Route route) {
    struct Placed {
      std::int64_t package_offset;
      const Tile* tile;
    };
    std::vector<Placed> placed;
    std::int64_t package_offset = 0;
    for (std::size_t i = segment.first_tile; i < segment.end_tile; ++i) {
      placed.push_back({package_offset, &tiles_[i]});
      package_offset += tiles_[i].elems;
    }
    if (route == Route::package_to_target)
      std::stable_sort(placed.begin(), placed.end(),
                       [](const Placed& a, const Placed& b) { return a.tile->target_offset < b.tile->target_offset; });
    list_.clear();
    for (const auto& [offset, tile] : placed) {
      std::int64_t package_stride = 1;
      sides_.clear();
      for (std::size_t i = pairing_.dimensions(); i-- > 0; package_stride *= sides_.back().length) {
        const TileSide& side = tile_sides_[tile->first_side + i];
        sides_.push_back({side.length, route == Route::package_to_target ? package_stride : side.source_stride,
                          route == Route::source_to_package ? package_stride : side.target_stride});
      }
      list_.add(route == Route::package_to_target ? offset : tile->source_offset,
                route == Route::source_to_package ? offset : tile->target_offset, sides_);
    }
  }

  /// Scratch memory for the segments of one peer; a slot is used again when the step that needs it is complete.
  class Slots {
   public:
    Slots(PlanBuilder& builder, std::uint64_t bytes) : builder_(builder), bytes_(bytes) {}

    Region next(std::uint64_t size_bytes) {
      if (used_ < kSlots) regions_[used_] = builder_.scratch(bytes_);
      const Region whole = regions_[used_ % kSlots];
      return {whole.offset_bytes, size_bytes, whole.buffer};
    }
    /// The step before which the slot of next() may not be written.
    StepId busy_until() const { return used_ < kSlots ? PlanBuilder::kNone : last_use_[used_ % kSlots]; }
    void used_by(StepId last_use) { last_use_[used_++ % kSlots] = last_use; }

   private:
    PlanBuilder& builder_;
    std::uint64_t bytes_;
    std::array<Region, kSlots> regions_{};
    std::array<StepId, kSlots> last_use_{};
    std::size_t used_ = 0;
  };

  std::uint64_t longest_bytes(const std::vector<Segment>& parts) const {
    std::int64_t longest = 0;
    for (const Segment& part : parts) longest = std::max(longest, part.elems);
    return bytes(longest);
  }

  void send(const Package& package, std::int32_t peer) {
    tile(package);
    const std::vector<Segment> parts = segments(package);
    Slots slots(builder_, longest_bytes(parts));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      builder_.at(0, static_cast<std::uint32_t>(i));
      const std::uint32_t tag = kFirstDataTag + static_cast<std::uint32_t>(i);
      lay_out(parts[i], Route::source_to_package);
      if (list_.is_contiguous()) {
        const Block& block = list_.blocks().front();
        builder_.send({bytes(block.from_offset_elems), bytes(block.columns), Buffer::input}, peer, tag);
        continue;
      }
      const StepId free = slots.busy_until();
      const Region region = slots.next(bytes(parts[i].elems));
      slots.used_by(builder_.send(region, peer, tag, {transform(input_, region, false, free)}));
    }
  }

  void receive(const Package& package, std::int32_t peer, StepId all_started) {
    tile(package);
    const std::vector<Segment> parts = segments(package);
    Slots slots(builder_, longest_bytes(parts));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      builder_.at(0, static_cast<std::uint32_t>(i));
      const StepId free = slots.busy_until();
      const Region region = slots.next(bytes(parts[i].elems));
      const StepId received = builder_.recv(region, peer, kFirstDataTag + static_cast<std::uint32_t>(i), {free});
      lay_out(parts[i], Route::package_to_target);
      slots.used_by(transform(region, output_, true, all_started, received));
    }
  }

  /// One segment after the other, so that those of the peers get their turns.
  void keep(const Package& package, StepId all_started) {
    tile(package);
    const std::vector<Segment> parts = segments(package);
    StepId previous = all_started;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      builder_.at(0, static_cast<std::uint32_t>(i));
      lay_out(parts[i], Route::source_to_target);
      previous = transform(input_, output_, true, previous);
    }
  }

  /// A step for the blocks in list_.
  StepId transform(Region from, Region to, bool scaled, StepId after, StepId also_after = PlanBuilder::kNone) {
    constexpr std::size_t kMaxBlocks = std::numeric_limits<std::uint32_t>::max();
    block_count_ += list_.blocks().size();
    if (block_count_ > kMaxBlocks)
      throw Error(ErrorCode::unsupported,
                  "redistribute: the layouts are so finely interleaved that the plan needs more than 2^32 blocks");
    const StepId dependencies[] = {after, also_after};
    return builder_.transform(from, to, list_.blocks(), scaled, dependencies);
  }

  Pairing pairing_;
  std::uint64_t element_bytes_;
  std::uint64_t segment_bytes_;
  std::int32_t rank_;
  std::int32_t size_;
  PlanBuilder builder_;
  Region input_;
  Region output_;
  std::vector<std::unordered_map<std::int64_t, std::vector<SharedRuns>>> runs_[2];
  BlockList list_;
  std::vector<BoxSide> sides_;
  std::vector<Tile> tiles_;
  std::vector<TileSide> tile_sides_;
  std::size_t block_count_ = 0;
};

}  // namespace

MatrixOp matrix_op_from_name(std::string_view name) {
  if (name == "N") return MatrixOp::none;
  if (name == "T") return MatrixOp::transpose;
  if (name == "C") return MatrixOp::conjugate_transpose;
  throw Error(ErrorCode::invalid_argument, "unknown op '" + std::string(name) + "'; expected 'N', 'T' or 'C'");
}

Plan plan_redistribution(const Layout& source, const Layout& target, const RedistributionOptions& options,
                         const Team& team) {
  return Planner(source, target, options, team).plan();
}

}  // namespace penstock
