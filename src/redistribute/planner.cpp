// Each pair of ranks moves what it has in segments: packed by the source, unpacked with op, alpha and beta by the
// target (COSTA, Algorithm 3, transforming upon receipt). Between nodes a segment is a message. Inside a node the
// source packs it into one of a few cells of shared memory, from which the target unpacks it: cells that are small
// enough stay in the caches, so each element is read from memory once and written to it once, as by a copy.
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
#include "redistribute/tiles.hpp"

namespace penstock {
namespace {

using redistribute::BlockList;
using redistribute::Package;
using redistribute::Pairing;
using redistribute::Piece;
using redistribute::Route;
using redistribute::Segment;
using redistribute::SharedRuns;
using redistribute::Side;
using redistribute::Tiles;

/// The shared memory of a rank: some cells for each other rank of its node, in the order of the ranks. It depends on
/// nothing else, so a target knows where each of its sources puts a segment.
class Cells {
 public:
  Cells(const Team& team, std::uint64_t most_bytes) : team_(team) {
    for (const std::int32_t node : team.node_of_rank)
      if (node == team.node_of_rank[static_cast<std::size_t>(team.rank)]) ++neighbours_;
    --neighbours_;
    if (neighbours_ == 0) return;
    // Not all, so that small collectives beside a redistribution find room too.
    size_bytes_ = std::min(kMostBytes, team.shared_limit_bytes / 8 * 7 / (neighbours_ * kPerPair)) / 64 * 64;
    if (size_bytes_ < kLeastBytes) size_bytes_ = 0;
    size_bytes_ = std::min(size_bytes_, most_bytes);
  }

  static std::size_t per_pair() { return kPerPair; }
  /// Of one cell; 0 where there is not enough shared memory.
  std::uint64_t size_bytes() const { return size_bytes_; }
  std::uint64_t total_bytes() const { return neighbours_ * kPerPair * stride_bytes(); }

  /// Where `source` puts its `use`-th segment for `target`.
  Region cell(std::int32_t source, std::int32_t target, std::size_t use, std::uint64_t segment_bytes) const {
    std::uint64_t place = 0;
    for (std::int32_t rank = 0; rank < target; ++rank)
      if (rank != source && team_.same_node(rank, source)) ++place;
    return {(place * kPerPair + use % kPerPair) * stride_bytes(), segment_bytes, Buffer::shared};
  }

 private:
  static constexpr std::uint64_t kPerPair = 3;
  static constexpr std::uint64_t kMostBytes = std::uint64_t{128} << 10;
  static constexpr std::uint64_t kLeastBytes = 1024;  // below, signals cost more than messages

  std::uint64_t stride_bytes() const { return (size_bytes_ + 63) / 64 * 64; }

  const Team& team_;
  std::uint64_t neighbours_ = 0;
  std::uint64_t size_bytes_ = 0;
};

class Planner {
 public:
  Planner(const Layout& source, const Layout& target, const RedistributionOptions& options, const Team& team)
      : parts_(moved_parts(source, target, options)),
        pairing_(parts_.source, parts_.target, options.op),
        element_bytes_(size_bytes(options.dtype)),
        rank_(team.rank),
        size_(team.size()),
        builder_("redistribute", team.rank, team.size()),
        segment_bytes_(options.segment_bytes),
        team_(team),
        cells_(team, options.segment_bytes),
        tiles_(pairing_) {
    const std::int32_t needed = std::max(source.ranks(), target.ranks());
    if (needed > size_)
      throw Error(ErrorCode::invalid_argument, "redistribute: the layouts are for " + std::to_string(needed) +
                                                   " ranks, the communicator has " + std::to_string(size_));
    const bool forward = options.op == MatrixOp::none;
    const auto size = [&](const Layout& layout, std::int64_t leading_elems) {
      return std::max(layout.size_elems(), layout.local_memory(rank_, leading_elems).size_elems);
    };
    for (const std::int64_t elems :
         {size(source, options.source_leading_elems), size(target, options.target_leading_elems)}) {
      std::int64_t total_bytes = 0;
      if (__builtin_mul_overflow(elems, static_cast<std::int64_t>(element_bytes_), &total_bytes))
        throw Error(ErrorCode::invalid_argument, "redistribute: " + std::to_string(elems) + " elements of " +
                                                     std::to_string(element_bytes_) + " bytes do not fit into 63 bits");
    }
    std::vector<std::int64_t> target_shape = options.shape;
    if (!forward && target_shape.size() == 2) std::swap(target_shape[0], target_shape[1]);
    input_ = {0, place(Side::source, source, options.source_leading_elems, options.source_begin, options.shape),
              Buffer::input};
    output_ = {0, place(Side::target, target, options.target_leading_elems, options.target_begin, target_shape),
               Buffer::output};
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
  static constexpr std::uint32_t kFirstDataTag = 32;     // a barrier of 2^31 ranks has fewer rounds
  static constexpr std::size_t kSlots = 4;               // messages in flight per peer and direction
  static constexpr std::int64_t kMaxMessages = 1 << 12;  // of a package, about; longer ones get longer messages
  static constexpr std::int64_t kMaxCellUses = (kMaxTag - kFirstDataTag) / 2;  // each needs two tags

  std::int64_t elems_of(std::uint64_t segment_bytes) const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
    return static_cast<std::int64_t>(std::clamp<std::uint64_t>(segment_bytes / element_bytes_, 1, kMost));
  }

  /// Tells the tiles where this rank's cells lie in its memory, whose size in bytes it returns. Those of others need
  /// not be known: what travels is dense.
  std::uint64_t place(Side side, const Layout& whole, std::int64_t leading_elems, std::vector<std::int64_t> begin,
                      const std::vector<std::int64_t>& shape) {
    LocalMemory memory = whole.local_memory(rank_, leading_elems);
    const Layout& part = side == Side::source ? parts_.source : parts_.target;
    if (begin.empty()) begin.resize(whole.dimensions(), 0);
    if (!shape.empty()) memory = whole.window_memory(begin, shape, rank_, memory);
    if (leading_elems != 0 || !shape.empty()) {
      std::vector<LayoutCell> cells = part.local_cells(rank_);
      for (std::size_t i = 0; i < cells.size(); ++i) {
        cells[i].local_offset_elems = memory.cells[i].offset_elems;
        cells[i].strides_elems = memory.cells[i].strides_elems;
        tiles_.place(side, std::move(cells[i]));
      }
    }
    return bytes(memory.size_elems);
  }

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

  static std::int64_t elems(const Package& package) {
    std::int64_t sum = 0;
    for (const Piece& piece : package) sum += piece.elems();
    return sum;
  }

  std::vector<Segment> messages(const Package& package) {
    return tiles_.cut(package, std::max(elems_of(segment_bytes_), elems(package) / kMaxMessages + 1));
  }

  /// The segments that go through cells; none where the package has to go in messages. The same for both ranks.
  std::vector<Segment> cell_uses(const Package& package, std::int32_t peer) {
    if (!team_.same_node(rank_, peer) || cells_.size_bytes() < element_bytes_) return {};
    // Two neighbouring segments are more than one full one.
    const std::int64_t full = elems_of(cells_.size_bytes());
    if (elems(package) / full >= kMaxCellUses / 2) return {};
    return tiles_.cut(package, full);
  }

  static std::uint32_t full_tag(std::size_t use) { return kFirstDataTag + 2 * static_cast<std::uint32_t>(use); }
  static std::uint32_t free_tag(std::size_t use) { return full_tag(use) + 1; }

  void send(const Package& package, std::int32_t peer) {
    if (const std::vector<Segment> parts = cell_uses(package, peer); !parts.empty()) return fill_cells(parts, peer);
    const std::vector<Segment> parts = messages(package);
    Slots slots(builder_, longest_bytes(parts));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      builder_.at(0, static_cast<std::uint32_t>(i));
      const std::uint32_t tag = kFirstDataTag + static_cast<std::uint32_t>(i);
      tiles_.lay_out(parts[i], Route::source_to_package, list_);
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

  void fill_cells(const std::vector<Segment>& parts, std::int32_t peer) {
    if (builder_.so_far().shared_bytes == 0) builder_.shared(cells_.total_bytes());
    std::vector<StepId> full;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      builder_.at(0, static_cast<std::uint32_t>(i));
      StepId free = PlanBuilder::kNone;
      StepId last_use = PlanBuilder::kNone;
      if (i >= cells_.per_pair()) {
        free = builder_.await(peer, free_tag(i - cells_.per_pair()));
        last_use = full[i - cells_.per_pair()];
      }
      tiles_.lay_out(parts[i], Route::source_to_package, list_);
      const Region cell = cells_.cell(rank_, peer, i, bytes(parts[i].elems));
      full.push_back(builder_.expose(peer, full_tag(i), {transform(input_, cell, false, free, last_use)}));
    }
  }

  void drain_cells(const std::vector<Segment>& parts, std::int32_t peer, StepId all_started) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      builder_.at(0, static_cast<std::uint32_t>(i));
      tiles_.lay_out(parts[i], Route::package_to_target, list_);
      count_blocks();
      const StepId after[] = {all_started, builder_.await(peer, full_tag(i))};
      const Region cell = cells_.cell(peer, rank_, i, bytes(parts[i].elems));
      const StepId unpacked = builder_.unpack(cell, peer, output_, list_.blocks(), after);
      if (i + cells_.per_pair() < parts.size()) builder_.expose(peer, free_tag(i), {unpacked});
    }
  }

  void receive(const Package& package, std::int32_t peer, StepId all_started) {
    if (const std::vector<Segment> parts = cell_uses(package, peer); !parts.empty())
      return drain_cells(parts, peer, all_started);
    const std::vector<Segment> parts = messages(package);
    Slots slots(builder_, longest_bytes(parts));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      builder_.at(0, static_cast<std::uint32_t>(i));
      const StepId free = slots.busy_until();
      const Region region = slots.next(bytes(parts[i].elems));
      const StepId received = builder_.recv(region, peer, kFirstDataTag + static_cast<std::uint32_t>(i), {free});
      tiles_.lay_out(parts[i], Route::package_to_target, list_);
      slots.used_by(transform(region, output_, true, all_started, received));
    }
  }

  /// One segment after the other, so that those of the peers get their turns.
  void keep(const Package& package, StepId all_started) {
    const std::vector<Segment> parts = messages(package);
    StepId previous = all_started;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      builder_.at(0, static_cast<std::uint32_t>(i));
      tiles_.lay_out(parts[i], Route::source_to_target, list_);
      previous = transform(input_, output_, true, previous);
    }
  }

  /// A step for the blocks in list_.
  StepId transform(Region from, Region to, bool scaled, StepId after, StepId also_after = PlanBuilder::kNone) {
    count_blocks();
    const StepId dependencies[] = {after, also_after};
    return builder_.transform(from, to, list_.blocks(), scaled, dependencies);
  }

  void count_blocks() {
    constexpr std::size_t kMaxBlocks = std::numeric_limits<std::uint32_t>::max();
    block_count_ += list_.blocks().size();
    if (block_count_ > kMaxBlocks)
      throw Error(ErrorCode::unsupported,
                  "redistribute: the layouts are so finely interleaved that the plan needs more than 2^32 blocks");
  }

  const MovedParts parts_;
  Pairing pairing_;
  std::uint64_t element_bytes_;
  std::int32_t rank_;
  std::int32_t size_;
  PlanBuilder builder_;
  std::uint64_t segment_bytes_;
  const Team& team_;
  Cells cells_;
  Tiles tiles_;
  Region input_;
  Region output_;
  std::vector<std::unordered_map<std::int64_t, std::vector<SharedRuns>>> runs_[2];
  BlockList list_;
  std::size_t block_count_ = 0;
};

}  // namespace

MatrixOp matrix_op_from_name(std::string_view name) {
  if (name == "N") return MatrixOp::none;
  if (name == "T") return MatrixOp::transpose;
  if (name == "C") return MatrixOp::conjugate_transpose;
  throw Error(ErrorCode::invalid_argument, "unknown op '" + std::string(name) + "'; expected 'N', 'T' or 'C'");
}

MovedParts moved_parts(const Layout& source, const Layout& target, const RedistributionOptions& options) {
  if (!options.has_window()) return {source, target};
  if (options.shape.empty())
    throw Error(ErrorCode::invalid_argument, "redistribute: a part begins somewhere, but its shape is not given");
  std::vector<std::int64_t> source_begin = options.source_begin;
  std::vector<std::int64_t> target_begin = options.target_begin;
  if (source_begin.empty()) source_begin.resize(source.dimensions(), 0);
  if (target_begin.empty()) target_begin.resize(target.dimensions(), 0);
  std::vector<std::int64_t> target_shape = options.shape;
  if (options.op != MatrixOp::none && target_shape.size() == 2) std::swap(target_shape[0], target_shape[1]);
  return {source.window(source_begin, options.shape), target.window(target_begin, target_shape)};
}

Plan plan_redistribution(const Layout& source, const Layout& target, const RedistributionOptions& options,
                         const Team& team) {
  return Planner(source, target, options, team).plan();
}

}  // namespace penstock
