// Nodes of 64 and 128 ranks, which are processes that take turns on the cores of this machine: every row of
// algorithms.def, and what communicators are made for. PENSTOCK_TEST_ALL=1 takes all of it, else there are 64 ranks and
// short data.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "comm/state.hpp"
#include "conformance/deaths.hpp"
#include "conformance/forked_ranks.hpp"
#include "conformance/reference.hpp"
#include "conformance/team.hpp"
#include "engine/compiled_plan.hpp"
#include "engine/engine.hpp"
#include "engine/segment.hpp"
#include "make_engine.hpp"
#include "penstock/comm.hpp"
#include "penstock/redistribute.hpp"
#include "takes_all.hpp"

namespace penstock::conformance {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

std::vector<std::int32_t> nodes_of(int nodes, int ranks_per_node) {
  std::vector<std::int32_t> all;
  for (int node = 0; node < nodes; ++node) all.insert(all.end(), static_cast<std::size_t>(ranks_per_node), node);
  return all;
}

struct Nodes {
  int nodes;
  int ranks_per_node;
};

/// What rows run, with the memory of all ranks before and after.
struct Case {
  Collective collective;
  std::vector<plan::RankMemory> before;
  std::vector<plan::RankMemory> after;
};

std::vector<Case> cases_of(CollectiveKind kind, int size) {
  const std::uint64_t most_bytes = std::uint64_t{takes_all() ? 32u : 2u} << 20;  // of all buffers of one name
  std::vector<Case> cases;
  for (const std::uint64_t bytes : {8, 3 << 10, 40 << 10, 300 << 10}) {
    Collective collective{.kind = kind, .count = bytes / 8, .dtype = DType::int64};
    if (kind == CollectiveKind::barrier) collective.count = 0;
    collective.root = is_rooted(kind) ? size - 2 : 0;
    collective.in_place = !is_neighborhood(kind) && cases.size() % 2 == 1;
    std::uint64_t total = 0;
    const auto ranks = static_cast<std::uint64_t>(size);
    switch (kind) {
      case CollectiveKind::allgather:
      case CollectiveKind::allgatherv:
      case CollectiveKind::alltoall:
      case CollectiveKind::alltoallv:
      case CollectiveKind::alltoallw:
      case CollectiveKind::reduce_scatter:
      case CollectiveKind::reduce_scatter_block: total = bytes * ranks * ranks; break;
      default: total = bytes * ranks;
    }
    if (!cases.empty() && (total > most_bytes || kind == CollectiveKind::barrier)) break;
    cases.push_back({collective, memory_before(collective, size), memory_after(collective, size)});
  }
  return cases;
}

/// Counts the ranks that have come to a barrier.
struct Arrivals {
  std::atomic<std::uint64_t>& count = *new (::mmap(nullptr, sizeof(std::atomic<std::uint64_t>), PROT_READ | PROT_WRITE,
                                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<std::uint64_t>(0);
  ~Arrivals() { ::munmap(&count, sizeof count); }
};

/// Runs all rows that fit, and the default choice, one after the other on one engine. Returns "ok", or what is wrong.
std::string run_rows(ForkedRank& self, const Case& each, const engine::EngineOptions& options, Arrivals& arrivals) {
  const auto engine = engine::make_engine(self.make_transport(), options);
  const Team& team = engine->team();
  const auto me = static_cast<std::size_t>(self.rank);
  std::uint64_t begun = 0;
  int tested = 0;
  std::vector<std::string> names{""};
  for (const Algorithm& row : algorithms())
    if (row.kind == each.collective.kind && fits(row, each.collective, team)) names.emplace_back(row.name);
  for (const std::string& name : names) {
    Collective collective = each.collective;
    collective.algorithm = name;
    const std::string what =
        "rank " + std::to_string(self.rank) + ", '" + name + "' of " + std::to_string(collective.count) + " elements: ";
    try {
      const auto plan =
          std::make_shared<const Plan>(plan_collective(team, request_of(collective, self.rank, team.size())));
      plan::RankMemory memory = each.before[me];
      const engine::Bindings bindings{memory.input, memory.output};
      const Arithmetic arithmetic{.dtype = collective.dtype, .op = collective.op};
      arrivals.count.fetch_add(1);
      begun += static_cast<std::uint64_t>(team.size());
      if (++tested % 2 == 0)
        engine->run(plan, bindings, arithmetic, 7);
      else
        engine->start(plan, bindings, arithmetic, 7)->wait();
      if (collective.kind == CollectiveKind::barrier && arrivals.count.load() < begun)
        return what + "left before all ranks had come";
      if (memory.output != each.after[me].output) return what + "wrong output";
      if (memory.input != each.after[me].input) return what + "wrong input";
    } catch (const std::exception& error) {
      return what + error.what();
    }
  }
  self.barrier(team.size());  // keeps this process alive: the others would detect its end
  return "ok";
}

void expect_ok(const std::vector<Outcome>& outcomes) {
  int shown = 0;
  for (std::size_t rank = 0; rank < outcomes.size() && shown < 4; ++rank)
    if (outcomes[rank].text != "ok") {
      ADD_FAILURE() << "rank " << rank << (outcomes[rank].killed ? " hung: " : ": ") << outcomes[rank].text;
      ++shown;
    }
}

class ManyRanks : public testing::TestWithParam<CollectiveKind> {
 protected:
  void SetUp() override {
    if (kIsSanitized) GTEST_SKIP() << "takes too long with a sanitizer";
  }
  void run_on(Nodes on, const engine::EngineOptions& options) {
    SCOPED_TRACE(std::to_string(on.nodes) + " nodes of " + std::to_string(on.ranks_per_node) + " ranks");
    for (const Case& each : cases_of(GetParam(), on.nodes * on.ranks_per_node)) {
      Arrivals arrivals;
      expect_ok(run_forked(nodes_of(on.nodes, on.ranks_per_node),
                           [&](ForkedRank& self) { return run_rows(self, each, options, arrivals); }));
    }
  }
};

TEST_P(ManyRanks, GiveWhatTheReferenceGives) {
  const engine::EngineOptions options{.stall_timeout_ms = 0};
  run_on({1, 64}, options);
  if (!takes_all()) return;
  run_on({1, 128}, options);
  run_on({2, 64}, options);
  run_on({1, 64}, {.stall_timeout_ms = 0, .single_copy = false});
  run_on({1, 64}, {.progress_threads = 1, .progress_cores = 1, .stall_timeout_ms = 0});
}

/// Makes a communicator; barriers, a reduction, and redistributions there and back. Returns "ok", or what is wrong.
std::string use_comm(ForkedRank& self, int size, Arrivals& arrivals) {
  ::setenv("PENSTOCK_STALL_TIMEOUT_MS", "0", 1);
  ::setenv("PENSTOCK_NETWORK", "off", 1);
  Comm comm = comm::make_comm(self.make_transport, {.progress_cores = 0});
  const auto ranks = static_cast<std::uint64_t>(size);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    arrivals.count.fetch_add(1);
    comm.run({.kind = CollectiveKind::barrier}, {}, {});
    if (arrivals.count.load() < round * ranks) return "left a barrier before all ranks had come";
  }
  const std::vector<std::int64_t> own(500, self.rank);
  std::vector<std::int64_t> sum(own.size());
  comm.run({.kind = CollectiveKind::allreduce, .count = own.size(), .dtype = DType::int64},
           std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(sum)));
  if (sum != std::vector<std::int64_t>(own.size(), size * (size - 1) / 2)) return "wrong sum";

  constexpr std::int64_t kRows = 700;
  constexpr std::int64_t kColumns = 900;
  const Layout source = Layout::block_cyclic({kRows, kColumns}, {13, 17}, {size / 8, 8});
  const Layout target = Layout::block_cyclic({kColumns, kRows}, {kColumns, 5}, {1, size});
  const RedistributionOptions turned{.dtype = DType::float32, .op = MatrixOp::transpose};
  const Redistribution there(comm, source, target, turned);
  const Redistribution back(comm, target, source, turned);
  std::vector<float> before(there.local_input_bytes() / sizeof(float));
  std::vector<float> between(there.local_output_bytes() / sizeof(float));
  std::vector<float> after(before.size());
  for (std::size_t i = 0; i < before.size(); ++i)
    before[i] = static_cast<float>(static_cast<std::size_t>(self.rank) * 10'000 + i);
  const auto bytes = [](auto& values) { return std::as_writable_bytes(std::span(values)); };
  for (int round = 0; round < 2; ++round) {
    std::ranges::fill(after, -1.0f);
    there.run(bytes(before), bytes(between));
    back.run(bytes(between), bytes(after));
    if (before != after) return "a redistribution there and back changes elements";
  }
  self.barrier(size);
  return "ok";
}

class ManyRanksOfAComm : public testing::Test {
 protected:
  void SetUp() override {
    if (kIsSanitized) GTEST_SKIP() << "takes too long with a sanitizer";
  }
};

TEST_F(ManyRanksOfAComm, SynchronizeReduceAndRedistribute) {
  for (const Nodes on : {Nodes{1, 64}, Nodes{1, 128}, Nodes{2, 64}}) {
    if (on.ranks_per_node * on.nodes > 64 && !takes_all()) break;
    SCOPED_TRACE(std::to_string(on.nodes) + " nodes of " + std::to_string(on.ranks_per_node) + " ranks");
    Arrivals arrivals;
    expect_ok(run_forked(nodes_of(on.nodes, on.ranks_per_node),
                         [&](ForkedRank& self) { return use_comm(self, on.nodes * on.ranks_per_node, arrivals); }));
  }
}

TEST_F(ManyRanksOfAComm, AreAllToldOfADeath) {
  for (std::uint32_t run = 0; run < (takes_all() ? 8 : 1) && !HasFailure(); ++run) {
    Death each = death(first_seed(64'000) + run);
    each.ranks = 64;
    each.placement = Placement::one_node;
    each.count = run % 2 == 0 ? 1 : 20'000;
    each.victim = static_cast<int>(each.moment % 64);
    each.progress_threads = 0;
    each.by_test = each.by_test && takes_all();  // 64 ranks in loops of test() share few cores
    expect_told(each, [&](ForkedRank& self) {
      ::setenv("PENSTOCK_STALL_TIMEOUT_MS", "0", 1);
      ::setenv("PENSTOCK_SINGLE_COPY", each.single_copy ? "on" : "off", 1);
      Comm comm = comm::make_comm(self.make_transport, {.progress_cores = 0});
      std::vector<float> own(each.count);
      std::vector<float> sum(each.count);
      return call_until_told(self, each, [&] {
        Request request = comm.start({.kind = CollectiveKind::allreduce, .count = own.size(), .dtype = DType::float32},
                                     std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(sum)));
        await(request, each);
      });
    });
  }
}

/// The team of a node with shared memory as the engine takes it, or of two.
Team team_of(Nodes on) {
  Team team{.rank = 0, .node_of_rank = nodes_of(on.nodes, on.ranks_per_node)};
  const auto ranks = static_cast<std::uint32_t>(on.ranks_per_node);
  team.shared_limit_bytes =
      engine::SegmentLayout::fit(ranks, engine::EngineOptions{}.eager_bytes, engine::SegmentLayout::usual_bytes(ranks))
          .ring_bytes;
  return team;
}

class EveryRow : public testing::TestWithParam<const Algorithm*> {};

/// A row that fits can be run.
TEST_P(EveryRow, ServesUpTo256RanksOfANode) {
  const Algorithm& row = *GetParam();
  for (const int ranks : {2, 32, 64, 128, 256}) {
    bool fits_one = false;
    for (const int nodes : {1, 2})
      for (const std::uint64_t count : {1, 400, 8'000, 100'000, 4'000'000}) {
        Collective collective{.kind = row.kind, .count = count, .algorithm = std::string(row.name)};
        collective.dtype = DType::float64;
        if (row.kind == CollectiveKind::barrier) collective.count = 0;
        Team team = team_of({nodes, ranks});
        if (!fits(row, collective, team)) continue;
        fits_one = true;
        for (const int rank : {0, ranks / 2, nodes * ranks - 1}) {
          team.rank = rank;
          const Plan plan = plan_collective(team, request_of(collective, rank, team.size()));
          const std::string what = std::to_string(nodes) + " nodes of " + std::to_string(ranks) + " ranks, " +
                                   std::to_string(count) + " elements, rank " + std::to_string(rank);
          EXPECT_NO_THROW(engine::CompiledPlan(plan, team, team.shared_limit_bytes)) << what;
        }
      }
    const bool has_pairs_of_tasks = row.kind == CollectiveKind::alltoall && row.name == "divided";
    EXPECT_TRUE(fits_one || (has_pairs_of_tasks && ranks > 32)) << ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(Row, EveryRow, testing::ValuesIn(rows([](CollectiveKind) { return true; })), row_name);

std::vector<CollectiveKind> all_kinds() {
  std::vector<CollectiveKind> kinds;
  for (std::size_t kind = 0; kind < kCollectiveKinds; ++kind) kinds.push_back(static_cast<CollectiveKind>(kind));
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Kind, ManyRanks, testing::ValuesIn(all_kinds()),
                         [](const auto& instance) { return std::string(name(instance.param)); });

}  // namespace
}  // namespace penstock::conformance
