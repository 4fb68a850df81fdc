// Checks every row that supports reproducible operations. The result has the same bits for every assignment of
// contributions to ranks, every placement of ranks, every number of elements and every order of steps. A new row needs
// no edit here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "conformance/reference.hpp"
#include "conformance/team.hpp"
#include "kernels/half.hpp"
#include "kernels/reduce_sorted.hpp"
#include "penstock/error.hpp"

namespace penstock::conformance {
namespace {

using Block = std::vector<std::byte>;

bool is_prefix(CollectiveKind kind) { return kind == CollectiveKind::scan || kind == CollectiveKind::exscan; }
bool is_scattered(CollectiveKind kind) {
  return kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::reduce_scatter_block;
}

// Values of all magnitudes and both signs, with infinities and zeros, and with NaNs if `with_nans`.
Block wild(DType dtype, std::uint64_t count, bool with_nans, std::mt19937& random) {
  const auto number = [&]() -> double {
    constexpr double kOdd[] = {-0.0, 0.0, INFINITY, -INFINITY, NAN};
    if (random() % 50 == 0) return kOdd[random() % (with_nans ? 5 : 2)];
    return std::ldexp(static_cast<double>(static_cast<std::int32_t>(random())), static_cast<int>(random() % 16) - 38);
  };
  Block block(count * size_bytes(dtype));
  const auto fill = [&]<class T>(T, auto convert) {
    for (std::size_t at = 0; at < block.size(); at += sizeof(T)) {
      const T value = convert(number());
      std::memcpy(&block[at], &value, sizeof value);
    }
  };
  switch (dtype) {
    case DType::float16: fill(Float16{}, [](double x) { return kernels::to_float16(static_cast<float>(x)); }); break;
    case DType::bfloat16: fill(BFloat16{}, [](double x) { return kernels::to_bfloat16(static_cast<float>(x)); }); break;
    case DType::float32:
    case DType::complex64: fill(0.0f, [](double x) { return static_cast<float>(x); }); break;
    default: fill(0.0, [](double x) { return x; });
  }
  return block;
}

Block slice(const Block& block, std::uint64_t first, std::uint64_t size) {
  const auto begin = block.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}

/// The expected output of each rank.
std::vector<Block> expected(const Collective& collective, const std::vector<Block>& contributions) {
  const auto size = static_cast<int>(contributions.size());
  const Arithmetic arithmetic{.dtype = collective.dtype, .op = collective.op};
  std::vector<Block> all(contributions.size());
  if (is_prefix(collective.kind)) {
    Block sum;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (collective.kind == CollectiveKind::exscan) all[rank] = sum;
      Block next = contributions[rank];
      if (rank > 0) kernels::reduce(arithmetic, sum, next);
      sum = next;
      if (collective.kind == CollectiveKind::scan) all[rank] = sum;
    }
    return all;
  }
  Block sum(contributions[0].size());
  const std::vector<ConstBytes> parts(contributions.begin(), contributions.end());
  kernels::reduce_sorted(arithmetic, parts, sum);
  std::uint64_t next = 0;
  for (int rank = 0; rank < size; ++rank) {
    Block& own = all[static_cast<std::size_t>(rank)];
    if (is_scattered(collective.kind)) {
      const Collective request = request_of(collective, rank, size);
      const std::uint64_t count = collective.kind == CollectiveKind::reduce_scatter
                                      ? request.receive.counts[static_cast<std::size_t>(rank)]
                                      : collective.count;
      own = slice(sum, next, count * size_bytes(collective.dtype));
      next += own.size();
    } else if (collective.kind == CollectiveKind::allreduce || rank == collective.root) {
      own = sum;
    }
  }
  return all;
}

std::vector<plan::RankMemory> memory_of(const Collective& collective, const std::vector<Block>& contributions,
                                        const std::vector<Plan>& plans) {
  std::vector<plan::RankMemory> memory(plans.size());
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    memory[rank].input.resize(plans[rank].input_bytes);
    memory[rank].output.resize(plans[rank].output_bytes, std::byte{0x9d});
    const bool in_place =
        collective.in_place && (!is_rooted(collective.kind) || static_cast<int>(rank) == collective.root);
    Block& mine = in_place ? memory[rank].output : memory[rank].input;
    if (!contributions[rank].empty()) std::memcpy(mine.data(), contributions[rank].data(), contributions[rank].size());
  }
  return memory;
}

std::uint64_t elements_of(const Collective& collective, int size) {
  if (collective.kind == CollectiveKind::reduce_scatter_block)
    return collective.count * static_cast<std::uint64_t>(size);
  if (collective.kind != CollectiveKind::reduce_scatter) return collective.count;
  const Collective request = request_of(collective, 0, size);
  return std::accumulate(request.receive.counts.begin(), request.receive.counts.end(), std::uint64_t{0});
}

void check(const Collective& collective, int size, std::mt19937& random) {
  const std::uint64_t elements = elements_of(collective, size);
  std::vector<Block> contributions;
  for (int rank = 0; rank < size; ++rank)
    contributions.push_back(wild(collective.dtype, elements, !is_prefix(collective.kind), random));
  // One rank combines nothing.
  const std::vector<Block> wanted = size > 1 ? expected(collective, contributions) : std::vector<Block>{};
  for (const Placement placement : {Placement::one_node, Placement::unequal, Placement::shuffled}) {
    const std::vector<std::int32_t> nodes = place(placement, size);
    const auto row = std::ranges::find_if(algorithms(), [&](const Algorithm& each) {
      return each.kind == collective.kind && each.name == collective.algorithm;
    });
    if (!row->fits(Team{0, nodes}, collective)) continue;
    const std::vector<Plan> plans = plan_all(collective, nodes);
    for (const std::string& finding : verify(plans, nodes, size_bytes(collective.dtype))) ADD_FAILURE() << finding;
    if (testing::Test::HasFailure()) return;
    std::vector<plan::RankMemory> memory = memory_of(collective, contributions, plans);
    plan::simulate(plans, {.dtype = collective.dtype, .op = collective.op, .reproducible = true}, memory, random());
    for (std::size_t rank = 0; rank < wanted.size(); ++rank)
      ASSERT_TRUE(slice(memory[rank].output, 0, wanted[rank].size()) == wanted[rank])
          << "rank " << rank << ", placement " << static_cast<int>(placement);
    // Gives the same contributions to other ranks. That would change the result of a prefix operation.
    if (!is_prefix(collective.kind)) std::ranges::shuffle(contributions, random);
  }
}

class EveryReproducible : public testing::TestWithParam<const Algorithm*> {};

TEST_P(EveryReproducible, GivesTheSameBits) {
  std::mt19937 random(17);
  const DType dtypes[] = {DType::float16, DType::bfloat16,  DType::float32,
                          DType::float64, DType::complex64, DType::complex128};
  std::size_t tested = 0;
  for (const int size : {1, 2, 3, 4, 7, 8, 13})
    for (const std::uint64_t count : {0u, 1u, 13u, 500u, 5000u})
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod}) {
        Collective collective{.kind = GetParam()->kind,
                              .count = count,
                              .dtype = dtypes[tested % std::size(dtypes)],
                              .op = op,
                              .reproducible = true};
        collective.root = is_rooted(collective.kind) ? size - 1 : 0;
        collective.in_place = tested % 2 == 1;
        collective.segment_bytes = tested % 3 == 0 ? 0 : 64 * (tested % 3);
        collective.algorithm = std::string(GetParam()->name);
        ++tested;
        SCOPED_TRACE(std::to_string(size) + " ranks, " + std::to_string(count) + " " +
                     std::string(name(collective.dtype)) + " by " + std::string(name(op)) +
                     (collective.in_place ? ", in place" : ""));
        check(collective, size, random);
        if (HasFailure()) return;
      }
}

std::vector<const Algorithm*> reproducible_rows() {
  std::vector<const Algorithm*> chosen;
  for (const Algorithm& row : algorithms())
    if (row.reproducible) chosen.push_back(&row);
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(Row, EveryReproducible, testing::ValuesIn(reproducible_rows()), row_name);

TEST(Reproducible, IsChosenForEveryReductionTeamAndSize) {
  for (const CollectiveKind kind : {CollectiveKind::reduce, CollectiveKind::allreduce, CollectiveKind::scan,
                                    CollectiveKind::exscan, CollectiveKind::reduce_scatter_block})
    for (const int size : {1, 2, 6, 20})
      for (const Placement placement : {Placement::one_node, Placement::shuffled})
        for (const std::uint64_t count : {0u, 1u, 1000u, 1'000'000u}) {
          Collective collective{.kind = kind, .count = count, .dtype = DType::float32, .reproducible = true};
          const Team team{0, place(placement, size)};
          EXPECT_TRUE(choose(team, collective).algorithm->reproducible) << choose(team, collective).algorithm->name;
          // Every order gives the same integer sum, so integers keep the faster algorithm.
          collective.dtype = DType::int32;
          Collective plain = collective;
          plain.reproducible = false;
          EXPECT_EQ(choose(team, collective).algorithm, choose(team, plain).algorithm);
        }
}

TEST(Reproducible, RefusesWhatCannotBe) {
  const Team team{0, place(Placement::one_node, 4)};
  Collective collective{.kind = CollectiveKind::allreduce, .count = 4, .dtype = DType::float32, .reproducible = true};
  collective.algorithm = "ring";
  try {
    choose(team, collective);
    ADD_FAILURE() << "a ring combines in an order that depends on the placement";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("sorted"), std::string::npos) << error.message();
  }
  collective.algorithm.clear();
  collective.element_bytes = 8;
  collective.commutative = false;
  EXPECT_THROW(choose(team, collective), Error);
}

}  // namespace
}  // namespace penstock::conformance
