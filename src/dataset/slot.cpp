#include "dataset/slot.hpp"

#include <new>
#include <utility>

namespace penstock::dataset {

namespace {
constexpr std::uint64_t kAlignmentBytes = 64;
}

void Slot::reserve(std::uint64_t bytes) {
  if (bytes <= capacity_bytes_) return;
  const std::uint64_t rounded = (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignmentBytes, rounded)));
  capacity_bytes_ = data_ ? rounded : 0;
  if (!data_) throw std::bad_alloc();
}

std::shared_ptr<Slot> SlotPool::take() {
  std::unique_ptr<Slot> slot;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      slot = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (!slot) slot = std::make_unique<Slot>();
  return {slot.release(), [pool = shared_from_this()](Slot* p) { pool->give(std::unique_ptr<Slot>(p)); }};
}

void SlotPool::keep(std::size_t slots) {
  const std::lock_guard lock(mutex_);
  kept_ = slots;
}

std::uint64_t SlotPool::free_bytes() {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const auto& slot : free_) bytes += slot->capacity_bytes();
  return bytes;
}

void SlotPool::give(std::unique_ptr<Slot> slot) {
  slot->pieces.clear();
  slot->object.reset();
  // In a forked child the lock may be held by a thread that exists in the parent only.
  if (getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  if (free_.size() < kept_) free_.push_back(std::move(slot));
}

}  // namespace penstock::dataset
