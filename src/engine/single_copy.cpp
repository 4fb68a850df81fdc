#include "engine/single_copy.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace penstock::engine {

int read_memory(pid_t process, std::uint64_t address, Bytes to) noexcept {
  constexpr std::size_t kPieceBytes = 1 << 30;  // below the kernel's limit for one call
  std::size_t done = 0;
  while (done < to.size()) {
    const std::size_t bytes = std::min(to.size() - done, kPieceBytes);
    iovec local{to.data() + done, bytes};
    iovec remote{reinterpret_cast<void*>(address + done), bytes};
    const ssize_t moved = ::process_vm_readv(process, &local, 1, &remote, 1, 0);
    if (moved < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (moved == 0) return EFAULT;
    done += static_cast<std::size_t>(moved);
  }
  return 0;
}

}  // namespace penstock::engine
