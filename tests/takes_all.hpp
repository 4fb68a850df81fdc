#pragma once

#include <cstdlib>
#include <string_view>

namespace penstock {

/// Whether tests take every case, as `./dev test --all` asks for, and not some of them.
inline bool takes_all() {
  const char* const value = std::getenv("PENSTOCK_TEST_ALL");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace penstock
