// The planner of redistributions. Data between two ranks moves in segments: the source packs, the target unpacks with
// op, alpha and beta (COSTA, Algorithm 3, "transform upon receipt"). It uses one of three protocols per pair of ranks:
// - message: between nodes, a segment is a message.
// - staging: inside a node, the source packs into a small staging buffer in shared memory, and the target unpacks from
//   there. The buffer stays in the caches, so each element is read from memory once and written once, as by a copy.
// - remote read: inside a node, if runs are long on both sides, the target reads the source's memory directly.
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
#include "redistribute/segmenter.hpp"
#include "redistribute/staging.hpp"
#include "redistribute/turns.hpp"

namespace penstock {
namespace {

using redistribute::BlockList;
using redistribute::Bundle;
using redistribute::Member;
using redistribute::Message;
using redistribute::MessageWindow;
using redistribute::Package;
using redistribute::Route;
using redistribute::Segment;
using redistribute::Segmenter;
using redistribute::Side;
using redistribute::StagingBuffers;
using redistribute::TileOverlap;
using redistribute::Turns;

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
      std::uint64_t source_bytes = 0;  // of the copy that this rank owns a part of
      std::uint64_t target_bytes = 0;
      redistribute::for_each_copy(
          pair.source, pair.target, [&](const Layout& source, const Layout& target, auto reads_copy) {
            Member& member =
                *members_.emplace_back(std::make_unique<Member>(source, target, pair, options, team, reads_copy));
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
    const StepId all_started = size_ <= kMostDirect ? direct_barrier(outgoing, incoming) : dissemination_barrier();
    // Data for other nodes first: links are slower than memory. Inside a node, peers by distance, so that not all ranks
    // start with rank 0.
    send(messages_of(outgoing, Side::source));
    offer(outgoing);
    fill_staging(outgoing);
    if (const auto found = outgoing.find(rank_); found != outgoing.end())
      copy_local(found->second.packages, all_started);
    receive(messages_of(incoming, Side::target), all_started);
    for_each_node_peer(incoming, size_ - 1, [&](const Exchange& exchange, std::int32_t peer) {
      if (exchange.protocol == Protocol::remote_read) remote_read(exchange.packages, peer, all_started);
      if (exchange.protocol == Protocol::staging) drain_staging(exchange.packages, peer, all_started);
    });
    return std::move(builder_).finish(input_bytes_, output_bytes_);
  }

 private:
  static constexpr std::int32_t kMostDirect = 8;  // with more ranks, the start barrier has rounds
  static constexpr std::uint32_t kFirstBarrierTag = 0;
  static constexpr std::uint32_t kFirstDataTag = 32;        // a barrier of 2^31 ranks has fewer rounds
  static constexpr std::int64_t kMaxMessages = 1 << 12;     // of a package, about; longer packages have longer messages
  static constexpr std::int64_t kMaxRemoteReads = 1 << 14;  // of all packages for a rank, about
  static constexpr std::uint64_t kLeastRemoteReadBytes = 256 << 10;  // shorter ones are no faster than staging buffers
  static constexpr std::uint64_t kMostRemoteReadBytes = 1 << 20;     // longer ones are no faster
  static constexpr std::int64_t kMaxStagingUses = (kMaxTag - kFirstDataTag) / 2;  // each use needs two tags

  enum class Protocol : std::uint8_t { message, staging, remote_read };

  using Packages = std::vector<std::pair<Member*, Package>>;  // data of one rank for another, over all members
  struct Exchange {
    Packages packages;
    Protocol protocol = Protocol::message;
  };
  using Exchanges = std::map<std::int32_t, Exchange>;  // by peer

  Exchanges exchanges(Side side) const {
    Exchanges result;
    for (const auto& member : members_)
      for (auto& [peer, package] : member->packages(side))
        result[peer].packages.emplace_back(member.get(), std::move(package));
    for (auto& [peer, exchange] : result) exchange.protocol = protocol(exchange.packages, peer);
    return result;
  }

  /// Members of a batch start at cache lines.
  static std::uint64_t aligned(std::uint64_t size_bytes, std::size_t members) {
    return members > 1 ? (size_bytes + 63) / 64 * 64 : size_bytes;
  }

  std::int64_t elems_of(std::uint64_t segment_bytes) const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
    return static_cast<std::int64_t>(std::clamp<std::uint64_t>(segment_bytes / element_bytes_, 1, kMost));
  }

  std::uint64_t bytes(std::int64_t elems) const { return static_cast<std::uint64_t>(elems) * element_bytes_; }
  std::uint64_t bytes(std::uint64_t elems) const { return elems * element_bytes_; }

  /// A dissemination barrier of empty messages. The returned step is complete when all ranks have started.
  StepId dissemination_barrier() {
    StepId started = PlanBuilder::kNone;
    std::uint32_t tag = kFirstBarrierTag;
    for (std::int64_t distance = 1; distance < size_; distance *= 2, ++tag) {
      const auto to = static_cast<std::int32_t>((rank_ + distance) % size_);
      const auto from = static_cast<std::int32_t>((rank_ - distance + size_) % size_);
      builder_.send({0, 0, Buffer::scratch}, to, tag, {started});
      started = builder_.recv({0, 0, Buffer::scratch}, from, tag, {started});
    }
    return started;
  }

  /// The same in one round, for few ranks. The signal of a filled staging buffer also tells that its rank has started;
  /// other ranks send an empty message. A data message cannot tell it: earlier messages may have to be unpacked first.
  StepId direct_barrier(const Exchanges& outgoing, const Exchanges& incoming) {
    const auto fills_staging = [](const Exchanges& by_rank, std::int32_t peer) {
      const auto found = by_rank.find(peer);
      return found != by_rank.end() && found->second.protocol == Protocol::staging && elems(found->second.packages) > 0;
    };
    std::vector<StepId> started;
    for (std::int32_t distance = 1; distance < size_; ++distance) {
      const std::int32_t to = (rank_ + distance) % size_;
      if (!fills_staging(outgoing, to)) builder_.send({0, 0, Buffer::scratch}, to, kFirstBarrierTag);
      const std::int32_t from = (rank_ - distance + size_) % size_;
      if (fills_staging(incoming, from))
        started.push_back(first_filled_[from] = builder_.wait(from, full_tag(0)));
      else
        started.push_back(builder_.recv({0, 0, Buffer::scratch}, from, kFirstBarrierTag));
    }
    if (started.empty()) return PlanBuilder::kNone;
    return started.size() == 1 ? started[0] : builder_.copy({0, 0, Buffer::scratch}, {0, 0, Buffer::scratch}, started);
  }

  static std::int64_t elems(const Packages& packages) {
    std::int64_t sum = 0;
    for (const auto& [member, package] : packages)
      for (const TileOverlap& overlap : package) sum += overlap.elems();
    return sum;
  }

  /// The packages in bundles of at most `full` elements. Their segments are valid until forget_segments().
  std::vector<Bundle> cut(const Packages& packages, std::int64_t full) const {
    std::vector<Bundle> bundles;
    for (const auto& [member, package] : packages)
      for (const Segment& segment : member->segmenter().cut(package, full)) {
        const std::uint64_t size_bytes = bytes(segment.elems);
        if (bundles.empty() || bundles.back().size_bytes + size_bytes > bytes(full)) bundles.emplace_back();
        Bundle& last = bundles.back();
        last.fragments.push_back({member, segment, last.size_bytes});
        last.size_bytes += size_bytes;
      }
    return bundles;
  }

  std::vector<Bundle> segments(const Packages& packages, std::uint64_t most_bytes) const {
    return cut(packages, std::max(elems_of(std::min(segment_bytes_, most_bytes)), elems(packages) / kMaxMessages + 1));
  }

  void forget_segments() {
    for (const auto& member : members_) member->segmenter().clear();
  }

  /// Equal on both ranks: independent of the placement of tiles in memory.
  Protocol protocol(const Packages& packages, std::int32_t peer) const {
    if (!team_.same_node(rank_, peer)) return Protocol::message;
    if (team_.single_copy && !packs_all_ && std::ssize(packages) <= kMaxRemoteReads &&
        run_bytes(packages) >= std::min(kLeastRemoteReadBytes, segment_bytes_))
      return Protocol::remote_read;
    if (staging_.size_bytes() < element_bytes_) return Protocol::message;
    // Two consecutive segments have more elements than a full one.
    return elems(packages) / elems_of(staging_.size_bytes()) < kMaxStagingUses / 2 ? Protocol::staging
                                                                                   : Protocol::message;
  }

  /// Average length of a run of the packages.
  std::uint64_t run_bytes(const Packages& packages) const {
    std::int64_t runs = 0;
    for (const auto& [member, package] : packages)
      for (const TileOverlap& overlap : package) runs += member->segmenter().runs(overlap);
    return bytes(elems(packages)) / static_cast<std::uint64_t>(std::max<std::int64_t>(runs, 1));
  }

  /// The units of remote reads, equal on both ranks. None is longer than a run, so most of them are contiguous.
  std::vector<Bundle> remote_reads(const Packages& packages) const {
    const std::uint64_t most_bytes = std::min({kMostRemoteReadBytes, segment_bytes_, run_bytes(packages)});
    const std::int64_t full = std::max(elems_of(most_bytes), elems(packages) / kMaxRemoteReads + 1);
    std::vector<Bundle> result;
    for (const auto& [member, package] : packages)
      for (const Segment& segment : member->segmenter().cut(package, full))
        result.push_back({{{member, segment, 0}}, bytes(segment.elems)});
    return result;
  }

  template <class Action>
  void for_each_node_peer(const Exchanges& by_rank, std::int32_t step, const Action& action) {
    for (std::int32_t i = 1, peer = rank_; i < size_; ++i) {
      peer = (peer + step) % size_;
      const auto found = by_rank.find(peer);
      if (found != by_rank.end() && found->second.protocol != Protocol::message) action(found->second, peer);
    }
  }

  /// The messages to or from other nodes, in the order of their turns.
  std::vector<Message> messages_of(const Exchanges& by_rank, Side side) const {
    const Turns turns(team_);
    const std::uint64_t most_bytes = MessageWindow::message_bytes(team_);
    std::vector<Message> result;
    for (const auto& [peer, exchange] : by_rank) {
      if (peer == rank_ || exchange.protocol != Protocol::message) continue;
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
    MessageWindow window(builder_, messages);
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
      steps_.push_back(window.turn(peer));
      const StepId sent = builder_.send(region, peer, tag, steps_);
      window.moved_by(peer, sent);
      window.used_by({&sent, 1});
    }
    forget_segments();
  }

  /// The region of the input that equals a bundle, if it needs no packing.
  std::optional<Region> in_place(const Bundle& bundle) {
    if (bundle.fragments.size() != 1 || packs_all_) return std::nullopt;
    const auto& [member, segment, offset_bytes] = bundle.fragments[0];
    member->segmenter().lay_out(segment, Route::source_to_package, list_);
    if (!list_.is_contiguous()) return std::nullopt;
    const Block& block = list_.blocks().front();
    return Region{member->input().offset_bytes + bytes(block.from_offset_elems), bytes(block.columns), Buffer::input};
  }

  void offer(const Exchanges& outgoing) {
    std::vector<Message> all;
    for_each_node_peer(outgoing, 1, [&](const Exchange& exchange, std::int32_t peer) {
      if (exchange.protocol != Protocol::remote_read) return;
      std::vector<Bundle> bundles = remote_reads(exchange.packages);
      for (std::size_t i = 0; i < bundles.size(); ++i)
        all.push_back({{}, peer, kFirstDataTag + static_cast<std::uint32_t>(i), std::move(bundles[i])});
    });
    MessageWindow window(builder_, all);
    for (const auto& [turn, peer, tag, bundle] : all) {
      builder_.at(0, tag - kFirstDataTag);
      if (const std::optional<Region> region = in_place(bundle)) {
        builder_.send(*region, peer, tag, {});
        continue;
      }
      const Region region = window.next(bundle.size_bytes);
      pack(bundle, region, window.busy_until());
      const StepId read = builder_.send(region, peer, tag, steps_);
      window.used_by({&read, 1});
    }
    forget_segments();
  }

  void remote_read(const Packages& packages, std::int32_t peer, StepId all_started) {
    const std::vector<Bundle> bundles = remote_reads(packages);
    for (std::size_t i = 0; i < bundles.size(); ++i) {
      const auto segment = static_cast<std::uint32_t>(i);
      builder_.at(0, segment);
      const auto& [member, only, offset_bytes] = bundles[i].fragments[0];
      member->segmenter().lay_out(only, Route::package_to_target, list_);
      count_blocks();
      builder_.remote_read(bundles[i].size_bytes, peer, kFirstDataTag + segment, member->output(), list_.blocks(),
                           {&all_started, 1});
    }
    forget_segments();
  }

  /// Fills buffers for all ranks of the node at a time, in the order of the source's memory. Filling rank by rank would
  /// read the same cache lines once per rank.
  void fill_staging(const Exchanges& outgoing) {
    struct Pair {
      std::int32_t peer;
      std::vector<Bundle> uses;
      std::vector<StepId> full = {};
    };
    std::vector<Pair> pairs;
    std::size_t most_uses = 0;
    for_each_node_peer(outgoing, 1, [&](const Exchange& exchange, std::int32_t peer) {
      if (exchange.protocol != Protocol::staging) return;
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
        for (const auto& [member, segment, offset_bytes] : pair.uses[i].fragments) {
          member->segmenter().lay_out(segment, Route::source_to_package, list_);
          count_blocks();
          auto of_member = std::ranges::find(blocks, member, [](const auto& entry) { return entry.first; });
          if (of_member == blocks.end()) of_member = blocks.insert(of_member, {member, {}});
          for (Block block : list_.blocks()) {
            block.to_offset_elems += (begin_bytes + offset_bytes) / element_bytes_;
            of_member->second.push_back(block);
          }
        }
      }
      steps_.clear();
      for (auto& [member, of_all] : blocks) {
        std::ranges::stable_sort(of_all, {}, &Block::from_offset_elems);
        steps_.push_back(builder_.transform(member->input(), filled, of_all, false, after));
      }
      filled_.push_back(steps_.back());
      for (Pair& pair : pairs) pair.full.push_back(builder_.signal(pair.peer, full_tag(i), steps_));
    }
    forget_segments();
  }

  void drain_staging(const Packages& packages, std::int32_t peer, StepId all_started) {
    const std::vector<Bundle> uses = cut(packages, elems_of(staging_.size_bytes()));
    for (std::size_t i = 0; i < uses.size(); ++i) {
      builder_.at(0, static_cast<std::uint32_t>(i));
      const auto known = i == 0 ? first_filled_.find(peer) : first_filled_.end();
      const StepId after[] = {all_started,
                              known != first_filled_.end() ? known->second : builder_.wait(peer, full_tag(i))};
      steps_.clear();
      for (const auto& [member, segment, offset_bytes] : uses[i].fragments) {
        member->segmenter().lay_out(segment, Route::package_to_target, list_);
        count_blocks();
        Region buffer = staging_.buffer(peer, rank_, i, bytes(segment.elems));
        buffer.offset_bytes += offset_bytes;
        steps_.push_back(builder_.unpack(buffer, peer, member->output(), list_.blocks(), after));
      }
      if (i + staging_.per_pair() < uses.size()) builder_.signal(peer, free_tag(i), steps_);
    }
    forget_segments();
  }

  void receive(const std::vector<Message>& messages, StepId all_started) {
    MessageWindow window(builder_, messages);
    for (const auto& [turn, peer, tag, bundle] : messages) {
      builder_.at(0, tag - kFirstDataTag);
      steps_.assign(window.busy_until().begin(), window.busy_until().end());
      steps_.push_back(window.turn(peer));
      const Region region = window.next(bundle.size_bytes);
      const StepId received = builder_.recv(region, peer, tag, steps_);
      steps_.clear();
      for (const auto& [member, segment, offset_bytes] : bundle.fragments) {
        member->segmenter().lay_out(segment, Route::package_to_target, list_);
        const Region from{region.offset_bytes + offset_bytes, bytes(segment.elems), region.buffer};
        steps_.push_back(transform(from, member->output(), true, all_started, received));
      }
      window.moved_by(peer, received);
      window.used_by(steps_);
    }
    forget_segments();
  }

  /// Adds steps that pack a bundle to steps_.
  void pack(const Bundle& bundle, Region to, std::span<const StepId> after) {
    steps_.clear();
    for (const auto& [member, segment, offset_bytes] : bundle.fragments) {
      member->segmenter().lay_out(segment, Route::source_to_package, list_);
      count_blocks();
      const Region part{to.offset_bytes + offset_bytes, bytes(segment.elems), to.buffer};
      steps_.push_back(builder_.transform(member->input(), part, list_.blocks(), false, after));
    }
  }

  /// Copies data that stays on this rank, segment by segment, so that steps for peers run in between. Each segment
  /// follows the staging buffers with data near it, which is then in the caches.
  void copy_local(const Packages& packages, StepId all_started) {
    constexpr std::uint64_t kLeastBytes = 64 << 10;
    const std::vector<Bundle> bundles =
        segments(packages, filled_.empty() ? segment_bytes_ : std::max(2 * staging_.size_bytes(), kLeastBytes));
    StepId previous = all_started;
    for (std::size_t i = 0; i < bundles.size(); ++i) {
      const StepId filled = filled_.empty() ? PlanBuilder::kNone : filled_[i * filled_.size() / bundles.size()];
      for (const auto& [member, segment, offset_bytes] : bundles[i].fragments) {
        member->segmenter().lay_out(segment, Route::source_to_target, list_);
        previous = transform(member->input(), member->output(), true, previous, filled);
      }
    }
    forget_segments();
  }

  /// Adds a step for the blocks in list_.
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
                  "redistribute: the layouts are so finely interleaved that the plan needs more than 2^32 blocks; use "
                  "larger blocks");
  }

  std::uint64_t element_bytes_;  ///< size of an element as it travels
  bool packs_all_;               ///< whether packing converts elements
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
  std::vector<StepId> steps_;
  std::map<std::int32_t, StepId>
      first_filled_;            ///< waits for the first staging buffer of each peer that direct_barrier() has added
  std::vector<StepId> filled_;  ///< the last step that fills each row of staging buffers
  std::size_t block_count_ = 0;
};

}  // namespace

MatrixOp matrix_op_from_name(std::string_view name) {
  if (name == "N") return MatrixOp::none;
  if (name == "T") return MatrixOp::transpose;
  if (name == "C") return MatrixOp::conjugate_transpose;
  throw Error(ErrorCode::invalid_argument, "unknown op '" + std::string(name) + "'; expected 'N', 'T' or 'C'");
}

MovedLayouts moved_layouts(const Layout& source, const Layout& target, const RedistributionOptions& options) {
  if (!options.has_subarray()) return {source, target};
  if (options.shape.empty())
    throw Error(ErrorCode::invalid_argument,
                "redistribute: source_begin or target_begin given without shape; give the shape of the subarray");
  std::vector<std::int64_t> source_begin = options.source_begin;
  std::vector<std::int64_t> target_begin = options.target_begin;
  if (source_begin.empty()) source_begin.resize(source.dimensions(), 0);
  if (target_begin.empty()) target_begin.resize(target.dimensions(), 0);
  std::vector<std::int64_t> target_shape = options.shape;
  if (options.op != MatrixOp::none && target_shape.size() == 2) std::swap(target_shape[0], target_shape[1]);
  return {source.subarray(source_begin, options.shape), target.subarray(target_begin, target_shape)};
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
