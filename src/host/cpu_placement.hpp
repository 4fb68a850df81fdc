// Decides on which cores of a node the progress threads (workers) of its processes run.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "host/topology.hpp"

namespace penstock::host {

inline constexpr int kAutomaticWorkers = -1;
inline constexpr int kMostWorkers = 128;  ///< of one node

/// A process of the job on this node.
struct NodeProcess {
  CpuSet bound;        ///< where its threads may run; empty: unknown, treated as `inherited`
  CpuSet inherited;    ///< what the launcher gave to the job on this node, a superset of `bound`; empty: unknown
  int ranks = 1;       ///< ranks of the communicator in it; more than one if threads are ranks
  bool member = true;  ///< whether it belongs to the communicator; others keep their cores and get no workers
};

/// A worker: its process and its CPU.
struct WorkerPin {
  int process = 0;                    ///< index into the given processes
  int cpu = kAnyCpu;                  ///< the CPU that it is pinned to
  static constexpr int kAnyCpu = -1;  ///< not pinned: it may run where its process may

  friend bool operator==(const WorkerPin&, const WorkerPin&) = default;
};

/// The workers of a node.
struct CpuPlacement {
  std::vector<WorkerPin> pins;
  std::string reason;  ///< one sentence for report()
};

/// Pure. A core is *free* if a process may use it and no process is bound to it. Free cores are dealt out to the
/// processes, members or not, one at a time, nearest first. If processes share a set of cores that has more cores than
/// they have ranks, the surplus cores are *loose*. The kernel's scheduler chooses them anew all the time, so workers
/// there are not pinned.
///
/// `wanted` == kAutomaticWorkers: each member gets at most one worker per rank, on its free and then its loose cores.
/// `wanted` > 0: that many workers on free cores, then loose ones, then hardware threads that no process is bound to,
/// then the ranks' own cores, unpinned. At most one per CPU, or one per rank if there are more ranks.
///
/// The first process is the leader of its node: its worker moves what goes between nodes. All communicators of the node
/// must pass the others in the same order, so that workers of different communicators get different cores, as far as
/// these have the same leader. At least one process is a member.
CpuPlacement place_workers(const Topology& topology, std::span<const NodeProcess> processes, int wanted);

/// The cores that a process has for threads beside its main one, such as those that load data.
struct SpareCores {
  int count = 1;  ///< of its cores that it may use at once, at least 1
  CpuSet cpus;    ///< where these threads may run
};

/// Pure. For the process `own`. A process that is bound to one core has the free cores that are dealt out to it, or its
/// own if there are none. One that may run on several has these, without the cores to which other processes are bound
/// alone; processes that may run on the same ones divide them. Cores of `taken`, where progress threads are, are left
/// out. The processes divide `quota`, in CPUs; 0: none.
SpareCores spare_cores(const Topology& topology, std::span<const NodeProcess> processes, std::size_t own,
                       const CpuSet& taken, double quota);

/// The number of workers of a node whose ranks ask for different numbers: 0 if one rank asks for 0; else the smallest
/// number that a rank asks for; kAutomaticWorkers if no rank asks for a number.
int agreed_workers(std::span<const int> wanted);

}  // namespace penstock::host
