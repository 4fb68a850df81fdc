// How the ranks of a communicator agree on its progress threads (workers): how many of a node, in which processes,
// where.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/cpu_set.hpp"
#include "engine/transport.hpp"

namespace penstock::comm {

/// What a rank tells the others; sent as it is.
struct WorkerCard {
  std::uint64_t process = 0;  ///< the same for ranks that are threads of one process, else different
  std::int32_t started = 0;   ///< see engine::Inheritance
  std::int32_t wanted = 0;    ///< CommOptions::progress_cores
  std::int32_t any_thread = 0;
  std::int32_t reserved = 0;
  engine::CpuSet bound;
  engine::CpuSet inherited;
};

/// Of the calling process. Local.
WorkerCard worker_card(int wanted, const engine::Transport& transport);

struct Workers {
  std::vector<std::int32_t> cpus;  ///< one entry per worker of this process: its CPU, or -1
  std::int32_t per_node = 0;       ///< the fewest of any node; the same on all ranks
  std::string reason;              ///< how many on this node, where, and why
};

/// Collective: `cards` of all ranks. The lowest rank of each node decides, so that a node reads its topology once.
Workers agree_on_workers(engine::Transport& transport, std::span<const WorkerCard> cards);

}  // namespace penstock::comm
