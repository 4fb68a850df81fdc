// Memory of batches, used again and again.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "penstock/dataset.hpp"

namespace penstock::dataset {

/// The memory of one batch. Used by a Batch or a pipeline, at most one at a time; SlotPool reuses it.
struct Slot {
  SampleForm form;
  bool ragged = false;
  std::vector<std::int64_t> labels;            ///< one per sample
  std::vector<std::uint64_t> indices;          ///< one per sample
  std::vector<std::vector<std::byte>> pieces;  ///< the samples, if ragged
  std::shared_ptr<void> object;                ///< the batch, if the samples are objects

  /// At least this much dense memory, aligned for any vector unit; the old content is lost.
  void reserve(std::uint64_t bytes);
  std::byte* data() const { return data_.get(); }
  std::uint64_t capacity_bytes() const { return capacity_bytes_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::uint64_t capacity_bytes_ = 0;
};

/// Thread-safe. Slots may outlive the pool's owner: they keep the pool.
class SlotPool : public std::enable_shared_from_this<SlotPool> {
 public:
  /// Keeps at most this many free slots.
  explicit SlotPool(std::size_t kept) : kept_(kept) {}
  /// A slot that returns here when its last owner releases it. Never waits for one: a consumer that keeps every batch
  /// must not stop the pipeline.
  std::shared_ptr<Slot> take();
  /// Keeps at most this many free slots from now on.
  void keep(std::size_t slots);
  /// Memory of the free slots.
  std::uint64_t free_bytes();

 private:
  void give(std::unique_ptr<Slot> slot);

  const pid_t process_ = getpid();
  std::mutex mutex_;
  std::vector<std::unique_ptr<Slot>> free_;
  std::size_t kept_;
};

}  // namespace penstock::dataset
