#include "host/cpu_set.hpp"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "base/control_groups.hpp"
#include "host/pid_namespace.hpp"

namespace penstock::host {
namespace {

/// Room for the kernel's mask, which may be longer than CpuSet.
struct KernelMask {
  static constexpr int kCpus = 16384;
  static constexpr std::size_t kBytes = CPU_ALLOC_SIZE(kCpus);

  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set{CPU_ALLOC(kCpus), [](cpu_set_t* freed) { CPU_FREE(freed); }};

  /// The CPUs of a thread, 0: of this one; false if the kernel does not tell.
  bool read(pid_t thread) {
    CPU_ZERO_S(kBytes, set.get());
    return ::sched_getaffinity(thread, kBytes, set.get()) == 0;
  }
  CpuSet kept() const {
    CpuSet kept;
    for (int cpu = 0; cpu < CpuSet::kMaxCpus; ++cpu)
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), kBytes, set.get())) kept.add(cpu);
    return kept;
  }
};

CpuSet cpus_of_thread(pid_t thread) {
  KernelMask mask;
  return mask.read(thread) ? mask.kept() : CpuSet{};
}

std::string proc(pid_t process, const char* what) { return "/proc/" + std::to_string(process) + "/" + what; }

std::string name_of(pid_t process, pid_t thread) {
  return content_of_file(proc(process, "task/") + std::to_string(thread) + "/comm");
}

// Not by std::filesystem, whose iterators end the program when they find no memory.
std::vector<pid_t> threads_of(pid_t process) {
  std::vector<pid_t> threads;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(proc(process, "task").c_str()), ::closedir);
  while (folder != nullptr) {
    const dirent* const entry = ::readdir(folder.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    pid_t thread = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), thread).ec == std::errc{}) threads.push_back(thread);
  }
  return threads;
}

std::optional<pid_t> parent_of(pid_t process) {
  // The name in parentheses may contain any characters; state and parent follow the last parenthesis.
  const std::string stat = content_of_file(proc(process, "stat"));
  const std::size_t end = stat.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream rest(stat.substr(end + 1));
  std::string state;
  pid_t parent = 0;
  if (!(rest >> state >> parent) || parent <= 0) return std::nullopt;
  return parent;
}

/// Whether the initial environment of the process has a rank from a launcher.
bool started_as_rank(pid_t process) {
  const std::string environment = '\0' + content_of_file(proc(process, "environ"));
  for (const char* variable : {"PMI_RANK=", "PMIX_RANK=", "OMPI_COMM_WORLD_RANK="})
    if (environment.find('\0' + std::string(variable)) != std::string::npos) return true;
  return false;
}

bool is_ours(pid_t process) {
  struct stat status {};
  return ::stat(proc(process, "").c_str(), &status) == 0 && status.st_uid == ::geteuid();
}

}  // namespace

CpuSet CpuSet::parse(std::string_view text) {
  CpuSet set;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int first = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc{}) break;
    int last = first;
    if (read.ptr < end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
      if (read.ec != std::errc{}) break;
    }
    for (int cpu = first; cpu <= std::min(last, kMaxCpus - 1); ++cpu) set.add(cpu);
    at = read.ptr;
    if (at < end && *at != ',') break;
    ++at;
  }
  return set;
}

std::string CpuSet::text() const {
  std::string text;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (!has(cpu)) continue;
    const int first = cpu;
    while (has(cpu + 1)) ++cpu;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (cpu > first) text += '-' + std::to_string(cpu);
  }
  return text;
}

int CpuSet::count() const {
  int count = 0;
  for (const std::uint64_t word : words_) count += std::popcount(word);
  return count;
}

std::vector<int> CpuSet::cpus() const {
  std::vector<int> cpus;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu)
    if (has(cpu)) cpus.push_back(cpu);
  return cpus;
}

CpuSet& CpuSet::operator&=(const CpuSet& other) {
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
  return *this;
}

CpuSet& CpuSet::operator|=(const CpuSet& other) {
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  return *this;
}

CpuSet cpus_of_process(pid_t process) {
  if (!proc_has_own_numbers()) return process == ::getpid() ? cpus_of_thread(0) : CpuSet{};
  CpuSet cpus;
  for (const pid_t thread : threads_of(process)) {
    const CpuSet more = cpus_of_thread(thread);
    if ((more & cpus) == more) continue;  // it adds nothing, so its owner does not matter
    if (thread == process || !name_of(process, thread).starts_with(kWorkerName)) cpus |= more;
  }
  return cpus;
}

CpuSet cpus_of_this_process() {
  struct Known {
    pid_t thread = 0;
    KernelMask of_thread;
    CpuSet cpus;
  };
  static std::mutex mutex;
  static Known known;
  const std::lock_guard lock(mutex);
  KernelMask mask;
  const bool is_read = mask.read(0);
  if (is_read && known.thread == ::gettid() &&
      CPU_EQUAL_S(KernelMask::kBytes, mask.set.get(), known.of_thread.set.get()))
    return known.cpus;
  known.thread = 0;
  known.cpus = cpus_of_process(::getpid());
  known.of_thread = std::move(mask);
  if (is_read) known.thread = ::gettid();
  return known.cpus;
}

CpuSet pinned_workers_of_process(pid_t process) {
  CpuSet pinned;
  if (!proc_has_own_numbers()) return pinned;
  for (const pid_t thread : threads_of(process)) {
    if (thread == process) continue;
    const CpuSet cpus = cpus_of_thread(thread);
    if (cpus.count() == 1 && name_of(process, thread) == std::string(kWorkerName) + '\n') pinned |= cpus;
  }
  return pinned;
}

double cpu_quota(const std::string& groups, const std::string& mount) {
  double least = 0;
  for (const ControlGroup& group : control_groups(groups, mount, "cpu")) {
    // "max 100000" and -1 are no limit.
    std::istringstream text(group.unified ? content_of_file(group.folder + "/cpu.max")
                                          : content_of_file(group.folder + "/cpu.cfs_quota_us") + ' ' +
                                                content_of_file(group.folder + "/cpu.cfs_period_us"));
    double quota = 0;
    double period = 0;
    if (!(text >> quota >> period) || quota <= 0 || period <= 0) continue;
    least = least == 0 ? quota / period : std::min(least, quota / period);
  }
  return least;
}

double cpu_quota() { return cpu_quota(content_of_file("/proc/self/cgroup"), "/sys/fs/cgroup"); }

namespace {

CpuSet find_allowed_cpus(pid_t) {
  // The kernel reduces a requested mask to what the control group allows. A temporary thread asks, so that no thread of
  // the application moves.
  CpuSet allowed;
  try {
    std::thread([&allowed] {
      const KernelMask mask;
      for (std::size_t cpu = 0; cpu < KernelMask::kCpus; ++cpu) CPU_SET_S(cpu, KernelMask::kBytes, mask.set.get());
      ::sched_setaffinity(0, KernelMask::kBytes, mask.set.get());
      allowed = cpus_of_thread(0);
    }).join();
  } catch (const std::system_error&) {
    allowed = cpus_of_thread(0);
  }
  return allowed;
}

/// Slurm's daemon of a step: the parent of the tasks that srun starts. It belongs to root, and may run on all CPUs of
/// the node even if the step has fewer.
bool is_slurm_daemon(pid_t process) { return content_of_file(proc(process, "comm")) == "slurmstepd\n"; }

/// The CPUs of the step of Slurm that this process is a task of; empty if they cannot be told. Slurm tells their
/// number. If the control group allows no more, as on nodes without other jobs and on those where Slurm confines each
/// step, they are these.
CpuSet cpus_of_slurm_step() {
  const char* const number = std::getenv("SLURM_CPUS_ON_NODE");
  const CpuSet allowed = allowed_cpus();
  return number != nullptr && allowed.count() <= std::atoi(number) ? allowed : CpuSet{};
}

Launch find_launch(pid_t process) {
  constexpr int kMostScripts = 16;
  Launch found{.process = process, .started = process, .launcher_cpus = {}};
  if (!proc_has_own_numbers() || !started_as_rank(process)) return found;
  for (int i = 0; i < kMostScripts; ++i) {
    const std::optional<pid_t> parent = parent_of(found.started);
    if (parent && is_slurm_daemon(*parent)) {
      found.launcher = *parent;
      found.launcher_cpus = cpus_of_slurm_step();
      return found;
    }
    if (!parent || !is_ours(*parent)) return found;
    if (!started_as_rank(*parent)) {
      found.launcher = *parent;
      found.launcher_cpus = cpus_of_process(*parent);
      return found;
    }
    found.started = *parent;
  }
  return found;
}

/// `find` for this process, once: a child of fork() asks again.
template <auto find>
auto found_once() {
  static std::mutex mutex;
  static std::optional<std::pair<pid_t, decltype(find(0))>> known;
  const std::lock_guard lock(mutex);
  const pid_t process = ::getpid();
  if (!known || known->first != process) known.emplace(process, find(process));
  return known->second;
}

}  // namespace

CpuSet allowed_cpus() { return found_once<find_allowed_cpus>(); }

Launch launch() { return found_once<find_launch>(); }

Inheritance inheritance() {
  const Launch found = launch();
  return {found.started, found.launcher, cpus_of_process(found.process) | found.launcher_cpus};
}

std::vector<pid_t> ranks_started_by(pid_t launcher) {
  // To ask each child takes a while; as long as there are the same ones, the answer is the same.
  static std::mutex mutex;
  static std::string known_children;
  static std::vector<pid_t> known_ranks;
  if (launcher == 0) return {};
  std::string children;
  for (const pid_t thread : threads_of(launcher))
    children += content_of_file(proc(launcher, "task/") + std::to_string(thread) + "/children");
  const std::lock_guard lock(mutex);
  if (children == known_children) return known_ranks;
  std::vector<pid_t> ranks;
  std::istringstream rest(children);
  for (pid_t child = 0; rest >> child;)
    if (started_as_rank(child)) ranks.push_back(child);
  std::sort(ranks.begin(), ranks.end());
  known_children = std::move(children);
  known_ranks = ranks;
  return ranks;
}

bool bind_thread(pthread_t thread, const CpuSet& cpus) {
  if (cpus.empty()) return false;
  cpu_set_t mask;
  static_assert(CpuSet::kMaxCpus <= CPU_SETSIZE);
  CPU_ZERO(&mask);
  for (const int cpu : cpus.cpus()) CPU_SET(static_cast<std::size_t>(cpu), &mask);
  return ::pthread_setaffinity_np(thread, sizeof mask, &mask) == 0;
}

}  // namespace penstock::host
