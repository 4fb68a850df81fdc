// Huge pages for memory that operations use again and again.
#pragma once

#include "penstock/types.hpp"

namespace penstock::host {

/// Tells that an operation uses this memory. If it is long and has been used before, asks the kernel to move it into
/// huge pages. Then a peer's read of it, by the kernel, looks up one page instead of 512. Any thread; may block for as
/// long as a copy of the memory takes, but does so only in the 2nd, 4th, 8th, … use of the same memory. Does nothing if
/// the system forbids huge pages, or if the kernel cannot move pages at once (Linux 6.1 can).
void use_huge_pages(ConstBytes memory) noexcept;

}  // namespace penstock::host
