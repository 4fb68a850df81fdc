#include "checkpoint/staging.hpp"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/streaming.hpp"
#include "penstock/error.hpp"
#include "store/in_parallel.hpp"

namespace penstock::checkpoint {

namespace {

constexpr int kPopulateWrite = 23;                        // MADV_POPULATE_WRITE, missing in older headers
constexpr std::uint64_t kGrain = std::uint64_t{2} << 20;  // size of a huge page

/// Long enough for streams of the memory controller, short enough that a thread that the scheduler holds up leaves
/// little for the others to wait for.
constexpr std::uint64_t kPieceBytes = std::uint64_t{2} << 20;

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

void Precedence::give_way() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return holders_ == 0; });
}

void Precedence::change(int by) {
  {
    const std::lock_guard lock(mutex_);
    holders_ += by;
  }
  changed_.notify_all();
}

void copy_all(std::span<const Copy> copies, int threads) {
  std::vector<std::uint64_t> begins;  // of each copy, counted through all of them
  std::uint64_t total_bytes = 0;
  for (const Copy& copy : copies) {
    begins.push_back(total_bytes);
    total_bytes += copy.from.size();
  }
  // The target is larger than the caches and is read much later, by a thread that hashes and writes it. Ordinary stores
  // would fetch each of its lines from memory first, which takes a third of the rate.
  const bool streams = kernels::kCanStream && total_bytes >= kernels::kStreamedBytes;
  const auto copy_piece = [&](std::size_t piece, std::size_t) {
    std::uint64_t at = piece * kPieceBytes;
    const std::uint64_t end = std::min(at + kPieceBytes, total_bytes);
    // The last copy that begins here or before.
    auto next = static_cast<std::size_t>(std::upper_bound(begins.begin(), begins.end(), at) - begins.begin()) - 1;
    for (; at < end; ++next) {
      const Copy& copy = copies[next];
      const std::uint64_t offset = at - begins[next];
      const std::uint64_t size_bytes = std::min(copy.from.size() - offset, end - at);
      if (streams) {
        kernels::stream_row(copy.to + offset, copy.from.data() + offset, size_bytes);
      } else if (size_bytes > 0) {
        std::memcpy(copy.to + offset, copy.from.data() + offset, size_bytes);
      }
      at += size_bytes;
    }
    if (streams) kernels::end_streaming();  // before another thread is told
  };
  store::in_parallel((total_bytes + kPieceBytes - 1) / kPieceBytes, static_cast<std::size_t>(std::max(threads, 1)),
                     copy_piece);
}

int copy_threads(int ranks_here) {
  constexpr int kMemoryBound = 4;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::clamp(CPU_COUNT(&set) / std::max(ranks_here, 1), 1, kMemoryBound);
}

}  // namespace penstock::checkpoint
