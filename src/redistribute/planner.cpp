// One message per pair of ranks: (ranks - 1) messages each way at most, and each element crosses memory once when it
// is packed and once when it is unpacked. A package is a sequence of tiles, one for each pair of runs, so that both
// sides work on small dense blocks. COSTA, Algorithm 3, transforming upon receipt.
#include <algorithm>
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
    struct Arrival {
      const Package* package;
      Region region;
      StepId recv;
    };
    std::vector<Arrival> arrivals;
    for (std::int32_t distance = 1; distance < size_; ++distance) {
      const std::int32_t peer = (rank_ - distance + size_) % size_;
      const auto found = incoming.find(peer);
      if (found == incoming.end()) continue;
      const Region region = builder_.scratch(bytes(elems_of(found->second)));
      arrivals.push_back({&found->second, region, builder_.recv(region, peer, kDataTag)});
    }
    for (std::int32_t distance = 1; distance < size_; ++distance) {
      const std::int32_t peer = (rank_ + distance) % size_;
      const auto found = outgoing.find(peer);
      if (found == outgoing.end()) continue;
      lay_out(found->second, Route::source_to_package);
      if (list_.is_contiguous()) {
        const Block& block = list_.blocks().front();
        builder_.send({bytes(block.from_offset_elems), bytes(block.columns), Buffer::input}, peer, kDataTag);
      } else {
        const Region region = builder_.scratch(bytes(elems_of(found->second)));
        const StepId packed = transform(input_, region, false, PlanBuilder::kNone);
        builder_.send(region, peer, kDataTag, {packed});
      }
    }
    if (const auto found = outgoing.find(rank_); found != outgoing.end()) {
      lay_out(found->second, Route::source_to_target);
      transform(input_, output_, true, all_started);
    }
    for (const Arrival& arrival : arrivals) {
      lay_out(*arrival.package, Route::package_to_target);
      transform(arrival.region, output_, true, all_started, arrival.recv);
    }
    return std::move(builder_).finish(input_.size_bytes, output_.size_bytes);
  }

 private:
  static constexpr std::uint32_t kDataTag = 0;
  static constexpr std::uint32_t kFirstBarrierTag = 1;

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

  /// Fills list_ with the blocks of a package. In a package, tiles follow each other in the order of the source's
  /// memory. They are visited in the order of whichever memory is not the package, since the translation of addresses
  /// costs more than the copy when each tile touches other pages; between two memories of different order, parts as
  /// long as a page take turns.
  void lay_out(const Package& package, Route route) {
    constexpr std::int64_t kPartElems = 512;
    const std::vector<std::size_t> source_order = memory_order(Side::source);
    const std::vector<std::size_t> target_order = memory_order(Side::target);
    const std::vector<std::size_t>& order = route == Route::source_to_package ? source_order : target_order;
    const bool in_parts = route == Route::source_to_target && source_order != target_order;
    list_.clear();
    std::int64_t package_offset = 0;
    for (const Piece& piece : package) {
      Tiling tiling{
          piece, pairing_.source().cell(piece.source_cell), pairing_.target().cell(piece.target_cell), {}, {}};
      std::vector<std::vector<std::size_t>> parts;  // per dimension, borders among the runs
      for (const SharedRuns* shared : piece.axes) {
        std::vector<std::int64_t> starts{0};
        std::vector<std::size_t> borders{0};
        std::int64_t part_start = 0;
        for (const Run& run : shared->runs) {
          if (in_parts && starts.back() - part_start >= kPartElems) {
            borders.push_back(starts.size() - 1);
            part_start = starts.back();
          }
          starts.push_back(starts.back() + run.length);
        }
        borders.push_back(shared->runs.size());
        tiling.starts.push_back(std::move(starts));
        parts.push_back(std::move(borders));
      }
      tiling.index.resize(order.size());
      std::vector<std::size_t> part(order.size());
      const auto visit_tiles = [&](auto&& self, std::size_t k) -> void {
        if (k == order.size()) return add_tile(tiling, source_order, package_offset, route);
        const std::size_t d = order[k];
        for (tiling.index[d] = parts[d][part[d]]; tiling.index[d] < parts[d][part[d] + 1]; ++tiling.index[d])
          self(self, k + 1);
      };
      const auto visit_parts = [&](auto&& self, std::size_t k) -> void {
        if (k == order.size()) return visit_tiles(visit_tiles, 0);
        const std::size_t d = order[k];
        for (part[d] = 0; part[d] + 1 < parts[d].size(); ++part[d]) self(self, k + 1);
      };
      visit_parts(visit_parts, 0);
      package_offset += piece.elems();
    }
  }

  /// A piece, cut by the runs of its dimensions, and one tile of it.
  struct Tiling {
    const Piece& piece;
    LayoutCell source;
    LayoutCell target;
    std::vector<std::vector<std::int64_t>> starts;  ///< per dimension, elements of the runs before each run
    std::vector<std::size_t> index;                 ///< per dimension, the number of the tile's run
  };

  /// Appends a tile of the piece that begins at `package_offset` of the package.
  void add_tile(const Tiling& tiling, const std::vector<std::size_t>& source_order, std::int64_t package_offset,
                Route route) {
    std::int64_t source_offset = tiling.source.local_offset_elems;
    std::int64_t target_offset = tiling.target.local_offset_elems;
    std::int64_t package_stride = 1;  // of this dimension in the tile, which is dense in the source's order
    std::int64_t faster_elems = 1;    // of the whole piece in the faster dimensions
    std::int64_t slower_elems = 1;    // of the tile in the slower dimensions
    for (const std::size_t d : source_order) slower_elems *= tiling.piece.axes[d]->runs[tiling.index[d]].length;
    sides_.clear();
    for (std::size_t i = source_order.size(); i-- > 0;) {
      const std::size_t d = source_order[i];
      const Run& run = tiling.piece.axes[d]->runs[tiling.index[d]];
      const std::int64_t source_stride = tiling.source.strides_elems[d];
      const std::int64_t target_stride = tiling.target.strides_elems[pairing_.target_dimension(d)];
      source_offset += run.source * source_stride;
      target_offset += run.target * target_stride;
      slower_elems /= run.length;
      package_offset += slower_elems * tiling.starts[d][tiling.index[d]] * faster_elems;
      faster_elems *= tiling.piece.axes[d]->elems;
      sides_.push_back({run.length,
                        route == Route::package_to_target ? package_stride : source_stride * run.source_step,
                        route == Route::source_to_package ? package_stride : target_stride * run.target_step});
      package_stride *= run.length;
    }
    list_.add(route == Route::package_to_target ? package_offset : source_offset,
              route == Route::source_to_package ? package_offset : target_offset, sides_);
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
  std::int32_t rank_;
  std::int32_t size_;
  PlanBuilder builder_;
  Region input_;
  Region output_;
  std::vector<std::unordered_map<std::int64_t, std::vector<SharedRuns>>> runs_[2];
  BlockList list_;
  std::vector<BoxSide> sides_;
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
