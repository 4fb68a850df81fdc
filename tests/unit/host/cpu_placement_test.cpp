// Placement of workers: cases computed by hand, and invariants on random machines.
#include "host/cpu_placement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace penstock::host {
namespace {

struct Machine {
  int nodes = 1;
  int caches_per_node = 1;
  int cores_per_cache = 1;
  int threads_per_core = 1;

  int cores() const { return nodes * caches_per_node * cores_per_cache; }

  /// Numbers CPUs as Linux does: the first hardware threads of all cores, then the second ones.
  Topology topology() const {
    Topology topology;
    for (int thread = 0; thread < threads_per_core; ++thread)
      for (int core = 0; core < cores(); ++core)
        topology.cpus.push_back({.number = thread * cores() + core,
                                 .core = core,
                                 .cache = core / cores_per_cache,
                                 .node = core / cores_per_cache / caches_per_node});
    for (int a = 0; a < nodes; ++a) {
      topology.node_distances.emplace_back();
      for (int b = 0; b < nodes; ++b) topology.node_distances.back().push_back(10 + 10 * std::abs(a - b));
    }
    return topology;
  }
};

CpuSet set(const std::string& text) { return CpuSet::parse(text); }

NodeProcess bound(const std::string& cpus, const std::string& inherited, bool member = true) {
  return {.bound = set(cpus), .inherited = set(inherited), .member = member};
}

struct Placing {
  std::string name;
  Machine machine;
  std::vector<NodeProcess> processes;
  int wanted;
  std::vector<WorkerPin> pins;
  std::string said;  ///< part of the reason
};

class Placed : public testing::TestWithParam<Placing> {};

TEST_P(Placed, AsByHand) {
  const Placing& given = GetParam();
  const CpuPlacement placement = place_workers(given.machine.topology(), given.processes, given.wanted);
  ASSERT_EQ(placement.pins.size(), given.pins.size()) << placement.reason;
  for (std::size_t i = 0; i < given.pins.size(); ++i) {
    EXPECT_EQ(placement.pins[i].process, given.pins[i].process) << "pin " << i << ": " << placement.reason;
    EXPECT_EQ(placement.pins[i].cpu, given.pins[i].cpu) << "pin " << i << ": " << placement.reason;
  }
  EXPECT_NE(placement.reason.find(given.said), std::string::npos) << placement.reason;
}

constexpr int kAuto = kAutomaticWorkers;
constexpr int kAny = WorkerPin::kAnyCpu;
const Machine kTwo{.cores_per_cache = 2};
const Machine kEight{.cores_per_cache = 8};
const Machine kTwoNodes{.nodes = 2, .caches_per_node = 2, .cores_per_cache = 2};                      // 8 cores
const Machine kHyper{.nodes = 1, .caches_per_node = 1, .cores_per_cache = 4, .threads_per_core = 2};  // n and n + 4

INSTANTIATE_TEST_SUITE_P(
    , Placed,
    testing::Values(
        Placing{
            "AutoWithoutSpare", kTwo, {bound("0", "0-1"), bound("1", "0-1")}, kAuto, {}, "0, since no core is free"},
        Placing{"AutoWithoutSpareUnbound", kTwo, {bound("0-1", "0-1"), bound("0-1", "0-1")}, kAuto, {}, "2 ranks on 2"},
        Placing{"OneRankOneSpare", kTwo, {bound("0", "0-1")}, kAuto, {{0, 1}}, "1 on CPU 1, to which no rank is bound"},
        Placing{"AutoIsOnePerRank", kEight, {bound("0", "0-7"), bound("1", "0-7")}, kAuto, {{0, 2}, {1, 3}}, "CPU 2-3"},
        Placing{"FewerThanRanks",
                kEight,
                {bound("0-2", "0-3"), bound("0-2", "0-3"), bound("0-2", "0-3")},
                kAuto,
                {{0, 3}},
                "1 on CPU 3"},
        Placing{"UnboundIsNotPinned",
                kEight,
                {bound("0-7", "0-7"), bound("0-7", "0-7")},
                kAuto,
                {{0, kAny}, {1, kAny}},
                "2, for 2 ranks on 8 usable cores of this node: 2 not pinned, since the ranks are not bound to single"},
        Placing{"BoundToNodesOfMemory",
                kTwoNodes,
                {bound("0-3", "0-7"), bound("0-3", "0-7"), bound("0-3", "0-7"), bound("4-7", "0-7")},
                kAuto,
                {{0, kAny}, {3, kAny}},
                "leave 4 free"},
        Placing{"NearestCacheFirst",
                kTwoNodes,
                {bound("0", "0-7"), bound("2", "0-7"), bound("4", "0-7"), bound("6", "0-7")},
                kAuto,
                {{0, 1}, {1, 3}, {2, 5}, {3, 7}},
                "4 on CPU 1,3,5,7"},
        Placing{"NodeBeforeCache", kTwoNodes, {bound("0-1", "0-7"), bound("4", "4-7")}, 2, {{0, 2}, {1, 5}}, "CPU 2,5"},
        Placing{
            "TheFirstProcessChoosesFirst", kTwoNodes, {bound("0-3", "0-4"), bound("5-7", "0-7")}, 1, {{0, 4}}, "CPU 4"},
        Placing{"NeverOutsideOfTheInheritedSet", kEight, {bound("0", "0-1"), bound("1", "0-1")}, kAuto, {}, "2 usable"},
        Placing{"CoresOfOthersAreNotFree",
                kEight,
                {bound("0", "0-3"), bound("1", "0-3"), bound("2", "0-3", false)},
                kAuto,
                {{0, 3}},
                "3 ranks on 4"},
        Placing{
            "OthersHaveTheirOwn", kEight, {bound("0", "0-3", false), bound("1", "0-3")}, kAuto, {{1, 3}}, "1 on CPU 3"},
        Placing{"SiblingsAreNotSpare",
                kHyper,
                {bound("0", "0-7"), bound("1", "0-7"), bound("2", "0-7"), bound("3", "0-7")},
                kAuto,
                {},
                "4 usable cores"},
        Placing{"OnlyOneWorkerPerCore", kHyper, {bound("0,4", "0-7")}, 3, {{0, 1}, {0, 2}, {0, 3}}, "3, as asked for"},
        Placing{"SiblingsWhenForced",
                kHyper,
                {bound("0", "0-7"), bound("1", "0-7"), bound("2", "0-7"), bound("3", "0-7")},
                2,
                {{0, 4}, {1, 5}},
                "2 on idle hardware threads"},
        Placing{"SharedWhenForced",
                kTwo,
                {bound("0", "0-1"), bound("1", "0-1")},
                2,
                {{0, kAny}, {1, kAny}},
                "2, as asked for: 2 on cores of the ranks"},
        Placing{"FreeBeforeShared",
                kTwo,
                {bound("0", "0-1")},
                2,
                {{0, 1}, {0, kAny}},
                "2, as asked for: 1 on CPU 1, to which no rank is bound; 1 on cores of the ranks"},
        Placing{"MoreThanExist",
                kTwo,
                {bound("0-1", "0-1")},
                99,
                {{0, kAny}, {0, kAny}},
                "2, since 99 were asked for, more than the 2 CPUs of the job here: "},
        Placing{"OnePerRankEvenWithoutCores",
                kTwo,
                {bound("0", "0-1"), bound("1", "0-1"), bound("0-1", "0-1")},
                4,
                {{0, kAny}, {1, kAny}, {2, kAny}},
                "3, since 4 were asked for, more than the 3 ranks here: 3 on cores of the ranks"},
        Placing{"Off", kEight, {bound("0", "0-7")}, 0, {}, "0, as asked for"},
        Placing{"UnknownBinding",
                kTwo,
                {bound("", "0-1")},
                kAuto,
                {{0, kAny}},
                "the CPU set of 1 process could not be read"},
        Placing{"NothingKnown", kTwo, {bound("", "")}, kAuto, {{0, kAny}}, "could not be read"},
        Placing{"CpusThatAreGone", kTwo, {bound("100", "100")}, kAuto, {{0, kAny}}, "could not be read"},
        Placing{"ThreadsAsRanks",
                kEight,
                {{.bound = set("0-7"), .inherited = set("0-7"), .ranks = 3}},
                kAuto,
                {{0, kAny}, {0, kAny}, {0, kAny}},
                "3 ranks on 8"}),
    [](const auto& row) { return row.param.name; });

/// A machine and a job on it. Its ranks are bound to cores, to groups of cores, or not at all.
struct Job {
  Topology topology;
  std::vector<NodeProcess> processes;

  explicit Job(std::mt19937& random) {
    const auto pick = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
    const Machine machine{pick(1, 3), pick(1, 3), pick(1, 4), pick(1, 2)};
    topology = machine.topology();
    CpuSet inherited;
    for (const Cpu& cpu : topology.cpus)
      if (pick(0, 3) > 0) inherited.add(cpu.number);
    if (inherited.empty()) inherited.add(0);
    const std::vector<int> cpus = inherited.cpus();
    const int ranks = pick(1, 8);
    const int kind = pick(0, 2);
    for (int rank = 0; rank < ranks; ++rank) {
      CpuSet own;
      if (kind == 0) own = inherited;
      for (int i = 0; i < (kind == 1 ? 1 : pick(1, 4)); ++i)
        own.add(cpus[static_cast<std::size_t>(pick(0, static_cast<int>(cpus.size()) - 1))]);
      processes.push_back(
          {.bound = own, .inherited = inherited, .ranks = pick(1, 2), .member = rank == 0 || pick(0, 4) > 0});
    }
  }

  const Cpu& cpu(int number) const {
    return *std::find_if(topology.cpus.begin(), topology.cpus.end(), [=](const Cpu& c) { return c.number == number; });
  }
  CpuSet bound() const {
    CpuSet all;
    for (const NodeProcess& process : processes) all |= process.bound;
    return all;
  }
  bool rank_uses(int core) const {
    return std::any_of(topology.cpus.begin(), topology.cpus.end(),
                       [&](const Cpu& c) { return c.core == core && bound().has(c.number); });
  }
  std::string text() const {
    std::string text;
    for (const NodeProcess& process : processes)
      text +=
          "bound " + process.bound.text() + " of " + process.inherited.text() + (process.member ? "\n" : ", other\n");
    return text;
  }
};

TEST(CpuPlacement, KeepsItsRulesOnRandomMachines) {
  std::mt19937 random(20);
  for (int trial = 0; trial < 3000; ++trial) {
    const Job job(random);
    const int wanted = trial % 2 == 0 ? kAutomaticWorkers : std::uniform_int_distribution<int>(1, 40)(random);
    const CpuPlacement placement = place_workers(job.topology, job.processes, wanted);
    SCOPED_TRACE("trial " + std::to_string(trial) + ", wanted " + std::to_string(wanted) + "\n" + job.text() +
                 placement.reason);
    std::set<int> cores;
    std::map<int, int> pins_of;
    for (const WorkerPin& pin : placement.pins) {
      const NodeProcess& process = job.processes[static_cast<std::size_t>(pin.process)];
      ++pins_of[pin.process];
      EXPECT_TRUE(process.member);
      if (pin.cpu == WorkerPin::kAnyCpu) continue;
      EXPECT_TRUE(process.inherited.has(pin.cpu)) << "CPU " << pin.cpu << " is not the job's";
      EXPECT_FALSE(job.bound().has(pin.cpu)) << "a rank is bound to CPU " << pin.cpu;
      const int core = job.cpu(pin.cpu).core;
      if (wanted != kAutomaticWorkers && job.rank_uses(core)) continue;
      EXPECT_FALSE(job.rank_uses(core)) << "a rank is bound to the core of CPU " << pin.cpu;
      EXPECT_TRUE(cores.insert(core).second) << "two workers on core " << core;
    }
    for (const auto& [process, pins] : pins_of)
      EXPECT_TRUE(wanted != kAuto || pins <= job.processes[static_cast<std::size_t>(process)].ranks);
    int ranks = 0;
    for (const NodeProcess& process : job.processes) ranks += process.member ? process.ranks : 0;
    const int most = std::min(wanted, std::max(job.processes[0].inherited.count(), ranks));
    EXPECT_TRUE(wanted == kAuto || static_cast<int>(placement.pins.size()) == most);
    EXPECT_TRUE(placement.reason.starts_with(std::to_string(placement.pins.size())));
  }
}

struct Sparing {
  std::string name;
  Machine machine;
  std::vector<NodeProcess> processes;
  std::size_t own;
  std::string taken;
  double quota;
  int count;
  std::string cpus;
};

class Spared : public testing::TestWithParam<Sparing> {};

TEST_P(Spared, AsByHand) {
  const Sparing& given = GetParam();
  const SpareCores spare =
      spare_cores(given.machine.topology(), given.processes, given.own, set(given.taken), given.quota);
  EXPECT_EQ(spare.count, given.count) << spare.cpus.text();
  EXPECT_EQ(spare.cpus.text(), given.cpus);
}

INSTANTIATE_TEST_SUITE_P(
    , Spared,
    testing::Values(
        Sparing{"AloneItHasAll", kEight, {bound("0-7", "0-7")}, 0, "", 0, 8, "0-7"},
        Sparing{"WithoutProgressThreads", kEight, {bound("0-7", "0-7")}, 0, "3,5", 0, 6, "0-2,4,6-7"},
        Sparing{"OnAnotherHardwareThread", kHyper, {bound("0-7", "0-7")}, 0, "5", 0, 3, "0,2-4,6-7"},
        Sparing{"BoundToTheOnlyCore", kTwo, {bound("0", "0-1"), bound("1", "0-1")}, 1, "", 0, 1, "1"},
        Sparing{"FreeCoresAreDealtOut", kEight, {bound("0", "0-7"), bound("1", "0-7")}, 0, "", 0, 3, "2,4,6"},
        Sparing{"AndTheOthersToTheOther", kEight, {bound("0", "0-7"), bound("1", "0-7")}, 1, "", 0, 3, "3,5,7"},
        Sparing{"ButThoseOfProgressThreads", kEight, {bound("0", "0-7"), bound("1", "0-7")}, 1, "2-3", 0, 2, "5,7"},
        Sparing{"EachHasItsOwnHalf", kEight, {bound("0-3", "0-7"), bound("4-7", "0-7")}, 1, "", 0, 4, "4-7"},
        Sparing{"UnboundRanksDivideAll", kEight, {bound("0-7", "0-7"), bound("0-7", "0-7")}, 0, "", 0, 4, "0-7"},
        Sparing{"MoreRanksThanCores", kTwo, std::vector<NodeProcess>(5, bound("0-1", "0-1")), 3, "", 0, 1, "0-1"},
        Sparing{"OneIsBoundTheOtherNot", kEight, {bound("2", "0-7"), bound("0-7", "0-7")}, 1, "", 0, 7, "0-1,3-7"},
        Sparing{"TheQuotaIsDivided", kEight, {bound("0-3", "0-7"), bound("4-7", "0-7")}, 0, "", 5, 2, "0-3"},
        Sparing{"AtLeastOne", kEight, {bound("0-7", "0-7")}, 0, "0-7", 0.3, 1, "0-7"},
        Sparing{"OneCore", Machine{}, {bound("0", "0")}, 0, "", 0, 1, "0"}),
    [](const auto& info) { return info.param.name; });

TEST(CpuPlacement, SpareCoresAreTheJobsAndNobodyElses) {
  std::mt19937 random(23);
  for (int trial = 0; trial < 3000; ++trial) {
    const Job job(random);
    const std::size_t own = static_cast<std::size_t>(trial) % job.processes.size();
    const SpareCores spare = spare_cores(job.topology, job.processes, own, {}, 0);
    SCOPED_TRACE("trial " + std::to_string(trial) + ", process " + std::to_string(own) + "\n" + job.text() +
                 std::to_string(spare.count) + " of " + spare.cpus.text());
    const CpuSet mine = job.processes[own].bound;
    ASSERT_FALSE(spare.cpus.empty());
    EXPECT_GE(spare.count, 1);
    EXPECT_LE(spare.count, spare.cpus.count());
    for (const int cpu : spare.cpus.cpus()) {
      EXPECT_TRUE(job.processes[own].inherited.has(cpu)) << "CPU " << cpu << " is not the job's";
      EXPECT_TRUE(mine.has(cpu) || !job.rank_uses(job.cpu(cpu).core)) << "a rank is bound to the core of CPU " << cpu;
    }
  }
}

TEST(CpuPlacement, EverySpareCoreHasAWorkerUpToOnePerRank) {
  for (const bool pinned : {false, true})
    for (int cores = 1; cores <= 12; ++cores)
      for (int ranks = 1; ranks <= cores; ++ranks) {
        const Machine machine{.cores_per_cache = cores, .threads_per_core = 2};
        const CpuSet all = machine.topology().all();
        std::vector<NodeProcess> processes;
        for (int rank = 0; rank < ranks; ++rank) {
          CpuSet own;
          own.add(rank);
          own.add(rank + cores);
          processes.push_back({.bound = pinned ? own : all, .inherited = all});
        }
        const CpuPlacement placement = place_workers(machine.topology(), processes, kAuto);
        EXPECT_EQ(static_cast<int>(placement.pins.size()), std::min(ranks, cores - ranks)) << placement.reason;
        for (const WorkerPin& pin : placement.pins) EXPECT_EQ(pin.cpu != kAny, pinned) << placement.reason;
      }
}

TEST(CpuPlacement, CommunicatorsOfOneNodeHaveCoresOfTheirOwn) {
  std::mt19937 random(22);
  for (int trial = 0; trial < 1000; ++trial) {
    Job job(random);
    std::map<int, int> owner;
    for (int part = 0; part < 2; ++part) {
      for (std::size_t p = 0; p < job.processes.size(); ++p) job.processes[p].member = static_cast<int>(p) % 2 == part;
      if (job.processes.size() == 1 && part == 1) continue;
      for (const WorkerPin& pin : place_workers(job.topology, job.processes, kAutomaticWorkers).pins)
        if (pin.cpu != kAny && !owner.emplace(pin.cpu, pin.process).second)
          ADD_FAILURE() << "two workers on CPU " << pin.cpu << "\n" << job.text();
    }
  }
}

TEST(CpuPlacement, TheFewestWishesCount) {
  EXPECT_EQ(agreed_workers(std::vector<int>{kAuto, kAuto}), kAuto);
  EXPECT_EQ(agreed_workers(std::vector<int>{kAuto, 3, 2}), 2);
  EXPECT_EQ(agreed_workers(std::vector<int>{4, 0, kAuto}), 0);
}

}  // namespace
}  // namespace penstock::host
