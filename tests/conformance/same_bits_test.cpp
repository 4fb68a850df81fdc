// Every allreduce gives the same bits on all ranks, also where another order of combination would give others. A new
// row needs no edit here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "conformance/reference.hpp"
#include "conformance/team.hpp"

namespace penstock::conformance {
namespace {

std::vector<std::byte> magnitudes(int rank, std::uint64_t count) {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < count; ++i)
    values.push_back(std::ldexp(static_cast<float>(rank % 2 == 0 ? 3 + rank : -3 - rank),
                                (rank * 7 + static_cast<int>(i) * 5) % 31));
  std::vector<std::byte> bytes(count * sizeof(float));
  if (count > 0) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

class EveryAllreduce : public testing::TestWithParam<const Algorithm*> {};

TEST_P(EveryAllreduce, GivesTheSameBitsOnAllRanks) {
  int tested = 0;
  for (int size = 2; size <= 17; ++size)
    for (const Placement placement : {Placement::one_node, Placement::unequal, Placement::shuffled})
      for (const int radix : {2, 3, 5, 9}) {
        std::vector<std::int32_t> nodes = place(placement, size);
        // The most nodes that there can be.
        if (placement == Placement::shuffled)
          for (int rank = 0; rank < size; ++rank) nodes[static_cast<std::size_t>(rank)] = rank;
        Collective collective{.kind = GetParam()->kind, .count = 40, .dtype = DType::float32};
        collective.algorithm = GetParam()->name;
        collective.radix = radix;
        if (tested % 2 == 1) collective.segment_bytes = 64;
        if (!GetParam()->fits(Team{0, nodes}, collective)) continue;
        ++tested;
        const std::vector<Plan> plans = plan_all(collective, nodes);
        std::vector<plan::RankMemory> memory;
        for (int rank = 0; rank < size; ++rank)
          memory.push_back({magnitudes(rank, collective.count), std::vector<std::byte>(collective.count * 4)});
        plan::simulate(plans, {.dtype = collective.dtype, .op = collective.op}, memory, static_cast<unsigned>(tested));
        for (int rank = 1; rank < size; ++rank)
          ASSERT_EQ(memory[static_cast<std::size_t>(rank)].output, memory[0].output)
              << "rank " << rank << " of " << size << ", radix " << radix;
      }
  EXPECT_GT(tested, 10);
}

INSTANTIATE_TEST_SUITE_P(Row, EveryAllreduce,
                         testing::ValuesIn(rows([](CollectiveKind kind) { return kind == CollectiveKind::allreduce; })),
                         row_name);

}  // namespace
}  // namespace penstock::conformance
