#include "comm/spare_cores.hpp"

#include <unistd.h>

#include <vector>

#include "engine/cpu_set.hpp"
#include "engine/progress.hpp"
#include "engine/topology.hpp"

namespace penstock::comm {

engine::SpareCores spare_cores() {
  const engine::Inheritance found = engine::inheritance();
  std::vector<pid_t> started = engine::ranks_started_by(found.launcher);
  std::size_t own = 0;
  while (own < started.size() && started[own] != found.started) ++own;
  if (own == started.size()) started.push_back(found.started);
  std::vector<engine::NodeProcess> processes;
  engine::CpuSet taken;
  for (std::size_t i = 0; i < started.size(); ++i) {
    // A script that the launcher started may run on other CPUs than the rank that it has started.
    const pid_t process = i == own ? ::getpid() : started[i];
    processes.push_back(
        {.bound = engine::cpus_of_process(process), .inherited = found.cpus, .ranks = 1, .member = true});
    taken |= engine::pinned_workers_of_process(process);
  }
  for (const std::int32_t cpu : engine::Progress::of_process().claimed_cpus()) taken.add(cpu);
  return engine::spare_cores(engine::topology(), processes, own, taken, engine::cpu_quota());
}

void confine(pthread_t thread, const engine::SpareCores& cores) { engine::bind_thread(thread, cores.cpus); }

}  // namespace penstock::comm
