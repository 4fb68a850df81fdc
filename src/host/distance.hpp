// Measures how far away the cores are that last had this rank's shared memory in their caches.
#pragma once

#include <atomic>
#include <cstdint>

#include "penstock/types.hpp"

namespace penstock::host {

/// Processes move between cores, and virtual machines do not always tell which cores share a cache. So the distance is
/// measured repeatedly, on the memory in question. Any thread.
class Distance {
 public:
  /// Call it before writing memory that other cores have read. True if a cache line takes longer from their caches than
  /// from main memory; then non-temporal stores are better. Does not change the content, even if others write it
  /// meanwhile.
  bool is_far(Bytes memory) noexcept;

 private:
  std::atomic<std::uint32_t> calls_{0};
  std::atomic<std::uint32_t> average_ns_{0};  ///< moving average: time to get a line
};

}  // namespace penstock::host
