// Containers that keep their memory, so that an engine that has warmed up does not allocate.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

namespace penstock::engine {

/// A queue in a ring that grows.
template <typename T>
class Fifo {
 public:
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  T& front() { return ring_[first_]; }
  T& operator[](std::size_t i) { return ring_[(first_ + i) & (ring_.size() - 1)]; }
  const T& operator[](std::size_t i) const { return ring_[(first_ + i) & (ring_.size() - 1)]; }

  void push(T value) {
    if (count_ == ring_.size()) grow();
    ring_[(first_ + count_) & (ring_.size() - 1)] = std::move(value);
    ++count_;
  }
  T pop() {
    T value = std::move(ring_[first_]);
    first_ = (first_ + 1) & (ring_.size() - 1);
    --count_;
    return value;
  }
  template <typename Predicate>
  void remove_if(Predicate predicate) {
    for (std::size_t left = count_; left > 0; --left) {
      T value = pop();
      if (!predicate(value)) push(std::move(value));
    }
  }

 private:
  void grow() {
    std::vector<T> larger(ring_.empty() ? 16 : ring_.size() * 2);
    for (std::size_t i = 0; i < count_; ++i) larger[i] = std::move((*this)[i]);
    ring_ = std::move(larger);
    first_ = 0;
  }
  std::vector<T> ring_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

/// Records that messages refer to by an id. Ids of removed records are not reused: they find nothing.
template <typename T>
class SlotTable {
 public:
  /// What the next add() will return. That needs no memory.
  std::uint32_t next() {
    if (free_.empty()) grow();
    return slots_[free_.back()].generation << kIndexBits | free_.back();
  }
  std::uint32_t add(T value) {
    const std::uint32_t id = next();
    Slot& slot = slots_[free_.back()];
    free_.pop_back();
    slot.value = std::move(value);
    slot.used = true;
    return id;
  }
  T* find(std::uint32_t id) {
    const std::uint32_t index = id & ((1u << kIndexBits) - 1);
    if (index >= slots_.size()) return nullptr;
    Slot& slot = slots_[index];
    return slot.used && slot.generation == id >> kIndexBits ? &slot.value : nullptr;
  }
  /// Needs no memory.
  void remove(std::uint32_t id) {
    const std::uint32_t index = id & ((1u << kIndexBits) - 1);
    slots_[index].used = false;
    slots_[index].generation = (slots_[index].generation + 1) & ((1u << (32 - kIndexBits)) - 1);
    free_.push_back(index);
  }
  template <typename Predicate>
  void remove_if(Predicate predicate) {
    for (std::uint32_t i = 0; i < slots_.size(); ++i)
      if (slots_[i].used && predicate(slots_[i].value)) remove(slots_[i].generation << kIndexBits | i);
  }
  template <typename Function>
  void for_each(Function function) const {
    for (const Slot& slot : slots_)
      if (slot.used) function(slot.value);
  }
  /// The function adds and removes nothing.
  template <typename Function>
  void for_each_id(Function function) {
    for (std::uint32_t i = 0; i < slots_.size(); ++i)
      if (slots_[i].used) function(slots_[i].generation << kIndexBits | i, slots_[i].value);
  }

 private:
  static constexpr std::uint32_t kIndexBits = 20;
  struct Slot {
    T value{};
    std::uint32_t generation = 0;
    bool used = false;
  };

  void grow() {
    if (free_.capacity() <= slots_.size()) free_.reserve(std::max<std::size_t>(2 * slots_.size(), 16));
    slots_.emplace_back();
    free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
  }
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
};

/// A pool of buffers: sizes are powers of two, aligned to 64 bytes. Free buffers are kept up to a limit.
class BufferPool {
 public:
  BufferPool() = default;
  ~BufferPool() {
    for (auto& buffers : idle_)
      for (std::byte* buffer : buffers) std::free(buffer);
  }
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// At least `bytes`; nullptr for 0. Throws std::bad_alloc.
  std::byte* take(std::uint64_t bytes) {
    if (bytes == 0) return nullptr;
    const std::size_t order = order_of(bytes);
    if (!idle_[order].empty()) {
      std::byte* buffer = idle_[order].back();
      idle_[order].pop_back();
      idle_bytes_ -= std::uint64_t{1} << order;
      return buffer;
    }
    void* memory = std::aligned_alloc(64, std::size_t{1} << order);
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<std::byte*>(memory);
  }
  /// `bytes` must be the argument of take().
  void give_back(std::byte* buffer, std::uint64_t bytes) noexcept {
    if (buffer == nullptr) return;
    const std::size_t order = order_of(bytes);
    if (idle_bytes_ + (std::uint64_t{1} << order) > kIdleLimitBytes) return std::free(buffer);
    try {
      idle_[order].push_back(buffer);
    } catch (const std::bad_alloc&) {
      return std::free(buffer);
    }
    idle_bytes_ += std::uint64_t{1} << order;
  }

 private:
  static constexpr std::uint64_t kIdleLimitBytes = 64 << 20;
  static std::size_t order_of(std::uint64_t bytes) {
    return static_cast<std::size_t>(std::bit_width(bytes <= 64 ? std::uint64_t{63} : bytes - 1));
  }
  std::array<std::vector<std::byte*>, 64> idle_;
  std::uint64_t idle_bytes_ = 0;
};

}  // namespace penstock::engine
