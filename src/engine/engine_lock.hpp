// The lock of an engine.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/operation_table.hpp"

namespace penstock::engine {

/// Protects an engine. Operations whose Run is destroyed while another thread has the lock are left to that thread,
/// which takes them over when it unlocks. User operations that are over are destroyed then too, without the lock.
class EngineLock {
 public:
  explicit EngineLock(OperationTable& operations) : operations_(operations) {}

  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() noexcept;

  /// The caller's Run is destroyed, without the lock. Never waits for it: the thread that has it may be running a
  /// Python reduction inside MPI, which waits for the interpreter lock that the caller holds.
  void drop(Operation& operation) noexcept;

 private:
  void take_over();

  std::mutex mutex_;
  OperationTable& operations_;
  std::atomic<Operation*> dropped_{nullptr};  ///< list of operations that are left to the thread that has the lock
};

using Locked = std::unique_lock<EngineLock>;

inline void EngineLock::drop(Operation& operation) noexcept {
  if (mutex_.try_lock()) {
    operations_.drop(operation);
    return unlock();
  }
  operation.next_dropped = dropped_.load(std::memory_order_relaxed);
  while (!dropped_.compare_exchange_weak(operation.next_dropped, &operation, std::memory_order_seq_cst,
                                         std::memory_order_relaxed)) {
  }
  if (mutex_.try_lock()) unlock();
}

inline void EngineLock::take_over() {
  if (dropped_.load(std::memory_order_relaxed) == nullptr) return;
  Operation* next = dropped_.exchange(nullptr, std::memory_order_acquire);
  while (next != nullptr) {
    Operation& operation = *next;
    next = operation.next_dropped;
    operations_.drop(operation);
  }
}

// drop() enters the operation in the list before it tries the lock, and unlock() looks at the list after it has
// unlocked. So one of the two sees what the other has done: a sequentially consistent load is not moved before the
// release of a mutex on any processor, though the standard does not say so.
inline void EngineLock::unlock() noexcept {
  do {
    take_over();
    std::vector<std::shared_ptr<const UserOp>> over;
    if (operations_.has_dropped()) over = operations_.take_dropped();
    mutex_.unlock();
  } while (dropped_.load(std::memory_order_seq_cst) != nullptr && mutex_.try_lock());
}

}  // namespace penstock::engine
