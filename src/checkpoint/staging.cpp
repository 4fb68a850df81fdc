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

Staging::~Staging() { release(); }

void Staging::release() {
  if (memory_ != nullptr) munmap(std::exchange(memory_, nullptr), std::exchange(size_bytes_, 0));
  asked_bytes_ = 0;
}

void Staging::reserve(std::uint64_t size_bytes) {
  if (size_bytes <= size_bytes_) {
    asked_bytes_ = std::max(asked_bytes_, size_bytes);
    return;
  }
  release();
  const std::uint64_t asked_bytes = size_bytes;
  size_bytes = (size_bytes + kGrain - 1) / kGrain * kGrain;
  void* memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(ErrorCode::no_space, "no memory for " + std::to_string(size_bytes) + " bytes of staging", -1,
                std::strerror(errno), errno);
  }
  memory_ = static_cast<std::byte*>(memory);
  size_bytes_ = size_bytes;
  asked_bytes_ = asked_bytes;
  madvise(memory_, size_bytes_, MADV_HUGEPAGE);  // optional: only faster
  if (madvise(memory_, size_bytes_, kPopulateWrite) == 0) return;
  constexpr std::uint64_t kSmallestPage = 4096;
  for (std::uint64_t at = 0; at < size_bytes_; at += kSmallestPage) memory_[at] = std::byte{0};
}

void StagingPool::check(std::uint64_t size_bytes) const {
  if (limits_.budget_bytes == 0 || size_bytes <= limits_.budget_bytes) return;
  throw Error(ErrorCode::invalid_argument, "staging_bytes is " + std::to_string(limits_.budget_bytes) +
                                               ", but the arrays of this rank take " + std::to_string(size_bytes) +
                                               " bytes; give at least that, or twice as much for saves that do not "
                                               "wait for the one before");
}

std::uint64_t StagingPool::share_of_free_memory() const {
  return limits_.free_memory_bytes() / static_cast<std::uint64_t>(std::max(limits_.ranks_here, 1));
}

bool StagingPool::has_room(std::uint64_t size_bytes, const Held& held) const {
  if (held.empty()) return true;
  std::uint64_t held_bytes = 0;
  std::uint64_t idle_bytes = 0;
  for (const Staging& buffer : buffers_) {
    if (held.contains(&buffer)) {
      held_bytes += buffer.asked_bytes();
    } else if (buffer.asked_bytes() >= size_bytes) {
      return true;
    } else {
      idle_bytes += buffer.size_bytes();
    }
  }
  if (limits_.budget_bytes > 0) return held_bytes + size_bytes <= limits_.budget_bytes;
  if (held.size() >= static_cast<std::size_t>(default_buffers())) return false;
  return size_bytes <= (share_of_free_memory() + idle_bytes) / 2;
}

Staging& StagingPool::take(std::uint64_t size_bytes, const Held& held) {
  const auto is_idle = [&](const Staging& buffer) { return !held.contains(&buffer); };
  Staging* fitting = nullptr;
  Staging* largest = nullptr;
  for (Staging& buffer : buffers_) {
    if (!is_idle(buffer)) continue;
    const bool fits = buffer.asked_bytes() >= size_bytes;
    if (fits && (fitting == nullptr || buffer.asked_bytes() < fitting->asked_bytes())) fitting = &buffer;
    if (largest == nullptr || buffer.size_bytes() > largest->size_bytes()) largest = &buffer;
  }
  if (fitting == nullptr) {
    fitting = largest != nullptr ? largest : &buffers_.emplace_back();
    for (Staging& buffer : buffers_) {
      std::uint64_t asked_bytes = size_bytes - fitting->asked_bytes();
      for (const Staging& other : buffers_) asked_bytes += other.asked_bytes();
      if (limits_.budget_bytes == 0 || asked_bytes <= limits_.budget_bytes) break;
      if (is_idle(buffer) && &buffer != fitting) buffer.release();
    }
  }
  fitting->reserve(size_bytes);
  return *fitting;
}

int StagingPool::buffers_for(std::uint64_t size_bytes) const {
  if (limits_.budget_bytes > 0) {
    const std::uint64_t count = size_bytes == 0 ? kMostBuffers : limits_.budget_bytes / size_bytes;
    return static_cast<int>(std::clamp<std::uint64_t>(count, 1, kMostBuffers));
  }
  return size_bytes <= share_of_free_memory() / 2 ? default_buffers() : 1;
}

std::uint64_t StagingPool::size_bytes() const {
  std::uint64_t total = 0;
  for (const Staging& buffer : buffers_) total += buffer.size_bytes();
  return total;
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

SharedCopies::SharedCopies(std::vector<Copy> copies) : copies_(std::move(copies)) {
  for (const Copy& copy : copies_) {
    begins_.push_back(total_bytes_);
    total_bytes_ += copy.from.size();
  }
  pieces_ = (total_bytes_ + kPieceBytes - 1) / kPieceBytes;
  // The target is larger than the caches and is read much later, by a thread that hashes and writes it. Ordinary stores
  // would fetch each of its lines from memory first, which takes a third of the rate.
  streams_ = kernels::kCanStream && total_bytes_ >= kernels::kStreamedBytes;
}

void SharedCopies::copy(std::uint64_t piece) const {
  std::uint64_t at = piece * kPieceBytes;
  const std::uint64_t end = std::min(at + kPieceBytes, total_bytes_);
  // The last copy that begins here or before.
  auto next = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), at) - begins_.begin()) - 1;
  for (; at < end; ++next) {
    const Copy& copy = copies_[next];
    const std::uint64_t offset = at - begins_[next];
    const std::uint64_t size_bytes = std::min(copy.from.size() - offset, end - at);
    if (streams_) {
      kernels::stream_row(copy.to + offset, copy.from.data() + offset, size_bytes);
    } else if (size_bytes > 0) {
      std::memcpy(copy.to + offset, copy.from.data() + offset, size_bytes);
    }
    at += size_bytes;
  }
  if (streams_) kernels::end_streaming();  // before another thread is told
}

bool SharedCopies::copy_piece() {
  const std::uint64_t piece = next_piece_.fetch_add(1);
  if (piece >= pieces_) return false;
  copy(piece);
  if (done_pieces_.fetch_add(1) + 1 == pieces_) done_pieces_.notify_all();
  return true;
}

void SharedCopies::finish(int threads) {
  const std::uint64_t begun = std::min(next_piece_.load(), pieces_);
  store::in_parallel(pieces_ - begun, static_cast<std::size_t>(std::max(threads, 1)),
                     [this](std::size_t, std::size_t) { copy_piece(); });
  for (std::uint64_t done = done_pieces_; done < pieces_; done = done_pieces_) done_pieces_.wait(done);
}

void copy_all(std::span<const Copy> copies, int threads) {
  SharedCopies(std::vector<Copy>(copies.begin(), copies.end())).finish(threads);
}

int copy_threads(int ranks_here) {
  constexpr int kMemoryBound = 4;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::clamp(CPU_COUNT(&set) / std::max(ranks_here, 1), 1, kMemoryBound);
}

}  // namespace penstock::checkpoint
