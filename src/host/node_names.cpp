#include "host/node_names.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/hash.hpp"
#include "host/pid_namespace.hpp"
#include "penstock/error.hpp"

namespace penstock::host {

namespace {

/// Empty if the system has none.
std::string boot_id() {
  const int file = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  // Another name than that of its neighbours would keep the process apart from them until it ends.
  if (file < 0 && (errno == EMFILE || errno == ENFILE))
    throw Error(ErrorCode::io, "cannot find out which ranks share a node: this process has no file descriptor left", -1,
                std::generic_category().message(errno), errno);
  if (file < 0) return {};
  std::array<char, 64> text{};
  const ssize_t length = ::read(file, text.data(), text.size());
  ::close(file);
  return {text.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

}  // namespace

std::uint64_t node_of_process() {
  static const std::uint64_t node = [] {
    const std::string boot = boot_id();
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    struct stat shared {};
    ::stat("/dev/shm", &shared);
    // Ranks find each other's shared memory in /proc, so they must see the same processes there. A namespace may have
    // several mounts of its own /proc.
    struct stat processes {};
    ::stat(proc_has_own_numbers() ? "/proc/self/ns/pid" : "/proc", &processes);
    std::uint64_t hash = base::mix(base::kSeed, std::string_view(boot));
    hash = base::mix(hash, std::string_view(host.data()));
    hash = base::mix(hash, static_cast<std::uint64_t>(shared.st_dev));
    hash = base::mix(hash, static_cast<std::uint64_t>(processes.st_dev));
    return base::mix(hash, static_cast<std::uint64_t>(processes.st_ino));
  }();
  return node;
}

std::uint64_t kernel_of_process() {
  static const std::uint64_t kernel = [] {
    const std::string boot = boot_id();
    return boot.empty() ? 0 : std::max<std::uint64_t>(1, base::mix(base::kSeed, std::string_view(boot)));
  }();
  return kernel;
}

void number_nodes(std::span<const std::uint64_t> name_of_rank, std::span<std::int32_t> scratch,
                  std::span<std::int32_t> node_of_rank) {
  // By node, and within one by rank: its first rank stands for it.
  std::iota(scratch.begin(), scratch.end(), 0);
  const auto name_of = [&](std::int32_t rank) { return name_of_rank[static_cast<std::size_t>(rank)]; };
  std::ranges::sort(scratch, {}, [&](std::int32_t rank) { return std::pair(name_of(rank), rank); });
  for (std::size_t i = 0, first = 0; i < scratch.size(); ++i) {
    if (name_of(scratch[i]) != name_of(scratch[first])) first = i;
    node_of_rank[static_cast<std::size_t>(scratch[i])] = scratch[first];
  }
  // A first rank comes before the others of its node.
  std::int32_t next = 0;
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const auto first = static_cast<std::size_t>(node_of_rank[rank]);
    node_of_rank[rank] = first == rank ? next++ : node_of_rank[first];
  }
}

}  // namespace penstock::host
