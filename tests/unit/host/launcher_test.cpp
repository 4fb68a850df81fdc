// A rank detects the launcher that started it. The test is the launcher: it starts itself as a rank.
#include <gtest/gtest.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "host/cpu_set.hpp"

namespace penstock::host {
namespace {

/// Runs `command` as a rank that is bound to the first of `cpus`. Returns its exit status.
int run_as_rank(std::vector<std::string> command, const std::string& cpus) {
  ::setenv("PMI_RANK", "0", 1);
  ::setenv("PENSTOCK_TEST_LAUNCHER", std::to_string(::getpid()).c_str(), 1);
  ::setenv("PENSTOCK_TEST_CPUS", cpus.c_str(), 1);
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int status = -1;
  // A separate thread is bound, so the rank inherits one CPU and this process keeps its CPUs.
  std::thread([&] {
    CpuSet first;
    first.add(CpuSet::parse(cpus).cpus().front());
    ASSERT_TRUE(bind_thread(::pthread_self(), first));
    pid_t rank = 0;
    ASSERT_EQ(::posix_spawn(&rank, arguments[0], nullptr, nullptr, arguments.data(), environ), 0);
    ::waitpid(rank, &status, 0);
  }).join();
  for (const char* variable : {"PMI_RANK", "PENSTOCK_TEST_LAUNCHER", "PENSTOCK_TEST_CPUS"}) ::unsetenv(variable);
  return status;
}

std::string self() {
  std::array<char, 4096> path{};
  return ::readlink("/proc/self/exe", path.data(), path.size() - 1) > 0 ? path.data() : "";
}

/// Runs the checks of the rank and returns true. In the launcher, only returns false.
bool is_checked_as_rank() {
  const char* launcher = std::getenv("PENSTOCK_TEST_LAUNCHER");
  if (launcher == nullptr) return false;
  const Inheritance found = inheritance();
  EXPECT_EQ(found.launcher, std::stoi(launcher));
  EXPECT_EQ(found.cpus.text(), std::getenv("PENSTOCK_TEST_CPUS"));
  EXPECT_EQ(cpus_of_process(::getpid()).count(), 1);
  EXPECT_EQ(ranks_started_by(found.launcher), std::vector<pid_t>{found.started});
  EXPECT_EQ(found.started == ::getpid(), ::getppid() == found.launcher);
  return true;
}

TEST(Launcher, GivesItsCpusToARank) {
  if (is_checked_as_rank()) return;
  const std::vector<std::string> command{self(), "--gtest_filter=Launcher.GivesItsCpusToARank"};
  EXPECT_EQ(run_as_rank(command, cpus_of_process(::getpid()).text()), 0);
}

TEST(Launcher, IsFoundBehindAScript) {
  if (is_checked_as_rank()) return;
  const std::string script = "\"$0\" \"$1\" && exit 0 || exit 1";  // no exec: the shell stays in between
  const std::string filter = "--gtest_filter=Launcher.IsFoundBehindAScript";
  EXPECT_EQ(run_as_rank({"/bin/sh", "-c", script, self(), filter}, cpus_of_process(::getpid()).text()), 0);
}

/// The name of the kernel for this process, while it lasts.
class Named {
 public:
  explicit Named(const char* name) {
    ::prctl(PR_GET_NAME, before_.data());
    ::prctl(PR_SET_NAME, name);
  }
  ~Named() { ::prctl(PR_SET_NAME, before_.data()); }
  Named(const Named&) = delete;
  Named& operator=(const Named&) = delete;

 private:
  std::array<char, 16> before_{};
};

/// A daemon of Slurm may run on all CPUs; its step has as many as SLURM_CPUS_ON_NODE says.
TEST(Launcher, OfSlurmGivesAWholeNodeToARank) {
  if (is_checked_as_rank()) return;
  const Named name("slurmstepd");
  ::setenv("SLURM_CPUS_ON_NODE", std::to_string(allowed_cpus().count()).c_str(), 1);
  const std::vector<std::string> command{self(), "--gtest_filter=Launcher.OfSlurmGivesAWholeNodeToARank"};
  EXPECT_EQ(run_as_rank(command, allowed_cpus().text()), 0);
  ::unsetenv("SLURM_CPUS_ON_NODE");
}

TEST(Launcher, OfSlurmGivesNoCpusOfOtherJobsToARank) {
  if (is_checked_as_rank()) return;
  if (allowed_cpus().count() < 2) GTEST_SKIP() << "a single CPU";
  const Named name("slurmstepd");
  ::setenv("SLURM_CPUS_ON_NODE", "1", 1);
  const std::vector<std::string> command{self(), "--gtest_filter=Launcher.OfSlurmGivesNoCpusOfOtherJobsToARank"};
  EXPECT_EQ(run_as_rank(command, std::to_string(allowed_cpus().cpus().front())), 0);
  ::unsetenv("SLURM_CPUS_ON_NODE");
}

TEST(Launcher, IsNoneForAProgramThatNobodyLaunched) {
  if (std::getenv("PMI_RANK") != nullptr || std::getenv("PMIX_RANK") != nullptr) GTEST_SKIP() << "run by a launcher";
  const Inheritance found = inheritance();
  EXPECT_EQ(found.launcher, 0);
  EXPECT_EQ(found.started, ::getpid());
  EXPECT_EQ(found.cpus, cpus_of_process(::getpid()));
  EXPECT_TRUE(ranks_started_by(0).empty());
}

}  // namespace
}  // namespace penstock::host
