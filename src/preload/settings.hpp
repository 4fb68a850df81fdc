// The options of the preload library, and what its functions replace.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::preload {

struct Settings {
  bool serves = true;
  bool times = false;
  bool verifies = false;
  bool measures = false;  ///< who serves a call faster
  bool is_strict = false;
  std::uint64_t after = 0;
  std::string report{};
  std::vector<std::string> files{};  ///< globs
  bool exports_files = false;
};

/// Read once. If an option is broken, says so on stderr, and nothing is served.
const Settings& settings();

/// The next library's function with this name: another tool's, or MPI's own.
template <typename Function>
Function* next(const char* name, Function* profiling) {
  void* const found = dlsym(RTLD_NEXT, name);
  return found != nullptr ? reinterpret_cast<Function*>(found) : profiling;
}

}  // namespace penstock::preload
