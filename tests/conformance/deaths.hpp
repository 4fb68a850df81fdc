// Kills ranks at random moments and checks the errors on the other ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "conformance/forked_ranks.hpp"
#include "conformance/team.hpp"

namespace penstock::conformance {

/// One death. The seed determines all fields.
struct Death {
  std::uint32_t seed;
  int ranks;
  Placement placement;
  std::uint64_t count;
  int victim;
  int progress_threads;
  bool single_copy;
  bool by_test;          ///< the others call test() in a loop, not wait()
  bool is_blocking;      ///< all make blocking calls
  bool leaves_child;     ///< the victim has a child that outlives it
  bool stops_first;      ///< the victim stops calling before its death, so the others run ahead
  std::uint32_t moment;  ///< as a fraction of some operations' time, times 2^32
};

Death death(std::uint32_t seed);
/// The same for short data of ranks that are alone on their nodes: what blocking calls do by the fast path.
Death death_in_short_call(std::uint32_t seed);
/// The same in blocking calls of ranks of one node, of any length: by flags if the row has them.
Death death_in_blocking_call(std::uint32_t seed);
std::string describe(const Death& each);

/// The number of deaths to try for each row: PENSTOCK_TEST_DEATHS, 2 by default.
int deaths_per_row();
/// PENSTOCK_TEST_DEATH_SEED, `own` by default.
std::uint32_t first_seed(std::uint32_t own);

/// Waits by wait(), or by test() in a loop if `each.by_test`.
template <typename Request>
void await(Request& request, const Death& each) {
  if (!each.by_test) return request.wait();
  while (!request.test()) {
  }
}

/// The body of a rank. The victim calls and dies. The other ranks return "ok" if their next two errors name the victim,
/// else what is wrong.
std::string call_until_told(ForkedRank& self, const Death& each, const std::function<void()>& call);

/// Runs `body` on every rank, and checks that the victim was killed and the others returned "ok".
void expect_told(const Death& each, const std::function<std::string(ForkedRank&)>& body);

}  // namespace penstock::conformance
