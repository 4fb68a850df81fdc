// Checks every row of algorithms.def against the naive reference. A new row needs no edit here.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "conformance/reference.hpp"
#include "conformance/team.hpp"

namespace penstock::conformance {
namespace {

constexpr int kMostRanks = 17;

std::string describe(const Collective& collective, int size, Placement placement) {
  return std::string(name(collective.kind)) + "/" + collective.algorithm + " on " + std::to_string(size) +
         " ranks (placement " + std::to_string(static_cast<int>(placement)) + "), " + std::to_string(collective.count) +
         " " + std::string(name(collective.dtype)) + " by " + std::string(name(collective.op)) + ", root " +
         std::to_string(collective.root) + (collective.in_place ? ", in place" : "") + ", segments of " +
         std::to_string(collective.segment_bytes) + ", radix " + std::to_string(collective.radix) + ", split " +
         std::to_string(collective.split);
}

// Compares values, not bytes: -0.0 equals 0.0, and a long double has padding bytes.
bool same(DType dtype, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0 || decode(dtype, a) == decode(dtype, b);
}

void check(const Collective& collective, int size, Placement placement, std::uint64_t seeds, int progress_cores = 0) {
  SCOPED_TRACE(describe(collective, size, placement));
  const std::vector<std::int32_t> nodes = place(placement, size);
  const std::vector<Plan> plans = plan_all(collective, nodes, progress_cores);
  for (const std::string& finding : verify(plans, nodes, size_bytes(collective.dtype))) ADD_FAILURE() << finding;
  if (testing::Test::HasFailure()) return;
  if (collective.kind == CollectiveKind::barrier) {
    EXPECT_TRUE(synchronizes(plans));
  }
  const std::vector<plan::RankMemory> expected = memory_after(collective, size);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    std::vector<plan::RankMemory> memory = memory_before(collective, size);
    plan::simulate(plans, {.dtype = collective.dtype, .op = collective.op}, memory,
                   seed * 7919 + static_cast<unsigned>(size));
    for (std::size_t rank = 0; rank < memory.size(); ++rank) {
      EXPECT_TRUE(same(collective.dtype, memory[rank].input, expected[rank].input)) << "input of rank " << rank;
      EXPECT_TRUE(same(collective.dtype, memory[rank].output, expected[rank].output))
          << "output of rank " << rank << ", seed " << seed;
    }
  }
}

// Iterates over all pairs of a dtype and an operation that is defined for it.
class Types {
 public:
  void next(Collective& collective) {
    do {
      op_ = (op_ + 1) % kOps;
      if (op_ == 0) dtype_ = (dtype_ + 1) % kDTypes;
      collective.dtype = static_cast<DType>(dtype_);
      collective.op = static_cast<ReduceOp>(op_);
    } while (!defined_for(collective.op, collective.dtype));
  }

 private:
  static constexpr int kDTypes = static_cast<int>(DType::float64_float64) + 1;
  static constexpr int kOps = static_cast<int>(ReduceOp::maxloc) + 1;
  int dtype_ = 0;
  int op_ = -1;
};

class EveryAlgorithm : public testing::TestWithParam<const Algorithm*> {
 protected:
  const Algorithm& row() const { return *GetParam(); }
  Collective request() const { return {.kind = row().kind, .algorithm = std::string(row().name)}; }

  bool fits(const Collective& collective, int size, Placement placement) const {
    return conformance::fits(row(), collective, Team{0, place(placement, size)});
  }
  std::vector<int> roots(int size) const {
    if (!is_rooted(row().kind)) return {0};
    std::set<int> roots{0, size / 2, size - 1};
    return {roots.begin(), roots.end()};
  }
};

TEST_P(EveryAlgorithm, GivesWhatTheReferenceGives) {
  struct Size {
    std::uint64_t count;
    std::uint64_t segment_bytes;
  };
  const bool has_data = row().kind != CollectiveKind::barrier;
  const std::vector<Size> sizes =
      has_data ? std::vector<Size>{{0, 0}, {1, 0}, {13, 16}, {500, 64}} : std::vector<Size>{{0, 0}};
  Types types;
  int tested = 0;
  for (int size = 1; size <= kMostRanks; ++size)
    for (const Placement placement : {Placement::one_node, Placement::unequal, Placement::shuffled})
      for (const Size& length : sizes)
        for (const int root : roots(size)) {
          Collective collective = request();
          collective.count = length.count;
          collective.segment_bytes = length.segment_bytes;
          collective.root = root;
          types.next(collective);
          // Each length, placement and number of ranks gets both values; not each combination does.
          collective.in_place = tested % 2 == 1;
          collective.radix = 2 + tested % 3;
          collective.split = tested % 7 - 1;
          if (!fits(collective, size, placement)) continue;
          ++tested;
          check(collective, size, placement, 2, tested % 5);
          if (HasFailure()) return;
        }
  EXPECT_GT(tested, 4);
}

class EveryReduction : public EveryAlgorithm {};
class EveryTransfer : public EveryAlgorithm {};
class EveryRooted : public EveryAlgorithm {};

TEST_P(EveryReduction, CombinesEveryTypeByEveryOperation) {
  Types types;
  Collective collective = request();
  collective.count = 19;
  const Collective first = (types.next(collective), collective);
  do {
    for (const int size : {2, 5}) {
      collective.in_place = !collective.in_place;
      if (fits(collective, size, Placement::one_node)) check(collective, size, Placement::one_node, 1);
    }
    if (HasFailure()) return;
    types.next(collective);
  } while (collective.dtype != first.dtype || collective.op != first.op);
}

TEST_P(EveryTransfer, PipelinesLongMessages) {
  Collective collective = request();
  collective.dtype = DType::float32;
  for (const int size : {1, 2, 4, 7}) {
    collective.count = 150'001;  // 600 kB: several segments of every algorithm's default length, the last one shorter
    collective.root = size - 1;
    collective.in_place = !collective.in_place;
    const Placement placement =
        fits(collective, size, Placement::shuffled) ? Placement::shuffled : fitting_placement(collective, size);
    if (!fits(collective, size, placement)) continue;
    for (const int progress_cores : {0, 1}) check(collective, size, placement, 1, progress_cores);
  }
}

// Such messages fit into no memory, so the test only makes and verifies plans.
TEST_P(EveryTransfer, PlansMessagesBeyondTwoGibibytes) {
  for (const int size : {2, 5, 16, 17, 64})
    for (const bool in_place : {false, true}) {
      const int progress_cores = in_place ? 1 : 0;
      Collective collective = request();
      collective.count = (std::uint64_t{5} << 31) + 3;
      collective.dtype = DType::float64;
      collective.in_place = in_place;
      collective.root = is_rooted(collective.kind) ? size / 2 : 0;
      const Placement placement = fitting_placement(collective, size);
      if (!fits(collective, size, placement)) continue;
      const std::vector<std::int32_t> nodes = place(placement, size);
      const std::vector<Plan> plans = plan_all(collective, nodes, progress_cores);
      EXPECT_EQ(verify(plans, nodes, 8), std::vector<std::string>{}) << size << " ranks";
      // Ranks and segments bound the size of a plan; the length of the message does not.
      for (const Plan& plan : plans) EXPECT_LE(plan.steps.size(), 8192u) << size << " ranks";
      for (const Plan& plan : plans) EXPECT_LE(plan.tasks.size(), 1024u) << size << " ranks";
    }
}

// Only the root's in_place counts. On other ranks MPI ignores it, or the buffers that it concerns.
TEST_P(EveryRooted, NeedsInPlaceOnTheRootOnly) {
  Collective collective = request();
  collective.count = 5;
  collective.root = 3;
  const std::vector<std::int32_t> nodes = place(fitting_placement(collective, 6), 6);
  for (std::int32_t rank = 0; rank < 6; ++rank) {
    if (rank == collective.root) continue;
    collective.in_place = false;
    const Plan plain = plan_collective(Team{rank, nodes}, request_of(collective, rank, 6));
    collective.in_place = true;
    EXPECT_EQ(to_json(plan_collective(Team{rank, nodes}, request_of(collective, rank, 6))), to_json(plain))
        << "rank " << rank;
  }
}

TEST_P(EveryAlgorithm, IsDescribed) {
  EXPECT_FALSE(row().cost.empty());
  const Collective collective = request();
  for (const int size : {1, 2, 3, 4, 8}) {
    if (!fits(collective, size, Placement::one_node)) continue;
    const Plan plan = plan_collective(Team{0, place(Placement::one_node, size)}, request_of(collective, 0, size));
    EXPECT_EQ(plan.algorithm, std::string(name(row().kind)) + "/" + std::string(row().name));
  }
}

INSTANTIATE_TEST_SUITE_P(Row, EveryAlgorithm, testing::ValuesIn(rows([](CollectiveKind) { return true; })), row_name);
INSTANTIATE_TEST_SUITE_P(Row, EveryReduction, testing::ValuesIn(rows(computes)), row_name);
INSTANTIATE_TEST_SUITE_P(Row, EveryRooted, testing::ValuesIn(rows(is_rooted)), row_name);
INSTANTIATE_TEST_SUITE_P(Row, EveryTransfer,
                         testing::ValuesIn(rows([](CollectiveKind kind) { return kind != CollectiveKind::barrier; })),
                         row_name);

class EveryNeighborhood : public EveryAlgorithm {};
INSTANTIATE_TEST_SUITE_P(Row, EveryNeighborhood, testing::ValuesIn(rows(is_neighborhood)), row_name);

// The first rank of each node has no neighbours. MPI ignores its count, which a program cannot know.
TEST_P(EveryNeighborhood, NeedsNoCountOfRanksWithoutNeighbors) {
  constexpr std::int32_t kRanks = 7;
  std::vector<std::int32_t> nodes{0, 0, 0, 1, 1, 1, 1};
  const std::vector<std::vector<std::int32_t>> sources{{}, {5}, {4, 6}, {}, {1, 1}, {2, 4}, {}};
  const std::vector<std::vector<std::int32_t>> destinations{{}, {4, 4}, {5}, {}, {2, 5}, {1}, {2}};
  const auto graph = std::make_shared<const Graph>(sources, destinations);
  Collective collective = request();
  collective.graph = graph;
  if (!row().fits(Team{0, nodes}, collective)) nodes.assign(kRanks, 0);
  std::vector<Plan> plans;
  for (std::int32_t rank = 0; rank < kRanks; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const bool is_alone = sources[at].empty() && destinations[at].empty();
    Collective own = request();
    own.graph = graph;
    own.count = is_alone || has_send_counts(own.kind) ? 0 : 5;
    if (has_send_counts(own.kind)) own.send.counts.assign(destinations[at].size(), 5);
    if (has_receive_counts(own.kind)) own.receive.counts.assign(sources[at].size(), 5);
    plans.push_back(plan_collective(Team{rank, nodes}, own));
  }
  for (const std::string& finding : verify(plans, nodes, 1)) ADD_FAILURE() << finding;
}

bool has_block_per_rank(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::barrier:
    case CollectiveKind::bcast:
    case CollectiveKind::reduce:
    case CollectiveKind::allreduce:
    case CollectiveKind::scan:
    case CollectiveKind::exscan: return false;
    default: return true;
  }
}

// The automatic choice must work too, at sizes around every limit.
TEST(DefaultChoice, IsCorrectAndTheSameOnAllRanks) {
  constexpr std::uint64_t kMostElements = 1 << 24;  // of all ranks together
  for (int kind = 0; kind < static_cast<int>(kCollectiveKinds); ++kind)
    for (const int size : {1, 2, 3, 6, 8, 17, 64})
      for (const Placement placement : {Placement::one_node, Placement::unequal, Placement::shuffled})
        for (const std::uint64_t count : {1u, 3000u, 70'000u}) {
          const auto ranks = static_cast<std::uint64_t>(size);
          if (count * ranks * (has_block_per_rank(static_cast<CollectiveKind>(kind)) ? ranks : 1) > kMostElements)
            continue;
          Collective collective{.kind = static_cast<CollectiveKind>(kind), .count = count, .dtype = DType::int16};
          if (collective.kind == CollectiveKind::barrier) collective.count = 0;
          collective.root = is_rooted(collective.kind) ? size - 1 : 0;
          const std::vector<std::int32_t> nodes = place(placement, size);
          const Algorithm* chosen = choose(Team{0, nodes}, request_of(collective, 0, size)).algorithm;
          ASSERT_NE(chosen, nullptr);
          for (std::int32_t rank = 0; rank < size; ++rank)
            EXPECT_EQ(choose(Team{rank, nodes}, request_of(collective, rank, size)).algorithm, chosen);
          check(collective, size, placement, 1, size % 3);
        }
}

// Combining pays if a leader then has fewer messages than the busiest rank had without.
TEST(DefaultChoice, CombinesTheMessagesOfANeighborhoodWhereItSavesThem) {
  constexpr std::int32_t kRanks = 16;
  const std::vector<std::int32_t> nodes{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  std::vector<std::vector<std::int32_t>> others(kRanks);
  for (std::int32_t rank = 0; rank < kRanks; ++rank)
    for (std::int32_t other = 0; other < kRanks; ++other)
      if (other != rank) others[static_cast<std::size_t>(rank)].push_back(other);
  const auto all = std::make_shared<const Graph>(others, others);
  const auto grid = std::make_shared<const Graph>(Graph::cartesian(std::vector{4, 4}, {true, true}));
  const auto chosen = [&](const std::shared_ptr<const Graph>& graph, std::uint64_t count) {
    Collective collective{.kind = CollectiveKind::neighbor_alltoall, .count = count};
    collective.graph = graph;
    return std::string(choose(Team{3, nodes}, collective).algorithm->name);
  };
  EXPECT_EQ(chosen(all, 8), "combined");
  EXPECT_EQ(chosen(all, 1 << 20), "direct");
  EXPECT_EQ(chosen(grid, 8), "direct");
}

}  // namespace
}  // namespace penstock::conformance
