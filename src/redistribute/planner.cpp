// Each pair of ranks moves what it has in segments: packed by the source, unpacked with op, alpha and beta by the
// target (COSTA, Algorithm 3, transforming upon receipt). Between nodes a segment is a message. Inside a node the
// source packs it into one of a few staging buffers of shared memory, from which the target unpacks it: staging buffers
// that are small enough stay in the caches, so each element is read from memory once and written to it once, as by a
// copy. What lies in long runs on both sides needs no staging buffer: the source offers it, and the target reads it
// where it lies.
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kernels/arithmetic.hpp"
#include "penstock/error.hpp"
#include "penstock/redistribute.hpp"
#include "redistribute/boxes.hpp"
#include "redistribute/copies.hpp"
#include "redistribute/member.hpp"
#include "redistribute/messages.hpp"
#include "redistribute/overlaps.hpp"
#include "redistribute/staging.hpp"
#include "redistribute/turns.hpp"

namespace penstock {
namespace {

using redistribute::BlockList;
using redistribute::Bundle;
using redistribute::Member;
using redistribute::Message;
using redistribute::Overlaps;
using redistribute::Package;
using redistribute::Piece;
using redistribute::Route;
using redistribute::Segment;
using redistribute::Side;
using redistribute::StagingBuffers;
using redistribute::Turns;
using redistribute::Window;

class Planner {
 public:
  Planner(std::span<const LayoutPair> pairs, const RedistributionOptions& options, const Team& team)
      : element_bytes_(size_bytes(kernels::wire_dtype(options.input_dtype(), options.dtype))),
        packs_all_(options.input_dtype() != kernels::wire_dtype(options.input_dtype(), options.dtype)),
        rank_(team.rank),
        size_(team.size()),
        builder_("redistribute", team.rank, team.size()),
        segment_bytes_(options.segment_bytes),
        team_(team),
        staging_(team, options.segment_bytes) {
    kernels::check_conversion(options.input_dtype(), options.dtype);
    for (const LayoutPair& pair : pairs) {
      std::uint64_t source_bytes = 0;  // of the one copy that this rank has a part of
      std::uint64_t target_bytes = 0;
      redistribute::for_each_copy(
          pair.source, pair.target, [&](const Layout& source, const Layout& target, auto serves) {
            Member& member =
                *members_.emplace_back(std::make_unique<Member>(source, target, pair, options, team, serves));
            member.begin_at(input_bytes_, output_bytes_);
            source_bytes = std::max(source_bytes, member.input().size_bytes);
            target_bytes = std::max(target_bytes, member.output().size_bytes);
          });
      input_bytes_ += aligned(source_bytes, pairs.size());
      output_bytes_ += aligned(target_bytes, pairs.size());
    }
  }

  Plan plan() && {
    const Exchanges outgoing = exchanges(Side::source);
    const Exchanges incoming = exchanges(Side::target);
    const StepId all_started = size_ <= kMostDirect ? hear_all(outgoing, incoming) : barrier();
    // What leaves the node first: the links are slower than memory. Inside the node peers in the order of their
    // distance, so that not everybody serves rank 0 first.
    send(mail(outgoing, Side::source));
    offer_read(outgoing);
    fill_staging(outgoing);
    if (const auto found = outgoing.find(rank_); found != outgoing.end()) keep(found->second.packages, all_started);
    receive(mail(incoming, Side::target), all_started);
    for_each_near(incoming, size_ - 1, [&](const Exchange& exchange, std::int32_t peer) {
      if (exchange.way == Way::remote_read) remote_read(exchange.packages, peer, all_started);
      if (exchange.way == Way::staging) drain_staging(exchange.packages, peer, all_started);
    });
    return std::move(builder_).finish(input_bytes_, output_bytes_);
  }

 private:
  static constexpr std::int32_t kMostDirect = 8;  // more ranks hear of each other's start in rounds
  static constexpr std::uint32_t kFirstBarrierTag = 0;
  static constexpr std::uint32_t kFirstDataTag = 32;        // a barrier of 2^31 ranks has fewer rounds
  static constexpr std::int64_t kMaxMessages = 1 << 12;     // of a package, about; longer ones get longer messages
  static constexpr std::int64_t kMaxRemoteReads = 1 << 14;  // of all packages for a rank, about
  static constexpr std::uint64_t kLeastRemoteReadBytes =
      256 << 10;  // shorter ones are not quicker than a pass through staging buffers
  static constexpr std::uint64_t kMostRemoteReadBytes = 1 << 20;                  // longer ones are not quicker
  static constexpr std::int64_t kMaxStagingUses = (kMaxTag - kFirstDataTag) / 2;  // each needs two tags

  enum class Way : std::uint8_t { message, staging, remote_read };

  using Packages = std::vector<std::pair<Member*, Package>>;  // what one rank has for another
  struct Exchange {
    Packages packages;
    Way way = Way::message;
  };
  using Exchanges = std::map<std::int32_t, Exchange>;  // by the other rank

  Exchanges exchanges(Side side) const {
    Exchanges result;
    for (const auto& member : members_)
      for (auto& [peer, package] : member->packages(side))
        result[peer].packages.emplace_back(member.get(), std::move(package));
    for (auto& [peer, exchange] : result) exchange.way = way(exchange.packages, peer);
    return result;
  }

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

  /// The same for few ranks without rounds. What a staging buffer is filled with also says that its rank has started;
  /// others are told by an empty message. Not by one with data: before it is sent, those before it may have to be
  /// unpacked.
  StepId hear_all(const Exchanges& outgoing, const Exchanges& incoming) {
    const auto fills_staging = [](const Exchanges& by_rank, std::int32_t peer) {
      const auto found = by_rank.find(peer);
      return found != by_rank.end() && found->second.way == Way::staging && elems(found->second.packages) > 0;
    };
    std::vector<StepId> heard;
    for (std::int32_t distance = 1; distance < size_; ++distance) {
      const std::int32_t to = (rank_ + distance) % size_;
      if (!fills_staging(outgoing, to)) builder_.send({0, 0, Buffer::scratch}, to, kFirstBarrierTag);
      const std::int32_t from = (rank_ - distance + size_) % size_;
      if (fills_staging(incoming, from))
        heard.push_back(first_filled_[from] = builder_.wait(from, full_tag(0)));
      else
        heard.push_back(builder_.recv({0, 0, Buffer::scratch}, from, kFirstBarrierTag));
    }
    if (heard.empty()) return PlanBuilder::kNone;
    return heard.size() == 1 ? heard[0] : builder_.copy({0, 0, Buffer::scratch}, {0, 0, Buffer::scratch}, heard);
  }

  static std::int64_t elems(const Packages& packages) {
    std::int64_t sum = 0;
    for (const auto& [member, package] : packages)
      for (const Piece& piece : package) sum += piece.elems();
    return sum;
  }

  /// The packages in bundles of at most `full` elements. Their overlaps are kept until forget_overlaps().
  std::vector<Bundle> cut(const Packages& packages, std::int64_t full) const {
    std::vector<Bundle> bundles;
    for (const auto& [member, package] : packages)
      for (const Segment& segment : member->overlaps().cut(package, full)) {
        const std::uint64_t size_bytes = bytes(segment.elems);
        if (bundles.empty() || bundles.back().size_bytes + size_bytes > bytes(full)) bundles.emplace_back();
        Bundle& last = bundles.back();
        last.shares.push_back({member, segment, last.size_bytes});
        last.size_bytes += size_bytes;
      }
    return bundles;
  }

  std::vector<Bundle> segments(const Packages& packages, std::uint64_t most_bytes) const {
    return cut(packages, std::max(elems_of(std::min(segment_bytes_, most_bytes)), elems(packages) / kMaxMessages + 1));
  }

  void forget_overlaps() {
    for (const auto& member : members_) member->overlaps().clear();
  }

  /// The same for both ranks, wherever they have placed their tiles.
  Way way(const Packages& packages, std::int32_t peer) const {
    if (!team_.same_node(rank_, peer)) return Way::message;
    if (team_.single_copy && !packs_all_ && std::ssize(packages) <= kMaxRemoteReads &&
        run_bytes(packages) >= std::min(kLeastRemoteReadBytes, segment_bytes_))
      return Way::remote_read;
    if (staging_.size_bytes() < element_bytes_) return Way::message;
    // Two neighbouring segments are more than one full one.
    return elems(packages) / elems_of(staging_.size_bytes()) < kMaxStagingUses / 2 ? Way::staging : Way::message;
  }

  /// What the packages have in one run on average.
  std::uint64_t run_bytes(const Packages& packages) const {
    std::int64_t runs = 0;
    for (const auto& [member, package] : packages)
      for (const Piece& piece : package) runs += member->overlaps().runs(piece);
    return bytes(elems(packages)) / static_cast<std::uint64_t>(std::max<std::int64_t>(runs, 1));
  }

  /// What is offered at a time, the same for both ranks. None is longer than a run, so most of them are contiguous.
  std::vector<Bundle> remote_reads(const Packages& packages) const {
    const std::uint64_t most_bytes = std::min({kMostRemoteReadBytes, segment_bytes_, run_bytes(packages)});
    const std::int64_t full = std::max(elems_of(most_bytes), elems(packages) / kMaxRemoteReads + 1);
    std::vector<Bundle> result;
    for (const auto& [member, package] : packages)
      for (const Segment& segment : member->overlaps().cut(package, full))
        result.push_back({{{member, segment, 0}}, bytes(segment.elems)});
    return result;
  }

  template <class Action>
  void for_each_near(const Exchanges& by_rank, std::int32_t step, const Action& action) {
    for (std::int32_t i = 1, peer = rank_; i < size_; ++i) {
      peer = (peer + step) % size_;
      const auto found = by_rank.find(peer);
      if (found != by_rank.end() && found->second.way != Way::message) action(found->second, peer);
    }
  }

  /// What goes in messages, in the order of their turns.
  std::vector<Message> mail(const Exchanges& by_rank, Side side) const {
    const Turns turns(team_);
    const std::uint64_t most_bytes = Window::message_bytes(team_);
    std::vector<Message> result;
    for (const auto& [peer, exchange] : by_rank) {
      if (peer == rank_ || exchange.way != Way::message) continue;
      std::vector<Bundle> bundles = segments(exchange.packages, most_bytes);
      for (std::size_t i = 0; i < bundles.size(); ++i) {
        const std::size_t left = bundles.size() - i;
        result.push_back({side == Side::source ? turns.of(rank_, peer, left) : turns.of(peer, rank_, left), peer,
                          kFirstDataTag + static_cast<std::uint32_t>(i), std::move(bundles[i])});
      }
    }
    std::ranges::sort(result, [](const Message& a, const Message& b) { return a.turn < b.turn; });
    return result;
  }

  static std::uint32_t full_tag(std::size_t use) { return kFirstDataTag + 2 * static_cast<std::uint32_t>(use); }
  static std::uint32_t free_tag(std::size_t use) { return full_tag(use) + 1; }

  void send(const std::vector<Message>& messages) {
    Window window(builder_, messages);
    for (const auto& [turn, peer, tag, bundle] : messages) {
      builder_.at(0, tag - kFirstDataTag);
      if (const std::optional<Region> region = in_place(bundle)) {
        const StepId sent = builder_.send(*region, peer, tag, {window.turn(peer)});
        window.moved_by(peer, sent);
        continue;
      }
      const std::span<const StepId> free = window.busy_until();
      const Region region = window.next(bundle.size_bytes);
      pack(bundle, region, free);
      made_.push_back(window.turn(peer));
      const StepId sent = builder_.send(region, peer, tag, made_);
      window.moved_by(peer, sent);
      window.used_by({&sent, 1});
    }
    forget_overlaps();
  }

  /// The part of the input that a bundle is, where it needs no packing.
  std::optional<Region> in_place(const Bundle& bundle) {
    if (bundle.shares.size() != 1 || packs_all_) return std::nullopt;
    const auto& [member, segment, offset_bytes] = bundle.shares[0];
    member->overlaps().lay_out(segment, Route::source_to_package, list_);
    if (!list_.is_contiguous()) return std::nullopt;
    const Block& block = list_.blocks().front();
    return Region{member->input().offset_bytes + bytes(block.from_offset_elems), bytes(block.columns), Buffer::input};
  }

  void offer_read(const Exchanges& outgoing) {
    std::vector<Message> all;
    for_each_near(outgoing, 1, [&](const Exchange& exchange, std::int32_t peer) {
      if (exchange.way != Way::remote_read) return;
      std::vector<Bundle> bundles = remote_reads(exchange.packages);
      for (std::size_t i = 0; i < bundles.size(); ++i)
        all.push_back({{}, peer, kFirstDataTag + static_cast<std::uint32_t>(i), std::move(bundles[i])});
    });
    Window window(builder_, all);
    for (const auto& [turn, peer, tag, bundle] : all) {
      builder_.at(0, tag - kFirstDataTag);
      if (const std::optional<Region> region = in_place(bundle)) {
        builder_.offer_read(*region, peer, tag, {});
        continue;
      }
      const Region region = window.next(bundle.size_bytes);
      pack(bundle, region, window.busy_until());
      const StepId read = builder_.offer_read(region, peer, tag, made_);
      window.used_by({&read, 1});
    }
    forget_overlaps();
  }

  void remote_read(const Packages& packages, std::int32_t peer, StepId all_started) {
    const std::vector<Bundle> bundles = remote_reads(packages);
    for (std::size_t i = 0; i < bundles.size(); ++i) {
      const auto segment = static_cast<std::uint32_t>(i);
      builder_.at(0, segment);
      const auto& [member, only, offset_bytes] = bundles[i].shares[0];
      member->overlaps().lay_out(only, Route::package_to_target, list_);
      count_blocks();
      builder_.remote_read(bundles[i].size_bytes, peer, kFirstDataTag + segment, member->output(), list_.blocks(),
                           {&all_started, 1});
    }
    forget_overlaps();
  }

  /// Segments for all ranks of the node at a time, in the order of the source's memory: what lies between those for one
  /// rank would else be read once more for the next.
  void fill_staging(const Exchanges& outgoing) {
    struct Pair {
      std::int32_t peer;
      std::vector<Bundle> uses;
      std::vector<StepId> full = {};
    };
    std::vector<Pair> pairs;
    std::size_t most_uses = 0;
    for_each_near(outgoing, 1, [&](const Exchange& exchange, std::int32_t peer) {
      if (exchange.way != Way::staging) return;
      pairs.push_back({peer, cut(exchange.packages, elems_of(staging_.size_bytes()))});
      most_uses = std::max(most_uses, pairs.back().uses.size());
    });
    if (most_uses > 0) builder_.shared(staging_.total_bytes());
    for (std::size_t i = 0; i < most_uses; ++i) {
      builder_.at(0, static_cast<std::uint32_t>(i));
      std::erase_if(pairs, [i](const Pair& pair) { return i >= pair.uses.size(); });
      std::vector<StepId> after;
      std::vector<std::pair<Member*, std::vector<Block>>> blocks;
      Region filled = staging_.row(i);
      filled.size_bytes = 0;
      for (const Pair& pair : pairs) {
        if (i >= staging_.per_pair()) {
          after.push_back(builder_.wait(pair.peer, free_tag(i - staging_.per_pair())));
          after.push_back(pair.full[i - staging_.per_pair()]);
        }
        const Region buffer = staging_.buffer(rank_, pair.peer, i, pair.uses[i].size_bytes);
        const std::uint64_t begin_bytes = buffer.offset_bytes - filled.offset_bytes;
        filled.size_bytes = std::max(filled.size_bytes, begin_bytes + buffer.size_bytes);
        for (const auto& [member, segment, offset_bytes] : pair.uses[i].shares) {
          member->overlaps().lay_out(segment, Route::source_to_package, list_);
          count_blocks();
          auto of_member = std::ranges::find(blocks, member, [](const auto& entry) { return entry.first; });
          if (of_member == blocks.end()) of_member = blocks.insert(of_member, {member, {}});
          for (Block block : list_.blocks()) {
            block.to_offset_elems += (begin_bytes + offset_bytes) / element_bytes_;
            of_member->second.push_back(block);
          }
        }
      }
      made_.clear();
      for (auto& [member, of_all] : blocks) {
        std::ranges::stable_sort(of_all, {}, &Block::from_offset_elems);
        made_.push_back(builder_.transform(member->input(), filled, of_all, false, after));
      }
      filled_.push_back(made_.back());
      for (Pair& pair : pairs) pair.full.push_back(builder_.signal(pair.peer, full_tag(i), made_));
    }
    forget_overlaps();
  }

  void drain_staging(const Packages& packages, std::int32_t peer, StepId all_started) {
    const std::vector<Bundle> uses = cut(packages, elems_of(staging_.size_bytes()));
    for (std::size_t i = 0; i < uses.size(); ++i) {
      builder_.at(0, static_cast<std::uint32_t>(i));
      const auto heard = i == 0 ? first_filled_.find(peer) : first_filled_.end();
      const StepId after[] = {all_started,
                              heard != first_filled_.end() ? heard->second : builder_.wait(peer, full_tag(i))};
      made_.clear();
      for (const auto& [member, segment, offset_bytes] : uses[i].shares) {
        member->overlaps().lay_out(segment, Route::package_to_target, list_);
        count_blocks();
        Region buffer = staging_.buffer(peer, rank_, i, bytes(segment.elems));
        buffer.offset_bytes += offset_bytes;
        made_.push_back(builder_.unpack(buffer, peer, member->output(), list_.blocks(), after));
      }
      if (i + staging_.per_pair() < uses.size()) builder_.signal(peer, free_tag(i), made_);
    }
    forget_overlaps();
  }

  void receive(const std::vector<Message>& messages, StepId all_started) {
    Window window(builder_, messages);
    for (const auto& [turn, peer, tag, bundle] : messages) {
      builder_.at(0, tag - kFirstDataTag);
      made_.assign(window.busy_until().begin(), window.busy_until().end());
      made_.push_back(window.turn(peer));
      const Region region = window.next(bundle.size_bytes);
      const StepId received = builder_.recv(region, peer, tag, made_);
      made_.clear();
      for (const auto& [member, segment, offset_bytes] : bundle.shares) {
        member->overlaps().lay_out(segment, Route::package_to_target, list_);
        const Region from{region.offset_bytes + offset_bytes, bytes(segment.elems), region.buffer};
        made_.push_back(transform(from, member->output(), true, all_started, received));
      }
      window.moved_by(peer, received);
      window.used_by(made_);
    }
    forget_overlaps();
  }

  /// The steps that pack a bundle, in made_.
  void pack(const Bundle& bundle, Region to, std::span<const StepId> after) {
    made_.clear();
    for (const auto& [member, segment, offset_bytes] : bundle.shares) {
      member->overlaps().lay_out(segment, Route::source_to_package, list_);
      count_blocks();
      const Region part{to.offset_bytes + offset_bytes, bytes(segment.elems), to.buffer};
      made_.push_back(builder_.transform(member->input(), part, list_.blocks(), false, after));
    }
  }

  /// One segment after the other, so that those of the peers get their turns; each right after the staging buffers have
  /// been filled with what lies near it, for the same reason as there.
  void keep(const Packages& packages, StepId all_started) {
    constexpr std::uint64_t kLeastBytes = 64 << 10;
    const std::vector<Bundle> bundles =
        segments(packages, filled_.empty() ? segment_bytes_ : std::max(2 * staging_.size_bytes(), kLeastBytes));
    StepId previous = all_started;
    for (std::size_t i = 0; i < bundles.size(); ++i) {
      const StepId filled = filled_.empty() ? PlanBuilder::kNone : filled_[i * filled_.size() / bundles.size()];
      for (const auto& [member, segment, offset_bytes] : bundles[i].shares) {
        member->overlaps().lay_out(segment, Route::source_to_target, list_);
        previous = transform(member->input(), member->output(), true, previous, filled);
      }
    }
    forget_overlaps();
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
  StagingBuffers staging_;
  std::vector<std::unique_ptr<Member>> members_;
  std::uint64_t input_bytes_ = 0;
  std::uint64_t output_bytes_ = 0;
  BlockList list_;
  std::vector<StepId> made_;
  std::map<std::int32_t, StepId> first_filled_;  ///< the waits for the peers' first staging buffers, if they come first
  std::vector<StepId> filled_;                   ///< the last step that fills each row of staging buffers
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
