// Runs an action in a child process whose file system calls are counted and stopped, by ptrace(2) and seccomp(2): the
// process is killed before the call of a chosen number, or this call and those after it fail. All threads of the child
// are counted together, which strace --inject does not do.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#if defined(__linux__) && defined(__x86_64__)
#define PENSTOCK_TEST_CAN_TRACE 1
#else
#define PENSTOCK_TEST_CAN_TRACE 0
#endif

#if PENSTOCK_TEST_CAN_TRACE
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <stdexcept>
#include <system_error>
#include <vector>
#endif

namespace penstock::test {

/// What happens at the calls below one directory.
struct Injection {
  enum class What : std::uint8_t {
    nothing,    ///< they are only counted
    kill,       ///< SIGKILL before call `at`, so that it does not happen
    fail_once,  ///< call `at` fails
    fail_on,    ///< call `at` and all after it fail: a full disk, or one that the kernel has made read-only
  };
  What what = What::nothing;
  long at = 0;
  int error = 0;        ///< errno of calls that fail
  bool removes = true;  ///< whether calls that remove something count; a full disk can still remove
  bool reads = false;   ///< whether calls that change nothing count
};

struct Traced {
  long calls = 0;  ///< that counted
  bool was_killed = false;
  int exit_status = -1;  ///< if it was not killed
  std::string at;        ///< the call that was chosen, for messages
};

#if PENSTOCK_TEST_CAN_TRACE

namespace tracing {

enum class Kind : std::uint8_t { changes, removes, reads, opens };
enum class Names : std::uint8_t { path, path_at, descriptor };

struct Call {
  long number;
  const char* name;
  Kind kind;
  Names names;
};

inline constexpr Call kCalls[] = {
    {SYS_open, "open", Kind::opens, Names::path},
    {SYS_openat, "openat", Kind::opens, Names::path_at},
    {SYS_creat, "creat", Kind::changes, Names::path},
    {SYS_write, "write", Kind::changes, Names::descriptor},
    {SYS_pwrite64, "pwrite64", Kind::changes, Names::descriptor},
    {SYS_writev, "writev", Kind::changes, Names::descriptor},
    {SYS_pwritev, "pwritev", Kind::changes, Names::descriptor},
    {SYS_pwritev2, "pwritev2", Kind::changes, Names::descriptor},
    {SYS_copy_file_range, "copy_file_range", Kind::changes, Names::descriptor},
    {SYS_ftruncate, "ftruncate", Kind::changes, Names::descriptor},
    {SYS_fallocate, "fallocate", Kind::changes, Names::descriptor},
    {SYS_fsync, "fsync", Kind::changes, Names::descriptor},
    {SYS_fdatasync, "fdatasync", Kind::changes, Names::descriptor},
    {SYS_syncfs, "syncfs", Kind::changes, Names::descriptor},
    {SYS_sync_file_range, "sync_file_range", Kind::changes, Names::descriptor},
    {SYS_fchmod, "fchmod", Kind::changes, Names::descriptor},
    {SYS_link, "link", Kind::changes, Names::path},
    {SYS_linkat, "linkat", Kind::changes, Names::path_at},
    {SYS_symlink, "symlink", Kind::changes, Names::path},
    {SYS_rename, "rename", Kind::changes, Names::path},
    {SYS_renameat, "renameat", Kind::changes, Names::path_at},
    {SYS_renameat2, "renameat2", Kind::changes, Names::path_at},
    {SYS_mkdir, "mkdir", Kind::changes, Names::path},
    {SYS_mkdirat, "mkdirat", Kind::changes, Names::path_at},
    {SYS_unlink, "unlink", Kind::removes, Names::path},
    {SYS_unlinkat, "unlinkat", Kind::removes, Names::path_at},
    {SYS_rmdir, "rmdir", Kind::removes, Names::path},
    {SYS_read, "read", Kind::reads, Names::descriptor},
    {SYS_pread64, "pread64", Kind::reads, Names::descriptor},
    {SYS_readv, "readv", Kind::reads, Names::descriptor},
    {SYS_preadv, "preadv", Kind::reads, Names::descriptor},
    {SYS_preadv2, "preadv2", Kind::reads, Names::descriptor},
    {SYS_getdents64, "getdents64", Kind::reads, Names::descriptor},
    {SYS_fstat, "fstat", Kind::reads, Names::descriptor},
    {SYS_stat, "stat", Kind::reads, Names::path},
    {SYS_newfstatat, "newfstatat", Kind::reads, Names::path_at},
    {SYS_statfs, "statfs", Kind::reads, Names::path},
    {SYS_access, "access", Kind::reads, Names::path},
};

/// Only these calls stop the child, so that it is not slow.
inline void install_filter() {
  std::vector<sock_filter> program;
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (const Call& call : kCalls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call.number), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    _exit(2);
  }
}

inline std::string text_at(pid_t thread, std::uint64_t address) {
  std::string text;
  char piece[64];
  while (text.size() < 4096) {
    const iovec to{piece, sizeof piece - (address + text.size()) % sizeof piece};  // never over the end of a page
    const iovec from{reinterpret_cast<void*>(address + text.size()), to.iov_len};
    const ssize_t got = process_vm_readv(thread, &to, 1, &from, 1, 0);
    if (got <= 0) break;
    const std::string_view read(piece, static_cast<std::size_t>(got));
    text += read.substr(0, read.find('\0'));
    if (read.find('\0') != std::string_view::npos) break;
  }
  return text;
}

inline std::string file_of(pid_t thread, std::uint64_t descriptor) {
  const std::string link = "/proc/" + std::to_string(thread) + "/fd/" + std::to_string(static_cast<int>(descriptor));
  char path[4096];
  const ssize_t size = readlink(link.c_str(), path, sizeof path);
  return size < 0 ? std::string() : std::string(path, static_cast<std::size_t>(size));
}

/// A call that has stopped: which, and on what; nothing if it does not concern the directory or does not count.
inline std::optional<std::string> counted(pid_t thread, const user_regs_struct& registers, const std::string& below,
                                          const Injection& injection) {
  for (const Call& call : kCalls) {
    if (call.number != static_cast<long>(registers.orig_rax)) continue;
    std::string path;
    std::uint64_t flags = 0;
    switch (call.names) {
      case Names::path: path = text_at(thread, registers.rdi), flags = registers.rsi; break;
      case Names::path_at: path = text_at(thread, registers.rsi), flags = registers.rdx; break;
      case Names::descriptor: path = file_of(thread, registers.rdi);
    }
    if (path.empty() && call.names == Names::path_at) path = file_of(thread, registers.rdi);  // AT_EMPTY_PATH
    const bool changes = call.kind == Kind::changes || (call.kind == Kind::removes && injection.removes) ||
                         (call.kind == Kind::opens && (flags & (O_CREAT | O_WRONLY | O_RDWR)) != 0);
    const bool reads = injection.reads && (call.kind == Kind::reads || call.kind == Kind::opens);
    if (!path.starts_with(below) || !(changes || reads)) return std::nullopt;
    return std::string(call.name) + " " + path.substr(below.size());
  }
  return std::nullopt;
}

}  // namespace tracing

/// Runs `action` in a child. Its calls count if they name a file below `below`. An exception is exit status 3.
inline Traced run_traced(const std::string& below, const Injection& injection, const std::function<void()>& action) {
  int gate[2];
  if (pipe(gate) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child == 0) {
    ::close(gate[1]);
    char none;
    // The tracer opens the gate by closing it. If it cannot trace, it kills this process.
    if (::read(gate[0], &none, 1) < 0) _exit(2);
    ::close(gate[0]);
    tracing::install_filter();
    try {
      action();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "the traced process failed: %s\n", error.what());
      _exit(3);
    }
    _exit(0);
  }
  ::close(gate[0]);
  const long seized = ptrace(PTRACE_SEIZE, child, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACESECCOMP);
  const int refused = errno;
  if (seized != 0) kill(child, SIGKILL);
  ::close(gate[1]);
  if (seized != 0) {
    waitpid(child, nullptr, 0);
    throw std::system_error(refused, std::generic_category(), "ptrace");
  }
  Traced result;
  for (;;) {
    int status = 0;
    const pid_t thread = waitpid(-1, &status, __WALL);
    if (thread < 0) {
      if (errno == EINTR) continue;
      throw std::system_error(errno, std::generic_category(), "waitpid");
    }
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (thread != child) continue;
      result.was_killed = WIFSIGNALED(status);
      if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
      return result;
    }
    long deliver = 0;
    if (status >> 8 == (SIGTRAP | (PTRACE_EVENT_SECCOMP << 8))) {
      user_regs_struct registers{};
      if (ptrace(PTRACE_GETREGS, thread, 0, &registers) == 0) {
        if (const auto call = tracing::counted(thread, registers, below, injection)) {
          ++result.calls;
          if (result.calls == injection.at) result.at = *call;
          using What = Injection::What;
          if (injection.what == What::kill && result.calls == injection.at) {
            kill(child, SIGKILL);
            continue;
          }
          if ((injection.what == What::fail_once && result.calls == injection.at) ||
              (injection.what == What::fail_on && injection.at > 0 && result.calls >= injection.at)) {
            registers.orig_rax = ~0ULL;  // the kernel skips the call and returns rax
            registers.rax = static_cast<unsigned long long>(-static_cast<long long>(injection.error));
            ptrace(PTRACE_SETREGS, thread, 0, &registers);
          }
        }
      }
    } else if (WIFSTOPPED(status) && status >> 16 == 0) {
      deliver = WSTOPSIG(status);
    }
    ptrace(PTRACE_CONT, thread, 0, deliver);
  }
}

#endif

}  // namespace penstock::test
