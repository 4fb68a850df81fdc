// Copies between buffers of any alignment.
#pragma once

#include <cstddef>
#include <cstring>

namespace penstock::kernels {

/// memcpy by `rep movsb`, which writes whole lines without fetching what it overwrites, from wherever that is: memory,
/// or the caches of other cores. False, and nothing done, where the processor has no quick one for these addresses.
bool copy_as_string(std::byte* __restrict to, const std::byte* __restrict from, std::size_t size_bytes);

/// As copy_bytes(), for what is long.
void copy_long(std::byte* __restrict to, const std::byte* __restrict from, std::size_t size_bytes);

/// memcpy, in the quickest way that does not depend on where source and target lie.
inline void copy_bytes(std::byte* __restrict to, const std::byte* __restrict from, std::size_t size_bytes) {
  constexpr std::size_t kLongBytes = 2048;
  if (size_bytes >= kLongBytes)
    copy_long(to, from, size_bytes);
  else if (size_bytes > 0)
    std::memcpy(to, from, size_bytes);
}

}  // namespace penstock::kernels
