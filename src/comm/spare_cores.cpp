#include "comm/spare_cores.hpp"

#include <unistd.h>

#include <vector>

#include "engine/progress.hpp"
#include "host/cpu_set.hpp"
#include "host/topology.hpp"

namespace penstock::comm {

host::SpareCores spare_cores() {
  const host::Inheritance found = host::inheritance();
  std::vector<pid_t> started = host::ranks_started_by(found.launcher);
  std::size_t own = 0;
  while (own < started.size() && started[own] != found.started) ++own;
  if (own == started.size()) started.push_back(found.started);
  std::vector<host::NodeProcess> processes;
  host::CpuSet taken;
  for (std::size_t i = 0; i < started.size(); ++i) {
    // A script that the launcher started may run on other CPUs than the rank that it has started.
    const pid_t process = i == own ? ::getpid() : started[i];
    processes.push_back({.bound = host::cpus_of_process(process), .inherited = found.cpus, .ranks = 1, .member = true});
    taken |= host::pinned_workers_of_process(process);
  }
  for (const std::int32_t cpu : engine::Progress::of_process().claimed_cpus()) taken.add(cpu);
  return host::spare_cores(host::topology(), processes, own, taken, host::cpu_quota());
}

void confine(pthread_t thread, const host::SpareCores& cores) { host::bind_thread(thread, cores.cpus); }

}  // namespace penstock::comm
