// CPUs by the kernel's numbers: sets of them, and which ones processes of this node may use.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::engine {

/// Travels between ranks as it is. CPUs from kMaxCpus on are left out everywhere.
class CpuSet {
 public:
  static constexpr int kMaxCpus = 1024;

  /// From the kernel's form, "0-3,8"; stops where the text is not of that form.
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

/// The name of progress threads, by which they are told from the application's.
inline constexpr const char* kWorkerName = "penstock";

/// Where the threads of the application in `process` may run, all together; empty where that cannot be read.
CpuSet cpus_of_process(pid_t process);

/// The largest CPU set that a thread of this process could have: the control group's, when it is first asked for.
CpuSet allowed_cpus();

/// How this process was started. Found once.
struct Launch {
  pid_t process = 0;     ///< this one
  pid_t started = 0;     ///< the process that the launcher started: this one, or a script around it
  pid_t launcher = 0;    ///< 0 where there is none, or it is another user's
  CpuSet launcher_cpus;  ///< when it was found
};
Launch launch();

/// What a launcher (mpiexec and its like) gave to this process.
struct Inheritance {
  pid_t started = 0;   ///< as Launch has it
  pid_t launcher = 0;  ///< as Launch has it
  CpuSet cpus;         ///< the launcher's own and this process's; the control group may allow less, see Topology
};
Inheritance inheritance();

/// Other processes that the launcher started as ranks on this node, whatever communicator they are in.
std::vector<pid_t> ranks_started_by(pid_t launcher);

/// Lets a thread run on `cpus` only. False where the kernel refuses.
bool bind_thread(pthread_t thread, const CpuSet& cpus);

}  // namespace penstock::engine
