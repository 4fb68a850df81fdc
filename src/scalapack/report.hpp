// Counts the calls of each routine.
#pragma once

#include <cstdint>

namespace penstock::scalapack {

/// The calls of one routine by this process.
struct Counts {
  std::uint64_t calls = 0;
  std::uint64_t plans = 0;      ///< calls that needed a new plan
  std::uint64_t passed_on = 0;  ///< calls passed on to the next library
  std::uint64_t failed = 0;
};

/// The counts of a routine. `routine` must live as long as the process. If the option `report` is set, all counts are
/// appended to that file at exit.
Counts& counts_of(const char* routine);

}  // namespace penstock::scalapack
