// What a thread finds out about its yields, by simulated ones, and how it then waits.
#include "host/yields.hpp"

#include <gtest/gtest.h>

#include "engine/waiting.hpp"

namespace penstock::engine {
namespace {

using host::Turns;
using host::Yields;

/// A thread's core, of which others have a turn in each `period`-th yield; 0: never. A tick is 100 yields.
struct Core {
  static constexpr long kTick = 1000;

  int period = 0;
  int waits = 0;  ///< of each yield, in thousandths of a tick
  long yields = 0;
  long switches = 0;
  long lates = 0;
  long waited = 0;

  void yield(Yields& found, bool is_late = false) {
    const long before = (++yields / 100 + lates) * kTick;
    waited += waits;
    if (period > 0 && yields % period == 0) ++switches;
    if (is_late) ++lates;
    found.returned(before, before + (is_late ? kTick : 0), [this] { return Turns{switches, waited}; });
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
    awaited.yields_are_needless = found.are_needless();
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

// The scheduler gives the core to another group of threads at a tick, whatever this thread yields.
TEST(Yields, ThatOthersDoNotTakeTheCoreByAreFollowedByASleepSoon) {
  Yields found;
  Core core{.period = 3};
  const int patient = until_asleep(found, core, true).yields;
  EXPECT_FALSE(found.are_futile());
  core.period = 200;
  while (!found.are_futile()) core.yield(found);
  EXPECT_LT(4 * until_asleep(found, core, true).yields, patient);
  core.period = 3;
  while (found.are_futile()) core.yield(found);
  EXPECT_EQ(until_asleep(found, core, true).yields, patient) << "others take the core by yields again";
}

TEST(Yields, OfAThreadThatHasItsCoreAloneAreNotFutile) {
  Yields found;
  Core core;
  for (int i = 0; i < 10'000; ++i) {
    core.yield(found);
    EXPECT_FALSE(found.are_futile());
  }
  core.period = 200;
  while (!found.are_futile()) core.yield(found);
  core.period = 0;
  int tries = 0;
  for (; found.are_futile(); ++tries) core.yield(found);
  EXPECT_GT(tries, 1000) << "one that sleeps soon is seldom interrupted, too";
}

TEST(Yields, OfRanksThatTakeTurnsAreNotFutile) {
  for (const int period : {1, 2, 4, 8}) {
    Yields found;
    Core core{.period = period};
    for (int i = 0; i < 10'000; ++i) {
      core.yield(found);
      EXPECT_FALSE(found.are_futile());
    }
  }
}

TEST(Yields, AreWaitedForAsLongAsBeforeIfEachRankHasACore) {
  Yields found;
  Core core;
  const Pauses at_first = until_asleep(found, core, false);
  core.period = 200;
  while (!found.are_futile()) core.yield(found);
  EXPECT_EQ(until_asleep(found, core, false).yields, at_first.yields);
}

TEST(Yields, OfAThreadWhoseCoreNobodyWantsAreManyBeforeASleep) {
  Yields found;
  Core core{.period = 500};  // system threads have it for a moment
  const int at_first = until_asleep(found, core, false).yields;
  while (!found.are_needless()) core.yield(found);
  EXPECT_GT(until_asleep(found, core, false).yields, 30 * at_first) << "to be woken takes as long as these at first";
  EXPECT_LE(until_asleep(found, core, true).yields, at_first + 10) << "the rank that is waited for may need this core";
  core.waits = 1;
  while (found.are_needless()) core.yield(found);
  EXPECT_EQ(until_asleep(found, core, false).yields, at_first) << "a tenth of the time others had the core";
}

TEST(Yields, TellWhetherOthersHaveMuchOfTheCore) {
  Yields found;
  Core core{.period = 2, .waits = 5};
  EXPECT_FALSE(found.is_core_shared()) << "nothing is known yet";
  for (int i = 0; i < 100'000 && !found.is_core_shared(); ++i) core.yield(found);
  EXPECT_TRUE(found.is_core_shared()) << "two ranks in turns";
  core.waits = 0;
  for (int i = 0; i < 100'000 && found.is_core_shared(); ++i) core.yield(found);
  EXPECT_FALSE(found.is_core_shared()) << "each has a core of its own now";
}

TEST(Yields, AreUsefulUnlessLateOrFutile) {
  Yields found;
  Core core{.period = 3};
  EXPECT_TRUE(found.are_useful());
  core.yield(found, true);
  EXPECT_FALSE(found.are_useful()) << "late";
  EXPECT_FALSE(found.are_useful()) << "asking is no wait";
  while (found.are_late()) {
  }
  EXPECT_TRUE(found.are_useful()) << "tried again after some waits";
  core.period = 200;
  while (!found.are_futile()) core.yield(found);
  EXPECT_FALSE(found.are_useful());
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
