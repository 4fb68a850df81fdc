// What Penstock finds on the machine that it runs on, for people: `penstock info` prints it.
#pragma once

#include <string>

#include "penstock/export.hpp"

namespace penstock {

/// Local; takes milliseconds, and forks once to try whether processes may read each other's memory. Any thread.
/// One JSON object:
///   topology         where the following was read: "hwloc, API 2.8" or "/sys"
///   cores, cpus      that this process could use: the number of cores, and the CPUs (hardware threads) as "0-3,8"
///   numa_nodes       number of them that these cpus belong to
///   process_cpus     where the threads of this process may run now
///   inherited_cpus   what the launcher gave to the job on this node; without a launcher process_cpus
///   single_copy      "possible", or why ranks cannot copy from each other's memory
///   progress_cores   what progress_cores="auto" would do for `ranks` ranks on inherited_cpus:
///     ranks, not_bound, bound    the number; a sentence each for ranks that may run anywhere, and on one core each
/// Throws Error(invalid_argument) unless 1 <= ranks <= 1024.
PENSTOCK_API std::string describe_machine(int ranks);

}  // namespace penstock
