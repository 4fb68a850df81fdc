// A rank runs out of memory between and in operations. The ranks are engines of this thread.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "eventually.hpp"
#include "local_transport.hpp"
#include "make_engine.hpp"
#include "penstock/error.hpp"
#include "takes_all.hpp"
#include "unit/comm/failing_allocations.hpp"

namespace penstock::engine {
namespace {

/// A message from one rank to the other.
struct Message {
  int from;
  std::uint64_t bytes;
};

std::shared_ptr<const Plan> plan_of(const Message& message, int self) {
  PlanBuilder plan("test/message", self, 2);
  const Region all{0, message.bytes, self == message.from ? Buffer::input : Buffer::output};
  if (self == message.from)
    plan.send(all, 1 - self, 0);
  else
    plan.recv(all, 1 - self, 0);
  return std::make_shared<const Plan>(std::move(plan).finish(message.bytes, message.bytes));
}

struct Two {
  std::vector<std::shared_ptr<Engine>> engines{2};
  std::vector<std::byte> input;
  std::vector<std::byte> output;

  Two(std::uint64_t bytes, std::int32_t node_of_other, bool single_copy) : input(bytes, std::byte{7}), output(bytes) {
    auto transports = make_local_transports({0, node_of_other});
    EngineOptions options;
    options.single_copy = single_copy;
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        engines[rank] = make_engine(std::make_unique<test::Fed>(std::move(transports[rank])), options);
      });
    for (std::thread& thread : threads) thread.join();
  }

  Two(const Two&) = delete;
  Two& operator=(const Two&) = delete;
  /// Engines that have failed wait for each other.
  ~Two() {
    std::thread other([this] { engines[1].reset(); });
    engines[0].reset();
    other.join();
  }

  std::shared_ptr<Run> start(int rank, const Message& message) {
    return engines[static_cast<std::size_t>(rank)]->start(plan_of(message, rank), {input, output}, {}, 0);
  }
};

/// The calls of one rank, of whose allocations one fails.
class Starved {
 public:
  explicit Starved(std::int64_t allocation) : left_(allocation) {}

  template <typename Call>
  auto operator()(Call call) {
    struct Now {
      explicit Now(std::int64_t& left) : left(left) { std::swap(left, test::allocations_left); }
      ~Now() { std::swap(left, test::allocations_left); }
      std::int64_t& left;
    } now(left_);
    return call();
  }
  bool has_failed() const { return left_ < 0; }

 private:
  std::int64_t left_;
};

/// The operations of two ranks, of which one is ahead: when the other ends an operation, it finds messages of those
/// that it has not begun. That one lacks memory once. Returns whether it did.
bool run_all(Two& two, std::int64_t allocation) {
  const std::vector<Message> messages = {{1, 8}, {0, 8}, {0, 4000}, {1, 1 << 20}, {0, 8}, {0, 1 << 20}, {1, 8}};
  std::vector<std::shared_ptr<Run>> ahead;
  for (const Message& message : messages) ahead.push_back(two.start(0, message));
  Starved starved(allocation);
  std::size_t failures = 0;
  const auto is_over = [&](Run& run) {
    try {
      return run.test();
    } catch (const Error&) {
      ++failures;
      return true;
    }
  };
  for (const Message& message : messages) {
    std::shared_ptr<Run> run;
    try {
      run = starved([&] { return two.start(1, message); });
    } catch (const std::bad_alloc&) {
      two.engines[1]->fail_next("no memory");
      continue;
    }
    EXPECT_TRUE(test::eventually([&] {
      for (const std::shared_ptr<Run>& other : ahead) static_cast<void>(other->done() || is_over(*other));
      return starved([&] { return is_over(*run); });
    })) << "rank 1";
  }
  for (const std::shared_ptr<Run>& run : ahead)
    EXPECT_TRUE(test::eventually([&] { return is_over(*run); })) << "rank 0";
  EXPECT_TRUE(starved.has_failed() || failures == 0);
  return starved.has_failed();
}

struct Way {
  std::string name;
  std::int32_t node_of_other = 0;
  bool single_copy = true;
};

class NoMemory : public testing::TestWithParam<Way> {};

TEST_P(NoMemory, LosesNoMessageOfALaterOperation) {
  // Engines of several nodes that have failed may answer others for a second before they are gone: only some fail.
  const int step = GetParam().node_of_other == 0 || takes_all() ? 1 : 3;
  std::int64_t allocation = 0;
  for (bool was_reached = true; was_reached; allocation += step) {
    Two two(1 << 20, GetParam().node_of_other, GetParam().single_copy);
    was_reached = run_all(two, allocation);
    ASSERT_FALSE(testing::Test::HasFailure()) << "allocation " << allocation;
  }
  EXPECT_GT(allocation, 10);
}

INSTANTIATE_TEST_SUITE_P(, NoMemory, testing::Values(Way{"one_node"}, Way{"in_pieces", 0, false}, Way{"two_nodes", 1}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace penstock::engine
