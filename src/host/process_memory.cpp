#include "host/process_memory.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <new>
#include <span>

namespace penstock::host {

namespace {

template <typename Call>
int in_pieces(Call call, pid_t process, std::uint64_t address, std::byte* here, std::size_t size_bytes) noexcept {
  constexpr std::size_t kPieceBytes = 1 << 30;  // below the kernel's limit for one call
  std::size_t done = 0;
  while (done < size_bytes) {
    const std::size_t bytes = std::min(size_bytes - done, kPieceBytes);
    const iovec local{here + done, bytes};
    const iovec remote{reinterpret_cast<void*>(address + done), bytes};
    const ssize_t moved = call(process, &local, 1, &remote, 1, 0);
    if (moved < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (moved == 0) return EFAULT;
    done += static_cast<std::size_t>(moved);
  }
  return 0;
}

AccessObstacle try_access(pid_t process, std::uint64_t probe_address, std::uint64_t probe_value) noexcept {
  std::uint64_t value = 0;
  const int error = read_memory(process, probe_address, std::as_writable_bytes(std::span(&value, 1)));
  if (error != 0) return {"process_vm_readv", error};
  if (value != probe_value) return {"the ranks do not see each other's process numbers", 0};
  // Changes nothing, so that the others may do it at the same time.
  const int refused = write_memory(process, probe_address, std::as_bytes(std::span(&value, 1)));
  return refused != 0 ? AccessObstacle{"process_vm_writev", refused} : AccessObstacle{};
}

}  // namespace

int read_memory(pid_t process, std::uint64_t address, Bytes to) noexcept {
  return in_pieces(::process_vm_readv, process, address, to.data(), to.size());
}

int write_memory(pid_t process, std::uint64_t address, ConstBytes from) noexcept {
  return in_pieces(::process_vm_writev, process, address, const_cast<std::byte*>(from.data()), from.size());
}

AccessObstacle obstacle_to_access(pid_t process, std::uint64_t probe_address, std::uint64_t probe_value) noexcept {
  static std::mutex mutex;
  static std::map<pid_t, std::uint64_t> reached;
  const std::lock_guard lock(mutex);
  if (const auto found = reached.find(process); found != reached.end() && found->second == probe_value) return {};
  const AccessObstacle obstacle = try_access(process, probe_address, probe_value);
  if (obstacle.what != nullptr) return obstacle;
  try {
    reached[process] = probe_value;
  } catch (const std::bad_alloc&) {
    // It is asked for again the next time.
  }
  return {};
}

}  // namespace penstock::host
