// Estimates of allgather, alltoall and reduce_scatter_block: formulas, without plans. They take what
// a block waits for on its way, and what keeps a core, a process or a link busy, and count the longer of both.
#include <algorithm>
#include <bit>

#include "collectives/cost/leader_parts.hpp"
#include "collectives/cost/messages.hpp"
#include "collectives/parts/arguments.hpp"
#include "collectives/parts/group.hpp"
#include "collectives/parts/node_tasks.hpp"
#include "collectives/parts/pieces.hpp"

namespace penstock::collectives::cost {
namespace {

class Exchanges : Messages {
 public:
  Exchanges(const Call& call, const NodeSizes& sizes)
      : Messages(call, sizes),
        sizes_(sizes),
        size_(static_cast<std::uint64_t>(sizes.ranks)),
        block_(block_bytes(call.collective)) {
    if (call.collective.kind == CollectiveKind::allreduce) block_ /= size_;
  }

  double allreduce_ring() const {
    const std::uint64_t pieces =
        pieces_of(block_, call_.collective.segment_bytes, std::max<std::uint64_t>(1, kMaxExchangePieces / size_));
    return around(pieces, pieces, prices_.combine(block_ / pieces), 0) + around(pieces, pieces, 0, 0);
  }

  double allgather_ring() const {
    const std::uint64_t pieces = pieces_of(block_, call_.collective.segment_bytes, kMaxFlatRingPieces / size_);
    return around(pieces, 1, 0, prices_.copy(block_));
  }

  double reduce_scatter_ring() const {
    const std::uint64_t pieces = pieces_of(block_, call_.collective.segment_bytes, kMaxReducePartsPieces / size_);
    return around(pieces, pieces, prices_.combine(block_ / pieces), 0);
  }

  double allgather_leader_ring() const {
    const std::uint64_t node_bytes = size_ * block_ / nodes_;
    const auto runs = static_cast<std::uint64_t>(sizes_.runs);
    const std::uint64_t most = std::max<std::uint64_t>(1, kMaxRingPieces / nodes_ / runs);
    const std::uint64_t pieces = runs * pieces_of(node_bytes / runs, call_.collective.segment_bytes, most);
    const std::uint64_t piece = node_bytes / pieces;
    const auto rounds = static_cast<double>(nodes_ - 1);
    const auto each = static_cast<double>(pieces);
    const double message = on_wires(piece, 1);
    const double way = rounds * hop(piece, 1) + (each - 1) * std::max(message, 2 * prices_.overhead());
    const double wires = rounds * each * message;
    if (ranks_ == 1) return std::max({way, wires, rounds * each * 2 * prices_.overhead()}) + prices_.copy(block_);
    const bool by_tasks = block_ * size_ > kTaskBytes && shared_nodes(call_.team, call_.collective) &&
                          ring_fits_tasks(pieces * nodes_, ranks_);
    if (by_tasks) {
      const auto cores = static_cast<double>(std::min<std::uint64_t>(ranks_, cores_of_node()));
      const std::uint64_t of_block = own_pieces(block_, ranks_);
      const double own = static_cast<double>(ranks_ * of_block) * prices_.task(block_ / of_block, 1, ranks_) / cores;
      const std::uint64_t parts = task_pieces(piece, ranks_, kMaxTasksOfPiece);
      const double task = prices_.task(piece / parts, 1, ranks_ - 1);
      const double tasks = rounds * each * static_cast<double>(parts) * task;
      const double work = (tasks + rounds * each * 2 * prices_.overhead()) / cores;
      return own + std::max({way, wires, work}) + task * std::max(1.0, static_cast<double>(parts) / cores);
    }
    const auto children = static_cast<double>(log2_ceil(static_cast<int>(ranks_)));
    const double gather =
        (is_read(block_) ? 0 : prices_.copy(block_)) + static_cast<double>(ranks_ - 1) * receive_inside(block_);
    const double leader = each * (2 * prices_.overhead() + children * copy_in(piece));
    const double child = each * (receive_inside(piece) + (children - 1) * copy_in(piece));
    const double down = children * (copy_in(piece) + receive_inside(piece));
    return gather + std::max({way, wires, rounds * leader, rounds * child}) + each * children * copy_in(piece) + down;
  }

  double allgather_doubling() const {
    double time = first_copy();
    for (std::uint64_t distance = 1; distance < size_; distance *= 2)
      time += swap(distance * block_, crossing(distance));
    return time;
  }

  double allgather_bruck() const {
    const double way =
        longest_way([&](std::uint64_t distance) { return std::min(distance, size_ - distance) * block_; },
                    [](std::uint64_t, std::uint64_t) { return 0.0; });
    return first_copy() + way + 2 * prices_.copy(block_ * size_ / 2);
  }

  double alltoall_pairwise() const {
    const std::uint64_t most = kMaxPairwisePieces / size_;
    const std::uint64_t far = pieces_of(block_, 0, most);
    const std::uint64_t near = pieces_of(block_, kNearPieceBytes, most);
    const auto far_pieces = static_cast<double>((size_ - ranks_) * far);
    const auto near_pieces = static_cast<double>((ranks_ - 1) * near);
    const auto of_node = static_cast<double>(ranks_);
    const double inside = near_pieces * (copy_in(block_ / near) + receive_inside(block_ / near));
    const double core = far_pieces * 2 * prices_.overhead() + inside + prices_.copy(block_);
    const double wires =
        far_pieces * std::max(of_node * prices_.on_link(block_ / far), prices_.on_process(block_ / far));
    const auto in_flight = static_cast<double>(rounds_in_flight(block_));
    const double rounds = static_cast<double>(size_ - ranks_) / in_flight;
    const double way = rounds * (hop(block_ / far, 1) + static_cast<double>(far - 1) * on_wires(block_ / far, 1));
    const double latency = before_wires(block_ / far);
    const double first = ranks_ == 1 ? before_first(far_pieces) : prices_.latency();
    return std::max({core + first, wires + latency + (ranks_ > 1 ? inside / of_node : 0), way});
  }

  double alltoall_bruck() const {
    const double way = longest_way(
        [&](std::uint64_t distance) {
          const std::uint64_t left = std::max(size_ % (2 * distance), distance) - distance;
          return (size_ / (2 * distance) * distance + left) * block_;
        },
        [&](std::uint64_t distance, std::uint64_t bytes) {
          return (2 * distance < size_ ? 2 : 1) * prices_.copy(bytes);
        });
    return way + 2 * prices_.copy(block_ * size_);
  }

  double alltoall_hierarchical() const {
    const std::uint64_t far_bytes = (size_ - ranks_) * block_;
    const std::uint64_t between = ranks_ * far_bytes / (nodes_ - 1);
    const auto others = static_cast<double>(ranks_ - 1);
    const auto nodes = static_cast<double>(nodes_ - 1);
    const double direct = others * (copy_in(block_) + receive_inside(block_)) + prices_.copy(block_);
    const double up = prices_.copy(far_bytes) + direct + copy_in(far_bytes) + prices_.copy(far_bytes) +
                      others * receive_inside(far_bytes);
    const double out = nodes * (prices_.copy(between) + prices_.overhead());
    const double in = nodes * (prices_.copy(between) + prices_.overhead());
    const double wires = nodes * on_wires(between, 1);
    const double down =
        is_read(far_bytes) ? receive_inside(far_bytes) : others * copy_in(far_bytes) + receive_inside(far_bytes);
    const double first = prices_.copy(between) + before_wires(between);
    return up + std::max({out + in, first + wires}) + down + prices_.copy(far_bytes);
  }

  double reduce_scatter_halving() const {
    const std::uint64_t full = std::bit_floor(size_);
    const std::uint64_t all = block_ * size_;
    double time = prices_.copy(block_);
    if (full < size_) {
      // Between neighbours, of which some are on two nodes.
      const std::uint64_t far = sizes_.leaving.empty() ? ranks_ % 2 : crossing(1);
      time += swap(all, far) / (far > 0 ? 1 : 2) + prices_.combine(all) + swap(block_, far);
    }
    for (std::uint64_t half = full / 2; half > 0; half /= 2) {
      const std::uint64_t bytes = all * half / full;
      // In pairs that leave one rank for both, ranks are twice as far apart.
      const std::uint64_t distance = full < size_ ? 2 * half : half;
      time += swap(bytes, crossing(distance)) + prices_.combine(bytes);
    }
    return time;
  }

  double reduce_scatter_hierarchical() const {
    const std::uint64_t all = block_ * size_;
    const std::uint64_t node_bytes = block_ * ranks_;
    const auto nodes = static_cast<double>(nodes_ - 1);
    const auto others = static_cast<double>(ranks_ - 1);
    const double in = nodes * (prices_.overhead() + prices_.combine(node_bytes));
    const double out = nodes * (prices_.copy(node_bytes) + prices_.overhead());
    const double first = prices_.copy(node_bytes) + before_wires(node_bytes) + prices_.combine(node_bytes);
    const double exchange = std::max(out + prices_.copy(node_bytes) + in, first + nodes * on_wires(node_bytes, 1));
    if (ranks_ == 1) return exchange;
    const std::uint64_t segments = pieces_of(all, call_.collective.segment_bytes, kMaxSegments);
    const std::uint64_t segment = all / segments;
    const auto levels = static_cast<double>(log2_ceil(static_cast<int>(ranks_)));
    const double add = receive_inside(segment) + prices_.combine(segment);
    const double up =
        (levels - 1) * (add + copy_in(segment)) + copy_in(segment) + static_cast<double>(segments) * levels * add;
    return up + exchange + others * copy_in(block_) + receive_inside(block_);
  }

  double reduce_scatter_sorted() const {
    const auto far = static_cast<double>(size_ - ranks_);
    const auto near = static_cast<double>(ranks_ - 1);
    const double core = 2 * far * prices_.overhead() + near * (copy_in(block_) + receive_inside(block_));
    const double exchange = std::max(core + before_first(far), before_wires(block_) + far * on_wires(block_, ranks_));
    return prices_.copy(block_) + exchange + prices_.combine_sorted(block_ * size_, size_);
  }

  double reduce_scatter_multi_leader() const {
    // Where a node has more ranks than the smallest one, leaders have the parts of some.
    const auto leaders = static_cast<std::uint64_t>(sizes_.smallest);
    const std::uint64_t parts = (ranks_ + leaders - 1) / leaders;
    const std::uint64_t steps = nodes_ * parts * (2 * ranks_ + 1);
    const std::uint64_t pieces =
        pieces_of(block_, call_.collective.segment_bytes, std::max<std::uint64_t>(kMultiLeaderSteps / steps, 1));
    const std::uint64_t piece = block_ / pieces;
    const auto each = static_cast<double>(pieces);
    const auto others = static_cast<double>(ranks_ - 1);
    const auto rounds = static_cast<double>(nodes_ - 1);
    const auto all_parts = static_cast<double>(sizes_.shares);
    const double sent = all_parts * rounds / static_cast<double>(nodes_);
    const double combine = prices_.combine(piece);
    const double inside = others * (copy_in(piece) + receive_inside(piece) + combine);
    const double core = each * (all_parts * inside + sent * (2 * prices_.overhead() + combine));
    const double message = on_wires(piece, leaders);
    const double wires = sent * each * message;
    const double way = rounds * (hop(piece, 1) + combine) + (each * static_cast<double>(parts) - 1) * message;
    return std::max({core + prices_.latency(), wires + inside + before_wires(piece), way + inside});
  }

 private:
  /// What a core waits for the first of so many messages that it receives when it has sent its own.
  double before_first(double messages) const {
    return std::max(0.0, prices_.latency() - (messages - 1) * prices_.overhead());
  }

  /// A message to a partner, and one from a partner: to another node for `far` ranks of each node.
  double swap(std::uint64_t bytes, std::uint64_t far) const {
    const double inside = copy_in(bytes) + receive_inside(bytes);
    if (far == 0) return inside;
    const double outside = hop(bytes, far);
    return far < ranks_ ? std::max(inside, outside) : outside;
  }

  /// How many ranks of a node send to another node, over such a distance.
  std::uint64_t leaving(std::uint64_t distance) const {
    if (sizes_.leaving.empty()) return std::min({distance, size_ - distance, ranks_});
    return static_cast<std::uint64_t>(sizes_.leaving[static_cast<std::size_t>(std::countr_zero(distance))]);
  }
  /// The same of pairs that swap.
  std::uint64_t crossing(std::uint64_t distance) const {
    const bool are_aligned = sizes_.leaving.empty() && std::has_single_bit(ranks_);
    return are_aligned && distance < ranks_ ? 0 : std::min(leaving(distance), ranks_);
  }
  /// Whether all ranks of a node send to another one, over such a distance.
  bool is_far(std::uint64_t distance) const {
    return sizes_.leaving.empty() ? distance >= ranks_ : (sizes_.all_leave & distance) != 0;
  }

  /// The same in a round of Bruck's algorithms, in which each rank receives from the one so many ranks ahead. What a
  /// rank has received in all rounds within a node's length has left its node once.
  double turn(std::uint64_t bytes, std::uint64_t distance) const {
    if (is_far(distance)) return swap(bytes, leaving(distance));
    return swap(bytes, 0) + (distance == 1 ? hop(bytes, 1) : 0);
  }

  /// The rounds that the block of one rank takes part in, those of the bits of its distance, wait for each other. All
  /// keep the same core and link. Of the bytes of a round: what a rank copies takes copies_of(distance, bytes).
  template <class BytesOf, class CopiesOf>
  double longest_way(const BytesOf& bytes_of, const CopiesOf& copies_of) const {
    const auto time_of = [&](std::uint64_t distance) {
      const std::uint64_t bytes = bytes_of(distance);
      return turn(bytes, distance) + copies_of(distance, bytes);
    };
    double longest = 0;
    double on_link = 0;
    double higher = 0;
    for (std::uint64_t bit = 1; bit < size_; bit *= 2) {
      longest += time_of(bit) - (!is_far(bit) ? 0 : 2 * prices_.overhead() + prices_.latency());
      on_link += static_cast<double>(leaving(bit)) * prices_.on_link(bytes_of(bit));
    }
    longest = std::max(longest, on_link);
    for (std::uint64_t bit = std::bit_floor(size_ - 1); bit > 0; bit /= 2) {
      if (((size_ - 1) & bit) == 0) continue;
      double lower = 0;
      for (std::uint64_t each = bit / 2; each > 0; each /= 2) lower += time_of(each);
      longest = std::max(longest, higher + lower);
      higher += time_of(bit);
    }
    return std::max(longest, higher);
  }

  /// What of a copy is left when the first message, of as many bytes, has come. Inside a node the cores move messages.
  double first_copy() const {
    const double copy = prices_.copy(block_);
    return ranks_ > 1 ? copy : std::max(0.0, copy - hop(block_, 1) + 2 * prices_.overhead());
  }

  /// Blocks go around a ring of all ranks, so many pieces of each between nodes and inside them. Each rank copies once.
  double around(std::uint64_t far, std::uint64_t near, double combine, double copy) const {
    const std::uint64_t piece = block_ / far;
    const std::uint64_t part = block_ / near;
    const auto far_pieces = static_cast<double>(far);
    const auto near_pieces = static_cast<double>(near);
    const auto rounds = static_cast<double>(size_ - 1);
    const double message = on_wires(piece, 1);
    const double sends = prices_.overhead();
    const double receives = prices_.overhead() + combine;
    if (ranks_ == 1) {
      const double core = far_pieces * (sends + receives);
      const double way = rounds * (hop(piece, 1) + combine) + (far_pieces - 1) * std::max(message, sends + receives);
      return std::max({rounds * core + copy, rounds * far_pieces * message + before_wires(piece), way});
    }
    const double receives_near = receive_inside(part) + combine;
    // Some ranks send to another domain of their node. Other rows of allgather, whose estimates ignore it, do so too.
    const double core = near_pieces * (copy_in(part, sizes_.domains > 1 && combine > 0) + receives_near);
    const double core_out = near_pieces * receives_near + far_pieces * sends;
    const double core_in = near_pieces * copy_in(part) + far_pieces * receives;
    const double busiest = std::max({ranks_ > 2 ? core : 0, core_out, core_in, far_pieces * message});
    const auto far_rounds = static_cast<double>(nodes_);
    const double way_out = hop(piece, 1) + combine + (near == 1 ? (far_pieces - 1) * message : 0);
    const double way = far_rounds * way_out + (rounds - far_rounds) * (copy_in(part) + receives_near);
    return std::max(rounds * busiest + before_wires(piece), way) + copy;
  }

  const NodeSizes& sizes_;
  std::uint64_t size_;
  std::uint64_t block_;
};

}  // namespace

std::optional<double> estimated_exchange(const Call& call, const NodeSizes& sizes) {
  if (sizes.nodes < 2) return std::nullopt;
  const Exchanges exchanges(call, sizes);
  switch (call.collective.kind) {
    case CollectiveKind::allreduce:
      if (call.row == "ring" && call.collective.count >= kFewElements * static_cast<std::uint64_t>(sizes.ranks))
        return exchanges.allreduce_ring();
      return std::nullopt;
    case CollectiveKind::allgather:
      if (call.row == "ring") return exchanges.allgather_ring();
      if (call.row == "leader_ring") return exchanges.allgather_leader_ring();
      if (call.row == "recursive_doubling") return exchanges.allgather_doubling();
      if (call.row == "bruck") return exchanges.allgather_bruck();
      return std::nullopt;
    case CollectiveKind::alltoall:
      if (call.row == "pairwise") return exchanges.alltoall_pairwise();
      if (call.row == "hierarchical") return exchanges.alltoall_hierarchical();
      if (call.row == "bruck") return exchanges.alltoall_bruck();
      return std::nullopt;
    case CollectiveKind::reduce_scatter_block:
      if (call.row == "ring") return exchanges.reduce_scatter_ring();
      if (call.row == "hierarchical") return exchanges.reduce_scatter_hierarchical();
      if (call.row == "sorted") return exchanges.reduce_scatter_sorted();
      if (call.row == "multi_leader") return exchanges.reduce_scatter_multi_leader();
      if (call.row == "recursive_halving") return exchanges.reduce_scatter_halving();
      return std::nullopt;
    default: return std::nullopt;
  }
}

}  // namespace penstock::collectives::cost
