// Ranks that are killed at random moments, and what the others must be told.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "conformance/forked_ranks.hpp"
#include "conformance/team.hpp"

namespace penstock::conformance {

/// One death, as its seed decides.
struct Death {
  std::uint32_t seed;
  int ranks;
  Placement placement;
  std::uint64_t count;
  int victim;
  int progress_threads;
  bool single_copy;
  bool by_test;          ///< the others call test() in a loop, not wait()
  bool leaves_child;     ///< a child of the victim lives on
  bool stops_first;      ///< the victim calls nothing before its death, so that the others run ahead of it
  std::uint32_t moment;  ///< in 2^32 parts of some operations
};

Death death(std::uint32_t seed);
std::string describe(const Death& each);

/// The number of deaths to try for each row: PENSTOCK_TEST_DEATHS, or a few.
int deaths_per_row();
/// PENSTOCK_TEST_DEATH_SEED, or the row's own.
std::uint32_t first_seed(std::uint32_t own);

/// Waits as the death says: by wait(), or by test() in a loop.
template <typename Request>
void await(Request& request, const Death& each) {
  if (!each.by_test) return request.wait();
  while (!request.test()) {
  }
}

/// The body of a rank: calls, dies if it is the victim, and returns "ok" if the next two calls throw an error that
/// names the victim, or else what is wrong.
std::string call_until_told(ForkedRank& self, const Death& each, const std::function<void()>& call);

/// Runs `body` on every rank, and checks that the victim was killed and the others returned "ok".
void expect_told(const Death& each, const std::function<std::string(ForkedRank&)>& body);

}  // namespace penstock::conformance
