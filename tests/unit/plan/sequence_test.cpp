#include "plan/sequence.hpp"

#include <gtest/gtest.h>

#include <random>

#include "plan/order.hpp"

namespace penstock::plan {
namespace {

std::vector<StepId> after(const Plan& plan, StepId step) {
  const auto list = dependencies(plan, step);
  return {list.begin(), list.end()};
}

Region output(std::uint64_t offset_bytes, std::uint64_t size_bytes) {
  return {offset_bytes, size_bytes, Buffer::output};
}

class SequenceTest : public testing::Test {
 protected:
  Sequence sequence{"test", Team{0, {0, 0}}};
  Plan finish() { return std::move(sequence).finish(100, 100); }
};

TEST_F(SequenceTest, ReadersWaitForTheWriterAndTheNextWriterForThem) {
  const StepId write = sequence.recv(output(0, 10), 1, 0);
  const StepId read1 = sequence.send(output(0, 5), 1, 0);
  const StepId read2 = sequence.send(output(5, 5), 1, 1);
  const StepId again = sequence.recv(output(4, 2), 1, 1);
  const StepId apart = sequence.recv(output(10, 5), 1, 2);
  const Plan plan = finish();
  EXPECT_EQ(after(plan, read1), (std::vector{write}));
  EXPECT_EQ(after(plan, read2), (std::vector{write}));
  EXPECT_EQ(after(plan, again), (std::vector{read1, read2}));
  EXPECT_EQ(after(plan, apart), std::vector<StepId>{});
}

TEST_F(SequenceTest, DataThatWasThereBeforeIsOverwrittenAfterItsReaders) {
  const StepId read = sequence.send(output(0, 10), 1, 0);
  const StepId write = sequence.recv(output(8, 10), 1, 0);
  const StepId reduce = sequence.reduce({0, 4, Buffer::input}, output(16, 4));
  const Plan plan = finish();
  EXPECT_EQ(after(plan, write), (std::vector{read}));
  EXPECT_EQ(after(plan, reduce), (std::vector{write}));
}

TEST_F(SequenceTest, LeavesOutWhatIsEmpty) {
  EXPECT_EQ(sequence.send(output(3, 0), 1, 0), Sequence::kNone);
  EXPECT_EQ(sequence.recv(output(3, 0), 1, 0), Sequence::kNone);
  EXPECT_EQ(sequence.copy(output(3, 0), output(5, 0)), Sequence::kNone);
  EXPECT_EQ(sequence.copy(output(3, 4), output(3, 4)), Sequence::kNone);
  EXPECT_NE(sequence.empty_send(1, 0), Sequence::kNone);
  EXPECT_EQ(finish().steps.size(), 1u);
}

TEST_F(SequenceTest, SharedMemoryIsSignalledAfterItsWritesAndReadAfterTheWait) {
  const Region published = sequence.shared(8);
  const StepId copy = sequence.copy({0, 8, Buffer::input}, published);
  const StepId signal = sequence.signal(1, 0);
  const StepId wait = sequence.wait(1, 0);
  const StepId read = sequence.read(published, 1, output(0, 8));
  const Plan plan = finish();
  EXPECT_EQ(after(plan, signal), (std::vector{copy}));
  EXPECT_EQ(after(plan, read), (std::vector{wait}));
}

// In a plan from any program, every two conflicting steps are ordered.
TEST(SequenceOfRandomSteps, NeverLeavesAConflictUnordered) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Sequence sequence("random", Team{0, {0, 1}});
    const auto region = [&] {
      const std::uint64_t offset = random() % 40;
      return Region{offset, 1 + random() % 20, random() % 2 ? Buffer::output : Buffer::scratch};
    };
    sequence.scratch(64);
    for (std::uint32_t i = 0; i < 40; ++i) {
      const Region from = region();
      Region to = region();
      if (random() % 3 == 0) {
        sequence.send(from, 1, i);
      } else if (random() % 2 == 0) {
        sequence.recv(to, 1, i);
      } else {
        to = {(from.offset_bytes + 20) % 40, from.size_bytes,
              from.buffer == Buffer::output ? Buffer::scratch : Buffer::output};
        sequence.copy(from, to);
      }
    }
    const Plan plan = std::move(sequence).finish(64, 64);
    const Order order(plan);
    const auto conflict = [](Region a, Region b) {
      return a.buffer == b.buffer && a.size_bytes > 0 && b.size_bytes > 0 &&
             a.offset_bytes < b.offset_bytes + b.size_bytes && b.offset_bytes < a.offset_bytes + a.size_bytes;
    };
    for (StepId second = 0; second < plan.steps.size(); ++second)
      for (StepId first = 0; first < second; ++first) {
        const Step& a = plan.steps[first];
        const Step& b = plan.steps[second];
        const bool ordered = conflict(a.to, b.to) || conflict(a.to, b.from) || conflict(a.from, b.to);
        if (ordered && (touches(a).writes || touches(b).writes)) {
          EXPECT_TRUE(order.is_before(first, second)) << first << " and " << second << "\n" << to_text(plan);
        }
      }
  }
}

}  // namespace
}  // namespace penstock::plan
