// A description of this machine as Penstock sees it. `penstock info` prints it.
#pragma once

#include <string>

#include "penstock/export.hpp"

namespace penstock {

/// Local, any thread. Takes milliseconds: it forks once to test whether processes can read each other's memory.
/// Returns one JSON object:
///   topology         the source of the topology: "hwloc, API 2.8" or "/sys"
///   cores, cpus      the number of cores, and the CPUs (hardware threads) as "0-3,8", that this process could use
///   numa_nodes       the number of NUMA nodes of these CPUs
///   process_cpus     the CPUs on which the threads of this process may run now
///   inherited_cpus   the CPUs that the launcher gave to the job on this node; without a launcher process_cpus
///   single_copy      "possible", or why ranks cannot copy from each other's memory
///   progress_cores   what progress_cores="auto" would do for `ranks` ranks on inherited_cpus:
///     ranks, not_bound, bound    the number, and one sentence each for unbound ranks and for ranks bound to a core
/// Throws Error(invalid_argument) unless 1 <= ranks <= 1024.
PENSTOCK_API std::string describe_machine(int ranks);

}  // namespace penstock
