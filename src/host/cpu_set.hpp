// Sets of CPUs, by the kernel's numbers, and which CPUs processes of this node may use.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::host {

/// Ranks exchange it as bytes. CPUs from kMaxCpus on are ignored.
class CpuSet {
 public:
  static constexpr int kMaxCpus = 1024;

  /// Parses the kernel's format, "0-3,8", up to the first error.
  static CpuSet parse(std::string_view text);
  std::string text() const;

  void add(int cpu) {
    if (cpu >= 0 && cpu < kMaxCpus) words_[word(cpu)] |= bit(cpu);
  }
  bool has(int cpu) const { return cpu >= 0 && cpu < kMaxCpus && (words_[word(cpu)] & bit(cpu)) != 0; }
  bool empty() const { return *this == CpuSet{}; }
  int count() const;
  std::vector<int> cpus() const;

  CpuSet& operator&=(const CpuSet& other);
  CpuSet& operator|=(const CpuSet& other);
  friend CpuSet operator&(CpuSet a, const CpuSet& b) { return a &= b; }
  friend CpuSet operator|(CpuSet a, const CpuSet& b) { return a |= b; }
  friend bool operator==(const CpuSet&, const CpuSet&) = default;

 private:
  static std::size_t word(int cpu) { return static_cast<std::size_t>(cpu) / 64; }
  static std::uint64_t bit(int cpu) { return std::uint64_t{1} << (cpu % 64); }

  std::array<std::uint64_t, kMaxCpus / 64> words_{};
};

/// The name of progress threads. Names of other threads of Penstock begin with it, which distinguishes all of them from
/// the application's threads.
inline constexpr const char* kWorkerName = "penstock";

/// The union of the CPUs on which the application threads of `process` may run; empty if it cannot be read.
CpuSet cpus_of_process(pid_t process);

/// That of this process, for calls that are made often. It looks at the other threads again only when another thread
/// than before calls, or one whose CPUs have changed.
CpuSet cpus_of_this_process();

/// The CPUs to which progress threads of `process` are pinned, as far as they have started.
CpuSet pinned_workers_of_process(pid_t process);

/// What the control groups of this process allow, in CPUs; 0: no quota. Of the limits of a group and those above it the
/// lowest counts. `groups` is the content of /proc/self/cgroup, `mount` where the hierarchies are mounted.
double cpu_quota(const std::string& groups, const std::string& mount);
double cpu_quota();

/// The largest CPU set that a thread of this process could have: that of its control group, read once.
CpuSet allowed_cpus();

/// How this process was started. Found once.
struct Launch {
  pid_t process = 0;     ///< this one
  pid_t started = 0;     ///< the process that the launcher started: this one, or a script around it
  pid_t launcher = 0;    ///< 0: none, or one of another user that is not Slurm's daemon
  CpuSet launcher_cpus;  ///< when it was found; of Slurm's daemon: those of its step
};
Launch launch();

/// What a launcher (mpiexec and its like) gave to this process.
struct Inheritance {
  pid_t started = 0;   ///< as Launch has it
  pid_t launcher = 0;  ///< as Launch has it
  CpuSet cpus;  ///< Launch::launcher_cpus and the CPUs of this process; the control group may allow fewer, see Topology
};
Inheritance inheritance();

/// The other processes that the launcher started as ranks on this node, in any communicator.
std::vector<pid_t> ranks_started_by(pid_t launcher);

/// Pins a thread to `cpus`. False if the kernel refuses.
bool bind_thread(pthread_t thread, const CpuSet& cpus);

}  // namespace penstock::host
