// How far away the cores are that last had this rank's shared memory in their caches.
#pragma once

#include <atomic>
#include <cstdint>

#include "penstock/types.hpp"

namespace penstock::engine {

/// Where processes run changes, and which cores share a cache is not always known (virtual machines move theirs), so it
/// is measured again and again, on the memory that it is about. Any thread.
class Distance {
 public:
  /// To be asked before memory is filled that others have read: whether they are so far away that a line takes longer
  /// from their caches than from memory, so what is written for them had better go there. Leaves the content as it is,
  /// whatever others write there meanwhile.
  bool is_far(Bytes memory) noexcept;

 private:
  std::atomic<std::uint32_t> calls_{0};
  std::atomic<std::uint32_t> average_ns_{0};  ///< that getting a line takes
};

}  // namespace penstock::engine
