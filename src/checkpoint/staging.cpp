#include "checkpoint/staging.hpp"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::checkpoint {

namespace {

constexpr int kPopulateWrite = 23;                        // MADV_POPULATE_WRITE, missing in older headers
constexpr std::uint64_t kGrain = std::uint64_t{2} << 20;  // size of a huge page

/// Copies the bytes [begin, end), counted through all copies.
void copy_part(std::span<const Copy> copies, std::uint64_t begin, std::uint64_t end) {
  std::uint64_t at = 0;
  for (const Copy& copy : copies) {
    const std::uint64_t first = std::clamp(begin, at, at + copy.from.size()) - at;
    const std::uint64_t last = std::clamp(end, at, at + copy.from.size()) - at;
    if (last > first) std::memcpy(copy.to + first, copy.from.data() + first, last - first);
    at += copy.from.size();
    if (at >= end) return;
  }
}

}  // namespace

Staging::~Staging() {
  if (memory_ != nullptr) munmap(memory_, size_bytes_);
}

void Staging::reserve(std::uint64_t size_bytes) {
  if (size_bytes <= size_bytes_) return;
  size_bytes = (size_bytes + kGrain - 1) / kGrain * kGrain;
  if (memory_ != nullptr) munmap(std::exchange(memory_, nullptr), std::exchange(size_bytes_, 0));
  void* memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(ErrorCode::no_space, "no memory for " + std::to_string(size_bytes) + " bytes of staging", -1,
                std::strerror(errno), errno);
  }
  memory_ = static_cast<std::byte*>(memory);
  size_bytes_ = size_bytes;
  madvise(memory_, size_bytes_, MADV_HUGEPAGE);  // optional: only faster
  if (madvise(memory_, size_bytes_, kPopulateWrite) == 0) return;
  constexpr std::uint64_t kSmallestPage = 4096;
  for (std::uint64_t at = 0; at < size_bytes_; at += kSmallestPage) memory_[at] = std::byte{0};
}

void copy_all(std::span<const Copy> copies, int threads) {
  constexpr std::uint64_t kWorthAThread = std::uint64_t{8} << 20;
  std::uint64_t total_bytes = 0;
  for (const Copy& copy : copies) total_bytes += copy.from.size();
  const std::uint64_t parts =
      std::clamp<std::uint64_t>(total_bytes / kWorthAThread, 1, static_cast<std::uint64_t>(std::max(threads, 1)));
  const std::uint64_t part_bytes = total_bytes / parts + 1;
  std::vector<std::thread> others;
  std::uint64_t begin = part_bytes;
  try {
    for (; begin < total_bytes; begin += part_bytes) {
      others.emplace_back([copies, begin, part_bytes] { copy_part(copies, begin, begin + part_bytes); });
    }
  } catch (const std::system_error&) {
    copy_part(copies, begin, total_bytes);  // no thread could be started: copy the rest here
  }
  copy_part(copies, 0, part_bytes);
  for (std::thread& other : others) other.join();
}

int copy_threads(int ranks_here) {
  constexpr int kMemoryBound = 4;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::clamp(CPU_COUNT(&set) / std::max(ranks_here, 1), 1, kMemoryBound);
}

}  // namespace penstock::checkpoint
