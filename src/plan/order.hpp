// The order of steps: inside one plan, and across the plans of all ranks.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "penstock/plan.hpp"

namespace penstock::plan {

inline std::span<const StepId> dependencies(const Plan& plan, StepId step) {
  return std::span(plan.dependencies).subspan(plan.steps[step].first_dependency, plan.steps[step].dependency_count);
}

constexpr bool computes(const Step& step, Computation computation) {
  return step.kind == StepKind::compute && step.computation == computation;
}
/// Whether the step moves blocks of Plan::blocks.
constexpr bool has_blocks(const Step& step) { return computes(step, Computation::transform); }

inline std::span<const Block> blocks(const Plan& plan, const Step& step) {
  return std::span(plan.blocks).subspan(step.first_block, step.block_count);
}

/// Two steps of two ranks match under a tag. The producer's message or signal is what the consumer waits for.
constexpr bool produces(const Step& step) { return step.kind == StepKind::send || step.kind == StepKind::signal; }
constexpr bool takes_message(const Step& step) {
  return step.kind == StepKind::recv || (step.kind == StepKind::compute && step.source == StepSource::peer_private);
}
constexpr bool consumes(const Step& step) { return takes_message(step) || step.kind == StepKind::wait; }

/// What a signal tells or a wait checks, see kToldLengthBytes.
constexpr const Region& told_length(const Step& step) { return step.kind == StepKind::signal ? step.to : step.from; }
constexpr bool tells_length(const Step& step) {
  return (step.kind == StepKind::signal || step.kind == StepKind::wait) && told_length(step).buffer == Buffer::shared;
}

/// What two steps that match have in common.
struct LinkKey {
  std::int32_t from, to;  ///< ranks
  std::uint32_t tag;
  bool is_signal;

  friend auto operator<=>(const LinkKey&, const LinkKey&) = default;
};

/// Of a step of this rank; none if it is neither a producer nor a consumer.
constexpr std::optional<LinkKey> link_key(const Step& step, std::int32_t rank) {
  if (produces(step)) return LinkKey{rank, step.peer, step.tag, step.kind == StepKind::signal};
  if (consumes(step)) return LinkKey{step.peer, rank, step.tag, step.kind == StepKind::wait};
  return std::nullopt;
}

/// The length of the message that a consumer takes.
constexpr std::uint64_t consumed_bytes(const Step& step) {
  return has_blocks(step) ? step.from.size_bytes : step.to.size_bytes;
}

/// The memory that a step accesses.
struct Touches {
  bool has_peer;
  bool reads;         ///< `from`, of this rank
  bool reads_remote;  ///< `from`, of the peer
  bool writes;        ///< `to`
};

constexpr Touches touches(const Step& step) {
  const bool is_local = step.source == StepSource::local;
  switch (step.kind) {
    case StepKind::send: return {true, true, false, false};
    case StepKind::recv: return {true, false, false, true};
    case StepKind::signal:
    case StepKind::wait: return {true, false, false, false};
    case StepKind::compute: return {!is_local, is_local, step.source == StepSource::peer_shared, true};
    case StepKind::publish_tasks: return {false, false, false, false};  // its tasks access memory
  }
  return {};
}

/// The transitive order of the steps or tasks of one plan; n^2/8 bytes for n of them.
class Order {
 public:
  /// Of steps.
  explicit Order(const Plan& plan);
  /// Of `count` of them, without an order yet.
  explicit Order(std::size_t count) : words_((count + 63) / 64), before_(words_ * count) {}

  /// Adds that `later` waits for `earlier`. What `earlier` waits for has been added before.
  void add(std::size_t earlier, std::size_t later);
  /// Whether `first` is complete before `second` starts.
  bool is_before(std::size_t first, std::size_t second) const {
    return (before_[second * words_ + first / 64] >> (first % 64)) & 1;
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> before_;  // one row of bits for each
};

/// A graph of the starts and ends of the steps of all ranks. The constructor adds the edges of the plans: a step starts
/// before it ends, and after its dependencies have ended. add() adds others.
class Events {
 public:
  using Event = std::size_t;

  explicit Events(std::span<const Plan> plans);

  /// Of a step by its place in the plans, one after the other, as in StepGraph.
  static Event start(std::size_t step) { return 2 * step; }
  static Event end(std::size_t step) { return start(step) + 1; }
  Event start(std::size_t rank, StepId step) const { return start(first_step_[rank] + step); }
  Event end(std::size_t rank, StepId step) const { return end(first_step_[rank] + step); }
  void add(Event before, Event after);

  /// A cycle of steps (rank, step), each of which waits for the next one; empty if there is none.
  std::vector<std::pair<std::size_t, StepId>> find_cycle() const;
  /// By event: whether it is `from`, or comes after it (forward) or before it (not forward).
  std::vector<bool> reachable(Event from, bool forward) const;

 private:
  // Two linked lists of edges per event: graphs have many thousands of events, most with one or two edges.
  using EdgeId = std::size_t;
  static constexpr EdgeId kNone = SIZE_MAX;
  struct Edge {
    Event before, after;
    EdgeId next_of_before, next_of_after;  // that begin where this one begins, and that end where it ends
  };
  struct Ends {
    EdgeId first_out = kNone, first_in = kNone;
  };

  template <typename Visit>
  void for_each_neighbour(Event event, bool forward, Visit visit) const {
    for (EdgeId id = forward ? ends_[event].first_out : ends_[event].first_in; id != kNone;) {
      const Edge& edge = edges_[id];
      visit(forward ? edge.after : edge.before);
      id = forward ? edge.next_of_before : edge.next_of_after;
    }
  }
  std::pair<std::size_t, StepId> step_of(Event event) const;

  std::vector<std::size_t> first_step_;  // by rank
  std::vector<Ends> ends_;               // by event
  std::vector<Edge> edges_;
};

}  // namespace penstock::plan
