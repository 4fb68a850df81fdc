// Checks algorithms that keep the order of the ranks with an operation that does not commute. A new row needs no edit
// here.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "conformance/reference.hpp"
#include "conformance/team.hpp"
#include "penstock/error.hpp"
#include "plan/order.hpp"

namespace penstock::conformance {
namespace {

/// x -> a * x + b modulo 2^32, and the number of composed functions. (a, b) (op) (c, d) applies the first, then the
/// second.
struct Affine {
  std::uint32_t a;
  std::uint32_t b;
  std::uint32_t composed;
  friend bool operator==(const Affine&, const Affine&) = default;
};

Affine after(Affine first, Affine second) {
  return {first.a * second.a, first.b * second.a + second.b, first.composed + second.composed};
}

const std::shared_ptr<const UserOp> kCompose =
    std::make_shared<const UserOp>(UserOp{.combine =
                                              [](ConstBytes from, Bytes to) {
                                                for (std::size_t at = 0; at < to.size(); at += sizeof(Affine)) {
                                                  Affine first{};
                                                  Affine second{};
                                                  std::memcpy(&first, &from[at], sizeof first);
                                                  std::memcpy(&second, &to[at], sizeof second);
                                                  second = after(first, second);
                                                  std::memcpy(&to[at], &second, sizeof second);
                                                }
                                              },
                                          .element_bytes = sizeof(Affine),
                                          .commutative = false});

Affine contributed(int rank, std::uint64_t index) {
  return {static_cast<std::uint32_t>(2 * rank + 3 + static_cast<int>(index % 5) * 2),
          static_cast<std::uint32_t>(rank * 7 + static_cast<int>(index)), 1};
}

using Elements = std::vector<Affine>;

std::vector<std::byte> bytes_of(const Elements& elements) {
  std::vector<std::byte> bytes(elements.size() * sizeof(Affine));
  if (!bytes.empty()) std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

/// The composition of the contributions of `ranks` ranks, for the elements from `first` on.
Elements composed(int ranks, std::uint64_t first, std::uint64_t count) {
  Elements result;
  for (std::uint64_t i = first; i < first + count; ++i) {
    Affine value = contributed(0, i);
    for (int rank = 1; rank < ranks; ++rank) value = after(value, contributed(rank, i));
    result.push_back(value);
  }
  return result;
}

void check(const Collective& collective, int size, Placement placement) {
  SCOPED_TRACE(std::string(name(collective.kind)) + "/" + collective.algorithm + " on " + std::to_string(size) +
               " ranks, " + std::to_string(collective.count) + " elements, root " + std::to_string(collective.root) +
               (collective.in_place ? ", in place" : ""));
  const std::vector<std::int32_t> nodes = place(placement, size);
  const std::vector<Plan> plans = plan_all(collective, nodes);
  EXPECT_EQ(verify(plans, nodes, sizeof(Affine)), std::vector<std::string>{});
  std::vector<plan::RankMemory> memory;
  for (int rank = 0; rank < size; ++rank) {
    const Plan& plan = plans[static_cast<std::size_t>(rank)];
    const bool in_place = collective.in_place && (rank == collective.root || !is_rooted(collective.kind));
    Elements own;
    for (std::uint64_t i = 0; i < (in_place ? plan.output_bytes : plan.input_bytes) / sizeof(Affine); ++i)
      own.push_back(contributed(rank, i));
    std::vector<std::byte> output(plan.output_bytes, std::byte{0x9d});
    if (in_place) output = bytes_of(own);
    memory.push_back({in_place ? std::vector<std::byte>{} : bytes_of(own), output});
  }
  const std::vector<plan::RankMemory> before = memory;
  plan::simulate(plans, {.user = kCompose}, memory, 3 + static_cast<unsigned>(size));
  for (int rank = 0; rank < size; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    std::vector<std::byte> expected = before[index].output;
    Elements result;
    const Collective request = request_of(collective, rank, size);
    std::uint64_t first = 0;
    switch (collective.kind) {
      case CollectiveKind::reduce:
        if (rank == collective.root) result = composed(size, 0, collective.count);
        break;
      case CollectiveKind::allreduce: result = composed(size, 0, collective.count); break;
      case CollectiveKind::scan: result = composed(rank + 1, 0, collective.count); break;
      case CollectiveKind::exscan:
        if (rank > 0) result = composed(rank, 0, collective.count);
        break;
      case CollectiveKind::reduce_scatter_block:
        result = composed(size, collective.count * static_cast<std::uint64_t>(rank), collective.count);
        break;
      case CollectiveKind::reduce_scatter:
        for (std::size_t i = 0; i < index; ++i) first += request.receive.counts[i];
        result = composed(size, first, request.receive.counts[index]);
        break;
      default: FAIL() << "how does it combine?";
    }
    const std::vector<std::byte> bytes = bytes_of(result);
    if (!bytes.empty()) std::memcpy(expected.data(), bytes.data(), bytes.size());
    EXPECT_EQ(memory[index].output, expected) << "rank " << rank;
  }
}

std::vector<const Algorithm*> rows_in_order() {
  std::vector<const Algorithm*> chosen;
  for (const Algorithm& row : algorithms())
    if (row.keeps_order) chosen.push_back(&row);
  return chosen;
}

class InOrder : public testing::TestWithParam<const Algorithm*> {};

TEST_P(InOrder, ComposesFromTheFirstRankToTheLast) {
  int tested = 0;
  for (int size = 1; size <= 17; ++size)
    for (const Placement placement : {Placement::one_node, Placement::unequal, Placement::shuffled})
      for (const std::uint64_t count : {0u, 1u, 500u, 9000u}) {
        Collective collective{
            .kind = GetParam()->kind, .count = count, .element_bytes = sizeof(Affine), .commutative = false};
        collective.algorithm = GetParam()->name;
        collective.root = is_rooted(collective.kind) ? (tested * 3) % size : 0;
        collective.in_place = tested % 2 == 1;
        if (count == 500) collective.segment_bytes = 600;
        if (count == 9000 && size % 4 != 1) continue;
        if (!GetParam()->fits(Team{0, place(placement, size)}, collective)) continue;
        ++tested;
        check(collective, size, placement);
        if (HasFailure()) return;
      }
  EXPECT_GT(tested, 10);
}

INSTANTIATE_TEST_SUITE_P(Row, InOrder, testing::ValuesIn(rows_in_order()), row_name);

TEST(Order, IsKeptByWhatIsChosen) {
  for (const CollectiveKind kind :
       {CollectiveKind::reduce, CollectiveKind::allreduce, CollectiveKind::scan, CollectiveKind::exscan,
        CollectiveKind::reduce_scatter_block, CollectiveKind::reduce_scatter})
    for (const Placement placement : {Placement::one_node, Placement::unequal, Placement::shuffled})
      for (const std::uint64_t count : {1u, 30'000u}) {
        Collective collective{.kind = kind, .count = count, .element_bytes = sizeof(Affine), .commutative = false};
        EXPECT_TRUE(choose(Team{0, place(placement, 6)}, collective).algorithm->keeps_order);
        check(collective, 6, placement);
      }
}

TEST(Order, IsNotLeftToAlgorithmsThatChangeIt) {
  Collective collective{.kind = CollectiveKind::allreduce, .count = 4, .element_bytes = 12, .commutative = false};
  collective.algorithm = "ring";
  EXPECT_THROW(choose(Team{0, place(Placement::one_node, 4)}, collective), Error);
  collective.commutative = true;
  EXPECT_EQ(choose(Team{0, place(Placement::one_node, 4)}, collective).algorithm->name, "ring");
}

// Any algorithm may combine a commutative operation. It must not split elements.
TEST(Order, IsFreeForWhatCommutes) {
  for (const Algorithm& row : algorithms())
    for (const Placement placement : {Placement::one_node, Placement::unequal, Placement::shuffled})
      for (const std::uint64_t count : {1u, 5u, 3000u}) {
        Collective collective{.kind = row.kind, .count = count, .element_bytes = sizeof(Affine)};
        collective.algorithm = row.name;
        const std::vector<std::int32_t> nodes = place(placement, 7);
        if (!computes(row.kind) || !row.fits(Team{0, nodes}, collective)) continue;
        for (const Plan& plan : plan_all(collective, nodes))
          for (const Step& step : plan.steps)
            if (plan::computes(step, Computation::reduce)) {
              EXPECT_EQ(step.to.size_bytes % sizeof(Affine), 0u) << name(row.kind) << "/" << row.name;
            }
      }
}

// An element may be larger than the blocks in which tasks combine.
TEST(Order, ElementsMayBeLarge) {
  Collective collective{.kind = CollectiveKind::allreduce, .count = 4, .element_bytes = 1 << 20, .commutative = false};
  EXPECT_EQ(choose(Team{0, place(Placement::one_node, 4)}, collective).algorithm->name, "ordered");
}

}  // namespace
}  // namespace penstock::conformance
