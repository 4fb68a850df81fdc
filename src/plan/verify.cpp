#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ranks_text.hpp"
#include "plan/names.hpp"
#include "plan/order.hpp"
#include "plan/region.hpp"
#include "plan/rules.hpp"
#include "plan/step_graph.hpp"
#include "plan/tasks.hpp"

namespace penstock {
namespace {

constexpr std::size_t kMaxFindings = 100;

// A range of one buffer that a step accesses.
struct Access {
  std::uint64_t begin_bytes, end_bytes;
  StepId step;
  Buffer buffer;
  bool is_write;
};

// The bytes that one side of a transform accesses: one run per row of each block, adjacent runs merged.
struct Footprint {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> runs;
  bool is_inside = true;  // of the region
};

Footprint footprint(const Plan& plan, const Step& step, bool of_target, const ElementBytes& sizes) {
  Footprint result;
  const Region region = of_target ? step.to : step.from;
  const std::uint64_t element_bytes = sizes.of(region.buffer);
  for (const Block& block : plan::blocks(plan, step)) {
    if (block.rows == 0 || block.columns == 0) continue;
    std::int64_t stride[2] = {of_target ? block.to_row_stride_elems : block.from_row_stride_elems,
                              of_target ? block.to_column_stride_elems : block.from_column_stride_elems};
    std::uint64_t count[2] = {block.rows, block.columns};
    if (count[1] > 1 && stride[1] != 1 && (stride[0] == 1 || count[0] == 1)) {
      std::swap(stride[0], stride[1]);
      std::swap(count[0], count[1]);
    }
    const auto first = static_cast<std::int64_t>(of_target ? block.to_offset_elems : block.from_offset_elems);
    const bool is_dense = stride[1] == 1 || count[1] == 1;
    const std::uint64_t runs = is_dense ? count[0] : count[0] * count[1];
    for (std::uint64_t run = 0; run < runs; ++run) {
      const auto row = static_cast<std::int64_t>(is_dense ? run : run / count[1]);
      const auto column = static_cast<std::int64_t>(is_dense ? 0 : run % count[1]);
      const std::int64_t at = first + row * stride[0] + column * stride[1];
      const auto begin_bytes = static_cast<std::uint64_t>(at) * element_bytes;
      const std::uint64_t end_bytes = begin_bytes + (is_dense ? count[1] : 1) * element_bytes;
      if (at < 0 || end_bytes > region.size_bytes) {
        result.is_inside = false;
        return result;
      }
      result.runs.emplace_back(region.offset_bytes + begin_bytes, region.offset_bytes + end_bytes);
    }
  }
  std::sort(result.runs.begin(), result.runs.end());
  std::vector<std::pair<std::uint64_t, std::uint64_t>> joined;
  for (const auto& run : result.runs) {
    if (!joined.empty() && run.first <= joined.back().second)
      joined.back().second = std::max(joined.back().second, run.second);
    else
      joined.push_back(run);
  }
  result.runs = std::move(joined);
  return result;
}

class Verifier {
 public:
  Verifier(std::span<const Plan> plans, std::span<const std::int32_t> node_of_rank, ElementBytes element_bytes)
      : plans_(plans), node_of_rank_(node_of_rank), element_bytes_(element_bytes) {}

  std::vector<std::string> run() {
    if (plans_.size() != node_of_rank_.size()) {
      found("there are " + std::to_string(plans_.size()) + " plans for " + std::to_string(node_of_rank_.size()) +
            " ranks");
      return findings_;
    }
    for (std::size_t rank = 0; rank < plans_.size(); ++rank) check_plan(rank);
    // The checks below use the indices that were checked above.
    if (!findings_.empty()) return findings_;
    for (std::string& finding : plan::verify_tasks(plans_, node_of_rank_, element_bytes_.output))
      found(std::move(finding));
    if (!findings_.empty()) return findings_;
    graph_.emplace(plans_, node_of_rank_);
    match();
    if (!findings_.empty()) return findings_;
    for (std::size_t rank = 0; rank < plans_.size(); ++rank) check_memory(rank);
    check_deadlock();
    if (findings_.empty()) check_reads();
    return findings_;
  }

 private:
  using Index = plan::StepGraph::Index;

  std::string where(std::size_t rank, StepId step) const {
    return "rank " + std::to_string(rank) + ", step " + std::to_string(step) + " (" +
           plan::describe(plans_[rank], plans_[rank].steps[step]) + ")";
  }

  void found(std::string finding) {
    if (findings_.size() < kMaxFindings) findings_.push_back(std::move(finding));
  }

  void check_plan(std::size_t rank) {
    const Plan& plan = plans_[rank];
    if (plan.rank != static_cast<int>(rank) || plan.size != static_cast<int>(plans_.size()))
      found("plan " + std::to_string(rank) + " is for rank " + std::to_string(plan.rank) + " of " +
            std::to_string(plan.size));
    for (StepId id = 0; id < plan.steps.size(); ++id) check_step(rank, id);
    if (plan.by_flags != plans_[0].by_flags)
      found("the plans of " + base::ranks_text(std::array{0, static_cast<int>(rank)}) + " differ in by_flags");
    if (!findings_.empty()) return;
    if (const std::string broken = plan::violated_flag_rule(plan); !broken.empty())
      found("plan " + std::to_string(rank) + " has by_flags, but " + broken);
  }

  void check_step(std::size_t rank, StepId id) {
    const Plan& plan = plans_[rank];
    const Step& step = plan.steps[id];
    if (const std::string broken = plan::violated_step_rule(plan, id); !broken.empty())
      return found(where(rank, id) + ": " + broken);
    const plan::Touches touches = plan::touches(step);
    if (touches.has_peer) check_peer(rank, id);
    if (touches.reads_remote)
      if (const Plan& owner = plans_[static_cast<std::size_t>(step.peer)]; !plan::is_inside(step.from, owner))
        found(where(rank, id) + ": the source reaches beyond the " + std::to_string(owner.shared_bytes) +
              " bytes of the peer's shared buffer");
    const bool is_sorted = plan::computes(step, Computation::reduce_sorted);
    if ((is_sorted || plan::computes(step, Computation::reduce)) && step.to.size_bytes % element_bytes_.output != 0)
      found(where(rank, id) + ": not a whole number of elements");
    if (plan::has_blocks(step)) check_blocks(rank, id);
  }

  void check_peer(std::size_t rank, StepId id) {
    const Step& step = plans_[rank].steps[id];
    if (step.peer == static_cast<int>(rank)) found(where(rank, id) + ": the peer is this rank");
    const bool inside_node = step.kind != StepKind::send && step.kind != StepKind::recv;
    if (inside_node && node_of_rank_[rank] != node_of_rank_[static_cast<std::size_t>(step.peer)])
      found(where(rank, id) + ": the peer is on another node");
  }

  void check_blocks(std::size_t rank, StepId id) {
    const Plan& plan = plans_[rank];
    const Step& step = plan.steps[id];
    for (const bool of_target : {false, true})
      if (!footprint(plan, step, of_target, element_bytes_).is_inside)
        found(where(rank, id) + ": a block reaches beyond the " + (of_target ? "target" : "source"));
  }

  void match() {
    for (const Index index : graph_->unmatched()) {
      const Step& step = graph_->step(index);
      const auto key = plan::link_key(step, graph_->rank(index));
      const bool is_used_twice = std::ranges::any_of(graph_->unmatched(), [&](Index other) {
        return other != index && plan::link_key(graph_->step(other), graph_->rank(other)) == key;
      });
      found(graph_->words(index) + ": " +
            (is_used_twice ? "the tag is used twice between the two ranks"
                           : std::string("no step of the peer ") + (plan::produces(step) ? "takes" : "sends") +
                                 (key->is_signal ? " this signal" : " this message")));
      if (findings_.size() == kMaxFindings) return;
    }
    for_each_link([&](Index producer, Index consumer) {
      const std::uint64_t consumed_bytes = plan::consumed_bytes(graph_->step(consumer));
      if (graph_->step(producer).from.size_bytes != consumed_bytes)
        found(graph_->words(producer) + ": the receiver expects " + std::to_string(consumed_bytes) + " bytes");
      const Step& told = graph_->step(producer);
      const Step& expected = graph_->step(consumer);
      if (plan::tells_length(told) != plan::tells_length(expected) ||
          (plan::tells_length(told) && plan::told_length(told) != plan::told_length(expected)))
        found(graph_->words(producer) + ": the peer expects another length, or none");
    });
  }

  template <class Visit>
  void for_each_link(Visit visit) const {
    for (Index index = 0; index < graph_->size(); ++index)
      if (plan::produces(graph_->step(index)) && graph_->partner(index) != plan::StepGraph::kNone)
        visit(index, graph_->partner(index));
  }

  std::vector<Access> accesses(std::size_t rank) const {
    std::vector<Access> all;
    const Plan& plan = plans_[rank];
    for (StepId id = 0; id < plan.steps.size(); ++id) {
      const Step& step = plan.steps[id];
      const plan::Touches touches = plan::touches(step);
      const auto add = [&](Region region, bool is_write) {
        if (plan::has_blocks(step)) {
          for (const auto& [begin, end] : footprint(plan, step, is_write, element_bytes_).runs)
            all.push_back({begin, end, id, region.buffer, is_write});
        } else if (region.size_bytes > 0) {
          all.push_back({region.offset_bytes, region.offset_bytes + region.size_bytes, id, region.buffer, is_write});
        }
      };
      if (touches.reads) add(step.from, false);
      if (touches.writes) add(step.to, true);
      if (step.kind != StepKind::publish_tasks) continue;
      for (const SharedTask& task : plan::tasks(plan, step)) {
        for (const RankRegion& each : plan::sources(plan, task))
          if (each.rank == plan.rank) add(plan::resolved(plan, each.region), false);
        for (const RankRegion& each : plan::targets(plan, task))
          if (each.rank == plan.rank) add(plan::resolved(plan, each.region), true);
      }
    }
    std::sort(all.begin(), all.end(), [](const Access& a, const Access& b) {
      return std::pair(a.buffer, a.begin_bytes) < std::pair(b.buffer, b.begin_bytes);
    });
    return all;
  }

  void check_memory(std::size_t rank) {
    const plan::Order order(plans_[rank]);
    std::set<std::pair<StepId, StepId>> reported;
    std::vector<Access> open;  // begin at or before the current one and may reach into it
    for (const Access& access : accesses(rank)) {
      std::erase_if(open, [&](const Access& other) {
        return other.buffer != access.buffer || other.end_bytes <= access.begin_bytes;
      });
      for (const Access& other : open) {
        if (!access.is_write && !other.is_write) continue;
        const auto [first, second] = std::minmax(access.step, other.step);
        if (first != second && order.is_before(first, second)) continue;
        if (first == second && plans_[rank].steps[first].kind == StepKind::publish_tasks)
          continue;  // see verify_tasks()
        if (!reported.emplace(first, second).second) continue;
        found(first == second ? where(rank, first) + ": source and target overlap"
                              : where(rank, first) + " and " + where(rank, second) +
                                    " touch the same memory without an order between them");
      }
      open.push_back(access);
    }
  }

  // Every step is two events: its start and its end. A send may wait until its recv has started.
  void check_deadlock() {
    plan::Events events(plans_);
    for_each_link([&](Index producer, Index consumer) {
      events.add(events.start(producer), events.end(consumer));
      if (graph_->step(producer).kind == StepKind::send) events.add(events.start(consumer), events.end(producer));
    });
    plan::add_task_edges(plans_, events);
    const auto cycle = events.find_cycle();
    if (cycle.empty()) return;
    std::string text;
    for (const auto& [rank, step] : cycle) text += (text.empty() ? "" : " waits for ") + where(rank, step);
    found("deadlock: " + text);
  }

  // Reads of shared memory against the owner's writes. Only dependencies and signal → wait order them; messages do not.
  void check_reads() {
    std::map<std::size_t, std::vector<std::pair<std::size_t, StepId>>> reads_of;  // by owner
    for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
      std::optional<plan::Order> order;
      for (StepId id = 0; id < plans_[rank].steps.size(); ++id) {
        const Step& read = plans_[rank].steps[id];
        if (!plan::touches(read).reads_remote) continue;
        if (!order) order.emplace(plans_[rank]);
        bool is_waited_for = false;
        for (StepId earlier = 0; earlier < id && !is_waited_for; ++earlier) {
          const Step& step = plans_[rank].steps[earlier];
          is_waited_for = step.kind == StepKind::wait && step.peer == read.peer && order->is_before(earlier, id);
        }
        if (!is_waited_for) found(where(rank, id) + ": no wait of the peer comes before it");
        reads_of[static_cast<std::size_t>(read.peer)].emplace_back(rank, id);
      }
    }
    if (reads_of.empty()) return;
    plan::Events events(plans_);
    for_each_link([&](Index producer, Index consumer) {
      if (graph_->step(producer).kind == StepKind::signal) events.add(events.start(producer), events.end(consumer));
    });
    for (const auto& [owner, reads] : reads_of)
      for (const Access& access : accesses(owner)) {
        if (access.buffer != Buffer::shared || !access.is_write) continue;
        const std::vector<bool> after = events.reachable(events.end(owner, access.step), true);
        std::vector<bool> before;  // rarely needed
        for (const auto& [rank, id] : reads) {
          const Region region = plans_[rank].steps[id].from;
          if (!base::overlap(region.offset_bytes, region.offset_bytes + region.size_bytes, access.begin_bytes,
                             access.end_bytes))
            continue;
          if (after[events.start(rank, id)]) continue;
          if (before.empty()) before = events.reachable(events.start(owner, access.step), false);
          if (!before[events.end(rank, id)])
            found(where(rank, id) + " and " + where(owner, access.step) +
                  " touch the same shared memory without an order between them");
        }
      }
  }

  std::span<const Plan> plans_;
  std::span<const std::int32_t> node_of_rank_;
  ElementBytes element_bytes_;
  std::optional<plan::StepGraph> graph_;
  std::vector<std::string> findings_;
};

}  // namespace

std::vector<std::string> verify(std::span<const Plan> plans, std::span<const std::int32_t> node_of_rank,
                                ElementBytes element_bytes) {
  return Verifier(plans, node_of_rank, element_bytes).run();
}

}  // namespace penstock
