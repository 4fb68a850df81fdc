// What a thread finds out about its yields, by simulated ones, and how it then waits.
#include "engine/yields.hpp"

#include <gtest/gtest.h>

#include "engine/waiting.hpp"

namespace penstock::engine {
namespace {

/// A thread's core, of which others have a turn in each `period`-th yield; 0: never.
struct Core {
  int period = 0;
  long yields = 0;
  long switches = 0;

  void yield(Yields& found, bool late = false) {
    if (period > 0 && ++yields % period == 0) ++switches;
    found.returned(late, [this] { return switches; });
  }
};

struct Pauses {
  int spins = 0;
  int yields = 0;
};

/// What a thread does in one wait until it sleeps.
Pauses until_asleep(Yields& found, Core& core, bool is_crowded) {
  Waiting waiting;
  Awaited awaited{.is_crowded = is_crowded, .yields_are_late = found.are_late()};
  for (Pauses pauses;;) {
    awaited.yields_are_futile = found.are_futile();
    switch (waiting.next(awaited)) {
      case Pause::spin: ++pauses.spins; break;
      case Pause::yield:
        ++pauses.yields;
        core.yield(found);
        break;
      case Pause::sleep: return pauses;
    }
  }
}

TEST(Yields, ThatGiveTheCoreToNobodyAreFollowedByASleepSoon) {
  Yields found;
  Core core{.period = 3};
  const int patient = until_asleep(found, core, true).yields;
  EXPECT_FALSE(found.are_futile());
  core.period = 0;
  until_asleep(found, core, true);
  EXPECT_TRUE(found.are_futile());
  EXPECT_LT(4 * until_asleep(found, core, true).yields, patient);
  core.period = 3;
  while (found.are_futile()) core.yield(found);
  EXPECT_EQ(until_asleep(found, core, true).yields, patient) << "others have the core again";
}

TEST(Yields, OfRanksThatTakeTurnsAreNotFutile) {
  for (const int period : {1, 2, 4, 8}) {
    Yields found;
    Core core{.period = period};
    for (int i = 0; i < 1000; ++i) {
      core.yield(found);
      EXPECT_FALSE(found.are_futile());
    }
  }
}

TEST(Yields, AreWaitedForAsLongAsBeforeIfEachRankHasACore) {
  Yields found;
  Core core;
  const Pauses at_first = until_asleep(found, core, false);
  EXPECT_TRUE(found.are_futile());
  EXPECT_EQ(until_asleep(found, core, false).yields, at_first.yields);
}

TEST(Yields, ThatComeBackLateAreNotTriedInTheNextWait) {
  int spins[2]{};
  for (const bool is_crowded : {false, true}) {
    Yields found;
    Core core;
    core.yield(found, true);
    const Pauses pauses = until_asleep(found, core, is_crowded);
    EXPECT_EQ(pauses.yields, 0);
    EXPECT_GT(pauses.spins, 2);
    spins[is_crowded ? 1 : 0] = pauses.spins;
    EXPECT_GT(until_asleep(found, core, is_crowded).yields, 0) << "tried again";
  }
  EXPECT_LT(10 * spins[1], spins[0]) << "the rank that is waited for may need this core";
}

TEST(Yields, AreTriedEverLessOftenWhileTheyAreLate) {
  Yields found;
  Core core;
  int longest = 0;
  for (int tries = 0; tries < 20; ++tries) {
    int skipped = 0;
    while (found.are_late()) ++skipped;
    EXPECT_GE(skipped, longest);
    longest = skipped;
    core.yield(found, true);
  }
  EXPECT_GT(longest, 100);
  EXPECT_LT(longest, 1000) << "or what has changed is found late";
  while (found.are_late()) {
  }
  core.yield(found, false);
  EXPECT_FALSE(found.are_late());
}

}  // namespace
}  // namespace penstock::engine
