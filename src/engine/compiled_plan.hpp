// A checked plan with the inverse maps that the engine needs: dependents of a step, receiving steps of a message.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/compiled_tasks.hpp"
#include "penstock/plan.hpp"
#include "plan/lists.hpp"

namespace penstock::engine {

/// A message to or from a rank of another node.
struct RemoteMessage {
  std::int32_t peer = 0;
  std::uint32_t wire_tag = 0;
  std::uint64_t bytes = 0;
  StepKind kind = StepKind::send;
};
using RemoteTraffic = std::vector<RemoteMessage>;

/// Immutable. PlanCache makes it once per plan; all runs of the plan share it.
class CompiledPlan {
 public:
  static constexpr StepId kNone = PlanBuilder::kNone;

  /// Throws Error(invalid_argument) if this rank cannot run the plan: other rank or size, regions outside of their
  /// buffers, dependencies on later steps, peers outside of the team, shared memory across nodes.
  /// `wire_tags`: how many tags the transport has for the messages of one rank to another; equal on all ranks.
  CompiledPlan(const Plan& plan, const Team& team, std::uint64_t shared_limit_bytes,
               std::uint32_t wire_tags = kMaxTag + 1);

  const std::vector<std::uint32_t>& dependency_counts() const { return dependency_counts_; }
  const std::vector<StepId>& roots() const { return roots_; }  ///< steps without dependencies, in order
  std::span<const StepId> dependents(StepId step) const { return dependents_.of(step); }
  bool reads_peers() const { return reads_peers_; }
  bool leaves_node() const { return leaves_node_; }  ///< has messages between nodes
  bool has_messages() const { return has_messages_; }
  bool takes_from_node() const { return takes_from_node_; }  ///< has steps that take a message or signal of this node
  /// Of a step that sends to or receives from another node. Sender and receiver compute the same tag for a message. Two
  /// messages of one rank to another have the same tag only if both ranks post the second after the first is complete.
  std::uint32_t wire_tag(StepId step) const { return wire_tags_[step]; }
  const std::shared_ptr<const RemoteTraffic>& traffic() const { return traffic_; }  ///< nullptr: none
  const CompiledTasks& tasks() const { return tasks_; }
  std::uint64_t published_bytes() const { return published_bytes_; }  ///< of the shared buffer, that its steps fill
  /// If all steps are short messages between nodes and short computations of this rank's memory, and few: for each step
  /// those that it waits for, as bits. Otherwise empty. See ShortExchange.
  std::span<const std::uint32_t> short_exchange() const { return short_exchange_; }

  /// The first step that takes a signal, or a message, of `peer` under `tag`, and the next one after `step`.
  /// Several such steps take messages in the order of arrival, so both sides must order these steps by dependencies.
  StepId receiver(bool is_signal, int peer, std::uint32_t tag) const;
  StepId next_receiver(StepId step) const { return next_receiver_.empty() ? kNone : next_receiver_[step]; }

 private:
  struct Entry {
    std::uint64_t key;
    StepId step;
  };
  void check(const Plan& plan, const Team& team, std::uint64_t shared_limit_bytes) const;
  void index_receivers(const Plan& plan);
  using Edges = std::vector<std::pair<StepId, StepId>>;
  /// Returns which steps have to wait for which, because the tags are too few.
  Edges set_wire_tags(const Plan& plan, const Team& team, std::uint32_t wire_tags);
  void set_short_exchange(const Plan& plan, const Team& team, const Edges& edges);

  std::vector<std::uint32_t> dependency_counts_;
  std::vector<StepId> roots_;
  plan::Lists<StepId> dependents_;
  std::vector<Entry> receivers_;  ///< hash table: open addressing, the size a power of two
  std::vector<StepId> next_receiver_;
  std::vector<std::uint32_t> wire_tags_;  ///< by step
  std::shared_ptr<const RemoteTraffic> traffic_;
  CompiledTasks tasks_;
  std::vector<std::uint32_t> short_exchange_;
  std::uint64_t published_bytes_ = 0;
  bool reads_peers_ = false;
  bool leaves_node_ = false;
  bool has_messages_ = false;
  bool takes_from_node_ = false;
};

/// The compiled forms of live plans, by address. The Executor owns it; it does not keep plans alive. A compiled form
/// lives at least as long as its plan. Those of plans that are gone take no more memory than the others, or a MiB.
class PlanCache {
 public:
  const CompiledPlan* get(const std::shared_ptr<const Plan>& plan, const Team& team, std::uint64_t shared_limit_bytes,
                          std::uint32_t wire_tags = kMaxTag + 1);
  std::uint64_t size_bytes() const { return size_bytes_; }  ///< with the plans themselves

 private:
  struct Entry {
    std::weak_ptr<const Plan> plan;
    std::unique_ptr<const CompiledPlan> compiled;
    std::uint64_t size_bytes = 0;
  };
  static constexpr std::uint64_t kLeastSweptBytes = 1 << 20;

  void sweep();

  std::unordered_map<const Plan*, Entry> entries_;
  std::uint64_t size_bytes_ = 0;
  std::uint64_t sweep_at_bytes_ = kLeastSweptBytes;
};

}  // namespace penstock::engine
