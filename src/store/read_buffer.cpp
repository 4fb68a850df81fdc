#include "store/read_buffer.hpp"

namespace penstock::store {

namespace {

constexpr std::uintptr_t kPageBytes = 4096;

}  // namespace

bool copies_slowly(std::uint64_t offset_bytes, const std::byte* to) {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool is_amd = __builtin_cpu_is("amd") != 0;
  const std::uintptr_t behind = (reinterpret_cast<std::uintptr_t>(to) - offset_bytes) % kPageBytes;
  return is_amd && behind > 0 && behind < 32;
#else
  (void)offset_bytes, (void)to;
  return false;
#endif
}

Bytes ReadBuffer::take(std::uint64_t offset_bytes, std::size_t size_bytes) {
  if (size_bytes > size_bytes_) {
    memory_ = std::make_unique_for_overwrite<std::byte[]>(size_bytes + 2 * kPageBytes);
    size_bytes_ = size_bytes;
  }
  // Half a page off the file's offset, so that neither the copy to this memory nor the copy from it is slow.
  const auto start = reinterpret_cast<std::uintptr_t>(memory_.get());
  const std::uintptr_t wanted = (offset_bytes + kPageBytes / 2) % kPageBytes;
  return {memory_.get() + (wanted + kPageBytes - start % kPageBytes) % kPageBytes, size_bytes};
}

}  // namespace penstock::store
