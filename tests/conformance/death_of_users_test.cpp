// Deaths in what is built on plans: redistributions and collective file access.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "comm/state.hpp"
#include "conformance/deaths.hpp"
#include "penstock/comm.hpp"
#include "penstock/file.hpp"
#include "penstock/redistribute.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock::conformance {
namespace {

Comm comm_of(ForkedRank& self, const Death& each) {
  ::setenv("PENSTOCK_SINGLE_COPY", each.single_copy ? "on" : "off", 1);
  ::setenv("PENSTOCK_STALL_TIMEOUT_MS", "0", 1);
  return comm::make_comm(self.make_transport, {.progress_cores = each.progress_threads});
}

struct Redistributed {
  const char* name;
  MatrixOp op;
  RelabelPolicy relabel;
  bool planned_anew;  ///< by each call
};

/// Redistributes about `count` elements between two block-cyclic layouts that the seed determines.
std::string redistribute(ForkedRank& self, const Redistributed& row, const Death& each) {
  std::mt19937 random(each.seed);
  const auto block = [&] { return static_cast<std::int64_t>(1 + random() % 40); };
  const auto rows = static_cast<std::int64_t>(1 + random() % 200);
  const std::int64_t columns = static_cast<std::int64_t>(each.count) / rows + 16 * each.ranks;
  const Layout source = Layout::block_cyclic({rows, columns}, {block(), block()}, {1, each.ranks});
  const bool turned = row.op != MatrixOp::none;
  const Layout target = turned ? Layout::block_cyclic({columns, rows}, {1 + block() / 4, block()}, {each.ranks, 1})
                               : Layout::block_cyclic({rows, columns}, {block(), 1 + block() / 4}, {1, each.ranks});
  const RedistributionOptions options{
      .dtype = DType::float32, .op = row.op, .relabel = row.relabel, .segment_bytes = 1 << 14};

  const Comm comm = comm_of(self, each);
  const Redistribution kept(comm, source, target, options);
  std::vector<std::byte> input(kept.local_input_bytes());
  std::vector<std::byte> output(kept.local_output_bytes());
  return call_until_told(self, each, [&] {
    Request request = row.planned_anew ? Redistribution(comm, source, target, options).start(input, output, 2.0)
                                       : kept.start(input, output, 2.0);
    await(request, each);
  });
}

class RedistributionDeaths : public testing::TestWithParam<Redistributed> {};

TEST_P(RedistributionDeaths, AreToldToAllByName) {
  for (int i = 0; i < 2 * deaths_per_row() && !HasFailure(); ++i) {
    const Death each = death(static_cast<std::uint32_t>(i) + (GetParam().planned_anew ? 7000 : 9000));
    expect_told(each, [&](ForkedRank& self) { return redistribute(self, GetParam(), each); });
  }
}

INSTANTIATE_TEST_SUITE_P(Row, RedistributionDeaths,
                         testing::Values(Redistributed{"copied", MatrixOp::none, RelabelPolicy::never, false},
                                         Redistributed{"transposed", MatrixOp::transpose, RelabelPolicy::never, false},
                                         Redistributed{"relabeled", MatrixOp::transpose, RelabelPolicy::always, true},
                                         Redistributed{"planned_anew", MatrixOp::none, RelabelPolicy::never, true}),
                         [](const auto& instance) { return std::string(instance.param.name); });

// Earlier writes stay whole: every version has the writes of all ranks.
TEST(FileDeaths, AreToldToAllByName) {
  for (int i = 0; i < 2 * deaths_per_row() && !HasFailure(); ++i) {
    const TemporaryDirectory directory;
    Death each = death(static_cast<std::uint32_t>(i) + 11'000);
    const std::uint64_t own_bytes = 4 * each.count;
    expect_told(each, [&](ForkedRank& self) -> std::string {
      const Comm comm = comm_of(self, each);
      File file = File::open(comm, directory.url() + "/field", {.create = true, .durable = false});
      std::vector<std::byte> data(own_bytes);
      std::vector<std::byte> whole(own_bytes * static_cast<std::uint64_t>(each.ranks));
      unsigned value = 0;
      return call_until_told(self, each, [&] {
        std::ranges::fill(data, static_cast<std::byte>(++value));
        file.write_at_all(own_bytes * static_cast<std::uint64_t>(self.rank), data);
        file.read_at_all(0, whole);
      });
    });
    File file = File::open(directory.url() + "/field", {.write = false});
    std::vector<std::byte> whole(own_bytes * static_cast<std::uint64_t>(each.ranks));
    ASSERT_EQ(file.read_at(0, whole), whole.size());
    EXPECT_TRUE(std::ranges::all_of(whole, [&](std::byte byte) { return byte == whole.front(); }))
        << "the newest version mixes two calls";
  }
}

}  // namespace
}  // namespace penstock::conformance
