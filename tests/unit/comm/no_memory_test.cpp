// A rank runs out of memory between and in operations. The ranks are engines of this thread.
#include <gtest/gtest.h>

#include <algorithm>
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
#include "penstock/error.hpp"
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

using Started = std::vector<std::shared_ptr<Run>>;

struct Two {
  std::vector<std::shared_ptr<Engine>> engines{2};
  std::vector<std::byte> input;
  std::vector<std::byte> output;

  explicit Two(std::uint64_t bytes) : input(bytes, std::byte{7}), output(bytes) {
    auto transports = make_local_transports({0, 0});
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] { engines[rank] = Engine::create(std::move(transports[rank]), {}); });
    for (std::thread& thread : threads) thread.join();
  }

  std::shared_ptr<Run> start(int rank, const Message& message) {
    return engines[static_cast<std::size_t>(rank)]->start(plan_of(message, rank), {input, output}, {}, 0);
  }
};

/// Ends all runs. Returns which have failed.
std::vector<bool> ended(const Started& runs) {
  std::vector<bool> failed(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i)
    EXPECT_TRUE(test::eventually([&] {
      bool is_over = false;
      for (std::size_t k = i; k < runs.size(); ++k) try {
          if (runs[k]->test() && k == i) is_over = true;
        } catch (const Error&) {
          failed[k] = true;
          is_over |= k == i;
        }
      return is_over;
    })) << "operation "
        << i;
  return failed;
}

/// One rank is ahead. When the other ends an operation, it finds messages of those that it has not begun.
TEST(NoMemory, LosesNoMessageOfALaterOperation) {
  const std::vector<Message> messages = {{1, 8}, {0, 8}, {0, 4000}, {0, 8}, {0, 1 << 20}};
  bool was_reached = true;
  int tries = 0;
  for (std::int64_t allocation = 0; was_reached; ++allocation, ++tries) {
    SCOPED_TRACE("allocation " + std::to_string(allocation));
    Two two(1 << 20);
    Started ahead;
    for (const Message& message : messages) ahead.push_back(two.start(0, message));
    Started runs;
    runs.reserve(2 * messages.size());
    test::allocations_left = allocation;
    try {
      runs.push_back(two.start(1, messages[0]));
    } catch (const std::bad_alloc&) {
      two.engines[1]->fail_next("no memory");
    }
    was_reached = std::exchange(test::allocations_left, -1) < 0;
    for (std::size_t i = 1; i < messages.size(); ++i) runs.push_back(two.start(1, messages[i]));
    runs.insert(runs.end(), ahead.begin(), ahead.end());
    const std::vector<bool> failed = ended(runs);
    EXPECT_TRUE(was_reached || std::find(failed.begin(), failed.end(), true) == failed.end());
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(tries, 10);
}

}  // namespace
}  // namespace penstock::engine
