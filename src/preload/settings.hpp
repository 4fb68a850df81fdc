// The options of the preload library, and what its functions replace.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::preload {

struct Settings {
  bool serves = true;
  std::string why_broken{};  ///< of the options; empty if they are not
  bool times = false;
  bool verifies = false;
  bool measures = false;  ///< who serves a call faster
  bool is_strict = false;
  bool serves_requests_of_lists = true;  ///< non-blocking and persistent operations with lists of counts
  std::uint64_t after = 0;
  std::string report{};
  std::vector<std::string> files{};  ///< globs
  bool exports_files = false;
};

/// Read once.
const Settings& settings();

/// All ranks come to one view of what some of them cannot use: an option, by which nothing is served, or a tuning
/// table, which no communicator then reads; the lowest of these ranks says so on stderr. Or a Fortran library of MPI
/// that a request must not come to. `reads_table`: on one rank of each node. Once, before anything is served.
/// Collective on MPI_COMM_WORLD.
void agree_on_settings(bool reads_table);

/// The next library's function with this name: another tool's, or MPI's own.
template <typename Function>
Function* next(const char* name, Function* profiling) {
  void* const found = dlsym(RTLD_NEXT, name);
  return found != nullptr ? reinterpret_cast<Function*>(found) : profiling;
}

}  // namespace penstock::preload
