// CPU sets, the CPUs of processes, and the topology of simulated machines.
#include "host/topology.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

namespace penstock::host {
namespace {

TEST(CpuSets, ReadAndWriteTheKernelsForm) {
  for (const std::string text : {"", "0", "0-3", "0,2,4", "0-1,63-64,1023"})
    EXPECT_EQ(CpuSet::parse(text).text(), text);
  EXPECT_EQ(CpuSet::parse("0-3,8\n").count(), 5);
  EXPECT_EQ(CpuSet::parse("7-5,1").text(), "1");
  EXPECT_EQ(CpuSet::parse("1022-5000").text(), "1022-1023");
  EXPECT_EQ(CpuSet::parse("3,x,5").text(), "3");
  EXPECT_EQ((CpuSet::parse("0-5") & CpuSet::parse("4-9")).text(), "4-5");
  EXPECT_FALSE(CpuSet::parse("0-3").has(-1));
}

TEST(CpuSets, AProcessUsesWhatItsThreadsMayUse) {
  const CpuSet all = cpus_of_process(::getpid());
  ASSERT_FALSE(all.empty());
  std::thread([&all] {
    CpuSet first;
    first.add(all.cpus().front());
    ASSERT_TRUE(bind_thread(::pthread_self(), first));
    EXPECT_EQ(cpus_of_process(::getpid()), all) << "one bound thread does not bind the process";
    EXPECT_EQ(allowed_cpus() & all, all);
  }).join();
  EXPECT_FALSE(bind_thread(::pthread_self(), {}));
}

TEST(CpuSets, OftenAskedForFollowTheCallingThread) {
  const CpuSet before = cpus_of_process(::getpid());
  EXPECT_EQ(cpus_of_this_process(), before);
  EXPECT_EQ(cpus_of_this_process(), before);
  CpuSet first;
  first.add(before.cpus().front());
  std::thread([&] {
    ASSERT_TRUE(bind_thread(::pthread_self(), first));
    EXPECT_EQ(cpus_of_this_process(), before) << "the main thread is not bound";
  }).join();
  ASSERT_TRUE(bind_thread(::pthread_self(), first));
  EXPECT_EQ(cpus_of_this_process(), cpus_of_process(::getpid()));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(cpus_of_this_process() == first ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(bind_thread(::pthread_self(), before));
  EXPECT_EQ(cpus_of_this_process(), before);
}

TEST(CpuSets, AProcessThatIsGoneHasNone) { EXPECT_TRUE(cpus_of_process(0x3fffffff).empty()); }

TEST(CpuSets, ThreadsOfPenstockDoNotCount) {
  const CpuSet all = cpus_of_process(::getpid());
  std::thread([&all] {
    // Another CPU than those of the process would show; on a machine without one this tests nothing.
    ::pthread_setname_np(::pthread_self(), "penstock-loader");
    CpuSet other;
    for (const int cpu : allowed_cpus().cpus())
      if (!all.has(cpu)) other.add(cpu);
    if (bind_thread(::pthread_self(), other)) EXPECT_EQ(cpus_of_process(::getpid()), all);
  }).join();
}

TEST(CpuSets, PinnedProgressThreadsAreFound) {
  EXPECT_TRUE(pinned_workers_of_process(::getpid()).empty());
  std::thread([] {
    CpuSet first;
    first.add(cpus_of_process(::getpid()).cpus().front());
    ASSERT_TRUE(bind_thread(::pthread_self(), first));
    ::pthread_setname_np(::pthread_self(), kWorkerName);
    EXPECT_EQ(pinned_workers_of_process(::getpid()), first);
  }).join();
}

TEST(CpuSets, TheLowestQuotaOfAllGroupsAboveCounts) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("penstock-quota-" + std::to_string(::getpid()));
  const auto write = [&root](const std::string& file, const std::string& text) {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text << '\n';
  };
  const std::string mount = root.string();
  EXPECT_EQ(cpu_quota("0::/job/step\n", mount), 0) << "no file";
  write("cpu.max", "max 100000");
  write("job/step/cpu.max", "max 100000");
  EXPECT_EQ(cpu_quota("0::/job/step\n", mount), 0) << "no limit";
  write("job/cpu.max", "350000 100000");
  EXPECT_EQ(cpu_quota("0::/job/step\n", mount), 3.5);
  write("job/step/cpu.max", "50000 100000");
  EXPECT_EQ(cpu_quota("0::/job/step\n", mount), 0.5);
  EXPECT_EQ(cpu_quota("0::/job\n", mount), 3.5);
  EXPECT_EQ(cpu_quota("0::/other\n", mount), 0);
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "-1");
  write("cpu,cpuacct/job/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cpu_quota("4:memory:/job\n2:cpu,cpuacct:/job\n", mount), 0) << "-1: no limit";
  write("cpu,cpuacct/cpu.cfs_quota_us", "200000");
  write("cpu,cpuacct/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cpu_quota("4:memory:/job\n2:cpu,cpuacct:/job\n", mount), 2);
  EXPECT_EQ(cpu_quota("nonsense\n:\n", mount), 0);
  fs::remove_all(root);
}

TEST(CpuSets, ThreadsMayEndWhileTheyAreLookedAt) {
  const CpuSet all = cpus_of_process(::getpid());
  std::atomic<bool> done = false;
  std::thread others([&done] {
    for (int i = 0; i < 4000; ++i) std::thread([] {}).join();
    done = true;
  });
  while (!done) EXPECT_EQ(cpus_of_process(::getpid()), all);
  others.join();
}

/// The files of /sys/devices/system that the topology is read from.
class FakeSys {
 public:
  FakeSys() : root_(std::filesystem::temp_directory_path() / ("penstock-sys-" + std::to_string(::getpid()))) {}
  ~FakeSys() { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

TEST(TopologyFromSys, TellsTheDomainOfBoundRanks) {
  const FakeSys sys;
  sys.write("node/online", "0-1");
  for (const std::string node : {"0", "1"}) sys.write("node/node" + node + "/cpulist", node == "0" ? "0-3" : "4-7");
  for (int cpu = 0; cpu < 8; ++cpu) {
    const std::string caches = "cpu/cpu" + std::to_string(cpu) + "/cache/index";
    sys.write(caches + "0/level", "1");
    sys.write(caches + "0/shared_cpu_list", std::to_string(cpu));
    sys.write(caches + "1/level", "3");
    // Two for each node, but the last one is behind both nodes.
    sys.write(caches + "1/shared_cpu_list", cpu < 2 ? "0-1" : cpu == 4 || cpu == 5 ? "4-5" : "2-3,6-7");
  }
  const auto domain = [&](const char* cpus) { return domain_of(sys.root(), CpuSet::parse(cpus)); };
  EXPECT_GE(domain("0-1"), 0);
  EXPECT_EQ(domain("0"), domain("1"));
  EXPECT_NE(domain("0"), domain("2"));
  EXPECT_NE(domain("0"), domain("4"));
  EXPECT_EQ(domain("1-2"), -1) << "two caches";
  EXPECT_NE(domain("3"), domain("6")) << "two nodes behind one cache";
  EXPECT_EQ(domain("3,6"), -1);
  EXPECT_EQ(domain("0-7"), -1);
  EXPECT_EQ(domain(""), -1);
  EXPECT_EQ(domain_of("/nonexistent", CpuSet::parse("3")), domain_of("/nonexistent", CpuSet::parse("4-5")));
}

TEST(TopologyFromSys, TellsTheSizesOfCaches) {
  const FakeSys sys;
  const auto cache = [&](int cpu, int index, const char* level, const char* size) {
    const std::string folder = "cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index);
    sys.write(folder + "/level", level);
    if (size != nullptr) sys.write(folder + "/size", size);
  };
  for (const int cpu : {2, 3}) {
    cache(cpu, 0, "1", "48K");
    cache(cpu, 1, "1", "32K");
    cache(cpu, 2, "2", cpu == 2 ? "512K" : "2048K");
  }
  cache(3, 3, "3", "16384K");
  cache(4, 0, "2", nullptr);
  cache(4, 1, "3", "8192K");
  const auto sizes = [&](const char* cpus) { return cache_sizes(sys.root(), CpuSet::parse(cpus)); };
  EXPECT_EQ(sizes("3").core, 2u << 20);
  EXPECT_EQ(sizes("3").last, 16u << 20);
  EXPECT_EQ(sizes("2-3").core, 512u << 10) << "the first CPU";
  EXPECT_EQ(sizes("2").last, 512u << 10) << "no third level";
  EXPECT_EQ(sizes("4").core, CacheSizes{}.core) << "its size is unknown";
  EXPECT_EQ(sizes("4").last, 8u << 20);
  for (const char* unknown : {"", "7"}) {
    EXPECT_EQ(sizes(unknown).core, CacheSizes{}.core);
    EXPECT_EQ(sizes(unknown).last, CacheSizes{}.last);
  }
}

TEST(TopologyFromSys, HasCoresCachesAndNodes) {
  // Two nodes of two cores with two threads each; CPU 7 is offline.
  const FakeSys sys;
  sys.write("cpu/online", "0-6");
  sys.write("node/online", "0,2");
  sys.write("node/node0/cpulist", "0-1,4-5");
  sys.write("node/node2/cpulist", "2-3,6-7");
  sys.write("node/node0/distance", "10 21");
  sys.write("node/node2/distance", "21 10");
  for (int cpu = 0; cpu < 7; ++cpu) {
    const std::string folder = "cpu/cpu" + std::to_string(cpu);
    const int core = cpu % 4;
    sys.write(folder + "/topology/thread_siblings_list", std::to_string(core) + "," + std::to_string(core + 4));
    sys.write(folder + "/cache/index0/level", "1");
    sys.write(folder + "/cache/index0/shared_cpu_list", std::to_string(core));
    sys.write(folder + "/cache/index1/level", "3");
    sys.write(folder + "/cache/index1/shared_cpu_list", core < 2 ? "0-1,4-5" : "2-3,6");
  }
  const Topology topology = read_topology_from_sys(sys.root(), CpuSet::parse("0-6"));
  EXPECT_EQ(topology.all().text(), "0-6");
  const auto distance = [&](std::size_t a, std::size_t b) {
    return topology.distance(topology.cpus[a], topology.cpus[b]);
  };
  EXPECT_EQ(distance(0, 4), 0);
  EXPECT_EQ(distance(0, 1), 1);
  EXPECT_EQ(distance(0, 2), 21);
  EXPECT_EQ(distance(2, 3), 1);
  EXPECT_EQ(read_topology_from_sys(sys.root(), CpuSet::parse("1-2")).all().text(), "1-2") << "only what is allowed";
}

TEST(TopologyFromSys, DoesWithoutAnyFile) {
  const Topology topology = read_topology_from_sys("/nonexistent", CpuSet::parse("3,5"));
  ASSERT_EQ(topology.cpus.size(), 2u);
  EXPECT_NE(topology.cpus[0].core, topology.cpus[1].core);
  EXPECT_EQ(topology.distance(topology.cpus[0], topology.cpus[1]), 1);
  EXPECT_EQ(read_topology_from_sys("/nonexistent", {}).cpus.size(), 1u) << "never empty";
}

TEST(TopologyOfThisMachine, IsTheSameFromBothSources) {
  const Topology machine = read_topology();
  const Topology sys = read_topology_from_sys("/sys/devices/system", allowed_cpus());
  ASSERT_EQ(machine.all().text(), sys.all().text()) << machine.source;
  for (std::size_t a = 0; a < sys.cpus.size(); ++a)
    for (std::size_t b = 0; b < sys.cpus.size(); ++b)
      EXPECT_EQ(machine.distance(machine.cpus[a], machine.cpus[b]) == 0, sys.distance(sys.cpus[a], sys.cpus[b]) == 0)
          << machine.cpus[a].number << " and " << machine.cpus[b].number;
}

TEST(TopologyByHwloc, SeesNodesCachesAndHardwareThreads) {
  if (!read_topology().source.starts_with("hwloc")) GTEST_SKIP() << "built without hwloc";
  ::setenv("HWLOC_SYNTHETIC", "numa:2 l3:2 core:3 pu:2", 1);
  const Topology topology = read_topology();
  ::unsetenv("HWLOC_SYNTHETIC");
  ASSERT_EQ(topology.cpus.size(), 24u);
  std::map<int, int> seen;
  for (const Cpu& other : topology.cpus) ++seen[topology.distance(topology.cpus[0], other)];
  EXPECT_EQ(seen[0], 2) << "threads of its core";
  EXPECT_EQ(seen[1], 4) << "the other cores behind its cache";
  EXPECT_EQ(seen[2], 6) << "the other cache of its node";
  EXPECT_EQ(seen.rbegin()->second, 12) << "the other node";
  EXPECT_GE(seen.rbegin()->first, 10);
}

}  // namespace
}  // namespace penstock::host
