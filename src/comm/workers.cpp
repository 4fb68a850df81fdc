#include "comm/workers.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <random>
#include <utility>

#include "host/cpu_placement.hpp"

namespace penstock::comm {
namespace {

using host::CpuSet;
using host::NodeProcess;

constexpr const char* kNoThreads = "MPI was initialized without MPI_THREAD_MULTIPLE";

using Decision = WorkerDecision;
static_assert(host::CpuSet::kMaxCpus <= 1 << 15);

/// The processes of a node, each with its lowest local rank; non-members have none.
struct Processes {
  std::vector<host::NodeProcess> all;
  std::vector<std::int16_t> local_rank;
};

Processes processes_of(std::span<const WorkerInfo> node) {
  struct Found {
    std::uint64_t id;  ///< WorkerInfo::process; 0: not a member
    std::int32_t started;
    std::int16_t local_rank;
    host::NodeProcess process;
  };
  std::vector<Found> found;
  for (std::size_t i = 0; i < node.size(); ++i) {
    if (const auto same = std::ranges::find(found, node[i].process, &Found::id); same != found.end()) {
      ++same->process.ranks;
      continue;
    }
    found.push_back({node[i].process,
                     node[i].started,
                     static_cast<std::int16_t>(i),
                     {.bound = node[i].bound, .inherited = node[i].inherited, .ranks = 1, .member = true}});
  }
  for (const pid_t other : host::ranks_started_by(host::launch().launcher)) {
    if (std::ranges::find(found, other, &Found::started) != found.end()) continue;
    found.push_back(
        {0,
         other,
         -1,
         {.bound = host::cpus_of_process(other), .inherited = node[0].inherited, .ranks = 1, .member = false}});
  }
  // The leader first: between nodes, most operations move only where it is polled, and a launcher may have started
  // other ranks before it. The others as they were started, which is equal for all communicators.
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::pair(a.local_rank != 0, a.started) < std::pair(b.local_rank != 0, b.started);
  });
  Processes processes;
  for (Found& each : found) {
    processes.all.push_back(each.process);
    processes.local_rank.push_back(each.local_rank);
  }
  return processes;
}

Decision decide(std::span<const WorkerInfo> node, int ranks) {
  Decision decision{};
  std::vector<int> of_ranks;
  for (const WorkerInfo& info : node) of_ranks.push_back(info.wanted);
  const int wanted = host::agreed_workers(of_ranks);
  const bool any_thread = std::all_of(node.begin(), node.end(), [](const auto& info) { return info.any_thread != 0; });
  std::string reason;
  if (wanted == 0) {
    reason = kNoWorkersWanted;
  } else if (!any_thread && node.size() == 1) {
    reason = std::string("0, since ") + kNoThreads + ": call MPI_Init_thread to have one";
  } else if (wanted == host::kAutomaticWorkers && ranks == 1) {
    reason = "0, since a single rank waits for nobody";
  } else {
    const Processes processes = processes_of(node);
    const host::CpuPlacement placement = host::place_workers(host::topology(), processes.all, wanted);
    for (const host::WorkerPin& pin : placement.pins)
      decision.workers[static_cast<std::size_t>(decision.count++)] = {
          processes.local_rank[static_cast<std::size_t>(pin.process)], static_cast<std::int16_t>(pin.cpu)};
    reason = placement.reason;
    if (decision.count > 0 && !any_thread && static_cast<int>(node.size()) < ranks)
      reason += std::string("; inside a node only, since ") + kNoThreads;
  }
  std::strncpy(decision.reason.data(), reason.c_str(), decision.reason.size() - 1);
  return decision;
}

/// decide(), or what it said of the same node the last time: to list what the launcher has started takes longer than
/// to make the rest of a communicator.
Decision decide_once(const std::vector<WorkerInfo>& node, int ranks) {
  struct Known {
    std::vector<WorkerInfo> node;
    int ranks = 0;
    Decision decision{};
  };
  static std::mutex mutex;
  static Known known;
  const std::lock_guard lock(mutex);
  if (known.ranks == ranks && known.node == node) return known.decision;
  known.ranks = 0;
  known.decision = decide(node, ranks);
  known.node = node;
  known.ranks = ranks;
  return known.decision;
}

}  // namespace

WorkerInfo worker_info(int wanted, const engine::Transport& transport, const host::CpuSet& bound) {
  static const std::uint64_t process = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
  }();
  WorkerInfo info;
  info.process = process;
  info.wanted = wanted;
  info.any_thread = transport.any_thread();
  if (wanted == 0 || (wanted == host::kAutomaticWorkers && transport.size() == 1)) return info;
  const host::Launch launch = host::launch();
  info.started = launch.started;
  info.bound = bound;
  info.inherited = bound | launch.launcher_cpus;
  return info;
}

WorkerAgreement::WorkerAgreement(const engine::Transport& transport)
    : nodes_(transport.node_of_rank()), rank_(static_cast<std::size_t>(transport.rank())) {
  for (std::size_t rank = 0; rank < nodes_.size(); ++rank)
    if (nodes_[rank] == nodes_[rank_]) neighbours_.push_back(rank);
  node_.resize(neighbours_.size());
}

std::optional<WorkerDecision> WorkerAgreement::decide(std::span<const WorkerInfo> infos) {
  is_wanted_ = std::any_of(infos.begin(), infos.end(), [](const WorkerInfo& info) { return info.wanted != 0; });
  if (!is_wanted_) return std::nullopt;
  for (std::size_t i = 0; i < node_.size(); ++i) node_[i] = infos[neighbours_[i]];
  Decision decision{};
  if (neighbours_[0] == rank_) {
    try {
      decision = decide_once(node_, static_cast<int>(nodes_.size()));
    } catch (const std::exception& error) {
      // The other ranks need a decision, and everything works without workers.
      std::snprintf(decision.reason.data(), decision.reason.size(), "0, since looking for cores failed: %s",
                    error.what());
    }
  }
  return decision;
}

Workers WorkerAgreement::reach(std::span<const WorkerInfo> infos,
                               const std::function<WorkerDecision(std::size_t rank)>& told_by) {
  Workers workers;
  workers.reason = kNoWorkersWanted;
  if (!is_wanted_) return workers;
  workers.per_node = host::kMostWorkers;
  std::vector<bool> seen(nodes_.size());
  for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
    const auto number = static_cast<std::size_t>(nodes_[rank]);
    if (seen[number]) continue;
    seen[number] = true;
    workers.per_node = std::min(workers.per_node, told_by(rank).count);
  }
  const Decision ours = told_by(neighbours_[0]);
  for (std::int32_t i = 0; i < ours.count; ++i) {
    const Decision::Worker& worker = ours.workers[static_cast<std::size_t>(i)];
    if (node_[static_cast<std::size_t>(worker.local_rank)].process == infos[rank_].process)
      workers.cpus.push_back(worker.cpu);
  }
  workers.reason = ours.reason.data();
  if (ours.count > 0)
    workers.reason.append("; ").append(std::to_string(workers.cpus.size())).append(" of them in this process");
  return workers;
}

}  // namespace penstock::comm
