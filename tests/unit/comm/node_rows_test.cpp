// Choices on one node by the times of its rows: measured or read, equal on all ranks. The ranks are threads of this
// process.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/choose/row_times.hpp"
#include "comm/state.hpp"
#include "local_transport.hpp"
#include "measurement/node_rows.hpp"
#include "penstock/comm.hpp"
#include "penstock/options.hpp"

namespace penstock::comm {
namespace {

constexpr std::uint64_t kBytes = 64 << 10;

class NodeRows : public ::testing::Test {
 protected:
  NodeRows()
      : folder_(std::filesystem::temp_directory_path() /
                ("penstock-node-rows-" + std::to_string(::getpid()) + "-" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        before_(options()) {
    options().machine_folder = folder_.string();
    options().network = "measured";
    options().measure_algorithms = true;
  }
  ~NodeRows() override {
    options() = before_;
    std::filesystem::remove_all(folder_);
  }

  /// What each rank would run for an alltoall, and why; `body` runs on each.
  static std::vector<std::string> choices(
      int ranks, const std::function<void(Comm&)>& body = [](Comm&) {}, int progress_cores = 0) {
    auto transports = engine::make_local_transports(std::vector<std::int32_t>(static_cast<std::size_t>(ranks)));
    std::vector<std::string> found(transports.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < found.size(); ++rank)
      threads.emplace_back([&, rank] {
        Comm comm = make_comm([&] { return Link(std::move(transports[rank])); }, {.progress_cores = progress_cores});
        body(comm);
        const std::string text = comm.explain({.kind = CollectiveKind::alltoall, .count = kBytes / 4});
        const std::size_t begin = text.find("\"algorithm\"");
        found[rank] = text.substr(begin, text.find("\"split\"") - begin);
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& each : found) EXPECT_EQ(each, found[0]);
    return found;
  }
  /// A file by which alltoalls are divided, the slowest way.
  static void keep(int ranks) {
    const auto ask = [&](Comm& comm) {
      if (comm.rank() != 0) return;
      std::vector<RowTime> times = collectives::rows_to_measure(comm.team());
      for (RowTime& each : times) each.nanoseconds = each.algorithm->name == "divided" ? 7'777'700'000 : 9'000'000'000;
      measurement::keep_node_rows(comm.team(), comm.state().facts().mpi, times);
    };
    const bool before = std::exchange(options().measure_algorithms, false);
    choices(ranks, ask);
    options().measure_algorithms = before;
  }
  /// Whether they are those that keep() has kept: no row takes seconds.
  static bool are_kept(const std::vector<std::string>& found) {
    return found[0].find("divided\", \"reason\": \"measured on such a node: 7777700.0 us") != std::string::npos;
  }
  static bool are_measured(const std::vector<std::string>& found) {
    return found[0].find("measured on such a node") != std::string::npos;
  }
  std::vector<std::filesystem::path> kept() const {
    std::vector<std::filesystem::path> files;
    if (std::filesystem::exists(folder_))
      for (const auto& each : std::filesystem::directory_iterator(folder_))
        if (each.path().filename().string().starts_with("node-rows")) files.push_back(each.path());
    return files;
  }

  std::filesystem::path folder_;
  Options before_;
};

TEST_F(NodeRows, OfAnEarlierJobDecide) {
  keep(3);
  ASSERT_EQ(kept().size(), 1u);
  const auto found = choices(3);
  EXPECT_TRUE(are_kept(found)) << found[0];
  // The process remembers them.
  std::filesystem::remove_all(folder_);
  EXPECT_EQ(choices(3), found);
  // They hold for as many ranks only.
  EXPECT_FALSE(are_kept(choices(2)));
}

TEST_F(NodeRows, AreNotUsedIfToldSo) {
  keep(2);
  for (const char* network : {"off", "rdma-100g"}) {
    options().network = network;
    EXPECT_FALSE(are_measured(choices(2)));
  }
  options().network = "measured";
  EXPECT_FALSE(are_measured(choices(
      2, [](Comm&) {}, 1)))
      << "beside communication cores";
  options().measure_algorithms = false;
  EXPECT_FALSE(are_measured(choices(2)));
  options().measure_algorithms = true;
  EXPECT_TRUE(are_measured(choices(2)));
}

// Also by ranks that share cores, as those of tests do. Then they are not kept, and nobody chooses by them.
TEST_F(NodeRows, AreMeasuredToBeShown) {
  for (const bool again : {false, true}) {
    std::vector<std::vector<RowTime>> rows(2);
    const auto found = choices(2, [&](Comm& comm) {
      const MeasuredMachine machine = comm.machine(again);
      rows[static_cast<std::size_t>(comm.rank())] = machine.rows;
      EXPECT_EQ(machine.rows.size(), collectives::rows_to_measure(comm.team()).size());
      if (comm.rank() == 0 && !machine.machine.shares_cores()) {
        EXPECT_EQ(kept().size(), 1u);
      }
      std::vector<std::uint64_t> own{static_cast<std::uint64_t>(comm.rank()) + 1};
      std::vector<std::uint64_t> sum(1);
      comm.run({.kind = CollectiveKind::allreduce, .count = 1, .dtype = DType::uint64}, std::as_bytes(std::span(own)),
               std::as_writable_bytes(std::span(sum)));
      EXPECT_EQ(sum[0], 3u);
    });
    for (std::size_t i = 0; i < rows[0].size(); ++i) EXPECT_EQ(rows[0][i].nanoseconds, rows[1][i].nanoseconds);
    EXPECT_TRUE(std::ranges::any_of(rows[0], [](const RowTime& each) { return each.nanoseconds > 0; }));
  }
}

TEST_F(NodeRows, OfADamagedFileAreMeasuredAgain) {
  keep(2);
  ASSERT_EQ(kept().size(), 1u);
  std::ostringstream read;
  read << std::ifstream(kept()[0]).rdbuf();
  const std::string text = read.str();
  for (const std::string& damaged :
       {text.substr(0, text.size() / 2), std::string("{\"rows\": [3]}"), text.substr(0, text.rfind(", {")) + "]}"}) {
    options().machine_folder += "-";  // in which the process has seen none
    std::filesystem::create_directories(options().machine_folder);
    std::ofstream(std::filesystem::path(options().machine_folder) / kept()[0].filename()) << damaged;
    EXPECT_FALSE(are_kept(choices(2)));
    std::filesystem::remove_all(options().machine_folder);
  }
}

TEST_F(NodeRows, OfMoreRanksThanCoresAreNotMeasured) {
  const int ranks = static_cast<int>(std::thread::hardware_concurrency()) + 1;
  if (ranks > 64) GTEST_SKIP() << "too many cores to have more ranks";
  EXPECT_FALSE(are_measured(choices(ranks)));
  EXPECT_TRUE(kept().empty());
}

}  // namespace
}  // namespace penstock::comm
