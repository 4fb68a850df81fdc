#include "unit/comm/failing_allocations.hpp"

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace penstock::test {

thread_local constinit std::int64_t allocations_left = -1;
thread_local constinit std::int64_t allocated_bytes = 0;

}  // namespace penstock::test

void* operator new(std::size_t bytes) {
  using penstock::test::allocations_left;
  if (allocations_left >= 0 && --allocations_left < 0) throw std::bad_alloc();
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  penstock::test::allocated_bytes += static_cast<std::int64_t>(::malloc_usable_size(memory));
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) penstock::test::allocated_bytes -= static_cast<std::int64_t>(::malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
// AddressSanitizer has a nothrow form of its own, whose memory the operator delete above must not get.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept try {
  return operator new(bytes);
} catch (const std::bad_alloc&) {
  return nullptr;
}
