#include "host/cpu_placement.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

namespace penstock::host {
namespace {

std::string counted(std::size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

class Placer {
 public:
  using Share = std::vector<int>;  ///< CPUs for the workers of one process, the best first

  Placer(const Topology& topology, std::span<const NodeProcess> processes)
      : topology_(topology), processes_(processes.begin(), processes.end()) {
    for (NodeProcess& process : processes_) complete(process);
    for (const NodeProcess& process : processes_) {
      usable_ |= process.inherited;
      bound_ |= process.bound;
      ranks_ += static_cast<std::size_t>(process.ranks);
    }
    for (const Cpu& cpu : topology_.cpus)
      if (usable_.has(cpu.number)) cores_[cpu.core].push_back(&cpu);
  }

  std::vector<Share> deal_free() const { return deal(first_cpus_of_free_cores()); }

  SpareCores spare(std::size_t own, const CpuSet& taken, double quota) const {
    CpuSet left = bound_to_one_core(processes_[own]) ? free_cpus_of(own) : processes_[own].bound;
    for (std::size_t p = 0; p < processes_.size(); ++p)
      if (p != own && bound_to_one_core(processes_[p])) remove_cores(left, processes_[p].bound);
    remove_cores(left, taken);
    if (left.empty()) left = processes_[own].bound;
    int sharers = 0;
    for (std::size_t p = 0; p < processes_.size(); ++p)
      sharers += p == own || (!bound_to_one_core(processes_[p]) && !(processes_[p].bound & left).empty()) ? 1 : 0;
    int count = cores_in(left) / sharers;
    if (quota > 0) count = std::min(count, static_cast<int>(quota / static_cast<double>(processes_.size())));
    return {std::max(count, 1), left};
  }

  CpuPlacement place(int wanted) {
    const std::vector<Share> free = deal_free();
    const std::vector<Share> loose = loose_cores();
    if (wanted == kAutomaticWorkers) {
      for (std::size_t p = 0; p < processes_.size(); ++p) {
        if (!processes_[p].member) continue;
        Share share = free[p];
        share.insert(share.end(), loose[p].begin(), loose[p].end());
        if (share.size() > static_cast<std::size_t>(processes_[p].ranks))
          share.resize(static_cast<std::size_t>(processes_[p].ranks));
        for (const int cpu : share) pins_.push_back({static_cast<int>(p), cpu});
      }
      return {pins_, automatic_reason()};
    }
    int members = 0;
    for (const NodeProcess& process : processes_) members += process.member ? process.ranks : 0;
    const int most = std::min(kMostWorkers, std::max(usable_.count(), members));
    const auto count = static_cast<std::size_t>(std::min(wanted, most));
    pin(free, count);
    pin(loose, count);
    std::vector<std::string> parts = where();
    const std::size_t unshared = pins_.size();
    pin(deal(idle_hardware_threads()), count);
    if (pins_.size() > unshared)
      parts.push_back(std::to_string(pins_.size() - unshared) + " on idle hardware threads of the ranks' cores");
    const std::size_t alone = pins_.size();
    pin(std::vector<Share>(processes_.size(), Share(count, WorkerPin::kAnyCpu)), count);
    if (pins_.size() > alone) parts.push_back(std::to_string(pins_.size() - alone) + " on cores of the ranks");
    std::string why = ", as asked for";
    if (wanted > most)
      why = ", since " + std::to_string(wanted) + " were asked for, more than the " +
            (most == kMostWorkers      ? std::to_string(most) + " that a node may have"
             : most == usable_.count() ? counted(static_cast<std::size_t>(most), "CPU") + " of the job here"
                                       : counted(static_cast<std::size_t>(most), "rank") + " here");
    return {pins_, std::to_string(count) + why + ": " + joined(parts) + unknown()};
  }

 private:
  int cores_in(const CpuSet& cpus) const {
    return static_cast<int>(std::ranges::count_if(cores_, [&](const auto& core) { return meet(cpus, core.second); }));
  }

  static bool meet(const CpuSet& cpus, const std::vector<const Cpu*>& core) {
    return std::ranges::any_of(core, [&](const Cpu* cpu) { return cpus.has(cpu->number); });
  }

  bool bound_to_one_core(const NodeProcess& process) const { return cores_in(process.bound) == 1 && cores_.size() > 1; }

  CpuSet free_cpus_of(std::size_t process) const {
    CpuSet first;
    const std::vector<Share> shares = deal_free();
    for (const int cpu : shares[process]) first.add(cpu);
    return cores_that_meet(first, true);
  }

  /// The CPUs of all cores that have CPUs of `cpus`, or of all that have none.
  CpuSet cores_that_meet(const CpuSet& cpus, bool do_meet) const {
    CpuSet found;
    for (const auto& [number, core] : cores_)
      if (meet(cpus, core) == do_meet)
        for (const Cpu* cpu : core) found.add(cpu->number);
    return found;
  }

  /// All hardware threads of each core that `other` has a part of.
  void remove_cores(CpuSet& cpus, const CpuSet& other) const { cpus &= cores_that_meet(other, false); }

  void complete(NodeProcess& process) {
    const CpuSet all = topology_.all();
    process.inherited |= process.bound;
    process.inherited &= all;
    process.bound &= all;
    if (process.bound.empty()) ++unknown_;
    if (process.inherited.empty()) process.inherited = all;
    if (process.bound.empty()) process.bound = process.inherited;
  }

  std::vector<const Cpu*> first_cpus_of_free_cores() const {
    std::vector<const Cpu*> found;
    for (const auto& [number, core] : cores_)
      if (!meet(bound_, core)) found.push_back(core.front());
    return found;
  }

  std::vector<const Cpu*> idle_hardware_threads() const {
    std::vector<const Cpu*> found;
    for (const auto& [number, core] : cores_)
      for (const Cpu* cpu : core)
        if (meet(bound_, core) && !bound_.has(cpu->number)) found.push_back(cpu);
    return found;
  }

  /// Deals out CPUs one at a time, to a process with the fewest; of these, the first process goes first, then the
  /// nearest pair of process and CPU.
  std::vector<Share> deal(std::vector<const Cpu*> left) const {
    std::vector<Share> shares(processes_.size());
    const std::vector<std::vector<int>> distances = distances_to(left);
    std::vector<bool> taken(left.size(), false);
    for (std::size_t round = 0; round < left.size(); ++round) {
      // The first process is the leader of its node, so it goes first at any distance.
      std::tuple best{std::numeric_limits<std::size_t>::max(), true, 0, std::size_t{0}, std::size_t{0}};
      for (std::size_t p = 0; p < processes_.size(); ++p)
        for (std::size_t c = 0; c < left.size(); ++c)
          if (!taken[c] && processes_[p].inherited.has(left[c]->number))
            best = std::min(best, std::tuple{shares[p].size(), p != 0, distances[p][c], p, c});
      const auto [size, other, distance, process, cpu] = best;
      if (size == std::numeric_limits<std::size_t>::max()) break;
      taken[cpu] = true;
      shares[process].push_back(left[cpu]->number);
    }
    return shares;
  }

  std::vector<std::vector<int>> distances_to(const std::vector<const Cpu*>& cpus) const {
    std::vector<std::vector<int>> distances(processes_.size(), std::vector<int>(cpus.size()));
    for (std::size_t p = 0; p < processes_.size(); ++p)
      for (std::size_t c = 0; c < cpus.size(); ++c) {
        int nearest = std::numeric_limits<int>::max();
        for (const Cpu& own : topology_.cpus)
          if (processes_[p].bound.has(own.number)) nearest = std::min(nearest, topology_.distance(own, *cpus[c]));
        distances[p][c] = nearest;
      }
    return distances;
  }

  /// Processes whose cores overlap form a group. The cores that a group has beyond its ranks are dealt out in turn.
  std::vector<Share> loose_cores() {
    std::vector<std::size_t> group(processes_.size());
    std::iota(group.begin(), group.end(), std::size_t{0});
    for (const auto& [core, cpus] : cores_) {
      std::optional<std::size_t> joined;
      for (std::size_t p = 0; p < processes_.size(); ++p) {
        if (!meet(processes_[p].bound, cpus)) continue;
        const std::size_t own = group[p];
        if (joined) std::replace(group.begin(), group.end(), own, *joined);
        if (!joined) joined = own;
      }
    }
    std::vector<Share> shares(processes_.size());
    for (std::size_t g = 0; g < processes_.size(); ++g) {
      std::vector<std::size_t> members;
      std::size_t ranks = 0;
      for (std::size_t p = 0; p < processes_.size(); ++p)
        if (group[p] == g) {
          members.push_back(p);
          ranks += static_cast<std::size_t>(processes_[p].ranks);
        }
      std::size_t cores = 0;
      for (const auto& core : cores_)
        cores += std::ranges::any_of(members, [&](std::size_t p) { return meet(processes_[p].bound, core.second); });
      if (cores <= ranks || members.empty()) continue;
      loose_count_ += cores - ranks;
      for (std::size_t i = 0; i < cores - ranks; ++i) shares[members[i % members.size()]].push_back(WorkerPin::kAnyCpu);
    }
    return shares;
  }

  /// Pins workers of the members to their shares until there are `count`, always of a process with the fewest.
  void pin(const std::vector<Share>& shares, std::size_t count) {
    std::vector<std::size_t> used(processes_.size(), 0);
    while (pins_.size() < count) {
      std::tuple best{std::numeric_limits<std::size_t>::max(), std::size_t{0}};
      for (std::size_t p = 0; p < processes_.size(); ++p)
        if (processes_[p].member && used[p] < shares[p].size()) best = std::min(best, std::tuple{pins_of(p), p});
      const auto [pins, process] = best;
      if (pins == std::numeric_limits<std::size_t>::max()) return;
      pins_.push_back({static_cast<int>(process), shares[process][used[process]++]});
    }
  }

  std::size_t pins_of(std::size_t process) const {
    return static_cast<std::size_t>(std::count_if(
        pins_.begin(), pins_.end(), [&](const WorkerPin& pin) { return pin.process == static_cast<int>(process); }));
  }

  std::string facts() const {
    return counted(ranks_, "rank") + " on " + counted(cores_.size(), "usable core") + " of this node";
  }

  std::string automatic_reason() const {
    if (pins_.empty()) return "0, since no core is free: " + facts() + unknown();
    return std::to_string(pins_.size()) + ", for " + facts() + ": " + joined(where()) + unknown();
  }

  /// Describes the workers so far, which are on free and on loose cores.
  std::vector<std::string> where() const {
    CpuSet pinned;
    for (const WorkerPin& pin : pins_) pinned.add(pin.cpu);
    const std::size_t floating = pins_.size() - static_cast<std::size_t>(pinned.count());
    std::vector<std::string> parts;
    if (!pinned.empty())
      parts.push_back(std::to_string(pinned.count()) + " on CPU " + pinned.text() + ", to which no rank is bound");
    if (floating > 0)
      parts.push_back(std::to_string(floating) +
                      " not pinned, since the ranks are not bound to single cores and leave " +
                      std::to_string(loose_count_) + " free");
    return parts;
  }

  static std::string joined(const std::vector<std::string>& parts) {
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
    return text;
  }

  std::string unknown() const {
    if (unknown_ == 0) return {};
    return "; the CPU set of " + counted(unknown_, "process") + " could not be read and counts as all that is known";
  }

  const Topology& topology_;
  std::vector<NodeProcess> processes_;
  std::map<int, std::vector<const Cpu*>> cores_;  ///< usable CPUs by core
  CpuSet usable_;
  CpuSet bound_;
  std::size_t ranks_ = 0;
  std::size_t loose_count_ = 0;
  std::size_t unknown_ = 0;
  std::vector<WorkerPin> pins_;
};

}  // namespace

CpuPlacement place_workers(const Topology& topology, std::span<const NodeProcess> processes, int wanted) {
  if (wanted == 0) return {{}, "0, as asked for"};
  return Placer(topology, processes).place(wanted);
}

SpareCores spare_cores(const Topology& topology, std::span<const NodeProcess> processes, std::size_t own,
                       const CpuSet& taken, double quota) {
  return Placer(topology, processes).spare(own, taken, quota);
}

int agreed_workers(std::span<const int> wanted) {
  int agreed = kAutomaticWorkers;
  for (const int count : wanted) {
    if (count == 0) return 0;
    if (count > 0) agreed = agreed == kAutomaticWorkers ? count : std::min(agreed, count);
  }
  return agreed;
}

}  // namespace penstock::host
