#include "penstock/machine.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "base/json.hpp"
#include "host/cpu_placement.hpp"
#include "host/process_memory.hpp"
#include "penstock/error.hpp"

namespace penstock {
namespace {

using host::CpuSet;

/// Tests whether a child can read its parent's memory. That is what a rank needs: its neighbour is not its child
/// either.
std::string single_copy() {
  std::uint64_t value = 42;
  const pid_t parent = ::getpid();
  const auto address = reinterpret_cast<std::uint64_t>(&value);
  const pid_t child = ::fork();
  if (child < 0) return "unknown: fork: " + std::generic_category().message(errno);
  if (child == 0) {
    std::uint64_t copy = 0;
    int error = host::read_memory(parent, address, std::as_writable_bytes(std::span(&copy, 1)));
    if (error == 0) error = host::write_memory(parent, address, std::as_bytes(std::span(&copy, 1)));
    ::_exit(error);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return "unknown: waitpid: " + std::generic_category().message(errno);
  if (!WIFEXITED(status)) return "unknown: the process that tried it was killed";
  const int error = WEXITSTATUS(status);
  return error == 0 ? "possible" : "not possible, process_vm_readv: " + std::generic_category().message(error);
}

std::string automatic(const host::Topology& topology, const CpuSet& inherited, int ranks, bool bound) {
  std::map<int, CpuSet> cores;
  for (const host::Cpu& cpu : topology.cpus)
    if (inherited.has(cpu.number)) cores[cpu.core].add(cpu.number);
  std::vector<host::NodeProcess> processes;
  auto core = cores.begin();
  for (int rank = 0; rank < ranks; ++rank) {
    processes.push_back({.bound = inherited, .inherited = inherited});
    if (!bound || cores.empty()) continue;
    processes.back().bound = core->second;
    if (++core == cores.end()) core = cores.begin();
  }
  return host::place_workers(topology, processes, host::kAutomaticWorkers).reason;
}

}  // namespace

std::string describe_machine(int ranks) {
  constexpr int kMostRanks = 1024;
  if (ranks < 1 || ranks > kMostRanks)
    throw Error(ErrorCode::invalid_argument,
                "ranks is " + std::to_string(ranks) + "; expected 1 to " + std::to_string(kMostRanks));
  const host::Topology& topology = host::topology();
  const CpuSet inherited = host::inheritance().cpus;
  std::set<int> cores;
  std::set<int> nodes;
  for (const host::Cpu& cpu : topology.cpus) {
    cores.insert(cpu.core);
    nodes.insert(cpu.node);
  }
  json::Object progress;
  progress.number("ranks", ranks);
  progress.string("not_bound", automatic(topology, inherited, ranks, false));
  progress.string("bound", automatic(topology, inherited, ranks, true));

  json::Object machine;
  machine.string("topology", topology.source);
  machine.number("cores", cores.size());
  machine.string("cpus", topology.all().text());
  machine.number("numa_nodes", nodes.size());
  machine.string("process_cpus", host::cpus_of_process(::getpid()).text());
  machine.string("inherited_cpus", (inherited & topology.all()).text());
  machine.string("single_copy", single_copy());
  machine.raw("progress_cores", progress.finish());
  return machine.finish();
}

}  // namespace penstock
