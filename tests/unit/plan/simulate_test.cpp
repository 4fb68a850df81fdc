#include "simulate.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "penstock/error.hpp"

namespace penstock::plan {
namespace {

Region in(std::uint64_t offset, std::uint64_t size) { return {offset, size, Buffer::input}; }
Region out(std::uint64_t offset, std::uint64_t size) { return {offset, size, Buffer::output}; }

class SimulateTest : public testing::Test {
 protected:
  PlanBuilder a{"test", 0, 2};
  PlanBuilder b{"test", 1, 2};
  std::vector<Plan> plans;

  // The memory of both ranks after the run. The inputs have the values 1 and 2 in every byte.
  std::vector<RankMemory> run(std::uint64_t seed) {
    if (plans.empty()) plans = {std::move(a).finish(8, 8), std::move(b).finish(8, 8)};
    std::vector<RankMemory> memory(2);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      memory[rank].input.assign(8, static_cast<std::byte>(rank + 1));
      memory[rank].output.assign(8, std::byte{0});
    }
    simulate(plans, {.dtype = DType::uint8}, memory, seed);
    return memory;
  }
  std::set<std::vector<std::byte>> outputs_of_b(int seeds) {
    std::set<std::vector<std::byte>> outputs;
    for (int seed = 0; seed < seeds; ++seed) outputs.insert(run(static_cast<std::uint64_t>(seed))[1].output);
    return outputs;
  }
  std::string error(int seeds) {
    for (int seed = 0; seed < seeds; ++seed) {
      try {
        run(static_cast<std::uint64_t>(seed));
      } catch (const Error& failure) {
        return failure.message();
      }
    }
    return "";
  }
};

TEST_F(SimulateTest, MovesMessagesAndReduces) {
  a.send(in(0, 8), 1, 0);
  b.reduce(in(0, 8), out(0, 8), {b.recv(out(0, 8), 0, 0)});
  const auto outputs = outputs_of_b(20);
  EXPECT_EQ(outputs, (std::set<std::vector<std::byte>>{std::vector<std::byte>(8, std::byte{3})}));
}

TEST_F(SimulateTest, IsTheSameForTheSameSeed) {
  a.send(in(0, 8), 1, 0);
  b.recv(out(0, 8), 0, 0);
  b.copy(in(0, 4), out(2, 4));  // races with the receive
  for (std::uint64_t seed = 0; seed < 10; ++seed) EXPECT_EQ(run(seed)[1].output, run(seed)[1].output);
}

TEST_F(SimulateTest, ShowsARaceInSomeOrder) {
  a.send(in(0, 8), 1, 0);
  b.recv(out(0, 8), 0, 0);
  b.copy(in(0, 4), out(2, 4));
  EXPECT_GT(outputs_of_b(20).size(), 1u);
}

// The simulation may read a message as late as its receive, so a change before the end of the send shows.
TEST_F(SimulateTest, ShowsABufferThatIsReusedTooEarly) {
  const StepId fill = a.copy(in(0, 8), out(0, 8));
  a.send(out(0, 8), 1, 0, {fill});
  a.reduce(in(0, 8), out(0, 8), {fill});
  b.recv(out(0, 8), 0, 0);
  EXPECT_GT(outputs_of_b(40).size(), 1u);
}

TEST_F(SimulateTest, FillsScratchWithGarbage) {
  b.copy(b.scratch(8), out(0, 8));
  EXPECT_NE(run(0)[1].output, std::vector<std::byte>(8, std::byte{0}));
}

TEST_F(SimulateTest, ReadsTheMemoryOfPeers) {
  const Region published = a.shared(8);
  a.signal(1, 0, {a.copy(in(0, 8), published)});
  b.read(published, 0, out(0, 8), {b.wait(0, 0)});
  EXPECT_EQ(outputs_of_b(10), (std::set<std::vector<std::byte>>{std::vector<std::byte>(8, std::byte{1})}));
}

TEST_F(SimulateTest, ReportsADeadlock) {
  a.send(in(0, 8), 1, 0, {a.recv(out(0, 8), 1, 0)});
  b.send(in(0, 8), 0, 0, {b.recv(out(0, 8), 0, 0)});
  EXPECT_NE(error(1).find("deadlock with 4 steps left"), std::string::npos);
}

TEST_F(SimulateTest, MeetsTheDeadlockOfUnbufferedSends) {
  a.recv(out(0, 8), 1, 0, {a.send(in(0, 8), 1, 0)});
  b.recv(out(0, 8), 0, 0, {b.send(in(0, 8), 0, 0)});
  EXPECT_NE(error(40).find("deadlock"), std::string::npos);
}

TEST_F(SimulateTest, ReportsMessagesThatNobodyTakes) {
  a.send(in(0, 8), 1, 0);
  EXPECT_NE(error(10), "");
}

TEST_F(SimulateTest, ReportsSizesThatDiffer) {
  a.send(in(0, 8), 1, 0);
  b.recv(out(0, 7), 0, 0);
  EXPECT_NE(error(1).find("8 bytes has a target of 7"), std::string::npos);
}

TEST_F(SimulateTest, ReportsAccessOutOfBounds) {
  a.copy(in(4, 8), out(0, 8));
  EXPECT_NE(error(1).find("out of bounds"), std::string::npos);
}

TEST_F(SimulateTest, ReportsAWrittenInput) {
  a.copy(out(0, 8), in(0, 8));
  EXPECT_NE(error(1).find("writes its input"), std::string::npos);
}

TEST_F(SimulateTest, RejectsBuffersOfTheWrongSize) {
  plans = {std::move(a).finish(9, 8), std::move(b).finish(8, 8)};
  EXPECT_NE(error(1).find("rank 0 was given buffers of 8 and 8 bytes, its plan expects 9 and 8"), std::string::npos);
}

}  // namespace
}  // namespace penstock::plan
