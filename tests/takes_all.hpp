#pragma once

#include <cstdlib>
#include <string_view>

namespace penstock {

/// Whether tests take every case, as `./dev test --all` asks for, and not some of them.
inline bool takes_all() {
  const char* const value = std::getenv("PENSTOCK_TEST_ALL");
  return value != nullptr && std::string_view(value) == "1";
}

/// Long sweeps divide the number of their cases by it. AddressSanitizer makes a case take ten times as long; it looks
/// for errors of memory, which a few cases show.
inline unsigned fewer_if_sanitized(unsigned by) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return takes_all() ? 1 : by;
#else
  static_cast<void>(by);
  return 1;
#endif
}

}  // namespace penstock
