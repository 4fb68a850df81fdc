// `remote_read` moves the same data as `transform`, and writes nothing else.
#include "engine/remote_read.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <random>

#include "kernels/arithmetic.hpp"
#include "ranks.hpp"

namespace penstock::engine {
namespace {

struct Side {
  std::uint64_t offset;
  std::int64_t row_stride;
  std::int64_t column_stride;
  std::uint64_t size;
};

/// Rows and columns in either order, with gaps, ascending or descending.
Side random_side(std::mt19937& random, std::uint64_t rows, std::uint64_t columns) {
  const auto pick = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  const bool rows_first = pick(0, 2) == 0;
  const auto fast = static_cast<std::int64_t>(rows_first ? rows : columns);
  const std::int64_t fast_stride = pick(0, 3) == 0 ? 2 : 1;
  const std::int64_t slow_stride = fast * fast_stride + (pick(0, 1) == 0 ? 0 : pick(1, 40));
  Side side{0, rows_first ? fast_stride : slow_stride, rows_first ? slow_stride : fast_stride, 0};
  std::uint64_t reach = 1;
  for (auto [count, stride] : {std::pair(rows, &side.row_stride), std::pair(columns, &side.column_stride)}) {
    const std::uint64_t way = (count - 1) * static_cast<std::uint64_t>(*stride);
    reach += way;
    if (pick(0, 3) > 0) continue;
    *stride = -*stride;
    side.offset += way;
  }
  const auto before = static_cast<std::uint64_t>(pick(0, 9));
  side.offset += before;
  side.size = before + reach + static_cast<std::uint64_t>(pick(0, 9));
  return side;
}

TEST(Borrow, EqualsATransform) {
  std::mt19937 random(41);
  const auto pick = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  for (int i = 0; i < 300; ++i) {
    const bool long_rows = pick(0, 5) == 0;
    const auto rows = static_cast<std::uint64_t>(pick(0, 5) == 0 ? 1 : pick(1, long_rows ? 5 : 300));
    const auto columns = static_cast<std::uint64_t>(pick(1, long_rows ? 60'000 : 300));
    const Side from = random_side(random, rows, columns);
    const Side to = random_side(random, rows, columns);
    const Block block{from.offset,     to.offset,          rows,          columns,
                      from.row_stride, from.column_stride, to.row_stride, to.column_stride};
    std::vector<float> source(from.size);
    for (float& value : source) value = static_cast<float>(pick(-50, 50));
    std::vector<float> expected(to.size, 7.0f);
    std::vector<float> target = expected;
    const Arithmetic arithmetic{.dtype = DType::float32,
                                .alpha = i % 3 == 0 ? 1.0 : static_cast<double>(pick(0, 3)),
                                .beta = static_cast<double>(i % 3 == 0 ? 0 : pick(0, 1))};
    PlanBuilder builder("test/remote_read", 0, 2);
    builder.remote_read(source.size() * 4, 1, 0, {0, target.size() * 4, Buffer::output}, {&block, 1}, {});
    const Plan plan = std::move(builder).finish(0, target.size() * 4);
    kernels::transform(arithmetic, {&block, 1}, true, bytes_of(source), bytes_of(expected));
    ASSERT_EQ(remote_read(plan, plan.steps[0], arithmetic, {::getpid(), std::bit_cast<std::uint64_t>(source.data())},
                          bytes_of(target)),
              0);
    ASSERT_EQ(target, expected) << "case " << i;
  }
}

TEST(Borrow, SaysWhyItCannotRead) {
  const Block line{.rows = 1, .columns = 1 << 14, .from_column_stride_elems = 1, .to_column_stride_elems = 1};
  std::vector<std::byte> target(1 << 14);
  PlanBuilder builder("test/remote_read", 0, 2);
  builder.remote_read(target.size(), 1, 0, {0, target.size(), Buffer::output}, {&line, 1}, {});
  const Plan plan = std::move(builder).finish(0, target.size());
  for (const double alpha : {1.0, 2.0})
    EXPECT_EQ(remote_read(plan, plan.steps[0], {.dtype = DType::uint8, .alpha = alpha}, {::getpid(), 16}, target),
              EFAULT);
}

// Each rank sends to each other rank, some before and some after the others start to read.
void expect_remote_reads(std::uint64_t elems) {
  run_ranks(ranks_of(one_node(3)), [&](Engine& engine, int rank) {
    constexpr int kRanks = 3, kParts = 5;
    PlanBuilder builder("test/remote reads", rank, kRanks);
    const Block line{.rows = 1, .columns = elems, .from_column_stride_elems = 1, .to_column_stride_elems = 1};
    for (int peer = 0; peer < kRanks; ++peer)
      for (int part = 0; part < kParts; ++part) {
        if (peer == rank) continue;
        const auto tag = static_cast<std::uint32_t>(part);
        const std::uint64_t from_bytes = tag * elems * 4;
        const std::uint64_t to_bytes = static_cast<std::uint64_t>(peer) * kParts * elems * 4 + from_bytes;
        builder.send({from_bytes, elems * 4, Buffer::input}, peer, tag, {});
        builder.remote_read(elems * 4, peer, tag, {to_bytes, elems * 4, Buffer::output}, {&line, 1}, {});
      }
    const auto plan =
        std::make_shared<const Plan>(std::move(builder).finish(kParts * elems * 4, kRanks * kParts * elems * 4));
    if (!engine.team().single_copy) GTEST_SKIP() << "ranks cannot read each other's memory here";
    for (int run = 0; run < 5; ++run) {
      std::vector<std::int32_t> in(kParts * elems);
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::int32_t>(i) * 3 + rank + run;
      std::vector<std::int32_t> out(kRanks * kParts * elems, -1);
      engine.start(plan, {bytes_of(in), bytes_of(out)}, {.dtype = DType::int32}, 5)->wait();
      for (std::size_t i = 0; i < out.size(); ++i) {
        const auto peer = static_cast<int>(i / in.size());
        ASSERT_EQ(out[i], peer == rank ? -1 : static_cast<std::int32_t>(i % in.size()) * 3 + peer + run) << i;
      }
    }
  });
}

TEST(RemoteReads, AreTakenWhileMuchElseMoves) { expect_remote_reads(100'000); }

TEST(RemoteReads, TakeShortMessagesFromTheQueue) { expect_remote_reads(1'000); }

TEST(RemoteReads, AreRefusedWhereNoRankCanReadAnothersMemory) {
  RanksOptions options = ranks_of(one_node(2));
  options.engine.single_copy = false;
  run_ranks(options, [&](Engine& engine, int rank) {
    PlanBuilder builder("test/remote reads", rank, 2);
    if (rank == 0)
      builder.send({0, 8, Buffer::input}, 1, 0, {});
    else
      builder.remote_read(8, 0, 0, {0, 8, Buffer::output}, {}, {});
    std::vector<std::byte> memory(8);
    const auto plan = std::make_shared<const Plan>(std::move(builder).finish(8, 8));
    const auto run = [&] { engine.start(plan, {memory, memory}, {}, 5)->wait(); };
    if (rank == 1)
      EXPECT_THROW(run(), Error);
    else
      try {
        run();  // may be complete before the other rank refuses
      } catch (const Error&) {
      }
  });
}

}  // namespace
}  // namespace penstock::engine
