// Measures what communication costs between and inside the nodes of a communicator (Machine), by plans of a few
// messages that its engine runs. So the costs are those that plans see, the engine's own included.
#include "measurement/machine.hpp"

#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/parts/arguments.hpp"
#include "cost_model/machine_parameters.hpp"
#include "host/topology.hpp"
#include "kernels/arithmetic.hpp"
#include "measurement/kept_machine.hpp"
#include "measurement/operations.hpp"
#include "measurement/trials.hpp"
#include "penstock/collective.hpp"
#include "penstock/options.hpp"

namespace penstock::measurement {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSharedCoreSeconds = 0.016;  // of processor time of each rank
constexpr double kMostFactor = 9;             // what a file can hold

using cost_model::kMachineCounts;
using cost_model::kMachineTimes;

/// What is broadcast.
struct Told {
  std::uint64_t is_known = 0;  ///< nothing is to be measured
  std::array<double, kMachineTimes.size()> seconds{};
  std::array<std::uint64_t, kMachineCounts.size() + 1> counts{};  ///< the last one: cores
};

Told told(Machine machine) {
  Told all;
  for (std::size_t i = 0; i < kMachineTimes.size(); ++i) all.seconds[i] = *kMachineTimes[i].of(machine);
  for (std::size_t i = 0; i < kMachineCounts.size(); ++i) all.counts[i] = *kMachineCounts[i].of(machine);
  all.counts.back() = static_cast<std::uint64_t>(machine.node.cores);
  return all;
}

Machine machine_of(const Told& all) {
  Machine machine;
  for (std::size_t i = 0; i < kMachineTimes.size(); ++i) *kMachineTimes[i].of(machine) = all.seconds[i];
  for (std::size_t i = 0; i < kMachineCounts.size(); ++i) *kMachineCounts[i].of(machine) = all.counts[i];
  machine.node.cores = static_cast<int>(all.counts.back());
  return machine;
}

double seconds_of(const std::function<void()>& work, int count) {
  double least = std::numeric_limits<double>::max();
  const auto all = [&] {
    for (int i = 0; i < count; ++i) work();
  };
  for (int repeat = 0; repeat < kRepeats; ++repeat) least = std::min(least, seconds_once(all) / count);
  return least;
}

/// What one core does alone.
void on_a_core(Machine::Node& node) {
  node.cache_bytes = host::cache_sizes().core;
  std::set<int> cores;
  for (const host::Cpu& cpu : host::topology().cpus) cores.insert(cpu.core);
  node.cores = std::max(1, static_cast<int>(cores.size()));
  const auto far = static_cast<std::size_t>(std::max<std::uint64_t>(node.cache_bytes * 8, 16 * kMiB));
  std::vector<std::byte> from(far, std::byte{1});
  std::vector<std::byte> to(far, std::byte{2});
  const std::size_t near = kMiB / 16;
  const Arithmetic arithmetic{.dtype = DType::float32};
  const double combine =
      seconds_of([&] { kernels::reduce(arithmetic, ConstBytes(from).first(near), Bytes(to).first(near)); }, 100);
  const double near_copy = seconds_of([&] { std::memcpy(to.data(), from.data(), near); }, 100);
  const double far_copy = seconds_of([&] { std::memcpy(to.data(), from.data(), far); }, 1);
  node.combine_seconds_per_byte = combine / static_cast<double>(near);
  const double per_byte = near_copy / static_cast<double>(near);
  node.copy_seconds_per_byte = per_byte;
  iovec one_byte{from.data(), 1};
  iovec into{to.data(), 1};
  node.remote_read_seconds =
      seconds_of([&] { static_cast<void>(::process_vm_readv(::getpid(), &into, 1, &one_byte, 1, 0)); }, 100);
  node.uncached_factor = std::clamp(far_copy / static_cast<double>(far) / per_byte, 1.0, kMostFactor);
}

/// What a shared task costs besides its reads: the difference to messages of a broadcast to this node's ranks.
double task_seconds(Operations& operations, const Team& team, const Machine::Node& node) {
  const std::array<std::string, 2> rows = {"hierarchical", "node_shared"};
  std::array<double, 2> least{};
  least.fill(std::numeric_limits<double>::max());
  std::array<std::byte, kShort> data{};
  for (int repeat = 0; repeat < kShortRepeats; ++repeat)
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Collective collective{.kind = CollectiveKind::bcast, .count = kShort, .algorithm = rows[i]};
      operations.meet(team);
      least[i] = std::min(least[i], seconds_once([&] {
                            operations.run(plan_collective(team, collective), {}, data);
                            operations.meet(team);
                          }));
    }
  return std::max(least[1] - least[0] + node.flag_seconds - node.remote_read_seconds, node.task_seconds);
}

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// How many ranks take turns on a core, on one node or, if nodes are emulated on one machine, on several: the time
/// until all have worked for the same processor time, by that time. All ranks call it; rank 0's result counts.
double ranks_per_core(Operations& operations, const Team& team) {
  const std::vector<std::byte> from(kMiB / 16, std::byte{1});
  std::vector<std::byte> to(kMiB / 16, std::byte{2});
  const Arithmetic arithmetic{.dtype = DType::float32};
  double own = std::numeric_limits<double>::max();
  double all = own;
  operations.meet(team);
  for (int repeat = 0; repeat < kRepeats; ++repeat)
    all = std::min(all, seconds_once([&] {
                     const double begin = processor_seconds();
                     double used = 0;
                     for (; used < kSharedCoreSeconds; used = processor_seconds() - begin)
                       kernels::reduce(arithmetic, ConstBytes(from), Bytes(to));
                     own = std::min(own, used);
                     operations.meet(team);
                   }));
  return all / own;
}

/// Whether rank 0 has seen in this process that ranks share cores: later communicators ask no more.
std::atomic<bool> saw_shared_cores{false};

Measurement measured(engine::Engine& engine, const Team& team, const std::string& mpi, Purpose purpose) {
  Operations operations(engine);
  const Parties parties = parties_of(team);
  const std::vector<Trial> trials = trials_of(parties);
  int runs = 0;
  for (const Trial& trial : trials) runs += trial.repeats();
  const bool has_tasks = parties.beside >= 0 && collectives::shared_nodes(team, {.kind = CollectiveKind::bcast});
  if (has_tasks) runs += kShortRepeats * 2 * 3;  // of two rows: meet, broadcast, meet
  operations.begin(team, 1 + (1 + kRepeats) + 1 + runs + 1);
  const bool decides = team.rank == 0;
  Measurement result;
  Told all;
  const MachineKey key = decides ? key_of(team, mpi, parties) : MachineKey{};
  if (decides && purpose != Purpose::show_again) {
    if (const auto known = kept_machine(key)) {
      result.source = known->source;
      all = told(known->machine);
      all.is_known = 1;
    } else if (purpose == Purpose::choose && saw_shared_cores.load(std::memory_order_relaxed)) {
      all = told({.network = {}, .node = {.ranks_per_core = kMostFactor}});
      all.is_known = 1;
    }
  }
  const auto is_told = [&] {
    operations.tell(team, std::as_writable_bytes(std::span(&all, 1)));
    if (all.is_known == 0) return false;
    operations.done();
    result.machine = machine_of(all);
    return true;
  };
  if (is_told()) return result;

  const Clock::time_point begin = Clock::now();
  const double per_core = std::clamp(ranks_per_core(operations, team), 1.0, kMostFactor);
  if (decides) {
    all = told({.network = {}, .node = {.ranks_per_core = per_core}});
    all.is_known = purpose == Purpose::choose && machine_of(all).shares_cores() ? 1 : 0;
    if (all.is_known != 0) saw_shared_cores.store(true, std::memory_order_relaxed);
  }
  if (is_told()) return result;

  std::vector<std::byte> input(2 * kMiB, std::byte{1});
  std::vector<std::byte> output(2 * kMiB);
  std::vector<double> seconds(trials.size(), std::numeric_limits<double>::max());
  for (int repeat = 0; repeat < kShortRepeats; ++repeat)
    for (std::size_t i = 0; i < trials.size(); ++i) {
      if (repeat >= trials[i].repeats()) continue;
      const auto bytes = static_cast<std::size_t>(trials[i].bytes);
      const double each = operations.run(plan_of(trials[i], team.rank, team.size()), ConstBytes(input).first(bytes),
                                         Bytes(output).first(bytes));
      seconds[i] = std::min(seconds[i], each);
    }
  Machine machine;
  if (decides) {
    const MessageTimes times(trials, seconds);
    if (!parties.between.empty()) between_nodes(times, parties, machine.network);
    on_a_core(machine.node);
    machine.node.ranks_per_core = per_core;
    const auto here = std::ranges::count(team.node_of_rank, team.node_of_rank[0]);
    if (machine.shares_cores())
      machine.node.cores =
          std::clamp(static_cast<int>(std::lround(static_cast<double>(here) / per_core)), 1, machine.node.cores);
    if (parties.beside >= 0) inside_a_node(times, parties, team.single_copy, team.message_bytes, machine.node);
    // Between the cores of a domain and those of others there is nothing but the default's ratio.
    machine.node.far_copy_seconds_per_byte = 2 * machine.node.copy_seconds_per_byte;
  }
  // For the others only the operations count.
  if (has_tasks) machine.node.task_seconds = task_seconds(operations, team, machine.node);
  if (decides) all = told(as_kept(key, machine));
  operations.tell(team, std::as_writable_bytes(std::span(&all, 1)));
  result.machine = machine_of(all);
  result.source = "measured now";
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (decides) keep(key, result.machine);
  return result;
}

}  // namespace

Measurement measured_machine(engine::Engine& engine, const Team& team, const std::string& mpi, bool again) {
  return measured(engine, team, mpi, again ? Purpose::show_again : Purpose::show);
}

std::optional<Machine> machine_for_choices(engine::Engine& engine, const Team& team, const std::string& mpi) {
  const Machine machine = measured(engine, team, mpi, Purpose::choose).machine;
  return machine.shares_cores() ? std::nullopt : std::optional(machine);
}

}  // namespace penstock::measurement
