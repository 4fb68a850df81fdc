// Copies between buffers of any alignment.
#pragma once

#include <cstddef>
#include <cstring>

namespace penstock::kernels {

/// memcpy by `rep movsb`, which writes whole cache lines without fetching them first, from memory or from other cores'
/// caches. Returns false and copies nothing if the processor is not fast at it for these addresses.
bool copy_as_string(std::byte* __restrict to, const std::byte* __restrict from, std::size_t size_bytes);

/// As copy_bytes(), for long copies.
void copy_long(std::byte* __restrict to, const std::byte* __restrict from, std::size_t size_bytes);

/// memcpy, by the method that is fastest if nothing is known about where source and target are cached.
inline void copy_bytes(std::byte* __restrict to, const std::byte* __restrict from, std::size_t size_bytes) {
  constexpr std::size_t kLongBytes = 2048;
  if (size_bytes >= kLongBytes)
    copy_long(to, from, size_bytes);
  else if (size_bytes > 0)
    std::memcpy(to, from, size_bytes);
}

}  // namespace penstock::kernels
