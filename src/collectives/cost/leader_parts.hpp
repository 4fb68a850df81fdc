// The parts of the data that ranks of each node lead: their lengths, the segments and batches into which they are cut,
// and who stands for whom if not each leader and rank is followed. Rounds has the times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/cost/costs.hpp"
#include "collectives/parts/exchange.hpp"
#include "collectives/parts/group.hpp"

namespace penstock::collectives::cost {

inline constexpr std::uint64_t kFewElements = 8;  // parts of fewer differ too much in their lengths

enum class Among : std::uint8_t { doubling, multiplying, halving, ring };

/// A round of multiplying: the messages of a node, how many sums follow each other after the last one, and whether some
/// nodes send once more, which are those of smaller parts that had less to do before.
struct RoundOfParts {
  int messages;
  int levels;
  bool has_more;
};
/// The first round first.
std::vector<RoundOfParts> rounds_of_parts(int size, std::span<const int> radices);

class LeaderParts {
 public:
  struct Shape {
    int nodes;
    int ranks;  // of a node
    int slots;
    Among among;
    std::uint64_t chunks;
    bool is_alone;       // without the work inside the nodes
    int in_segments_of;  // nodes of a ring of which `nodes` are followed
    bool by_groups;      // not each leader and rank is followed
    int domains = 1;     // of a node, by groups
  };
  LeaderParts(const Call& call, const Shape& shape);

  /// Multiplying is not followed in segments: for such long data there are better rows.
  bool is_known() const { return among_ != Among::multiplying || streams_ == 1; }
  /// Nodes that hand their data to a neighbour first.
  bool has_pairs() const { return extras_.extra > 0 && (among_ == Among::doubling || among_ == Among::halving); }
  /// Segments, or batches if there are more of them.
  std::size_t in_turns() const { return std::max(streams_, static_cast<std::size_t>(batches_)); }
  /// Nodes drift apart in exchanges of many segments, or by many messages of several leaders: so many times longer do
  /// they take.
  double drift() const;

 protected:
  /// Only the first `count` of in_turns().
  void keep_first(std::size_t count);

  /// All ranks do the same in the trees of several slots, as far as they all take part: one rank stands for them. Its
  /// children in a tree had the same subtree as it has itself, but for the last one, which is smaller.
  /// Of several domains, the first rank of one stands for all: those of others have their leaders in the trees of all
  /// slots that are led elsewhere.
  struct Level {
    bool is_top;
    bool is_far;
    double messages;  // of each core, if all both send and receive; 0: some send, others receive
  };
  int levels() const { return log2_ceil(tree_ranks_) + levels_above_; }
  int levels_of_last() const {
    return levels_above_ > 0 ? levels() : log2_ceil(std::max(1, tree_ranks_ - (1 << (levels() - 1))));
  }
  Level level(int number) const {
    if (levels_above_ > 0)
      return {false, number >= log2_ceil(tree_ranks_), others_ > 1 ? static_cast<double>(others_) : 0};
    const int distance = 1 << number;
    const int pairs = (tree_ranks_ + distance - 1) / (2 * distance);
    const bool all = 2 * distance <= tree_slots_;
    return {number + 1 == levels(), false,
            all ? std::max(1.0, static_cast<double>(tree_slots_ * pairs) / tree_ranks_) : 0};
  }

  bool single_copy_;
  Among among_;
  int nodes_;
  int ranks_;
  int slots_;
  ExtraRanks extras_;
  std::uint64_t item_bytes_;
  bool goes_up_;
  bool goes_down_;
  bool is_to_one_;  // a reduce among a power of two of nodes; with pairs it takes as long as an allreduce
  bool drifts_ = true;
  bool by_groups_ = false;
  int tree_ranks_ = 1;  // of a node, of which ranks_ are followed
  int tree_slots_ = 1;
  int levels_above_ = 0;     // of the domains of a node
  int others_ = 1;           // slots led in other domains
  double weight_ = 1;        // slots that one stands for
  int batches_ = 1;          // inside the nodes
  std::size_t streams_ = 1;  // segments between them
  std::uint64_t part_bytes_ = 0;
  std::uint64_t batch_bytes_ = 0;
  std::uint64_t smallest_bytes_ = 0;
  std::vector<int> radices_;  // of multiplying
};

}  // namespace penstock::collectives::cost
