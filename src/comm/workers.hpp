// How the ranks of a communicator agree on its progress threads (workers): how many of a node, in which processes,
// where.
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

/// What a rank tells the others; sent as it is.
struct WorkerInfo {
  std::uint64_t process = 0;  ///< the same for ranks that are threads of one process, else different
  std::int32_t started = 0;   ///< see engine::Inheritance
  std::int32_t wanted = 0;    ///< CommOptions::progress_cores
  std::int32_t any_thread = 0;
  std::int32_t reserved = 0;
  engine::CpuSet bound;
  engine::CpuSet inherited;
};

/// Of the calling process. Local.
WorkerInfo worker_info(int wanted, const engine::Transport& transport);

struct Workers {
  std::vector<std::int32_t> cpus;  ///< one entry per worker of this process: its CPU, or -1
  std::int32_t per_node = 0;       ///< the fewest of any node; the same on all ranks
  std::string reason;              ///< how many on this node, where, and why
};

/// What the lowest rank of a node tells the others; sent as it is.
struct WorkerDecision {
  struct Worker {
    std::int16_t local_rank;
    std::int16_t cpu;
  };
  std::int32_t count;
  std::array<Worker, engine::kMostWorkers> workers;
  std::array<char, 316> reason;
};

/// How the ranks agree. Local until reach(), and all memory that it needs: a rank that lacks some can still tell the
/// others, who would wait for it.
class WorkerAgreement {
 public:
  explicit WorkerAgreement(const engine::Transport& transport);
  /// Collective, once: `infos` of all ranks. The lowest rank of each node decides, so that a node reads its topology
  /// once.
  Workers reach(engine::Transport& transport, std::span<const WorkerInfo> infos);

 private:
  std::vector<std::size_t> neighbours_;  ///< the ranks of this node
  std::vector<WorkerInfo> node_;         ///< theirs
  std::vector<WorkerDecision> decisions_;
  std::vector<bool> seen_;  ///< by node
  Workers mine_;
};

}  // namespace penstock::comm
