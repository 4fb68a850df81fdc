// What messages among nodes take, for estimates that make no plans.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "collectives/cost/costs.hpp"
#include "collectives/parts/arguments.hpp"
#include "collectives/parts/leaders.hpp"
#include "cost_model/prices.hpp"

namespace penstock::collectives::cost {

class Messages {
 public:
  Messages(const Call& call, const NodeSizes& sizes)
      : call_(call),
        prices_{call.machine},
        single_copy_(call.team.single_copy),
        nodes_(static_cast<std::uint64_t>(sizes.nodes)),
        ranks_(static_cast<std::uint64_t>(sizes.largest)) {}

 protected:
  bool are_shared() const {
    return shares_tasks(call_.team, call_.collective, static_cast<int>(nodes_), static_cast<int>(ranks_));
  }
  std::uint64_t cores_of_node() const { return static_cast<std::uint64_t>(std::max(1, call_.machine.node.cores)); }
  bool is_read(std::uint64_t bytes) const { return prices_.is_read(bytes, single_copy_); }
  double copy_in(std::uint64_t bytes, bool far = false) const { return is_read(bytes) ? 0 : prices_.copy(bytes, far); }
  double receive_inside(std::uint64_t bytes) const {
    return prices_.flag() + (is_read(bytes) ? prices_.remote_read(bytes) : prices_.copy(bytes));
  }
  double on_wires(std::uint64_t bytes, std::uint64_t senders) const {
    return std::max(prices_.on_process(bytes), static_cast<double>(senders) * prices_.on_link(bytes));
  }
  /// From one leader to another, if so many ranks of each node send at once.
  double hop(std::uint64_t bytes, std::uint64_t senders) const {
    const double handshake = prices_.is_eager(bytes) ? 0 : 2 * prices_.latency();
    return 2 * prices_.overhead() + handshake + on_wires(bytes, senders) + prices_.latency();
  }
  double before_wires(std::uint64_t bytes) const { return hop(bytes, 1) - on_wires(bytes, 1); }

  /// The tasks of a row by leaders, if they all take turns on the cores of a node.
  struct LeaderTasks {
    double up;          ///< seconds of all that combine
    double up_first;    ///< ... of a few batches
    double up_in_turn;  ///< ... if they follow a ring: a few batches after the others
    double down;        ///< of all that spread
    double last;        ///< ... the last batch
    double waits;       ///< of data around a ring, for those that leaders take themselves
    bool follow_ring;
  };
  /// Of so many tasks that the other cores do not keep up with, the leader takes some of the later ones: what arrives
  /// then waits for half of one. So it may on each of some hops.
  double wait_for_task(double tasks, double seconds, double hops) const {
    const auto others = static_cast<double>(std::min(ranks_, cores_of_node()) - 1);
    return std::max(0.0, 1 - others / tasks) * std::min(hops, std::max(1.0, tasks / others)) * seconds / 2;
  }
  LeaderTasks leader_tasks(std::uint64_t slots, std::uint32_t sides) const {
    const std::uint64_t slot_bytes = block_bytes(call_.collective) / slots;
    const TaskBatches batches = task_batches(slot_bytes, nodes_, sides);
    const std::uint64_t count = std::uint64_t{batches.cuts} * batches.subs;
    const std::uint64_t bytes = slot_bytes / count;
    const std::uint64_t pieces = task_pieces(bytes, ranks_, kMaxBatchTasks / slots);
    const auto cores = static_cast<double>(std::min(ranks_, cores_of_node()));
    const auto turns = [&](std::uint64_t many) {
      return std::ceil(static_cast<double>(many * slots * pieces) / cores);
    };
    const double up = prices_.task(bytes / pieces, ranks_, 1);
    const double down = prices_.task(bytes / pieces, 1, ranks_ - 1);
    constexpr std::uint64_t kTogether = kBatchesAhead + 1;
    return {.up = turns(count) * up,
            .up_first = turns(std::min(count, kTogether)) * up,
            .up_in_turn = (static_cast<double>(count / kTogether) * turns(kTogether) + turns(count % kTogether)) * up,
            .down = turns(count) * down,
            .last = turns(1) * down,
            .waits = wait_for_task(static_cast<double>(count * slots * pieces), down, static_cast<double>(nodes_ - 1)),
            .follow_ring = batches.follow_ring};
  }

  const Call& call_;
  cost_model::Prices<double> prices_;
  bool single_copy_;
  std::uint64_t nodes_;
  std::uint64_t ranks_;  // of the largest node
};

}  // namespace penstock::collectives::cost
