// Which step comes before which: inside one plan, and between the plans of all ranks.
#pragma once

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

/// Steps that move `blocks` of the plan.
constexpr bool has_blocks(StepKind kind) {
  return kind == StepKind::transform || kind == StepKind::unpack || kind == StepKind::remote_read;
}

/// Steps of two ranks that meet under a tag: the kind of step at the peer that takes what this one gives.
constexpr std::optional<StepKind> consumer_of(StepKind kind) {
  switch (kind) {
    case StepKind::send: return StepKind::recv;
    case StepKind::signal: return StepKind::wait;
    case StepKind::offer_read: return StepKind::remote_read;
    default: return std::nullopt;
  }
}

/// Steps that wait for one of the peer's that gives.
constexpr bool consumes(StepKind kind) {
  return kind == StepKind::recv || kind == StepKind::wait || kind == StepKind::remote_read;
}

/// The length of what such a step takes.
constexpr std::uint64_t consumed_bytes(const Step& step) {
  return has_blocks(step.kind) ? step.from.size_bytes : step.to.size_bytes;
}

/// Steps that may wait until the peer takes what they give.
constexpr bool waits_for_consumer(StepKind kind) { return kind == StepKind::send || kind == StepKind::offer_read; }

/// What a kind of step does to memory.
struct Touches {
  bool has_peer;
  bool reads;         ///< `from`, of this rank
  bool reads_remote;  ///< `from`, of the peer
  bool writes;        ///< `to`
};

constexpr Touches touches(StepKind kind) {
  switch (kind) {
    case StepKind::send:
    case StepKind::offer_read: return {true, true, false, false};
    case StepKind::recv:
    case StepKind::remote_read: return {true, false, false, true};
    case StepKind::copy:
    case StepKind::reduce:
    case StepKind::reduce_sorted:
    case StepKind::transform: return {false, true, false, true};
    case StepKind::signal:
    case StepKind::wait: return {true, false, false, false};
    case StepKind::read:
    case StepKind::unpack: return {true, false, true, true};
    case StepKind::publish_tasks: return {false, false, false, false};  // its tasks do
  }
  return {};
}

/// The transitive order of the steps of one plan; n^2/8 bytes for n steps.
class Order {
 public:
  explicit Order(const Plan& plan);

  /// Whether `first` is complete before `second` starts.
  bool is_before(StepId first, StepId second) const {
    return (before_[second * words_ + first / 64] >> (first % 64)) & 1;
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> before_;  // one row of bits per step
};

/// A send and its recv, or a signal and its wait.
struct Link {
  std::size_t producer;  ///< rank
  StepId producer_step;
  std::size_t consumer;
  StepId consumer_step;
};

/// The starts and ends of the steps of all ranks as one graph. It has the edges of the plans: a step starts before it
/// ends, and after its dependencies have ended. Others are added.
class Events {
 public:
  using Event = std::size_t;

  explicit Events(std::span<const Plan> plans);

  Event start(std::size_t rank, StepId step) const { return 2 * (first_step_[rank] + step); }
  Event end(std::size_t rank, StepId step) const { return start(rank, step) + 1; }
  void add(Event before, Event after);

  /// Steps (rank, step) that wait for each other in a circle, each for the next one; empty if there are none.
  std::vector<std::pair<std::size_t, StepId>> find_cycle() const;
  /// The events that lie after `from`, or, not `forward`, before it; with `from` itself.
  std::vector<bool> reachable(Event from, bool forward) const;

 private:
  // One list of edges, threaded twice: verifying makes graphs of many thousand events, most with one or two edges.
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
