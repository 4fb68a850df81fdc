// The ranks of a communicator agree on its progress threads (workers): their number per node, processes and CPUs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/transport.hpp"
#include "host/cpu_placement.hpp"
#include "host/cpu_set.hpp"

namespace penstock::comm {

/// What a rank tells the others. Sent as bytes.
struct WorkerInfo {
  std::uint64_t process = 0;  ///< identifies the process: equal for ranks that are threads of one process
  std::int32_t started = 0;   ///< see host::Inheritance
  std::int32_t wanted = 0;    ///< CommOptions::progress_cores
  std::int32_t any_thread = 0;
  std::int32_t reserved = 0;
  host::CpuSet bound;
  host::CpuSet inherited;

  friend bool operator==(const WorkerInfo&, const WorkerInfo&) = default;
};

/// Of the calling process, whose threads are bound to these CPUs. Local.
WorkerInfo worker_info(int wanted, const engine::Transport& transport, const host::CpuSet& bound);

struct Workers {
  std::vector<std::int32_t> cpus;  ///< one entry per worker of this process: its CPU, or -1
  std::int32_t per_node = 0;       ///< workers per node: the minimum over the nodes, equal on all ranks
  std::string reason;              ///< how many on this node, on which CPUs, and why
};

inline constexpr const char* kNoWorkersWanted = "0, as asked for";

/// The decision of the lowest rank of a node. Sent as bytes.
struct WorkerDecision {
  struct Worker {
    std::int16_t local_rank;
    std::int16_t cpu;
  };
  std::int32_t count;
  std::array<Worker, host::kMostWorkers> workers;
  std::array<char, 316> reason;
};

/// How the ranks agree. The constructor allocates all memory that is needed until the decision. So a rank that lacks
/// memory fails before the others wait for its decision.
class WorkerAgreement {
 public:
  explicit WorkerAgreement(const engine::Transport& transport);

  /// What this rank tells the others, from the infos of all ranks. std::nullopt if no rank wants workers: there is
  /// nothing to tell. The lowest rank of each node decides, so that a node reads its topology once; the other ranks
  /// return an empty decision.
  std::optional<WorkerDecision> decide(std::span<const WorkerInfo> infos);
  /// The lowest rank of this node.
  std::size_t decider() const { return neighbours_[0]; }
  /// The workers, from the decisions. Call it after decide(). It calls `told_by` with the lowest rank of each node.
  Workers reach(std::span<const WorkerInfo> infos, const std::function<WorkerDecision(std::size_t rank)>& told_by);

 private:
  const std::vector<std::int32_t>& nodes_;
  const std::size_t rank_;
  std::vector<std::size_t> neighbours_;  ///< the ranks of this node
  std::vector<WorkerInfo> node_;         ///< theirs
  bool is_wanted_ = false;               ///< by a rank
};

}  // namespace penstock::comm
