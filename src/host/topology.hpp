// The topology of this machine: which CPUs share a core, a cache and a NUMA node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/cpu_set.hpp"

namespace penstock::host {

struct Cpu {
  int number = 0;
  int core = 0;   ///< equal for hardware threads of one core
  int cache = 0;  ///< equal for cores that share a last-level cache
  int node = 0;   ///< NUMA node, an index into Topology::node_distances
};

struct Topology {
  std::vector<Cpu> cpus;                         ///< that this process could use, by ascending number; never empty
  std::vector<std::vector<int>> node_distances;  ///< ACPI SLIT: 10 is local; may be empty
  std::string source;                            ///< of the topology, for reports

  CpuSet all() const;
  /// 0 within a core, 1 within a last-level cache, 2 within a NUMA node, otherwise the distance of the nodes.
  int distance(const Cpu& a, const Cpu& b) const;
};

/// The number of the NUMA node and last-level cache that all CPUs of `bound` share; -1 if they do not share one. From
/// files below `root` in the format of /sys/devices/system, of one CPU alone: the whole topology takes milliseconds to
/// read. What is missing is shared by all CPUs.
int domain_of(const std::string& root, const CpuSet& bound);

/// In bytes. What is unknown stays as it is here.
struct CacheSizes {
  std::uint64_t core = std::uint64_t{2} << 20;   ///< of the second level
  std::uint64_t last = std::uint64_t{32} << 20;  ///< of the last level
};
/// Of the first of these CPUs, from files below `root` as domain_of(). For the last level of a virtual machine
/// sysconf() gives that of its host.
CacheSizes cache_sizes(const std::string& root, const CpuSet& cpus);
/// Of this process's CPUs at the first call, which takes some 100 us.
const CacheSizes& cache_sizes();

/// The first call reads it, from /sys where that is complete, otherwise as read_topology(). Takes milliseconds on a
/// large machine.
const Topology& topology();

/// Reads it by hwloc; from /sys if Penstock is built without hwloc, or hwloc fails.
Topology read_topology();
/// The online CPUs of `allowed`, from files below `root` in the format of /sys/devices/system. If files are missing,
/// each CPU is a core, and all CPUs share a cache and a NUMA node.
Topology read_topology_from_sys(const std::string& root, const CpuSet& allowed);

}  // namespace penstock::host
