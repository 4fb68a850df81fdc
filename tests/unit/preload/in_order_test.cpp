#include "preload/in_order.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace penstock::preload {
namespace {

/// Collectives share an engine, which completes them when it has been driven often enough. A file operation completes
/// when something else says so.
struct Engine {
  int driven = 0;
};
struct Fake {
  Engine* engine = nullptr;  ///< nullptr: a file operation
  int drives = 0;            ///< that it needs
  bool is_over = false;
  int tests = 0;

  bool done() const { return engine != nullptr ? engine->driven >= drives : is_over; }
  bool may_be_complete() const { return engine == nullptr || done(); }
  bool test() {
    ++tests;
    if (engine != nullptr && !done()) ++engine->driven;
    return done();
  }
};

std::vector<Fake*> pass(std::vector<Fake*>& all) {
  std::vector<Fake*> completed;
  const std::size_t count = test_in_order(
      all, [](Fake& each) { return each.test(); }, [&](Fake& each) { completed.push_back(&each); });
  EXPECT_EQ(count, completed.size());
  return completed;
}

TEST(InOrder, OneTestDrivesAllCollectives) {
  Engine engine;
  Fake first{&engine, 3}, second{&engine, 2}, third{&engine, 3};
  std::vector<Fake*> all{&first, &second, &third};
  EXPECT_TRUE(pass(all).empty());
  EXPECT_EQ(engine.driven, 1);
  EXPECT_EQ(pass(all), std::vector<Fake*>{&second});
  EXPECT_EQ(engine.driven, 2);
  EXPECT_EQ(pass(all), (std::vector<Fake*>{&first, &third}));
  EXPECT_TRUE(all.empty());
}

TEST(InOrder, AFileOperationInFrontDrivesNothingAndHoldsNobodyBack) {
  Engine engine;
  Fake file{}, collective{&engine, 2}, behind{};
  std::vector<Fake*> all{&file, &collective, &behind};
  EXPECT_TRUE(pass(all).empty());
  EXPECT_EQ(pass(all), std::vector<Fake*>{&collective});
  EXPECT_EQ(all, (std::vector<Fake*>{&file, &behind}));
  EXPECT_EQ(behind.tests, 2);
  file.is_over = behind.is_over = true;
  EXPECT_EQ(pass(all), (std::vector<Fake*>{&file, &behind}));
}

}  // namespace
}  // namespace penstock::preload
