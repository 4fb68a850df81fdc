// Which CPUs share a core, a cache and memory.
#pragma once

#include <string>
#include <vector>

#include "engine/cpu_set.hpp"

namespace penstock::engine {

struct Cpu {
  int number = 0;
  int core = 0;   ///< the same for hardware threads of one core
  int cache = 0;  ///< the same for cores behind one last-level cache
  int node = 0;   ///< of memory (NUMA), an index into Topology::node_distances
};

struct Topology {
  std::vector<Cpu> cpus;                         ///< that this process could use, by increasing number; never empty
  std::vector<std::vector<int>> node_distances;  ///< as the firmware tells them: 10 is near; may be empty
  std::string source;                            ///< where this was read, for reports

  CpuSet all() const;
  /// 0 within a core, 1 within a node of memory behind the same cache, 2 within a node; above that the node's distance.
  int distance(const Cpu& a, const Cpu& b) const;
};

/// A number for the memory (NUMA) and last-level cache that all of `bound` share; -1 where they do not, or there is
/// none.
int domain_of(const Topology& topology, const CpuSet& bound);

/// Read at the first call: tens of milliseconds on a large machine.
const Topology& topology();

/// By hwloc; where Penstock is built without it, or it fails, from /sys.
Topology read_topology();
/// The CPUs of `allowed` that are online, from files below `root` as Linux has them in /sys/devices/system. What is
/// missing there counts as one core per CPU, one cache and one node.
Topology read_topology_from_sys(const std::string& root, const CpuSet& allowed);

}  // namespace penstock::engine
