// The costs of pipelines of segments along trees: between the leaders of the nodes, and inside the nodes.
//
// All nodes of a size do the same until they meet another node. So the trees inside nodes are followed once per size,
// up to what their leaders receive, and once more below the leader that has the data last. A long pipeline grows by the
// same time with each segment, so only its first segments are followed. Between the leaders every message is followed,
// in the order of time, as in the simulation of plans: cores serve what is ready first.
#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/cost/clocks.hpp"
#include "collectives/cost/costs.hpp"
#include "collectives/parts/levels.hpp"
#include "cost_model/alike_nodes.hpp"

namespace penstock::collectives::cost {
namespace {

// Of a long pipeline so many segments are followed that it is full for most of them: at least more than a rank of a
// reduction has memory for, and more on few nodes, where they cost little.
constexpr std::uint32_t kLeastFollowedSegments = 9;
constexpr std::uint32_t kFollowedSegments = 512;
constexpr std::uint32_t kFollowedMessages = 4096;
constexpr std::uint32_t kFollowedBatches = 6;
constexpr std::uint32_t kMostMessages = 10'000;  // there is no cost beyond: it would take too long

/// A tree, by index into a group.
struct Shape {
  std::vector<int> parent;
  std::vector<int> place;  // among the children of the parent
  std::vector<std::vector<int>> children;
  std::vector<int> order;  // parents first
};

template <class Make>
Shape shape_of(const std::vector<int>& ranks, int most_rank, const Make& make) {
  Shape shape;
  Group group{ranks};
  shape.place.resize(ranks.size());
  std::vector<int> index_of(static_cast<std::size_t>(most_rank) + 1, -1);
  for (int i = 0; i < group.size(); ++i) index_of[static_cast<std::size_t>(group[i])] = i;
  for (group.self = 0; group.self < group.size(); ++group.self) {
    const Tree tree = make(group);
    shape.parent.push_back(tree.parent < 0 ? -1 : index_of[static_cast<std::size_t>(tree.parent)]);
    std::vector<int>& children = shape.children.emplace_back();
    for (const Tree::Edge& child : tree.children) {
      const int index = index_of[static_cast<std::size_t>(child.rank)];
      shape.place[static_cast<std::size_t>(index)] = static_cast<int>(children.size());
      children.push_back(index);
    }
  }
  if (!ranks.empty()) shape.order.push_back(0);
  for (std::size_t i = 0; i < shape.order.size(); ++i)
    for (const int child : shape.children[static_cast<std::size_t>(shape.order[i])]) shape.order.push_back(child);
  return shape;
}

/// Segments differ by an element, the longer ones first.
struct Sizes {
  std::uint32_t count;
  std::uint32_t longer;
  std::uint64_t longer_bytes;
  std::uint64_t element_bytes;

  std::uint64_t of(std::uint32_t segment) const {
    return segment < longer ? longer_bytes : longer_bytes - element_bytes;
  }
  std::uint64_t of(std::uint32_t first, std::uint32_t many) const {
    std::uint64_t bytes = 0;
    for (std::uint32_t s = first; s < first + many; ++s) bytes += of(s);
    return bytes;
  }
};

/// Reduce and allreduce go up, to the root; bcast and allreduce down.
struct Directions {
  bool up;
  bool down;
};

template <class Time>
class Pipeline {
 public:
  Pipeline(const Call& call, const std::vector<std::vector<int>>& nodes, const std::vector<Shape>& between,
           bool by_tasks, const Sizes& sizes, std::uint32_t per_batch, Directions directions)
      : team_(call.team),
        clocks_(call.team, call.machine, nodes),
        nodes_(nodes),
        between_(between),
        by_tasks_(by_tasks),
        in_place_(call.collective.in_place),
        segments_(sizes.count),
        per_batch_(per_batch),
        sizes_(sizes),
        directions_(directions),
        points_(nodes.size() * sizes.count) {
    cost_model::add_simulated_steps(points_.size());
    for (const std::vector<int>& node : nodes_) {
      if (by_tasks_ || node.size() < 2 || inner_.contains(node.size())) continue;
      Inner& inner = inner_[node.size()];
      inner.shape = shape_of(node, team_.size() - 1, [&](const Group& group) { return tree_of_node(team_, group); });
      if (directions_.up) follow(node, inner);
    }
    std::size_t contributions_of_all = 0;
    std::size_t children_of_all = 0;
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
      const auto inner = inner_.find(nodes_[node].size());
      inner_of_.push_back(inner == inner_.end() ? nullptr : &inner->second);
      first_contribution_.push_back(contributions_of_all);
      first_child_.push_back(children_of_all);
      std::size_t most = 0;
      for (std::uint32_t s = 0; s < between_.size(); ++s) most = std::max(most, contributions(node, s));
      contributions_of_all += most;
      children_of_all += inner_children(node);
    }
    if (directions_.up) contributions_.resize(contributions_of_all * segments_);
    if (directions_.down) handed_in_.resize(children_of_all * segments_);
  }

  /// None if it takes more than `most_seconds`.
  std::optional<Time> run(double most_seconds) {
    if (directions_.up)
      begin_up();
    else
      for (std::uint32_t s = 0; s < segments_; ++s) pass_down(0, s, Time{});
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (seconds_of(event.time) > most_seconds) return std::nullopt;
      handle(event);
    }
    return directions_.down && !by_tasks_ ? std::max(end_, spread()) : end_;
  }

 private:
  using Series = std::vector<Time>;  // by segment

  struct Inner {
    Shape shape{};
    std::vector<Series> copied_in{};  // by index in the node: when the sums of the leader's children are
  };
  enum class What : std::uint8_t {
    enter_up,     // the sum of a node reaches the link of the node above
    arrive_up,    // ... and the leader there, at which `from` is its place
    receive_up,   // ... and is received
    combine_up,   // the sum of a node contains it
    enter_down,   // the result reaches the link of a node
    arrive_down,  // ... and the leader
    receive_down,
    begin_task,
    sent,  // the sum of a node has left it
  };
  struct Event {
    Time time;
    std::uint32_t order;  // of events of one time: as in the plans
    std::uint32_t node;
    std::uint32_t segment;
    std::uint32_t from;
    What what;
    friend bool operator>(const Event& a, const Event& b) {
      return std::tie(a.time, a.order) > std::tie(b.time, b.order);
    }
  };
  /// A message upwards for whose contribution there is no memory yet.
  struct Parked {
    Time ready;
    std::uint32_t place;
    std::uint32_t from_node;  // kInside: it has arrived already
  };
  /// Of a node and a segment.
  struct Point {
    std::uint32_t combined = 0;  // contributions, in their order
    bool is_ready = false;       // the node's own sum, by tasks, or of a single rank
    bool is_combining = false;
    bool is_sent = false;
    std::uint32_t arrived = 0;  // of a batch: segments on the way down
    Time last_byte_up{};        // at the link of the node above
    Time last_byte_down{};      // at the link of the node
    std::vector<Parked> parked{};
  };
  /// To the sum of a node, of one segment.
  struct Contribution {
    bool is_received = false;
    bool is_free = false;  // the memory for it
    Time freed{};
  };

  const Shape& between(std::uint32_t s) const { return between_[s % between_.size()]; }
  int leader(std::size_t node) const { return nodes_[node][0]; }
  Point& point(std::size_t node, std::uint32_t s) { return points_[node * segments_ + s]; }
  Contribution& contribution(std::size_t node, std::uint32_t s, std::size_t place) {
    return contributions_[(first_contribution_[node] + place) * segments_ + s];
  }
  /// When the leader has copied a segment in for a child inside the node, on the way down.
  Time& handed_in(std::size_t node, std::size_t child, std::uint32_t s) {
    return handed_in_[(first_child_[node] + child) * segments_ + s];
  }
  void at(const Time& time, What what, std::size_t node, std::uint32_t s, std::size_t from = 0) {
    events_.push({time, next_order_++, static_cast<std::uint32_t>(node), s, static_cast<std::uint32_t>(from), what});
  }

  /// The children of a leader: those inside the node come first, the smallest subtree first, then those between.
  std::size_t inner_children(std::size_t node) const {
    return inner_of_[node] == nullptr ? 0 : inner_of_[node]->shape.children[0].size();
  }
  std::size_t contributions(std::size_t node, std::uint32_t s) const {
    return inner_children(node) + between(s).children[node].size();
  }
  std::size_t place_above(std::size_t node, std::uint32_t s) const {
    const Shape& shape = between(s);
    const auto parent = static_cast<std::size_t>(shape.parent[node]);
    return inner_children(parent) + shape.children[parent].size() - 1 - static_cast<std::size_t>(shape.place[node]);
  }

  // Where a contribution lands (ReduceStage, once inside the node and once between): the first one in the sum itself,
  // unless the node's data is there already, the others in memory of their own, for some segments in flight. The sum
  // is in the result, on ranks that have one, or in memory for some segments as well.
  bool has_result(std::size_t node) const { return directions_.down || node == 0; }
  bool is_sum_in_result(std::size_t node) const {
    return has_result(node) && (in_place_ || inner_children(node) > 0 || (by_tasks_ && nodes_[node].size() > 1));
  }
  bool lands_in_sum(std::size_t node, std::size_t place) const {
    if (place < inner_children(node)) return place == 0 && !(in_place_ && has_result(node));
    return place == inner_children(node) && !is_sum_in_result(node);
  }
  std::uint32_t in_flight(std::size_t node, std::size_t place) const {
    return place < inner_children(node) ? kStageInFlight : static_cast<std::uint32_t>(kStageInFlight * between_.size());
  }
  bool is_always_free(std::size_t node, std::size_t place) const {
    return has_result(node) && lands_in_sum(node, place);
  }

  void follow(const std::vector<int>& node, Inner& inner) {
    std::vector<Series> sums(node.size(), Series(segments_));
    std::vector<std::vector<Series>> combined(node.size());
    for (std::size_t i = 0; i < node.size(); ++i) combined[i].assign(inner.shape.children[i].size(), Series(segments_));
    Clocks<Time> clocks(team_, clocks_.prices().machine, nodes_);
    for (std::uint32_t s = 0; s < segments_; ++s)
      for (std::size_t i = inner.shape.order.size(); i-- > 1;) {
        const auto self = static_cast<std::size_t>(inner.shape.order[i]);
        Time sum{};
        const std::vector<int>& children = inner.shape.children[self];
        for (std::size_t c = children.size(); c-- > 0;) {
          const auto child = static_cast<std::size_t>(children[c]);
          const bool is_first = c + 1 == children.size() && !(in_place_ && directions_.down);
          Time free{};
          if (s >= kStageInFlight && !is_first) free = combined[self][c][s - kStageInFlight];
          if (s >= kStageInFlight && is_first && !directions_.down) free = sums[self][s - kStageInFlight];
          const Time received = clocks.copy_out(node[child], node[self], sizes_.of(s), std::max(sums[child][s], free));
          sum = combined[self][c][s] = clocks.combine(node[self], std::max(received, sum), sizes_.of(s));
        }
        const int parent = inner.shape.parent[self];
        sums[self][s] = clocks.copy_in(node[self], node[static_cast<std::size_t>(parent)], sizes_.of(s), sum);
      }
    inner.copied_in = std::move(sums);
  }

  void begin_up() {
    for (std::size_t node = 0; node < nodes_.size(); ++node) {
      std::vector<Time> own(segments_);
      if (by_tasks_ && nodes_[node].size() > 1)
        for_each_batch([&](std::uint32_t first, std::uint32_t count) {
          std::fill_n(own.begin() + first, count, tasks(node, Time{}, first, count, nodes_[node].size(), 1));
        });
      for (std::uint32_t s = 0; s < segments_; ++s) {
        const std::size_t places = contributions(node, s);
        for (std::size_t place = 0; place < places; ++place)
          contribution(node, s, place).is_free = s < in_flight(node, place) || is_always_free(node, place);
        if (const std::size_t inside = inner_children(node); inside > 0)
          for (std::size_t c = 0; c < inside; ++c) {
            const auto child = static_cast<std::size_t>(inner_of_[node]->shape.children[0][inside - 1 - c]);
            at(inner_of_[node]->copied_in[child][s], What::arrive_up, node, s, c);
          }
        else
          at(own[s], What::combine_up, node, s, kOwn);
      }
    }
  }

  void handle(const Event& event) {
    const std::size_t node = event.node;
    const std::uint32_t s = event.segment;
    switch (event.what) {
      case What::enter_up: {
        const auto above = static_cast<std::size_t>(between(s).parent[node]);
        const Time in = clocks_.enter(leader(above), sizes_.of(s), event.time);
        return at(std::max(in, point(node, s).last_byte_up), What::arrive_up, above, s, place_above(node, s));
      }
      case What::enter_down:
        return at(std::max(clocks_.enter(leader(node), sizes_.of(s), event.time), point(node, s).last_byte_down),
                  What::arrive_down, node, s);
      case What::arrive_up: {
        if (!contribution(node, s, event.from).is_free)
          return point(node, s).parked.push_back({event.time, event.from, kInside});
        if (event.from >= inner_children(node))
          return at(clocks_.work(leader(node), event.time, clocks_.prices().overhead()), What::receive_up, node, s,
                    event.from);
        const auto child =
            static_cast<std::size_t>(inner_of_[node]->shape.children[0][inner_children(node) - 1 - event.from]);
        return at(clocks_.copy_out(nodes_[node][child], leader(node), sizes_.of(s), event.time), What::receive_up, node,
                  s, event.from);
      }
      case What::receive_up: contribution(node, s, event.from).is_received = true; return combine(node, s, event.time);
      case What::combine_up: {
        Point& here = point(node, s);
        here.is_combining = false;
        here.is_ready = true;
        if (event.from != kOwn) {
          ++here.combined;
          const std::size_t inside = inner_children(node);
          if (!lands_in_sum(node, event.from)) release(node, s, event.from, event.time);
          // The sum inside the node has been combined into the one between.
          if (event.from == inside && inside > 0 && lands_in_sum(node, inside)) release(node, s, 0, event.time);
        }
        return combine(node, s, event.time);
      }
      case What::arrive_down:
        return at(clocks_.work(leader(node), event.time, clocks_.prices().overhead()), What::receive_down, node, s);
      case What::receive_down: return pass_down(node, s, event.time);
      case What::begin_task: {
        end_ = std::max(end_,
                        tasks(node, event.time, s / per_batch_ * per_batch_, event.from, 1, nodes_[node].size() - 1));
        return;
      }
      case What::sent: {
        const std::size_t inside = inner_children(node);
        if (contributions(node, s) == 0) return;
        const std::size_t place = contributions(node, s) > inside ? inside : 0;
        if (lands_in_sum(node, place)) release(node, s, place, event.time);
        return;
      }
    }
  }

  void combine(std::size_t node, std::uint32_t s, const Time& now) {
    Point& here = point(node, s);
    if (here.is_combining || (inner_children(node) == 0 && !here.is_ready)) return;
    if (here.combined == contributions(node, s)) {
      if (here.is_sent) return;
      here.is_sent = true;
      return send_up(node, s, now);
    }
    if (!contribution(node, s, here.combined).is_received) return;
    here.is_combining = true;
    at(clocks_.combine(leader(node), now, sizes_.of(s)), What::combine_up, node, s, here.combined);
  }

  void send_up(std::size_t node, std::uint32_t s, const Time& now) {
    const int parent = between(s).parent[node];
    if (parent < 0) {
      end_ = std::max(end_, now);
      if (directions_.down) pass_down(node, s, now);
      return;
    }
    const auto above = static_cast<std::size_t>(parent);
    const Time handed = clocks_.work(leader(node), now, clocks_.prices().overhead());
    const std::size_t place = place_above(node, s);
    if (!clocks_.prices().is_eager(sizes_.of(s)) && !contribution(above, s, place).is_free)
      return point(above, s).parked.push_back(
          {handed, static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(node)});
    leave(node, s, handed);
  }

  /// A message upwards whose receiver has memory for it.
  void leave(std::size_t node, std::uint32_t s, const Time& handed) {
    const auto above = static_cast<std::size_t>(between(s).parent[node]);
    const auto way =
        clocks_.leave(leader(node), sizes_.of(s), handed, contribution(above, s, place_above(node, s)).freed);
    point(node, s).last_byte_up = way.last_byte;
    at(way.first_byte, What::enter_up, node, s);
    at(way.sent, What::sent, node, s);
  }

  /// The memory in which contribution `place` of segment s landed, or its sum is, can be used for a later one.
  void release(std::size_t node, std::uint32_t s, std::size_t place, const Time& now) {
    const std::uint32_t next = s + in_flight(node, place);
    if (next >= segments_) return;
    Contribution& later = contribution(node, next, place);
    if (later.is_free) return;
    later.is_free = true;
    later.freed = now;
    Point& there = point(node, next);
    if (there.parked.empty()) return;
    std::vector<Parked> left;
    for (const Parked& each : std::exchange(there.parked, {}))
      if (each.place != place)
        left.push_back(each);
      else if (each.from_node != kInside)
        leave(each.from_node, next, each.ready);
      else
        at(std::max(each.ready, now), What::arrive_up, node, next, place);
    there.parked = std::move(left);
  }

  void pass_down(std::size_t node, std::uint32_t s, const Time& now) {
    end_ = std::max(end_, now);
    for (const int to : between(s).children[node]) {
      const auto child = static_cast<std::size_t>(to);
      const Time handed = clocks_.work(leader(node), now, clocks_.prices().overhead());
      const auto way = clocks_.leave(leader(node), sizes_.of(s), handed, Time{});
      point(child, s).last_byte_down = way.last_byte;
      at(way.first_byte, What::enter_down, child, s);
    }
    if (nodes_[node].size() < 2) return;
    if (by_tasks_) {
      Point& batch = point(node, s / per_batch_ * per_batch_);
      const std::uint32_t count = std::min(per_batch_, segments_ - s / per_batch_ * per_batch_);
      if (++batch.arrived == count) at(now, What::begin_task, node, s, count);
      return;
    }
    const std::vector<int>& children = inner_of_[node]->shape.children[0];
    for (std::size_t c = 0; c < children.size(); ++c)
      handed_in(node, c, s) =
          clocks_.copy_in(leader(node), nodes_[node][static_cast<std::size_t>(children[c])], sizes_.of(s), now);
  }

  /// Inside the node whose leader hands its last segment in last.
  Time spread() {
    std::size_t last = nodes_.size();
    const auto last_of = [&](std::size_t node) { return handed_in(node, inner_children(node) - 1, segments_ - 1); };
    for (std::size_t node = 0; node < nodes_.size(); ++node)
      if (inner_children(node) > 0 && (last == nodes_.size() || last_of(last) < last_of(node))) last = node;
    if (last == nodes_.size()) return {};
    const std::vector<int>& node = nodes_[last];
    const Shape& shape = inner_of_[last]->shape;
    Time end{};
    std::vector<Time> arrived(node.size());
    for (std::uint32_t s = 0; s < segments_; ++s)
      for (const int each : shape.order) {
        const auto self = static_cast<std::size_t>(each);
        for (std::size_t c = 0; c < shape.children[self].size(); ++c) {
          const auto child = static_cast<std::size_t>(shape.children[self][c]);
          arrived[child] = self == 0
                               ? clocks_.copy_out(node[0], node[child], sizes_.of(s), handed_in(last, c, s))
                               : clocks_.inside(node[self], node[child], sizes_.of(s), arrived[self], Time{}).received;
          end = std::max(end, arrived[child]);
        }
      }
    return end;
  }

  template <class Visit>
  void for_each_batch(const Visit& visit) const {
    for (std::uint32_t first = 0; first < segments_; first += per_batch_)
      visit(first, std::min(per_batch_, segments_ - first));
  }

  /// When the tasks of a batch of `count` segments are complete.
  Time tasks(std::size_t node, const Time& ready, std::uint32_t first, std::uint32_t count, std::size_t sources,
             std::size_t targets) {
    const std::uint64_t bytes = sizes_.of(first, count);
    const std::uint64_t pieces = task_pieces(bytes, nodes_[node].size());
    Time end{};
    for (std::uint64_t piece = 0; piece < pieces; ++piece)
      end = std::max(end, clocks_.task(nodes_[node], ready, bytes / pieces, sources, targets));
    return end;
  }

  static constexpr std::uint32_t kOwn = ~0u;
  static constexpr std::uint32_t kInside = ~0u;

  const Team& team_;
  Clocks<Time> clocks_;
  const std::vector<std::vector<int>>& nodes_;  // leaders first
  const std::vector<Shape>& between_;           // segments take turns
  bool by_tasks_;
  bool in_place_;
  std::uint32_t segments_;
  std::uint32_t per_batch_;
  Sizes sizes_;
  Directions directions_;
  std::vector<Point> points_;
  std::vector<std::size_t> first_contribution_;  // by node, of contributions_
  std::vector<Contribution> contributions_;      // by node, place and segment; only on the way up
  std::vector<std::size_t> first_child_;         // by node, of handed_in_
  std::vector<Time> handed_in_;                  // by node, child inside and segment; only on the way down
  std::map<std::size_t, Inner> inner_;           // by size of the node
  std::vector<const Inner*> inner_of_;           // by node; nullptr: no messages inside
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint32_t next_order_ = 0;
  Time end_{};
};

/// How many of a long pipeline's segments are followed.
std::uint32_t followed_segments(std::uint32_t per_batch, std::uint32_t nodes, std::uint32_t cores) {
  const std::uint32_t most = std::clamp(kFollowedMessages / nodes, kLeastFollowedSegments, kFollowedSegments);
  // Tasks wait only once all cores of a node have some.
  return std::max({most, kFollowedBatches * per_batch, 3 * cores * per_batch});
}

/// Of which there is no cost, as it would take too long.
bool has_too_many(const Call& call, bool by_tasks) {
  const std::uint32_t segments = Segments(call.collective).count();
  const auto nodes = static_cast<std::uint32_t>(node_count(call.team));
  const std::uint32_t per_batch = by_tasks ? segments_per_batch(call.collective.kind, segments) : 1;
  const auto cores = static_cast<std::uint32_t>(by_tasks ? largest_node(call.team) : 0);
  return std::min(segments, followed_segments(per_batch, nodes, cores)) > kMostMessages / nodes;
}

template <class Time, class Run>
std::optional<Time> of_segments(std::uint32_t segments, std::uint32_t per_batch, std::uint32_t nodes,
                                std::uint32_t cores, const Run& run) {
  const std::uint32_t followed = followed_segments(per_batch, nodes, cores);
  if (segments <= followed) return run(segments);
  const std::uint32_t fewer = followed / 3 * 2;
  const std::optional<Time> many = run(followed);
  const std::optional<Time> few = many ? run(fewer) : std::nullopt;
  if (!few) return std::nullopt;
  const double per_segment = 1.0 / static_cast<double>(followed - fewer);
  return *many + static_cast<double>(segments - followed) * (per_segment * (*many - *few));
}

Directions directions_of(CollectiveKind kind) {
  return {.up = kind != CollectiveKind::bcast, .down = kind != CollectiveKind::reduce};
}

template <class Time>
std::optional<Time> along(const Call& call, const std::vector<std::vector<int>>& nodes,
                          const std::vector<Shape>& between, bool by_tasks) {
  const std::uint32_t segments = Segments(call.collective).count();
  const CollectiveKind kind = call.collective.kind;
  const std::uint32_t per_batch = by_tasks ? segments_per_batch(kind, segments) : 1;
  return of_segments<Time>(
      segments, per_batch, static_cast<std::uint32_t>(nodes.size()),
      static_cast<std::uint32_t>(by_tasks ? largest_node(call.team) : 0), [&](std::uint32_t count) {
        const std::uint64_t item_bytes = call.collective.item_bytes();
        const std::uint64_t longer = call.collective.count % segments * count / segments;
        const Sizes sizes{count, longer == 0 ? count : static_cast<std::uint32_t>(longer),
                          (call.collective.count + segments - 1) / segments * item_bytes, item_bytes};
        return Pipeline<Time>(call, nodes, between, by_tasks, sizes, per_batch, directions_of(kind))
            .run(call.most_seconds);
      });
}

int root_of(const Collective& collective) { return is_rooted(collective.kind) ? collective.root : 0; }

}  // namespace

template <class Time>
std::optional<Time> levels(const Call& call) {
  // Exact, but takes longer than to follow one segment.
  if (Segments(call.collective).count() > 1)
    if (const std::optional<Time> time = few_ranks<Time>(call)) return time;
  const LevelsRow& row = *levels_row(call.row);
  if (node_count(call.team) < 2) return all_ranks<Time>(call);
  const bool by_tasks = uses_tasks(call.team, call.collective, row.inside);
  // What brings the data from or to the root is not followed.
  if (leader_at_root(call.team, call.collective, by_tasks) != root_of(call.collective)) return std::nullopt;
  if (has_too_many(call, by_tasks)) return std::nullopt;
  const std::vector<std::vector<int>> nodes = ranks_by_node(call.team, root_of(call.collective));
  // Ranks that share a core wait for each other in ways that are not followed, and trees along domains differ between
  // nodes of one size.
  const bool has_domains = !call.team.domain_of_rank.empty();
  if (!by_tasks && (has_domains || largest_node(call.team) > call.machine.node.cores)) return few_ranks<Time>(call);
  std::vector<int> leaders;
  for (const std::vector<int>& node : nodes) leaders.push_back(node[0]);
  const auto tree = [&](const auto& make) { return shape_of(leaders, call.team.size() - 1, make); };
  std::vector<Shape> between;
  switch (row.between) {
    case Between::binomial: between = {tree(binomial)}; break;
    case Between::postal: between = {tree(postal)}; break;
    case Between::binary: between = {tree(binary)}; break;
    case Between::chain: between = {tree(chain)}; break;
    case Between::two_tree:
      between = {tree([](const Group& group) { return two_tree(group, 0); }),
                 tree([](const Group& group) { return two_tree(group, 1); })};
  }
  return along<Time>(call, nodes, between, by_tasks);
}

template <class Time>
std::optional<Time> flat_tree(const Call& call) {
  const int count = node_count(call.team);
  if (count < 2 || count != call.team.size()) return few_ranks<Time>(call);
  if (has_too_many(call, false)) return std::nullopt;
  const std::vector<std::vector<int>> nodes = ranks_by_node(call.team, root_of(call.collective));
  const Group all = by_node(call.team, root_of(call.collective));
  const Shape shape = shape_of(all.ranks, call.team.size() - 1, [&](const Group& group) {
    return call.row == "chain" ? chain(group) : binomial(group);
  });
  return along<Time>(call, nodes, {shape}, false);
}

template std::optional<double> levels<double>(const Call&);
template std::optional<Cost> levels<Cost>(const Call&);
template std::optional<double> flat_tree<double>(const Call&);
template std::optional<Cost> flat_tree<Cost>(const Call&);

}  // namespace penstock::collectives::cost
