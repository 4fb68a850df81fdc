// Redistribution with threads of this process as ranks, each on its own node unless a test says otherwise.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "arrays/disjoint.hpp"
#include "arrays/planned_redistribution.hpp"
#include "arrays/recent_redistributions.hpp"
#include "comm/state.hpp"
#include "penstock/comm.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"
#include "penstock/redistribute.hpp"
#include "unit/comm/outcomes.hpp"

namespace {

// Allocations of this thread with the function that the engine uses for its buffers.
thread_local std::size_t largest_allocation_bytes = 0;

// What this thread has asked the kernel to move into huge pages. It is not moved.
thread_local std::vector<penstock::ConstBytes> moved_into_huge_pages;

}  // namespace

extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size_bytes) noexcept {
  using Allocate = void* (*)(std::size_t, std::size_t);
  static const auto next = reinterpret_cast<Allocate>(dlsym(RTLD_NEXT, "aligned_alloc"));
  largest_allocation_bytes = std::max(largest_allocation_bytes, size_bytes);
  return next(alignment, size_bytes);
}

extern "C" int madvise(void* address, std::size_t size_bytes, int advice) noexcept {
  using Advise = int (*)(void*, std::size_t, int);
  static const auto next = reinterpret_cast<Advise>(dlsym(RTLD_NEXT, "madvise"));
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers lack
  if (advice != kCollapse) return next(address, size_bytes, advice);
  moved_into_huge_pages.emplace_back(static_cast<const std::byte*>(address), size_bytes);
  return 0;
}

namespace penstock::arrays {
namespace {

constexpr int kRanks = 3;
/// The time of a move of an array with two huge pages is saved within 8 uses; here it takes none, unless another
/// process interrupts it.
constexpr int kUses = 12;

/// Each rank on a node of its own.
std::vector<std::optional<Error>> outcomes(const std::function<void(Comm&)>& call) {
  return comm::outcomes({0, 1, 2}, call);
}

RecentRedistributions& recent_of(Comm& comm) {
  return comm.state().kept_with<RecentRedistributions>(comm.state().facts().plan_cache_bytes);
}

void expect_no_errors(const std::function<void(Comm&)>& call) {
  for (const auto& error : outcomes(call)) EXPECT_FALSE(error) << error->what();
}

const Layout& rows() {
  static const Layout layout = Layout::even({30, 12}, kRanks);
  return layout;
}
const Layout& columns() {
  static const Layout layout = Layout::even({30, 12}, kRanks, 1);
  return layout;
}

double value_at(std::int64_t row, std::int64_t column) { return static_cast<double>(100 * row + column); }

struct Arrays {
  explicit Arrays(int rank) : first_row(10 * rank), first_column(4 * rank) {
    for (std::int64_t i = 0; i < 120; ++i) input[static_cast<std::size_t>(i)] = value_at(first_row + i / 12, i % 12);
  }
  ConstBytes in() const { return std::as_bytes(std::span(input)); }
  Bytes out() { return std::as_writable_bytes(std::span(output)); }
  bool is_moved() const {
    for (std::int64_t i = 0; i < 120; ++i)
      if (output[static_cast<std::size_t>(i)] != value_at(i / 4, first_column + i % 4)) return false;
    return true;
  }
  bool is_untouched() const {
    return std::ranges::all_of(output, [](double value) { return value == -1.0; });
  }

  std::int64_t first_row;
  std::int64_t first_column;
  std::vector<double> input = std::vector<double>(120);
  std::vector<double> output = std::vector<double>(120, -1.0);
};

TEST(Workspace, IsWhatMessagesLieIn) {
  expect_no_errors([](Comm& comm) {
    const Redistribution plan(comm, rows(), columns(), {});
    ASSERT_GT(plan.plan().scratch_bytes, 0u);
    ASSERT_GE(plan.workspace_bytes(), plan.plan().scratch_bytes);
    for (std::size_t shift = 0; shift < 64; shift += 7) {
      Arrays arrays(comm.rank());
      constexpr auto kMark = std::byte{0xa5};
      std::vector<std::byte> memory(plan.workspace_bytes() + 2 * 64, kMark);
      const Bytes workspace = Bytes(memory).subspan(shift, plan.workspace_bytes());
      plan.run(arrays.in(), arrays.out(), 1.0, 0.0, workspace);
      EXPECT_TRUE(arrays.is_moved());
      // Data from the other ranks has passed through the workspace, and nothing beside it was written.
      for (int r = 0; r < kRanks; ++r) {
        if (r == comm.rank()) continue;
        const double from_there = value_at(10 * r, arrays.first_column);
        bool found = false;
        for (std::size_t i = 0; i + 8 <= workspace.size() && !found; ++i)
          found = std::memcmp(workspace.data() + i, &from_there, 8) == 0;
        EXPECT_TRUE(found) << "the first element of rank " << r;
      }
      EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(shift),
                              [](std::byte byte) { return byte == kMark; }));
      EXPECT_TRUE(std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(shift + workspace.size()), memory.end(),
                              [](std::byte byte) { return byte == kMark; }));
    }
  });
}

TEST(Workspace, LeavesNothingToAllocate) {
  for (const bool given : {false, true})
    expect_no_errors([&](Comm& comm) {
      const Redistribution plan(comm, rows(), columns(), {});
      Arrays arrays(comm.rank());
      std::vector<std::byte> memory(plan.workspace_bytes());
      // Early messages are kept one by one: each is a quarter of the plan's memory.
      const std::uint64_t scratch_bytes = plan.plan().scratch_bytes;
      ASSERT_GE(scratch_bytes, 4u * 10 * 4 * sizeof(double));
      largest_allocation_bytes = 0;
      plan.run(arrays.in(), arrays.out(), 1.0, 0.0, given ? Workspace(memory) : std::nullopt);
      EXPECT_TRUE(arrays.is_moved());
      EXPECT_EQ(largest_allocation_bytes >= scratch_bytes, !given) << largest_allocation_bytes;
    });
}

TEST(Workspace, SufficesForAnyStrides) {
  expect_no_errors([](Comm& comm) {
    // Dense rows are sent in place; every second element is not.
    const Layout whole = Layout::whole({64, 8}, 1, kRanks);
    const Redistribution plan(comm, Layout::even({64, 8}, kRanks), whole, {});
    std::vector<double> spread(2 * 64 * 8, 1.0);
    std::vector<double> output(64 * 8, -1.0);
    std::vector<std::byte> workspace(plan.workspace_bytes());
    ConstStridedParts input{{std::as_bytes(std::span(spread)).data(), {16, 2}}};
    StridedParts target;
    if (comm.rank() == 1) target.push_back({std::as_writable_bytes(std::span(output)).data(), {8, 1}});
    plan.start_parts(input, target, 1.0, 0.0, workspace).wait();
    if (comm.rank() == 1) {
      EXPECT_EQ(std::ranges::count(output, 1.0), 64 * 8);
    }
  });
}

TEST(Workspace, OfABatch) {
  expect_no_errors([](Comm& comm) {
    const RedistributionBatch batch(comm, {{rows(), columns()}, {columns(), rows()}}, {});
    Arrays first(comm.rank());
    std::vector<double> back(120, -1.0);
    std::vector<double> middle(120);
    for (std::int64_t i = 0; i < 120; ++i)
      middle[static_cast<std::size_t>(i)] = value_at(i / 4, first.first_column + i % 4);
    std::vector<std::byte> workspace(batch.workspace_bytes());
    EXPECT_GT(workspace.size(), 0u);
    const ConstBytes inputs[] = {first.in(), std::as_bytes(std::span(middle))};
    const Bytes outputs[] = {first.out(), std::as_writable_bytes(std::span(back))};
    batch.run(inputs, outputs, 1.0, 0.0, workspace);
    EXPECT_TRUE(first.is_moved());
    EXPECT_EQ(back, first.input);
  });
}

TEST(Workspace, WrongOnesAreErrorsEverywhereAndNothingMoves) {
  struct Wrong {
    const char* says;
    std::function<Bytes(std::vector<std::byte>&, Arrays&)> make;
  };
  const Wrong all[] = {
      {"expected at least", [](auto& memory, Arrays&) { return Bytes(memory).first(memory.size() - 1); }},
      {"expected at least", [](auto&, Arrays&) { return Bytes{}; }},
      {"give the workspace memory of its own",
       [](auto& memory, Arrays& arrays) {
         arrays.output.resize(120 + memory.size() / 8 + 1);
         const Bytes all_of_it = std::as_writable_bytes(std::span(arrays.output));
         return all_of_it.subspan(119 * 8, memory.size());
       }},
  };
  for (const Wrong& wrong : all) {
    const auto errors = outcomes([&](Comm& comm) {
      const Redistribution plan(comm, rows(), columns(), {});
      std::vector<std::byte> memory(plan.workspace_bytes());
      Arrays arrays(comm.rank());
      Bytes workspace = memory;
      if (comm.rank() == 1) workspace = wrong.make(memory, arrays);
      arrays.output[0] = -1.0;
      try {
        plan.run(arrays.in(), arrays.out().first(120 * 8), 1.0, 0.0, workspace);
      } catch (const Error&) {
        arrays.output.resize(120);
        EXPECT_TRUE(arrays.is_untouched());
        throw;
      }
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto& error = errors[static_cast<std::size_t>(rank)];
      ASSERT_TRUE(error) << wrong.says << ", rank " << rank;
      EXPECT_EQ(error->code(), rank == 1 ? ErrorCode::invalid_argument : ErrorCode::peer_failed);
      EXPECT_NE(std::string(error->what()).find(wrong.says), std::string::npos) << error->what();
    }
  }
}

void call_once(Comm& comm, const Layout& source, const Layout& target, Arrays& arrays,
               const RedistributionOptions& options = {}) {
  run_redistribution(comm, {source, target, options}, arrays.in(), arrays.out());
}

// Ranks of one node write and read each other's staging buffers, here under the sanitizers: several runs at once, each
// with more segments than a pair has staging buffers.
TEST(StagingBuffersOfANode, AreUsedAgainAndAgain) {
  constexpr std::int64_t kOrder = 96;
  const auto value = [](std::int64_t row, std::int64_t column) { return static_cast<double>(kOrder * row + column); };
  for (const std::vector<std::int32_t>& nodes : std::vector<std::vector<std::int32_t>>{{0, 0}, {0, 0, 0}, {0, 0, 1}}) {
    const auto ranks = static_cast<std::int32_t>(nodes.size());
    // The rows of one and the columns of the other are distributed over all ranks.
    constexpr std::int64_t kSourceBlock = 7, kTargetBlock = 16;
    const Layout source = Layout::block_cyclic({kOrder, kOrder}, {kOrder, kSourceBlock}, {1, ranks});
    const Layout target = Layout::block_cyclic({kOrder, kOrder}, {kTargetBlock, kOrder}, {ranks, 1});
    const auto dealt = [&](std::int64_t local, std::int64_t block, int rank) {
      return (local / block * ranks + rank) * block + local % block;
    };
    for (const MatrixOp op : {MatrixOp::none, MatrixOp::transpose}) {
      const auto errors = comm::outcomes(nodes, [&](Comm& comm) {
        const Redistribution plan(comm, source, target, {.op = op, .segment_bytes = 1024});
        const Plan& steps = plan.plan();
        std::size_t unpacked = 0;
        for (const Step& step : steps.steps) unpacked += step.source == StepSource::peer_shared ? 1 : 0;
        if (comm.rank() == 0) {
          EXPECT_GT(unpacked, 8u);
        }
        constexpr std::size_t kRuns = 3;
        std::vector<double> input(static_cast<std::size_t>(source.local_size_elems(comm.rank())));
        const auto columns_here = static_cast<std::int64_t>(input.size()) / kOrder;
        for (std::size_t at = 0; at < input.size(); ++at) {
          const auto local = static_cast<std::int64_t>(at);
          input[at] = value(local / columns_here, dealt(local % columns_here, kSourceBlock, comm.rank()));
        }
        std::vector<std::vector<double>> outputs(
            kRuns, std::vector<double>(static_cast<std::size_t>(target.local_size_elems(comm.rank())), 1.0));
        for (int turn = 0; turn < 5; ++turn) {
          std::vector<Request> started;
          for (std::vector<double>& output : outputs) {
            std::ranges::fill(output, 1.0);
            started.push_back(
                plan.start(std::as_bytes(std::span(input)), std::as_writable_bytes(std::span(output)), 2.0, 3.0));
          }
          for (Request& request : started) request.wait();
          for (const std::vector<double>& output : outputs) {
            std::size_t wrong = 0;
            for (std::size_t at = 0; at < output.size(); ++at) {
              const auto local = static_cast<std::int64_t>(at);
              const std::int64_t row = dealt(local / kOrder, kTargetBlock, comm.rank()), column = local % kOrder;
              const double given = op == MatrixOp::none ? value(row, column) : value(column, row);
              wrong += output[at] != 2 * given + 3 ? 1 : 0;
            }
            EXPECT_EQ(wrong, 0u) << "rank " << comm.rank() << " of " << ranks << ", turn " << turn;
          }
        }
      });
      for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
    }
  }
}

TEST(RedistributionCalls, PlanOnceForEqualArguments) {
  expect_no_errors([](Comm& comm) {
    RecentRedistributions& recent = recent_of(comm);
    Arrays first(comm.rank());
    EXPECT_EQ(recent.find(rows(), columns(), {}), nullptr);
    call_once(comm, rows(), columns(), first);
    EXPECT_TRUE(first.is_moved());
    const auto planned = recent.find(rows(), columns(), {});
    ASSERT_NE(planned, nullptr);
    for (int turn = 0; turn < 3; ++turn) {
      Arrays other(comm.rank());  // other memory
      call_once(comm, Layout::parse(rows().serialize()), columns(), other);
      EXPECT_TRUE(other.is_moved());
      EXPECT_EQ(recent.find(rows(), columns(), {}), planned);
    }
    EXPECT_EQ(recent.find(rows(), columns(), {.dtype = DType::float32}), nullptr);
    EXPECT_EQ(recent.find(rows(), rows(), {}), nullptr);
    EXPECT_EQ(recent.find(rows(), columns(), {.shape = {3, 4}}), nullptr);
    // Leading dimensions may differ between ranks.
    std::vector<double> padded(30 * 9, -1.0);
    const RedistributionOptions options{.target_leading_elems = comm.rank() == 1 ? 9 : 0};
    const auto size = static_cast<std::size_t>(comm.rank() == 1 ? 30 * 9 : 120);
    run_redistribution(comm, {rows(), columns(), options}, first.in(),
                       std::as_writable_bytes(std::span(padded).first(size)));
    EXPECT_EQ(padded[comm.rank() == 1 ? 9 : 4], value_at(1, first.first_column));
    EXPECT_EQ(recent.find(rows(), columns(), {}), planned);
  });
}

TEST(RedistributionCalls, ForgetTheFirstOfManyTogether) {
  // The limit of the rank with the least memory; a few plans fit.
  const std::uint64_t before = std::exchange(options().plan_cache_bytes, 64 << 10);
  expect_no_errors([](Comm& comm) {
    std::mt19937 random(5);  // equal on all ranks
    for (int turn = 0; turn < 120; ++turn) {
      const auto length = static_cast<std::int64_t>(1 + random() % 64);
      const Layout source = Layout::even({length}, kRanks);
      const Layout target = Layout::block_cyclic({length}, {1}, {kRanks});
      std::vector<double> input(static_cast<std::size_t>(source.local_size_elems(comm.rank())), 7.0);
      std::vector<double> output(static_cast<std::size_t>(target.local_size_elems(comm.rank())), -1.0);
      run_redistribution(comm, {source, target, {}}, std::as_bytes(std::span(input)),
                         std::as_writable_bytes(std::span(output)));
      EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(output, 7.0)), output.size());
    }
    EXPECT_GT(recent_of(comm).size(), 1u);
    EXPECT_LT(recent_of(comm).size(), 60u);
  });
  options().plan_cache_bytes = before;
}

TEST(RedistributionCalls, KeepNoMorePlansThanTheirMemoryAllows) {
  expect_no_errors([](Comm& comm) {
    constexpr std::uint64_t kThird = 1000;
    RecentRedistributions recent(3 * kThird);
    std::vector<RedistributionOptions> options;
    const auto add = [&](std::uint64_t bytes) {
      options.push_back({.segment_bytes = 4096 + options.size()});
      recent.add(PlannedRedistribution::plan(comm, {{rows(), columns()}}, options.back()), bytes);
    };
    const auto has = [&](std::size_t index) { return recent.find(rows(), columns(), options[index]) != nullptr; };
    for (const std::size_t kept : {1u, 2u, 3u, 3u}) {
      add(kThird);
      EXPECT_EQ(recent.size(), kept);
    }
    EXPECT_FALSE(has(0));
    EXPECT_TRUE(has(1));  // a lookup changes nothing
    add(kThird + 3);      // evicts two, the first that were added
    EXPECT_FALSE(has(1));
    EXPECT_FALSE(has(2));
    EXPECT_TRUE(has(3));
    add(6 * kThird);
    EXPECT_EQ(recent.size(), 1u);  // kept alone; otherwise a repeated call would plan each time
    EXPECT_TRUE(has(5));
  });
}

TEST(RedistributionCalls, AgreeOnTheMemoryOfAPlan) {
  // Nearly all rows are on rank 0, whose plan is longer than those of other ranks.
  const Layout source = Layout::grid({{0, 298, 299, 300}, {0, 40}}, {0, 1, 2}, kRanks);
  const Layout target =
      Layout::grid({{0, 10, 25, 41, 90, 150, 203, 270, 284, 300}, {0, 40}}, {0, 1, 2, 1, 0, 2, 0, 2, 1}, kRanks);
  std::vector<std::uint64_t> bytes(kRanks), blocks(kRanks);
  expect_no_errors([&](Comm& comm) {
    const auto planned = PlannedRedistribution::plan(comm, {{source, target}}, {});
    const auto rank = static_cast<std::size_t>(comm.rank());
    bytes[rank] = planned->agree_on_bytes(comm);
    blocks[rank] = planned->local().plan()->blocks.size() * sizeof(Block);
    // Long plans evict earlier ones on all ranks together.
    RecentRedistributions& recent = recent_of(comm);
    recent.add(planned, options().plan_cache_bytes);
    for (int turn = 0; turn < 2; ++turn) {
      Arrays arrays(comm.rank());
      call_once(comm, rows(), columns(), arrays);
      EXPECT_TRUE(arrays.is_moved());
      EXPECT_EQ(recent.size(), 1u);
    }
  });
  EXPECT_EQ(bytes, std::vector<std::uint64_t>(kRanks, bytes[0]));
  EXPECT_GT(bytes[0], *std::ranges::max_element(blocks));
  EXPECT_NE(blocks[0], blocks[1]);
}

TEST(RedistributionCalls, ThatDifferAreErrorsEverywhereAndLeaveNoDifference) {
  // Each rank has plans for both calls; one rank makes the other call.
  const auto errors = outcomes([](Comm& comm) {
    const Layout turned = Layout::block_cyclic({30, 12}, {5, 4}, {1, kRanks});
    Arrays arrays(comm.rank());
    call_once(comm, rows(), columns(), arrays);
    call_once(comm, rows(), turned, arrays);
    const auto refused = [&](const std::function<void(Arrays&)>& call, ErrorCode at_one, ErrorCode elsewhere) {
      Arrays fresh(comm.rank());
      try {
        call(fresh);
        ADD_FAILURE() << "no error on rank " << comm.rank();
      } catch (const Error& error) {
        // A rank that has seen no difference itself is told by those that have.
        if (error.code() == ErrorCode::peer_failed && elsewhere == ErrorCode::mismatch)
          EXPECT_NE(std::string(error.what()).find("do not match"), std::string::npos) << error.what();
        else
          EXPECT_EQ(error.code(), comm.rank() == 1 ? at_one : elsewhere) << error.what();
      }
      EXPECT_TRUE(fresh.is_untouched());
      call_once(comm, rows(), columns(), fresh);  // all ranks still find the plan
      EXPECT_TRUE(fresh.is_moved());
    };
    // One rank starts a plan, the others start another one.
    refused([&](Arrays& a) { call_once(comm, rows(), comm.rank() == 1 ? turned : columns(), a); }, ErrorCode::mismatch,
            ErrorCode::mismatch);
    // One rank plans while the others start a plan; and the other way round.
    const Layout other = Layout::block_cyclic({30, 12}, {3, 4}, {1, kRanks});
    refused([&](Arrays& a) { call_once(comm, rows(), comm.rank() == 1 ? other : columns(), a); }, ErrorCode::mismatch,
            ErrorCode::mismatch);
    refused([&](Arrays& a) { call_once(comm, rows(), comm.rank() == 1 ? columns() : other, a); }, ErrorCode::mismatch,
            ErrorCode::mismatch);
    // Too little memory on one rank.
    refused(
        [&](Arrays& a) {
          run_redistribution(comm, {rows(), columns(), {}}, comm.rank() == 1 ? a.in().first(8) : a.in(), a.out());
        },
        ErrorCode::invalid_argument, ErrorCode::peer_failed);
    refused(
        [&](Arrays& a) {
          const RedistributionOptions options{.relabel =
                                                  comm.rank() == 1 ? RelabelPolicy::always : RelabelPolicy::never};
          call_once(comm, rows(), columns(), a, options);
        },
        ErrorCode::invalid_argument, ErrorCode::peer_failed);
  });
  for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
}

constexpr std::size_t kMiB = 1 << 20;

/// Two arrays of doubles, with 64 GiB of addresses between them that have no memory.
class FarApart {
 public:
  explicit FarApart(std::size_t bytes) : bytes_(bytes) {
    all_ = static_cast<std::byte*>(
        ::mmap(nullptr, kApart + bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (std::byte* const array : {low().data(), high().data()})
      EXPECT_EQ(::mprotect(array, bytes, PROT_READ | PROT_WRITE), 0);
  }
  ~FarApart() { ::munmap(all_, kApart + bytes_); }
  FarApart(const FarApart&) = delete;
  FarApart& operator=(const FarApart&) = delete;

  Bytes low() const { return {all_, bytes_}; }
  Bytes high() const { return {all_ + kApart, bytes_}; }
  bool contains(ConstBytes part) const {
    return std::ranges::any_of(std::array{low(), high()}, [&](Bytes array) {
      return array.data() <= part.data() && part.data() + part.size() <= array.data() + array.size();
    });
  }

 private:
  static constexpr std::size_t kApart = std::size_t{64} << 30;

  std::size_t bytes_;
  std::byte* all_ = nullptr;
};

void run_together(const std::function<void(Comm&)>& call) {
  for (const auto& error : comm::outcomes({0, 0, 0}, call)) EXPECT_FALSE(error) << error->what();
}

/// Moves two matrices whose local parts have so many bytes, kUses times or until all ranks have asked for so many
/// pages.
void move_two_far_apart(Comm& comm, const FarApart& sources, const FarApart& targets, std::size_t bytes,
                        std::size_t least_pages = 0) {
  const auto columns = static_cast<std::int64_t>(bytes / (2 * sizeof(double)));
  const Layout from = Layout::even({2 * kRanks, columns}, kRanks);
  const Layout to = Layout::even({2 * kRanks, columns}, kRanks, 1);
  const RedistributionBatch batch(comm, {{from, to}, {from, to}}, {});
  const ConstBytes inputs[] = {sources.high(), sources.low()};
  const Bytes outputs[] = {targets.low(), targets.high()};
  std::array<std::byte, kRanks> all_wait;
  do {
    for (int i = 0; i < kUses; ++i) batch.run(inputs, outputs);
    const std::byte waits{moved_into_huge_pages.size() < least_pages};
    comm.allgather({&waits, 1}, all_wait);
  } while (std::ranges::count(all_wait, std::byte{1}) > 0);
}

TEST(HugePages, NothingBetweenShortArraysOfABatch) {
  constexpr std::size_t kBytes = 2 * kRanks * 4096;
  run_together([](Comm& comm) {
    const FarApart sources(kBytes), targets(kBytes);
    moved_into_huge_pages.clear();
    move_two_far_apart(comm, sources, targets, kBytes);
    EXPECT_EQ(moved_into_huge_pages.size(), 0u);
  });
}

TEST(HugePages, NothingBetweenShortPartsOfOneArray) {
  run_together([](Comm& comm) {
    const Layout from = Layout::grid({{0, 2, 4, 6, 8, 10, 12}, {0, 8}}, {0, 1, 2, 0, 1, 2}, kRanks);
    const Redistribution plan(comm, from, Layout::even({12, 8}, kRanks), {});
    const FarApart sources(4096);
    std::vector<double> target(4 * 8);
    const ConstStridedParts input{{sources.low().data(), {8, 1}}, {sources.high().data(), {8, 1}}};
    const StridedParts output{{std::as_writable_bytes(std::span(target)).data(), {8, 1}}};
    moved_into_huge_pages.clear();
    for (int i = 0; i < kUses; ++i) plan.start_parts(input, output).wait();
    EXPECT_EQ(moved_into_huge_pages.size(), 0u);
  });
}

TEST(HugePages, AllOfLongArraysOfABatch) {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  const std::string setting{std::istreambuf_iterator<char>(file), {}};
  if (setting.empty() || setting.find("[never]") != std::string::npos) GTEST_SKIP() << "the system forbids huge pages";
  constexpr std::size_t kBytes = 6 * kMiB;
  run_together([](Comm& comm) {
    const FarApart sources(kBytes), targets(kBytes);
    moved_into_huge_pages.clear();
    constexpr std::size_t kLeastPages = 8;  // each array has at least two whole huge pages
    move_two_far_apart(comm, sources, targets, kBytes, kLeastPages);
    EXPECT_GE(moved_into_huge_pages.size(), kLeastPages);
    const auto is_inside = [&](ConstBytes page) { return sources.contains(page) || targets.contains(page); };
    EXPECT_TRUE(std::ranges::all_of(moved_into_huge_pages, is_inside));
  });
}

TEST(StridedParts, WrongOnesAreErrorsEverywhere) {
  struct Wrong {
    const char* says;
    std::function<void(ConstStridedParts&, StridedParts&)> change;
  };
  const Wrong all[] = {
      {"consists of 0 arrays; expected 1", [](auto& in, auto&) { in.clear(); }},
      {"strides given", [](auto& in, auto&) { in[0].strides_elems.pop_back(); }},
      {"stride of a local array is 0", [](auto&, auto& out) { out[0].strides_elems[0] = 0; }},
      {"overlaps", [](auto& in, auto& out) { out[0].data = const_cast<std::byte*>(in[0].data) + 8; }},
      {"the strides of a local array reach 2^63 elements",
       [](auto& in, auto&) { in[0].strides_elems[0] = std::int64_t{1} << 61; }},
      {"the strides of a local array reach beyond 2^63 bytes",
       [](auto& in, auto&) { in[0].strides_elems[0] = -(std::int64_t{1} << 61); }},
  };
  for (const Wrong& wrong : all) {
    const auto errors = outcomes([&](Comm& comm) {
      const Redistribution plan(comm, rows(), columns(), {});
      Arrays arrays(comm.rank());
      arrays.input.resize(200);
      ConstStridedParts input{{arrays.in().data(), {12, 1}}};
      StridedParts output{{arrays.out().data(), {4, 1}}};
      if (comm.rank() == 1) wrong.change(input, output);
      plan.start_parts(input, output).wait();
    });
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto& error = errors[static_cast<std::size_t>(rank)];
      ASSERT_TRUE(error) << wrong.says << ", rank " << rank;
      EXPECT_NE(std::string(error->what()).find(wrong.says), std::string::npos) << error->what();
    }
  }
}

TEST(Apart, OverlapIsExact) {
  std::mt19937 random(23);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
  std::vector<std::byte> memory(4096);
  const auto touched = [&](const StridedRange& range) {
    std::vector<bool> bytes(memory.size());
    std::vector<std::int64_t> index(range.shape.size());
    for (bool more = true; more;) {
      std::int64_t at = range.first - memory.data();
      for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * range.strides_bytes[d];
      for (std::int64_t i = 0; i < range.element_bytes; ++i) bytes[static_cast<std::size_t>(at + i)] = true;
      more = false;
      for (std::size_t d = 0; d < index.size() && !more; ++d) {
        more = ++index[d] < range.shape[d];
        if (!more) index[d] = 0;
      }
    }
    return bytes;
  };
  int apart = 0;
  for (int turn = 0; turn < 4000; ++turn) {
    StridedRange ranges[2];
    for (StridedRange& range : ranges) {
      range.element_bytes = 1 << pick(0, 3);
      std::int64_t low = 0;
      for (int d = pick(1, 3); d > 0; --d) {
        range.shape.push_back(pick(1, 6));
        range.strides_bytes.push_back(pick(-12, 12) * (pick(0, 1) == 0 ? range.element_bytes : 8));
        low += std::min<std::int64_t>(range.strides_bytes.back(), 0) * (range.shape.back() - 1);
      }
      range.first = memory.data() + 1700 + low / 4 + pick(0, 500);
    }
    const std::vector<bool> a = touched(ranges[0]);
    const std::vector<bool> b = touched(ranges[1]);
    bool expected = false;
    for (std::size_t i = 0; i < a.size(); ++i) expected = expected || (a[i] && b[i]);
    ASSERT_EQ(overlap(ranges[0], ranges[1]), expected) << "turn " << turn;
    apart += expected ? 0 : 1;
  }
  EXPECT_GT(apart, 400);
}

}  // namespace
}  // namespace penstock::arrays
