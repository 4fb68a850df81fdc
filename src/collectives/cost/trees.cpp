// Estimates of pipelines of segments along trees among equal nodes: formulas, without plans. They take the way of one
// segment, from the leaves to the root and back, and what keeps a core or a link busy for each further segment.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <span>

#include "collectives/cost/messages.hpp"
#include "collectives/parts/arguments.hpp"
#include "collectives/parts/group.hpp"
#include "collectives/parts/leaders.hpp"
#include "collectives/parts/levels.hpp"

namespace penstock::collectives::cost {
namespace {

constexpr double kInTheWay = 0.4;  // messages of later rounds, on the same links; fitted as well
// Leaders that exchange parts: so few have no rounds that get in each other's way, and of so many parts come in time.
constexpr std::uint64_t kFewNodes = 3;
constexpr std::uint64_t kSomeNodes = 8;
constexpr double kBurst = 0.775;      // fitted to simulations
constexpr int kFewRanksOfChain = 2;   // of a node: each core waits for both kinds of messages
constexpr double kChainOfSums = 1.2;  // they leave in bursts; fitted as well

/// The subtrees of a tree that is no chain, by their numbers of nodes. A time of one follows from those of its top's
/// children, in the order in which they are sent to.
class Subtrees {
 public:
  explicit Subtrees(Between between) : between_(between) { known_.fill(-1); }

  template <class TimeOf>
  double time(std::uint64_t size, const TimeOf& time_of) {
    // Most are full ones.
    const std::size_t place = between_ == Between::postal ? postal_time(static_cast<int>(size))
                                                          : static_cast<std::size_t>(std::bit_width(size));
    const bool is_full = between_ == Between::postal
                             ? postal_reach(place) == static_cast<int>(size)
                             : std::has_single_bit(between_ == Between::binomial ? size : size + 1);
    double& known = known_[place];
    if (is_full && known >= 0) return known;
    std::array<double, 64> times{};
    std::size_t count = 0;
    each_child(size, [&](std::uint64_t child) { times[count++] = time(child, time_of); });
    const double time = time_of(std::span<const double>(times.data(), count));
    if (is_full) known = time;
    return time;
  }

 private:
  template <class Visit>
  void each_child(std::uint64_t size, const Visit& visit) const {
    if (size < 2) return;
    if (between_ == Between::binomial) {
      for (std::uint64_t bit = std::bit_floor(size - 1); bit > 0; bit /= 2) visit(std::min(bit, size - bit));
      return;
    }
    if (between_ == Between::postal) {
      for (auto left = static_cast<int>(size); left > 1;) {
        const int child = first_of_postal(left);
        left -= child;
        visit(static_cast<std::uint64_t>(child));
      }
      return;
    }
    const std::uint64_t top = std::bit_floor(size);
    std::uint64_t left = top - 1;
    // All levels but the last are full; that one is filled from the left.
    if (between_ == Between::binary) left = top / 2 - 1 + std::min(size + 1 - top, top / 2);
    if (left > 0) visit(left);
    if (left + 1 < size) visit(size - 1 - left);
  }

  Between between_;
  std::array<double, 80> known_{};  // of full ones, by the width of their size, or by their postal_time()
};

class Trees : Messages {
 public:
  Trees(const Call& call, const NodeSizes& sizes, Between between, bool by_tasks)
      : Messages(call, sizes), between_(between), by_tasks_(by_tasks && sizes.largest > 1) {
    const CollectiveKind kind = call.collective.kind;
    const std::uint32_t segments = Segments(call.collective).count();
    segments_ = static_cast<double>(segments);
    bytes_ = (call.collective.count + segments - 1) / segments * call.collective.item_bytes();
    are_equal_ = call.collective.count % segments == 0;
    goes_up_ = kind != CollectiveKind::bcast;
    goes_down_ = kind != CollectiveKind::reduce;
    levels_inside_ = static_cast<double>(log2_ceil(sizes.largest));
    cores_ = static_cast<double>(std::min(ranks_, cores_of_node()));
    if (!by_tasks_) return;
    const std::uint32_t per_batch = segments_per_batch(kind, segments);
    const std::uint64_t batch_bytes = std::min<std::uint64_t>(segments, per_batch) * bytes_;
    const std::uint64_t pieces = task_pieces(batch_bytes, ranks_);
    per_batch_ = static_cast<double>(std::min(segments, per_batch));
    pieces_ = static_cast<double>(pieces);
    task_up_ = prices_.task(batch_bytes / pieces, ranks_, 1);
    task_down_ = prices_.task(batch_bytes / pieces, 1, ranks_ - 1);
  }

  double seconds() const {
    const double each = period();
    if (!goes_down_) return up_in_turn(each);
    double time = (segments_ - 1) * each;
    if (goes_up_) time += up_inside() + up_between(sum_inside()) + in_bursts() + in_the_way_down(each);
    return time + down_between(each) + down_inside();
  }

 private:
  double receive_and_combine() const { return receive_inside(bytes_) + prices_.combine(bytes_); }
  double arrival() const { return before_wires(bytes_) - prices_.overhead() + on_wires(bytes_, 1); }

  /// Children of the root, and the most of another leader.
  double children_of_root() const {
    if (nodes_ < 2) return 0;
    if (between_ == Between::binomial) return static_cast<double>(log2_ceil(static_cast<int>(nodes_)));
    if (between_ == Between::postal) return children_of_postal(static_cast<int>(nodes_));
    return between_ == Between::binary && nodes_ > 2 ? 2 : 1;
  }
  double children_of_others() const {
    if (nodes_ < 3) return 0;
    if (between_ == Between::binomial) return children_of_root() - 1;
    if (between_ == Between::postal) return children_of_postal(first_of_postal(static_cast<int>(nodes_)));
    return between_ == Between::binary && nodes_ > 3 ? 2 : 1;
  }

  static double children_of_postal(int size) {
    double children = 0;
    for (; size > 1; size -= first_of_postal(size)) ++children;
    return children;
  }

  /// What a further segment keeps busy: the longest of cores and links.
  double period() const {
    double longest = 0;
    for (const bool is_root : {true, false}) {
      const double children = is_root ? children_of_root() : children_of_others();
      const double parents = is_root ? 0 : 1;
      double core = 0;
      double in = 0;
      double out = 0;
      if (goes_up_) {
        core += children * (prices_.overhead() + prices_.combine(bytes_)) + parents * prices_.overhead();
        in += children;
        out += parents;
        if (!by_tasks_) core += levels_inside_ * receive_and_combine();
      }
      if (goes_down_) {
        core += (children + parents) * prices_.overhead();
        in += parents;
        out += children;
        if (by_tasks_)
          core = std::max(core, (core + pieces_ * task_down_ / per_batch_) / cores_);
        else
          core += levels_inside_ * copy_in(bytes_);
      }
      longest = std::max({longest, core, in * prices_.on_link(bytes_), out * on_wires(bytes_, 1)});
    }
    if (by_tasks_ || ranks_ == 1) return longest;
    double inside = 0;
    if (goes_up_) inside += (levels_inside_ - 1) * receive_and_combine() + copy_in(bytes_);
    if (goes_down_) inside += receive_inside(bytes_) + (levels_inside_ - 1) * copy_in(bytes_);
    return std::max(longest, inside);
  }

  /// All segments on their way up. Leaders combine the contributions of the first ones while others are on their way,
  /// as far as they have memory for them.
  double up_in_turn(double each) const {
    const double early = each <= wires() ? 0 : std::min((segments_ - 1) / 3, double{kStageInFlight});
    // A long message waits for its receiver, and keeps memory until then.
    const double waits = by_tasks_ || ranks_ == 1 || prices_.is_eager(bytes_) ? 0 : arrival();
    // What the others of a node have at the beginning is received first.
    const double first = levels_inside_ > 0 && !by_tasks_ ? early * 2 * receive_inside(bytes_) : 0;
    const double in_flight = first + up_between(sum_inside()) + in_bursts() + (segments_ - 1 - early) * (each + waits);
    return leader_is_free() + leaves_first(each) + std::max({in_flight, received_first(), last_up()});
  }

  /// By messages inside the nodes: what a leader receives there at the beginning, as far as it has memory for it, comes
  /// before its first sum.
  double received_first() const {
    if (by_tasks_ || ranks_ == 1) return 0;
    const double many = std::min(segments_, double{kStageInFlight});
    const double sum =
        levels_inside_ * many * receive_inside(bytes_) + ((levels_inside_ - 1) * many + 1) * prices_.combine(bytes_);
    return up_between(sum) + (segments_ - 1) * wires();
  }
  double wires() const { return std::max(on_wires(bytes_, 1), children_of_root() * prices_.on_link(bytes_)); }

  /// A leaf of one of two trees sends what it has for it before its sums for the other one, as far as there is memory
  /// for it, or as it is sent at once.
  double leaves_first(double each) const {
    if (between_ != Between::two_tree || nodes_ < 4) return 0;
    const double wires = on_wires(bytes_, 1);
    if (prices_.is_eager(bytes_) && each <= prices_.on_link(bytes_)) return segments_ / 2 * wires;
    return ranks_ > 1 ? 0 : std::min(segments_ / 2, 2 * double{kStageInFlight}) * std::max(combine(), wires);
  }

  /// A sum is sent when all that has arrived meanwhile is combined, which is ever more as far as there is memory for
  /// it. So a leader waits for a part of what the one below it combines, which waits for a part of...
  double in_bursts() const {
    if (ranks_ > 1 || call_.collective.in_place || between_ == Between::binomial) return 0;
    const double most = prices_.combine(bytes_);
    const double part = kBurst * std::max(0.0, 1 - on_wires(bytes_, 1) / most);
    const double leaders =
        between_ == Between::chain ? static_cast<double>(nodes_ - 1) : std::log2(static_cast<double>(nodes_));
    const double parts = part * (1 - std::pow(part, leaders - 1)) / (1 - part);
    const double many = goes_down_ ? segments_ : std::min(segments_, double{kStageInFlight});
    return parts * (many - 1) * std::max(1.0, children_of_others()) * most;
  }

  /// Contributions of small subtrees come first along a binomial tree. If links are what is busy, those of a large one
  /// wait behind them, and results wait for the sums of all segments.
  double in_the_way_down(double each) const {
    const double link = prices_.on_link(bytes_);
    if (between_ != Between::binomial || nodes_ < 4 || each > children_of_root() * link) return 0;
    const std::uint64_t half = std::bit_floor(nodes_ - 1);
    const int largest = std::max(log2_ceil(static_cast<int>(nodes_ - half)), log2_ceil(static_cast<int>(half)) - 1);
    return static_cast<double>(largest - 1) * (segments_ - 1) * link;
  }

  /// When the last segment is complete, if there is memory for all.
  double last_up() const {
    const double inside = sum_inside();
    const double core = by_tasks_ ? 0 : levels_inside_ * receive_and_combine();
    const double way = arrival() + combine();
    const auto busy = [&](double children) {
      const double first = inside + (children > 0 ? arrival() : 0);
      const double by_core =
          children * combine() + (segments_ - 1) * (core + children * combine() + prices_.overhead());
      const double by_link = (segments_ * children - 1) * prices_.on_link(bytes_) + combine();
      return first + std::max(by_core, by_link);
    };
    if (between_ == Between::chain) {
      if (nodes_ == 2) return std::max(busy(1), busy(0) + way);
      return std::max(busy(1), busy(0) + way) + static_cast<double>(nodes_ - 2) * way;
    }
    Subtrees subtrees(between_);
    const auto last_of = [&](std::uint64_t size) {
      return subtrees.time(size, [&](std::span<const double> children) {
        const auto count = static_cast<double>(children.size());
        double last = busy(between_ == Between::two_tree ? std::min(count, 1.0) : count);
        for (std::size_t i = 0; i < children.size(); ++i)
          last = std::max(last, children[i] + way + static_cast<double>(i) * combine());
        return last;
      });
    };
    if (between_ != Between::two_tree) return last_of(nodes_);
    return std::max(busy(1), last_of(nodes_ - 1) + way);
  }
  double combine() const { return prices_.overhead() + prices_.combine(bytes_); }

  /// Tasks that combine take turns on all cores. Of the last ones a leader takes one only if all cores are free at the
  /// same time: unless the segments differ in their length.
  double leader_is_free() const {
    if (!by_tasks_) return 0;
    const double turns = std::ceil(segments_ / per_batch_) * pieces_ / cores_;
    return (are_equal_ ? std::ceil(turns) : std::max(1.0, std::floor(turns))) * task_up_;
  }

  /// Tasks that combine are ready at the beginning. All cores take them before anything else.
  double up_inside() const {
    if (!by_tasks_) return 0;
    return std::ceil(std::ceil(segments_ / per_batch_) * pieces_ / cores_) * task_up_;
  }
  /// When a leader has the sum of its node, by messages.
  double sum_inside() const {
    if (by_tasks_) return 0;
    std::array<double, 32> sum{};
    for (std::size_t level = 1; level <= static_cast<std::size_t>(levels_inside_); ++level)
      for (std::size_t child = 0; child < level; ++child)
        sum[level] = std::max(sum[level], sum[child] + copy_in(bytes_)) + receive_and_combine();
    return sum[static_cast<std::size_t>(levels_inside_)];
  }
  double down_inside() const {
    if (by_tasks_) return std::ceil(pieces_ / cores_) * task_down_;
    return levels_inside_ * (copy_in(bytes_) + receive_inside(bytes_));
  }

  /// When a leader above `size` nodes has the sum of them.
  double up_between(double inside) const {
    const double way = arrival();
    if (between_ == Between::chain) return inside + static_cast<double>(nodes_ - 1) * (way + combine());
    Subtrees subtrees(between_);
    const auto sum_of = [&](std::uint64_t size) {
      return subtrees.time(size, [&](std::span<const double> children) {
        double sum = inside;
        double link = 0;
        for (std::size_t i = children.size(); i-- > 0;) {
          link = std::max(children[i] + way, link + prices_.on_link(bytes_));
          sum = std::max(sum, link) + combine();
        }
        return sum;
      });
    };
    if (between_ != Between::two_tree) return sum_of(nodes_);
    return std::max(inside, sum_of(nodes_ - 1) + way) + combine();
  }

  double wait_for_tasks(double each, double hops) const {
    if (!by_tasks_ || pieces_ * task_down_ <= (cores_ - 1) * per_batch_ * each) return 0;
    return wait_for_task(pieces_ * std::ceil(segments_ / per_batch_), task_down_, hops);
  }

  double down_between(double each) const {
    const double way = hop(bytes_, 1) + wait_for_tasks(each, 1);
    const double next = std::max(on_wires(bytes_, 1), prices_.overhead());
    if (between_ == Between::chain)
      return static_cast<double>(nodes_ - 1) * hop(bytes_, 1) + wait_for_tasks(each, static_cast<double>(nodes_ - 1));
    Subtrees subtrees(between_);
    const auto last_of = [&](std::uint64_t size) {
      return subtrees.time(size, [&](std::span<const double> children) {
        double last = 0;
        for (std::size_t i = 0; i < children.size(); ++i)
          last = std::max(last, static_cast<double>(i) * next + way + children[i]);
        return last;
      });
    };
    if (between_ != Between::two_tree) return last_of(nodes_);
    return way + last_of(nodes_ - 1);
  }

  Between between_;
  bool by_tasks_;
  bool goes_up_ = false;
  bool goes_down_ = false;
  double segments_ = 1;
  bool are_equal_ = true;
  std::uint64_t bytes_ = 0;  // of a segment
  double levels_inside_ = 0;
  double cores_ = 1;
  double per_batch_ = 1;  // segments
  double pieces_ = 1;     // tasks of a batch
  double task_up_ = 0;
  double task_down_ = 0;
};

/// A chain through all ranks, node by node.
class Chains : Messages {
 public:
  Chains(const Call& call, const NodeSizes& sizes)
      : Messages(call, sizes), others_(static_cast<double>(sizes.ranks - sizes.nodes)) {}

  double seconds() const {
    const std::uint64_t segments = Segments(call_.collective).count();
    const std::uint64_t bytes = block_bytes(call_.collective) / segments;
    const double combine = call_.collective.kind == CollectiveKind::bcast ? 0 : prices_.combine(bytes);
    const double near = receive_inside(bytes) + combine;
    const double far = prices_.overhead() + combine;
    const double busiest = std::max({near + copy_in(bytes), near + prices_.overhead(), far + copy_in(bytes)});
    const double way = static_cast<double>(nodes_ - 1) * (hop(bytes, 1) + combine) + others_ * (copy_in(bytes) + near);
    const double time = way + static_cast<double>(segments - 1) * std::max(busiest, on_wires(bytes, 1));
    return call_.collective.kind == CollectiveKind::bcast || segments == 1 ? time : kChainOfSums * time;
  }

 private:
  double others_;  // ranks that do not begin a node
};

/// Broadcasts that scatter the data to the leaders, which allgather the parts.
class Scattered : Messages {
 public:
  Scattered(const Call& call, const NodeSizes& sizes)
      : Messages(call, sizes), all_(block_bytes(call.collective)), part_(all_ / nodes_) {}

  double by_ring() const {
    const std::uint64_t segments = pieces_of(part_, call_.collective.segment_bytes, kMaxExchangePieces / nodes_);
    const std::uint64_t bytes = part_ / segments;
    const auto messages = static_cast<double>(segments * (nodes_ - 1));
    const double next = std::max(on_wires(bytes, 1), prices_.overhead());
    const double way = static_cast<double>(nodes_ - 1) * hop(bytes, 1) +
                       static_cast<double>(segments - 1) * std::max(on_wires(bytes, 1), 2 * prices_.overhead());
    const double around = messages * std::max(on_wires(bytes, 1), 2 * prices_.overhead()) + before_wires(bytes);
    return messages * next + std::max(way, around) + spread(1, around);
  }

  double by_doubling() const {
    const int rounds = log2_ceil(static_cast<int>(nodes_));
    // A leader of an odd number has its part late, but what others wait for comes from one of an even number. Of three
    // nobody waits for that one.
    const int levels = nodes_ == 3 ? 0 : most_bits_of_even();
    const double in_the_way = nodes_ > kFewNodes ? kInTheWay : 0;
    double time = 0;
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t distance = std::uint64_t{1} << round;
      const double each = message(std::min(distance, nodes_ - distance) * part_);
      const double wires = each - before_wires(part_);
      // The next message is received after this one, so a long one has its handshake then.
      const double next = prices_.is_eager(std::min(distance, nodes_ - distance) * part_) ? 0 : 2 * prices_.latency();
      time += (round >= rounds - levels ? each : wires + next) + each +
              in_the_way * std::max(0.0, wires - before_wires(part_));
    }
    return time + spread(2, time / 2);
  }

 private:
  /// Of the numbers of the leaders in the tree: as many messages are on the way to it.
  int most_bits_of_even() const {
    const std::uint64_t last = (nodes_ - 1) & ~std::uint64_t{1};
    int most = std::popcount(last);
    for (int bit = 1; (last >> bit) != 0; ++bit)
      if ((last >> bit & 1) != 0) most = std::max(most, std::popcount(last >> (bit + 1)) + bit - 1);
    return most;
  }
  double message(std::uint64_t bytes) const {
    const std::uint64_t segments = pieces_of(bytes, call_.collective.segment_bytes, kMaxExchangeSegments);
    const double next = std::max(on_wires(bytes / segments, 1), prices_.overhead());
    return hop(bytes / segments, 1) + static_cast<double>(segments - 1) * next;
  }

  /// Inside the nodes; one part of `parts` comes last, the others in the time before.
  double spread(std::uint64_t parts, double before) const {
    if (ranks_ == 1) return 0;
    if (all_ > kTaskBytes && are_shared()) {
      const LeaderTasks tasks = leader_tasks(1, 1);
      const double waits = tasks.down > before ? tasks.waits : 0;
      if (parts == 1) return tasks.last + std::max(waits, tasks.down - tasks.last - before);
      // Among many nodes the last parts come late.
      return nodes_ > kSomeNodes ? tasks.down : std::max(tasks.last, tasks.down - before);
    }
    const std::uint64_t given =
        call_.collective.segment_bytes != 0 ? call_.collective.segment_bytes : call_.team.message_bytes;
    const std::uint64_t batches = all_ > kTaskBytes
                                      ? std::clamp<std::uint64_t>(all_ / kLeaderBatchBytes, 1, kMaxTaskGroups)
                                      : pieces_of(all_, given, kMaxTaskGroups);
    const std::uint64_t bytes = all_ / batches;
    const double children = log2_ceil(static_cast<int>(ranks_));
    const double next = std::max(children * copy_in(bytes), receive_inside(bytes) + (children - 1) * copy_in(bytes));
    const std::uint64_t last = (batches + (parts > 1 ? parts : nodes_) - 1) / (parts > 1 ? parts : nodes_);
    const double late =
        std::max(static_cast<double>(last - 1) * next, static_cast<double>(batches - 1) * next - before);
    return children * (copy_in(bytes) + receive_inside(bytes)) + late;
  }

  std::uint64_t all_;
  std::uint64_t part_;  // of a node
};

}  // namespace

std::optional<double> estimated_tree(const Call& call, const NodeSizes& sizes) {
  if (sizes.nodes < 2) return std::nullopt;
  if (const LevelsRow* row = levels_row(call.row))
    return Trees(call, sizes, row->between,
                 uses_tasks(call.team, call.collective, row->inside, sizes.nodes, sizes.largest))
        .seconds();
  if (call.row == "leader_scatter") return Scattered(call, sizes).by_ring();
  if (call.row == "leader_scatter_doubling") return Scattered(call, sizes).by_doubling();
  // Trees over all ranks.
  if (call.row == "chain" && sizes.largest > kFewRanksOfChain) return Chains(call, sizes).seconds();
  if (sizes.largest > 1) return std::nullopt;
  if (call.row == "binomial") return Trees(call, sizes, Between::binomial, false).seconds();
  if (call.row == "chain") return Trees(call, sizes, Between::chain, false).seconds();
  return std::nullopt;
}

}  // namespace penstock::collectives::cost
