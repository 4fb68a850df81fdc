// The ranks of a communicator agree on its progress threads (workers): their number per node, processes and CPUs.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/cpu_placement.hpp"
#include "engine/cpu_set.hpp"
#include "engine/transport.hpp"

namespace penstock::comm {

/// What a rank tells the others. Sent as bytes.
struct WorkerInfo {
  std::uint64_t process = 0;  ///< identifies the process: equal for ranks that are threads of one process
  std::int32_t started = 0;   ///< see engine::Inheritance
  std::int32_t wanted = 0;    ///< CommOptions::progress_cores
  std::int32_t any_thread = 0;
  std::int32_t reserved = 0;
  engine::CpuSet bound;
  engine::CpuSet inherited;
};

/// The information about the calling process. Local.
WorkerInfo worker_info(int wanted, const engine::Transport& transport);

struct Workers {
  std::vector<std::int32_t> cpus;  ///< one entry per worker of this process: its CPU, or -1
  std::int32_t per_node = 0;       ///< workers per node: the minimum over the nodes, equal on all ranks
  std::string reason;              ///< how many on this node, on which CPUs, and why
};

/// The decision of the lowest rank of a node. Sent as bytes.
struct WorkerDecision {
  struct Worker {
    std::int16_t local_rank;
    std::int16_t cpu;
  };
  std::int32_t count;
  std::array<Worker, engine::kMostWorkers> workers;
  std::array<char, 316> reason;
};

/// The agreement. The constructor is local and allocates all memory that reach() needs: if that fails, the rank can
/// still tell the others, which would otherwise wait for it.
class WorkerAgreement {
 public:
  explicit WorkerAgreement(const engine::Transport& transport);
  /// Collective, called once. `infos` has one entry per rank. The lowest rank of each node decides, so that only one
  /// process of a node reads the topology.
  Workers reach(engine::Transport& transport, std::span<const WorkerInfo> infos);

 private:
  std::vector<std::size_t> neighbours_;  ///< the ranks of this node
  std::vector<WorkerInfo> node_;         ///< their infos
  std::vector<WorkerDecision> decisions_;
  std::vector<bool> seen_;  ///< by node
  Workers mine_;
};

}  // namespace penstock::comm
