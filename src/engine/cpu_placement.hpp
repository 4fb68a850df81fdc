// On which cores of a node the progress threads (workers) of its processes run.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/topology.hpp"

namespace penstock::engine {

inline constexpr int kAutomaticWorkers = -1;
inline constexpr int kMostWorkers = 128;  ///< of one node

struct NodeProcess {
  CpuSet bound;        ///< where its threads may run; empty: unknown, which counts as all of `inherited`
  CpuSet inherited;    ///< what the launcher gave to the job here; holds `bound`. Empty: unknown, counts as `bound`
  int ranks = 1;       ///< of the communicator; more than one where threads are ranks
  bool member = true;  ///< of the communicator; others keep their cores, and get no worker
};

struct WorkerPin {
  int process = 0;                    ///< whose thread it is, an index into the given processes
  int cpu = kAnyCpu;                  ///< where it runs, alone
  static constexpr int kAnyCpu = -1;  ///< wherever its process may run

  friend bool operator==(const WorkerPin&, const WorkerPin&) = default;
};

struct CpuPlacement {
  std::vector<WorkerPin> pins;
  std::string reason;  ///< one sentence for report()
};

/// Pure. A core is free where some process may use it and none is bound to it. Free cores are dealt out to the
/// processes, members or not, one after the other, nearest first. Cores that processes share are loose where they
/// are more than the ranks: the kernel's scheduler finds them, so workers there are not pinned.
///
/// kAutomaticWorkers: each member has as many workers as it has ranks, at most, on its free and then its loose cores.
/// More than 0: that many, on free cores, then loose ones, then hardware threads that nobody is bound to, then on the
/// cores of the ranks, of which the last are not pinned; at most one per CPU, or per rank where these are more.
///
/// `processes` come in an order that all communicators of the node agree on (members of several have their own cores
/// then), and one of them at least is a member.
CpuPlacement place_workers(const Topology& topology, std::span<const NodeProcess> processes, int wanted);

/// What a node does whose ranks wish for different numbers: none if one wants none, else the smallest number.
int agreed_wish(std::span<const int> wishes);

}  // namespace penstock::engine
