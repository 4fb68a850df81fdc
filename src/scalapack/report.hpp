// How often each routine was served.
#pragma once

#include <cstdint>

namespace penstock::scalapack {

struct Counts {
  std::uint64_t calls = 0;
  std::uint64_t plans = 0;      ///< calls that had to be planned first
  std::uint64_t passed_on = 0;  ///< calls that the next library was left to serve
  std::uint64_t failed = 0;
};

/// The counts of a routine, by a name that lives as long as the process. Where the option `report` names a file, all
/// of them are appended to it when the process exits.
Counts& counts_of(const char* routine);

}  // namespace penstock::scalapack
