#include "engine/single_copy.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace penstock::engine {

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

}  // namespace

int read_memory(pid_t process, std::uint64_t address, Bytes to) noexcept {
  return in_pieces(::process_vm_readv, process, address, to.data(), to.size());
}

int write_memory(pid_t process, std::uint64_t address, ConstBytes from) noexcept {
  return in_pieces(::process_vm_writev, process, address, const_cast<std::byte*>(from.data()), from.size());
}

}  // namespace penstock::engine
