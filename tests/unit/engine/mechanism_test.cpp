// What the compiler checks of operations and mechanisms.
#include "engine/mechanism.hpp"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "engine/operation.hpp"

namespace penstock::engine {
namespace {

struct SaysNothing final : Mechanism {};
struct SaysNotForWhomItWaits final : Mechanism {
  void cancel(Operation&) override {}
};
struct SaysNotWhatItCancels final : Mechanism {
  void waits_for(const Operation&, std::vector<int>&) const override {}
};
struct SaysBoth final : Mechanism {
  void waits_for(const Operation&, std::vector<int>&) const override {}
  void cancel(Operation&) override {}
};

TEST(Mechanisms, MustSayForWhomTheyWaitAndWhatTheyCancel) {
  EXPECT_TRUE(std::is_abstract_v<SaysNothing>);
  EXPECT_TRUE(std::is_abstract_v<SaysNotForWhomItWaits>);
  EXPECT_TRUE(std::is_abstract_v<SaysNotWhatItCancels>);
  EXPECT_FALSE(std::is_abstract_v<SaysBoth>);
}

// A mechanism owns what it knows of an operation (PerOperation). So the record that all of them see stays small: this
// does not compile if it has more fields.
TEST(Operations, HaveFewFields) {
  const Operation operation(7);
  const auto& [index, owners, sequence, call, stage, error, scratch, shared, waiting_for, steps_left, executing,
               in_flight, pins, finished, next_dropped] = operation;
  EXPECT_EQ(index, 7u);
}

}  // namespace
}  // namespace penstock::engine
