#include <gtest/gtest.h>

#include <string>

#include "penstock/plan.hpp"
#include "plan/rules.hpp"

namespace penstock {
namespace {

Region in(std::uint64_t offset, std::uint64_t size) { return {offset, size, Buffer::input}; }
Region out(std::uint64_t offset, std::uint64_t size) { return {offset, size, Buffer::output}; }
Region shared(std::uint64_t offset, std::uint64_t size) { return {offset, size, Buffer::shared}; }

// Builders for the plans of two ranks. Each test adds its steps.
class VerifyTest : public testing::Test {
 protected:
  PlanBuilder a{"test", 0, 2};
  PlanBuilder b{"test", 1, 2};
  std::vector<std::int32_t> nodes{0, 0};
  std::uint64_t element_bytes = 1;

  std::vector<std::string> findings() {
    const std::vector<Plan> plans{std::move(a).finish(64, 64), std::move(b).finish(64, 64)};
    return verify(plans, nodes, element_bytes);
  }
  void expect(const std::string& text) {
    const auto all = findings();
    ASSERT_FALSE(all.empty()) << "expected: " << text;
    for (const std::string& finding : all)
      if (finding.find(text) != std::string::npos) return;
    ADD_FAILURE() << "expected: " << text << "\nfound: " << all[0];
  }
};

TEST_F(VerifyTest, AcceptsAnExchange) {
  a.send(in(0, 8), 1, 0);
  a.recv(out(0, 8), 1, 0);
  b.send(in(0, 8), 0, 0);
  b.recv(out(0, 8), 0, 0);
  EXPECT_EQ(findings(), std::vector<std::string>{});
}

// Deadlocks only if both sends are synchronous.
TEST_F(VerifyTest, FindsADeadlockOfUnbufferedSends) {
  a.recv(out(0, 8), 1, 0, {a.send(in(0, 8), 1, 0)});
  b.recv(out(0, 8), 0, 0, {b.send(in(0, 8), 0, 0)});
  expect("deadlock: ");
}

TEST_F(VerifyTest, FindsADeadlockOfRemoteReads) {
  a.remote_read(8, 1, 0, out(0, 8), {}, std::vector{a.send(in(0, 8), 1, 0, {})});
  b.remote_read(8, 0, 0, out(0, 8), {}, std::vector{b.send(in(0, 8), 0, 0, {})});
  expect("deadlock: ");
}

TEST_F(VerifyTest, RemoteReadsAreInsideANodeAndAsLongAsTheyAreTaken) {
  const Block line{.rows = 1, .columns = 8, .from_column_stride_elems = 1, .to_column_stride_elems = 1};
  a.send(in(0, 8), 1, 3, {});
  b.remote_read(8, 0, 3, out(8, 8), {&line, 1}, {});
  const std::vector<Plan> right{PlanBuilder(a).finish(64, 64), PlanBuilder(b).finish(64, 64)};
  EXPECT_EQ(verify(right, nodes), std::vector<std::string>{});
  EXPECT_NE(verify(right, std::vector<std::int32_t>{0, 1}), std::vector<std::string>{}) << "on two nodes";
  b.remote_read(4, 0, 4, out(0, 8), {&line, 1}, {});
  a.send(in(0, 8), 1, 4, {});
  expect("a block reaches beyond the source");
}

TEST_F(VerifyTest, FindsARemoteReadOfAnotherLength) {
  a.send(in(0, 8), 1, 3, {});
  b.remote_read(4, 0, 3, out(0, 8), {}, {});
  expect("the receiver expects 4 bytes");
}

TEST_F(VerifyTest, FindsARemoteReadThatNobodySends) {
  b.remote_read(8, 0, 3, out(0, 8), {}, {});
  expect("no step of the peer sends this message");
}

TEST_F(VerifyTest, FindsWhatIsWrittenWhileItIsRead) {
  const Region sent = a.scratch(8);
  a.send(sent, 1, 3, {});
  a.copy(in(0, 8), sent);
  b.remote_read(8, 0, 3, out(0, 8), {}, {});
  expect("touch the same memory without an order");
}

TEST_F(VerifyTest, FindsADeadlockOfReceives) {
  a.send(in(0, 8), 1, 0, {a.recv(out(0, 8), 1, 0)});
  b.send(in(0, 8), 0, 0, {b.recv(out(0, 8), 0, 0)});
  expect("deadlock: ");
}

TEST_F(VerifyTest, FindsADeadlockOfSignals) {
  a.signal(1, 0, {a.wait(1, 0)});
  b.signal(0, 0, {b.wait(0, 0)});
  expect("deadlock: ");
}

TEST_F(VerifyTest, FindsMessagesThatDoNotMatch) {
  a.send(in(0, 8), 1, 0);
  expect("no step of the peer takes this message");
}

TEST_F(VerifyTest, FindsReceivesThatDoNotMatch) {
  b.recv(out(0, 8), 0, 0);
  expect("no step of the peer sends this message");
}

TEST_F(VerifyTest, FindsSizesThatDiffer) {
  a.send(in(0, 8), 1, 0);
  b.recv(out(0, 9), 0, 0);
  expect("the receiver expects 9 bytes");
}

TEST_F(VerifyTest, FindsTagsUsedTwice) {
  for (int i = 0; i < 2; ++i) {
    a.send(in(0, 8), 1, 3);
    b.recv(out(0, 8), 0, 3);
  }
  expect("the tag is used twice");
}

TEST_F(VerifyTest, FindsTagsTooLarge) {
  a.send(in(0, 8), 1, kMaxTag + 1);
  b.recv(out(0, 8), 0, kMaxTag + 1);
  expect("has a tag above");
}

TEST_F(VerifyTest, FindsPeersThatDoNotExist) {
  a.send(in(0, 8), 2, 0);
  expect("has a peer that does not exist");
}

TEST_F(VerifyTest, FindsRegionsOutOfBounds) {
  a.copy(in(60, 8), out(0, 8));
  expect("reaches beyond the 64 bytes of the input");
}

TEST_F(VerifyTest, FindsRegionsThatWrapAround) {
  a.copy(in(~std::uint64_t{0} - 3, 8), out(0, 8));
  expect("reaches beyond");
}

TEST_F(VerifyTest, FindsAWrittenInput) {
  a.copy(out(0, 8), in(0, 8));
  expect("writes the input");
}

TEST_F(VerifyTest, FindsConcurrentWrites) {
  a.copy(in(0, 8), out(0, 8));
  a.copy(in(8, 8), out(7, 8));
  expect("touch the same memory");
}

TEST_F(VerifyTest, FindsAWriteBesideARead) {
  a.copy(in(0, 8), out(0, 8));
  a.copy(out(4, 8), out(32, 8));
  expect("touch the same memory");
}

TEST_F(VerifyTest, AcceptsATransitiveOrder) {
  const StepId first = a.copy(in(0, 8), out(0, 8));
  const StepId between = a.copy(in(0, 8), out(32, 8), {first});
  a.copy(in(8, 8), out(0, 8), {between});
  EXPECT_EQ(findings(), std::vector<std::string>{});
}

TEST_F(VerifyTest, FindsAStepThatOverlapsItself) {
  a.copy(out(0, 8), out(4, 8));
  expect("source and target overlap");
}

TEST_F(VerifyTest, FindsSizesThatDifferWithinAStep) {
  a.copy(in(0, 8), out(0, 4));
  expect("moves 8 bytes into 4");
}

TEST_F(VerifyTest, FindsPartsOfElements) {
  element_bytes = 8;
  a.reduce(in(0, 12), out(0, 12));
  expect("not a whole number of elements");
}

TEST_F(VerifyTest, FindsSharedMemoryAcrossNodes) {
  nodes = {0, 1};
  a.signal(1, 0);
  b.wait(0, 0);
  expect("on another node");
}

TEST_F(VerifyTest, FindsReadsWithoutAWait) {
  a.copy(in(0, 8), a.shared(8));
  a.signal(1, 0);
  b.wait(0, 0);
  b.read(shared(0, 8), 0, out(0, 8));
  expect("no wait of the peer");
}

TEST_F(VerifyTest, FindsReadsBesideTheOwnersWrite) {
  a.copy(in(0, 8), a.shared(8));
  a.signal(1, 0);  // does not wait for the copy
  b.read(shared(0, 8), 0, out(0, 8), {b.wait(0, 0)});
  expect("touch the same shared memory");
}

TEST_F(VerifyTest, FindsSharedMemoryThatIsOverwrittenTooEarly) {
  const Region published = a.shared(8);
  const StepId copy = a.copy(in(0, 8), published);
  const StepId signal = a.signal(1, 0, {copy});
  a.copy(in(8, 8), published, {signal});
  b.read(shared(0, 8), 0, out(0, 8), {b.wait(0, 0)});
  expect("touch the same shared memory");
}

TEST_F(VerifyTest, AcceptsSharedMemoryThatIsOverwrittenAfterTheReadersAnswer) {
  const Region published = a.shared(8);
  const StepId copy = a.copy(in(0, 8), published);
  a.signal(1, 0, {copy});
  a.copy(in(8, 8), published, {a.wait(1, 1), copy});
  const StepId read = b.read(shared(0, 8), 0, out(0, 8), {b.wait(0, 0)});
  b.signal(0, 1, {read});
  EXPECT_EQ(findings(), std::vector<std::string>{});
}

TEST_F(VerifyTest, DoesNotTakeAMessageForAnOrderOfSharedMemory) {
  const Region published = a.shared(8);
  const StepId first = a.signal(1, 0);
  a.send(in(0, 1), 1, 0, {a.copy(in(0, 8), published, {first})});
  const StepId came = b.recv(out(32, 1), 0, 0, {b.wait(0, 0)});
  b.read(shared(0, 8), 0, out(0, 8), {came});
  expect("touch the same shared memory");
}

// Interleaved columns of one matrix share no elements.
TEST_F(VerifyTest, LooksAtTheElementsOfBlocks) {
  element_bytes = 4;
  const auto columns = [](std::uint64_t first) {
    return Block{.to_offset_elems = first,
                 .rows = 4,
                 .columns = 2,
                 .from_row_stride_elems = 2,
                 .from_column_stride_elems = 1,
                 .to_row_stride_elems = 4,
                 .to_column_stride_elems = 1};
  };
  const std::vector<StepId> none;
  const Block left = columns(0);
  const Block right = columns(2);
  a.transform(in(0, 32), out(0, 64), {&left, 1}, false, none);
  a.transform(in(32, 32), out(0, 64), {&right, 1}, false, none);
  EXPECT_EQ(findings(), std::vector<std::string>{});
}

TEST_F(VerifyTest, FindsBlocksThatShareElements) {
  element_bytes = 4;
  const Block row{.rows = 1, .columns = 4, .from_column_stride_elems = 1, .to_column_stride_elems = 1};
  const Block column{
      .to_offset_elems = 3, .rows = 4, .columns = 1, .from_row_stride_elems = 1, .to_row_stride_elems = 4};
  const std::vector<StepId> none;
  a.transform(in(0, 16), out(0, 64), {&row, 1}, false, none);
  a.transform(in(16, 16), out(0, 64), {&column, 1}, false, none);
  expect("touch the same memory");
}

TEST_F(VerifyTest, FindsBlocksOutOfBounds) {
  element_bytes = 4;
  const Block backwards{.rows = 2, .columns = 1, .from_row_stride_elems = -1, .to_row_stride_elems = 1};
  const std::vector<StepId> none;
  a.transform(in(0, 16), out(0, 16), {&backwards, 1}, false, none);
  expect("a block reaches beyond the source");
}

TEST(Verify, FindsMissingRanks) {
  const std::vector<std::int32_t> nodes{0, 0};
  const std::vector<Plan> plans{PlanBuilder("test", 0, 2).finish(0, 0)};
  EXPECT_FALSE(verify(plans, nodes).empty());
}

TEST(Verify, FindsPlansOfOtherRanks) {
  const std::vector<std::int32_t> nodes{0, 0};
  const std::vector<Plan> plans{PlanBuilder("test", 1, 2).finish(0, 0), PlanBuilder("test", 1, 2).finish(0, 0)};
  EXPECT_FALSE(verify(plans, nodes).empty());
}

// An exchange by flags: each rank publishes data, and the other rank reads it.
class FlagsTest : public VerifyTest {
 protected:
  static void exchange(PlanBuilder& builder, int peer) {
    const Region published = builder.by_flags().shared(8);
    builder.signal(peer, 0, {builder.copy(in(0, 8), published)});
    builder.read(published, peer, out(0, 8), {builder.wait(peer, 0)});
  }
};

TEST_F(FlagsTest, AcceptsAnExchange) {
  exchange(a, 1);
  exchange(b, 0);
  EXPECT_EQ(findings(), std::vector<std::string>{});
}

TEST_F(FlagsTest, FindsThatOneRankAloneGoesByThem) {
  exchange(a, 1);
  const Region mine = b.shared(8);
  b.signal(0, 0, {b.copy(in(0, 8), mine)});
  b.read(mine, 0, out(0, 8), {b.wait(0, 0)});
  expect("the plans of ranks 0 and 1 differ in by_flags");
}

TEST_F(FlagsTest, AcceptsMessages) {
  exchange(a, 1);
  exchange(b, 0);
  a.send(in(0, 8), 1, plan::kFlagRounds);
  b.recv(out(8, 8), 0, plan::kFlagRounds);
  EXPECT_EQ(findings(), std::vector<std::string>{});
}

TEST_F(FlagsTest, FindsTransforms) {
  exchange(a, 1);
  exchange(b, 0);
  a.transform(in(0, 8), out(8, 8), std::vector<Block>{}, false, {});
  expect("plan 0 has by_flags, but step 4 is of a kind that a short exchange does not have");
}

// As gatherv to rank 1: both ranks state the length of the block.
class LengthsTest : public FlagsTest {
 protected:
  static constexpr Region length(std::uint64_t size_bytes, std::uint64_t offset_bytes = 0) {
    return {offset_bytes, size_bytes, Buffer::shared};
  }
  static Region published(PlanBuilder& builder) {
    const Region all = builder.by_flags().shared(16);
    return {all.offset_bytes + kToldLengthBytes, 8, all.buffer};
  }
  void exchange(Region told, Region expected) {
    const Region block = published(a);
    a.signal_length(told, 1, 0, std::vector{a.copy(in(0, 8), block)});
    b.by_flags().read(block, 0, out(0, 8), {b.wait_length(expected, 0, 0, {})});
  }
};

TEST_F(LengthsTest, AcceptsEqualOnes) {
  exchange(length(8), length(8));
  EXPECT_EQ(findings(), std::vector<std::string>{});
}

TEST_F(LengthsTest, FindsDifferentOnes) {
  exchange(length(8), length(9));
  expect("the peer expects another length, or none");
}

TEST_F(LengthsTest, FindsDifferentPlaces) {
  exchange(length(8), length(8, 8));
  expect("the peer expects another length, or none");
}

TEST_F(LengthsTest, FindsThatOneRankAloneStatesIt) {
  const Region block = published(a);
  a.signal_length(length(8), 1, 0, std::vector{a.copy(in(0, 8), block)});
  b.by_flags().read(block, 0, out(0, 8), {b.wait(0, 0)});
  expect("the peer expects another length, or none");
}

TEST_F(LengthsTest, FindsOneBesideTheSharedBuffer) {
  exchange(length(8, 60), length(8, 60));
  expect("tells a length outside of the shared buffer");
}

TEST_F(LengthsTest, FindsOneThatIsOverwritten) {
  exchange(length(8, 4), length(8, 4));
  expect("tells a length in memory that has another use");
}

TEST_F(LengthsTest, FindsTwoInOnePlace) {
  exchange(length(8), length(8));
  a.signal_length(length(3), 1, 1, std::vector<StepId>{0});
  b.wait_length(length(3), 0, 1, {});
  expect("tells a length in memory that has another use");
}

TEST_F(LengthsTest, FindsOneWithoutFlags) {
  a.shared(16);
  a.signal_length(length(8), 1, 0, {});
  b.wait_length(length(8), 0, 0, {});
  expect("tells a length, but the plan does not go by flags");
}

TEST_F(FlagsTest, FindsTags) {
  a.by_flags().signal(1, plan::kFlagRounds);
  b.by_flags().wait(0, plan::kFlagRounds);
  expect("has a tag that is no round below 16");
}

TEST_F(FlagsTest, FindsWhatIsTooLong) {
  exchange(a, 1);
  exchange(b, 0);
  a.shared(plan::kFlagMemoryBytes);
  expect("it publishes 2176 bytes, more than the 2112 that fit beside a flag");
}

// In the second round each rank gives back what it has read in the first one.
TEST_F(FlagsTest, AcceptsASecondRound) {
  for (PlanBuilder* builder : {&a, &b}) {
    const int peer = builder == &a ? 1 : 0;
    const Region first = builder->by_flags().shared(8);
    const Region second = builder->shared(8);
    const StepId written = builder->copy(in(0, 8), first);
    builder->signal(peer, 0, {written});
    const StepId seen = builder->wait(peer, 0);
    builder->signal(peer, 1, {written, builder->read(first, peer, second, {seen})});
    builder->read(second, peer, out(0, 8), {builder->wait(peer, 1)});
  }
  EXPECT_EQ(findings(), std::vector<std::string>{});
}

TEST_F(FlagsTest, FindsAFlagThatIsRaisedBeforeAnEarlierWaitIsComplete) {
  a.by_flags().signal(1, 0);
  a.wait(1, 0);
  a.signal(1, 1);
  b.by_flags().signal(0, 0);
  b.wait(0, 0);
  b.wait(0, 1);
  expect("plan 0 has by_flags, but step 2 publishes before step 1 is complete");
}

TEST_F(FlagsTest, FindsMoreOfARoundThatIsPublished) {
  a.by_flags().signal(1, 0);
  a.signal(1, 0, {a.copy(in(0, 8), a.shared(8))});
  b.by_flags().wait(0, 0);
  b.wait(0, 0);
  expect("plan 0 has by_flags, but step 2 publishes more in a round that may already be published");
}

TEST_F(FlagsTest, FindsRoundsInAnotherOrder) {
  a.by_flags().signal(1, 1);
  a.signal(1, 0);
  b.by_flags().wait(0, 0);
  b.wait(0, 1);
  expect("plan 0 has by_flags, but step 1 publishes a round after a later one");
}

TEST_F(FlagsTest, FindsWhatIsWrittenTooEarly) {
  a.by_flags().copy(in(0, 8), out(8, 8));
  exchange(a, 1);
  exchange(b, 0);
  expect("step 0 writes before all waits are complete");
}

TEST_F(FlagsTest, FindsWhatIsPublishedAndThenWritten) {
  exchange(a, 1);
  exchange(b, 0);
  a.copy(in(8, 8), {0, 8, Buffer::shared});
  expect("step 4 writes shared memory that may already be published");
}

}  // namespace
}  // namespace penstock
