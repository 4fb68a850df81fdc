// Each pair of ranks moves what it has in segments: packed by the source, unpacked with op, alpha and beta by the
// target (COSTA, Algorithm 3, transforming upon receipt). Between nodes a segment is a message. Inside a node the
// source packs it into one of a few cells of shared memory, from which the target unpacks it: cells that are small
// enough stay in the caches, so each element is read from memory once and written to it once, as by a copy.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "penstock/error.hpp"
#include "penstock/redistribute.hpp"
#include "plan/arithmetic.hpp"
#include "redistribute/boxes.hpp"
#include "redistribute/cells.hpp"
#include "redistribute/copies.hpp"
#include "redistribute/member.hpp"
#include "redistribute/tiles.hpp"

namespace penstock {
namespace {

using redistribute::BlockList;
using redistribute::Cells;
using redistribute::Member;
using redistribute::Package;
using redistribute::Piece;
using redistribute::Route;
using redistribute::Segment;
using redistribute::Side;
using redistribute::Tiles;

/// Part of a segment or a whole one, in what travels at once.
struct Share {
  Member* member;
  Segment segment;
  std::uint64_t offset_bytes;
};

/// What travels at once: consecutive segments, also of several pairs.
struct Bundle {
  std::vector<Share> shares;
  std::uint64_t size_bytes = 0;
};

class Planner {
 public:
  Planner(std::span<const LayoutPair> pairs, const RedistributionOptions& options, const Team& team)
      : element_bytes_(size_bytes(plan::between_dtype(options.input_dtype(), options.dtype))),
        packs_all_(options.input_dtype() != plan::between_dtype(options.input_dtype(), options.dtype)),
        rank_(team.rank),
        size_(team.size()),
        builder_("redistribute", team.rank, team.size()),
        segment_bytes_(options.segment_bytes),
        team_(team),
        cells_(team, options.segment_bytes) {
    plan::check_conversion(options.input_dtype(), options.dtype);
    for (const LayoutPair& pair : pairs) {
      std::uint64_t source_bytes = 0;  // of the one copy that this rank has a part of
      std::uint64_t target_bytes = 0;
      redistribute::for_each_copy(
          pair.source, pair.target, [&](const Layout& source, const Layout& target, auto serves) {
            Member& member = *members_.emplace_back(std::make_unique<Member>(source, target, options, team, serves));
            member.begin_at(input_bytes_, output_bytes_);
            source_bytes = std::max(source_bytes, member.input().size_bytes);
            target_bytes = std::max(target_bytes, member.output().size_bytes);
          });
      input_bytes_ += aligned(source_bytes, pairs.size());
      output_bytes_ += aligned(target_bytes, pairs.size());
    }
  }

  Plan plan() && {
    std::map<std::int32_t, Packages> outgoing;
    std::map<std::int32_t, Packages> incoming;
    for (const auto& member : members_) {
      for (auto& [peer, package] : member->packages(Side::source))
        outgoing[peer].emplace_back(member.get(), std::move(package));
      for (auto& [peer, package] : member->packages(Side::target))
        incoming[peer].emplace_back(member.get(), std::move(package));
    }
    const StepId all_started = barrier();
    // Peers in the order of their distance, so that not everybody sends to rank 0 first. Between nodes one after the
    // other: senders that fill one link together make it drop what it cannot hold.
    for (std::int32_t distance = 1; distance < size_; ++distance) {
      const std::int32_t peer = (rank_ + distance) % size_;
      if (const auto found = outgoing.find(peer); found != outgoing.end()) send(found->second, peer);
    }
    if (const auto found = outgoing.find(rank_); found != outgoing.end()) keep(found->second, all_started);
    for (std::int32_t distance = 1; distance < size_; ++distance) {
      const std::int32_t peer = (rank_ - distance + size_) % size_;
      if (const auto found = incoming.find(peer); found != incoming.end()) receive(found->second, peer, all_started);
    }
    return std::move(builder_).finish(input_bytes_, output_bytes_);
  }

 private:
  static constexpr std::uint32_t kFirstBarrierTag = 0;
  static constexpr std::uint32_t kFirstDataTag = 32;     // a barrier of 2^31 ranks has fewer rounds
  static constexpr std::size_t kSlots = 4;               // messages in flight per peer and direction
  static constexpr std::size_t kTurnAhead = 2;           // messages that are left when those to the next peer begin
  static constexpr std::int64_t kMaxMessages = 1 << 12;  // of a package, about; longer ones get longer messages
  static constexpr std::int64_t kMaxCellUses = (kMaxTag - kFirstDataTag) / 2;  // each needs two tags

  using Packages = std::vector<std::pair<Member*, Package>>;  // what one rank has for another

  /// Members of a batch begin at cache lines.
  static std::uint64_t aligned(std::uint64_t size_bytes, std::size_t members) {
    return members > 1 ? (size_bytes + 63) / 64 * 64 : size_bytes;
  }

  std::int64_t elems_of(std::uint64_t segment_bytes) const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
    return static_cast<std::int64_t>(std::clamp<std::uint64_t>(segment_bytes / element_bytes_, 1, kMost));
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

  /// Scratch memory for the segments of one peer; a slot is used again when the step that needs it is complete.
  class Slots {
   public:
    Slots(PlanBuilder& builder, std::uint64_t bytes) : builder_(builder), bytes_(bytes) {}

    Region next(std::uint64_t size_bytes) {
      if (used_ < kSlots) regions_[used_] = builder_.scratch(bytes_);
      const Region whole = regions_[used_ % kSlots];
      return {whole.offset_bytes, size_bytes, whole.buffer};
    }
    /// The steps before which the slot of next() may not be written.
    std::span<const StepId> busy_until() const { return last_use_[used_ % kSlots]; }
    void used_by(std::span<const StepId> last_use) {
      last_use_[used_++ % kSlots].assign(last_use.begin(), last_use.end());
    }
    void used_by(StepId last_use) { used_by(std::span(&last_use, 1)); }

   private:
    PlanBuilder& builder_;
    std::uint64_t bytes_;
    std::array<Region, kSlots> regions_{};
    std::array<std::vector<StepId>, kSlots> last_use_{};
    std::size_t used_ = 0;
  };

  static std::uint64_t longest_bytes(const std::vector<Bundle>& bundles) {
    std::uint64_t longest = 0;
    for (const Bundle& bundle : bundles) longest = std::max(longest, bundle.size_bytes);
    return longest;
  }

  static std::int64_t elems(const Packages& packages) {
    std::int64_t sum = 0;
    for (const auto& [member, package] : packages)
      for (const Piece& piece : package) sum += piece.elems();
    return sum;
  }

  /// The packages in bundles of at most `full` elements. The members' tiles are those of these packages afterwards.
  std::vector<Bundle> cut(const Packages& packages, std::int64_t full) const {
    std::vector<Bundle> bundles;
    for (const auto& [member, package] : packages)
      for (const Segment& segment : member->tiles().cut(package, full)) {
        const std::uint64_t size_bytes = bytes(segment.elems);
        if (bundles.empty() || bundles.back().size_bytes + size_bytes > bytes(full)) bundles.emplace_back();
        Bundle& last = bundles.back();
        last.shares.push_back({member, segment, last.size_bytes});
        last.size_bytes += size_bytes;
      }
    return bundles;
  }

  std::vector<Bundle> messages(const Packages& packages) const {
    return cut(packages, std::max(elems_of(segment_bytes_), elems(packages) / kMaxMessages + 1));
  }

  /// The bundles that go through cells; none where the packages have to go in messages. The same for both ranks.
  std::vector<Bundle> cell_uses(const Packages& packages, std::int32_t peer) const {
    if (!team_.same_node(rank_, peer) || cells_.size_bytes() < element_bytes_) return {};
    // Two neighbouring segments are more than one full one.
    const std::int64_t full = elems_of(cells_.size_bytes());
    if (elems(packages) / full >= kMaxCellUses / 2) return {};
    return cut(packages, full);
  }

  static std::uint32_t full_tag(std::size_t use) { return kFirstDataTag + 2 * static_cast<std::uint32_t>(use); }
  static std::uint32_t free_tag(std::size_t use) { return full_tag(use) + 1; }

  void send(const Packages& packages, std::int32_t peer) {
    if (const std::vector<Bundle> uses = cell_uses(packages, peer); !uses.empty()) return fill_cells(uses, peer);
    const std::vector<Bundle> bundles = messages(packages);
    Slots slots(builder_, longest_bytes(bundles));
    const bool waits = !team_.same_node(rank_, peer) && elems(packages) > 0 && bundles.size() > 1;
    const StepId turn = waits ? turn_ : PlanBuilder::kNone;
    for (std::size_t i = 0; i < bundles.size(); ++i) {
      builder_.at(0, static_cast<std::uint32_t>(i));
      const std::uint32_t tag = kFirstDataTag + static_cast<std::uint32_t>(i);
      if (bundles[i].shares.size() == 1 && !packs_all_) {
        const auto& [member, segment, offset_bytes] = bundles[i].shares[0];
        member->tiles().lay_out(segment, Route::source_to_package, list_);
        if (list_.is_contiguous()) {
          const Block& block = list_.blocks().front();
          const Region& input = member->input();
          const StepId sent =
              builder_.send({input.offset_bytes + bytes(block.from_offset_elems), bytes(block.columns), Buffer::input},
                            peer, tag, {turn});
          if (waits && i + kTurnAhead <= bundles.size()) turn_ = sent;
          continue;
        }
      }
      const std::span<const StepId> free = slots.busy_until();
      const Region region = slots.next(bundles[i].size_bytes);
      pack(bundles[i], region, free, PlanBuilder::kNone);
      made_.push_back(turn);
      const StepId sent = builder_.send(region, peer, tag, made_);
      slots.used_by(sent);
      if (waits && i + kTurnAhead <= bundles.size()) turn_ = sent;
    }
  }

  void fill_cells(const std::vector<Bundle>& uses, std::int32_t peer) {
    if (builder_.so_far().shared_bytes == 0) builder_.shared(cells_.total_bytes());
    std::vector<StepId> full;
    for (std::size_t i = 0; i < uses.size(); ++i) {
      builder_.at(0, static_cast<std::uint32_t>(i));
      StepId free = PlanBuilder::kNone;
      StepId last_use = PlanBuilder::kNone;
      if (i >= cells_.per_pair()) {
        free = builder_.await(peer, free_tag(i - cells_.per_pair()));
        last_use = full[i - cells_.per_pair()];
      }
      pack(uses[i], cells_.cell(rank_, peer, i, uses[i].size_bytes), free, last_use);
      full.push_back(builder_.expose(peer, full_tag(i), made_));
    }
  }

  void drain_cells(const std::vector<Bundle>& uses, std::int32_t peer, StepId all_started) {
    for (std::size_t i = 0; i < uses.size(); ++i) {
      builder_.at(0, static_cast<std::uint32_t>(i));
      const StepId after[] = {all_started, builder_.await(peer, full_tag(i))};
      made_.clear();
      for (const auto& [member, segment, offset_bytes] : uses[i].shares) {
        member->tiles().lay_out(segment, Route::package_to_target, list_);
        count_blocks();
        Region cell = cells_.cell(peer, rank_, i, bytes(segment.elems));
        cell.offset_bytes += offset_bytes;
        made_.push_back(builder_.unpack(cell, peer, member->output(), list_.blocks(), after));
      }
      if (i + cells_.per_pair() < uses.size()) builder_.expose(peer, free_tag(i), made_);
    }
  }

  void receive(const Packages& packages, std::int32_t peer, StepId all_started) {
    if (const std::vector<Bundle> uses = cell_uses(packages, peer); !uses.empty())
      return drain_cells(uses, peer, all_started);
    const std::vector<Bundle> bundles = messages(packages);
    Slots slots(builder_, longest_bytes(bundles));
    for (std::size_t i = 0; i < bundles.size(); ++i) {
      builder_.at(0, static_cast<std::uint32_t>(i));
      const Region region = slots.next(bundles[i].size_bytes);
      const StepId received =
          builder_.recv(region, peer, kFirstDataTag + static_cast<std::uint32_t>(i), slots.busy_until());
      made_.clear();
      for (const auto& [member, segment, offset_bytes] : bundles[i].shares) {
        member->tiles().lay_out(segment, Route::package_to_target, list_);
        const Region from{region.offset_bytes + offset_bytes, bytes(segment.elems), region.buffer};
        made_.push_back(transform(from, member->output(), true, all_started, received));
      }
      slots.used_by(made_);
    }
  }

  /// The steps that pack a bundle, in made_.
  void pack(const Bundle& bundle, Region to, std::span<const StepId> free, StepId also_after) {
    std::vector<StepId> after(free.begin(), free.end());
    after.push_back(also_after);
    made_.clear();
    for (const auto& [member, segment, offset_bytes] : bundle.shares) {
      member->tiles().lay_out(segment, Route::source_to_package, list_);
      count_blocks();
      const Region part{to.offset_bytes + offset_bytes, bytes(segment.elems), to.buffer};
      made_.push_back(builder_.transform(member->input(), part, list_.blocks(), false, after));
    }
  }
  void pack(const Bundle& bundle, Region to, StepId free, StepId also_after) {
    pack(bundle, to, std::span(&free, 1), also_after);
  }

  /// One segment after the other, so that those of the peers get their turns.
  void keep(const Packages& packages, StepId all_started) {
    StepId previous = all_started;
    for (const Bundle& bundle : messages(packages))
      for (const auto& [member, segment, offset_bytes] : bundle.shares) {
        member->tiles().lay_out(segment, Route::source_to_target, list_);
        previous = transform(member->input(), member->output(), true, previous);
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

  std::uint64_t element_bytes_;  ///< of what travels
  bool packs_all_;               ///< to convert it
  std::int32_t rank_;
  std::int32_t size_;
  PlanBuilder builder_;
  std::uint64_t segment_bytes_;
  const Team& team_;
  Cells cells_;
  std::vector<std::unique_ptr<Member>> members_;
  std::uint64_t input_bytes_ = 0;
  std::uint64_t output_bytes_ = 0;
  BlockList list_;
  std::vector<StepId> made_;
  StepId turn_ = PlanBuilder::kNone;  ///< the message between nodes before which those to the next peer may not begin
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
  const LayoutPair pair{source, target};
  return plan_redistribution(std::span(&pair, 1), options, team);
}

Plan plan_redistribution(std::span<const LayoutPair> pairs, const RedistributionOptions& options, const Team& team) {
  return Planner(pairs, options, team).plan();
}

}  // namespace penstock
