// Comm::machine: measured, equal on all ranks, kept and read. The ranks are threads of this process.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "local_transport.hpp"
#include "measurement/trials.hpp"
#include "penstock/comm.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/options.hpp"

namespace penstock::comm {
namespace {

class MeasuringMachines : public ::testing::Test {
 protected:
  MeasuringMachines()
      // What the process remembers of one test's folder does not hold in another's.
      : folder_(std::filesystem::temp_directory_path() /
                ("penstock-machine-" + std::to_string(::getpid()) + "-" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        before_(options()) {
    std::filesystem::create_directories(folder_);
    options().machine_folder = (folder_ / "kept").string();
    options().network = "off";
  }
  ~MeasuringMachines() override {
    options() = before_;
    std::filesystem::remove_all(folder_);
  }

  std::vector<MeasuredMachine> measure(const std::vector<std::int32_t>& nodes, bool again) {
    auto transports = engine::make_local_transports(nodes);
    std::vector<MeasuredMachine> found(nodes.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank)
      threads.emplace_back([&, rank] {
        Comm comm = make_comm([&] { return Link(std::move(transports[rank])); }, {.progress_cores = 0});
        found[rank] = comm.machine(again);
        if (rank == 0)
          reasons_[0] = comm.explain({.kind = CollectiveKind::allreduce, .count = 5000, .dtype = DType::int64});
      });
    for (std::thread& thread : threads) thread.join();
    for (const MeasuredMachine& each : found) EXPECT_EQ(to_json(each.machine), to_json(found[0].machine));
    return found;
  }
  std::vector<std::filesystem::path> kept() const {
    std::vector<std::filesystem::path> files;
    const std::filesystem::path folder = options().machine_folder;
    if (std::filesystem::exists(folder))
      for (const auto& each : std::filesystem::directory_iterator(folder))
        if (!each.path().filename().string().starts_with("node-rows")) files.push_back(each.path());
    return files;
  }
  /// Another folder with all files, in which these numbers have other values. What the process remembers of the first
  /// folder does not hold there.
  void edit(const std::map<std::string, std::string>& values) {
    const std::filesystem::path edited = folder_ / ("edited " + std::to_string(++edits_));
    std::filesystem::create_directories(edited);
    for (const std::filesystem::path& path : kept()) {
      std::ostringstream read;
      read << std::ifstream(path).rdbuf();
      std::string text = read.str();
      for (const auto& [name, value] : values) {
        const std::string words = "\"" + name + "\": ";
        const std::size_t begin = text.find(words) + words.size();
        text.replace(begin, text.find_first_of(",}", begin) - begin, value);
      }
      std::ofstream(edited / path.filename()) << text;
    }
    options().machine_folder = edited.string();
  }
  bool chose_by_cost() const { return reasons_[0].find("least cost on this network") != std::string::npos; }

  std::filesystem::path folder_;
  Options before_;
  int edits_ = 0;
  std::vector<std::string> reasons_{1};
};

void expect_sound(const Machine& machine) {
  for (const double seconds :
       {machine.network.latency_seconds, machine.network.overhead_seconds, machine.network.gap_seconds,
        machine.network.seconds_per_byte, machine.network.process_seconds_per_byte, machine.node.flag_seconds,
        machine.node.copy_seconds_per_byte, machine.node.far_copy_seconds_per_byte, machine.node.remote_read_seconds,
        machine.node.remote_read_seconds_per_byte, machine.node.combine_seconds_per_byte, machine.node.task_seconds}) {
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, 1);
  }
  EXPECT_LE(machine.network.seconds_per_byte, machine.network.process_seconds_per_byte);
  EXPECT_LE(machine.node.copy_seconds_per_byte, machine.node.far_copy_seconds_per_byte);
  EXPECT_GT(machine.node.uncached_factor, 0.999);
  EXPECT_GE(machine.node.cores, 1);
  EXPECT_GE(machine.node.ranks_per_core, 1);
}

TEST_F(MeasuringMachines, BetweenNodesAndInsideThem) {
  for (const auto& [nodes, has_network, has_node] : {std::tuple{std::vector<std::int32_t>{0, 0, 1, 1}, true, true},
                                                     {std::vector<std::int32_t>{0, 1, 2}, true, false},
                                                     {std::vector<std::int32_t>{0, 0, 0}, false, true},
                                                     {std::vector<std::int32_t>{0}, false, false}}) {
    const auto found = measure(nodes, true);
    EXPECT_EQ(found[0].source, "measured now");
    EXPECT_EQ(found[0].has_network, has_network);
    EXPECT_EQ(found[0].has_node, has_node);
    expect_sound(found[0].machine);
  }
  EXPECT_EQ(kept().size(), 4u);  // of different teams; and no drafts
}

// In files, times have units of 1e-18 seconds, and so have factors.
const std::map<std::string, std::string> kOwnCores = {{"ranks_per_core", "1000000000000000000"}, {"cores", "8"}};
const std::map<std::string, std::string> kSharedCores = {{"ranks_per_core", "2000000000000000000"}};

TEST_F(MeasuringMachines, AreKeptAndReadByRankZero) {
  const std::vector<std::int32_t> nodes = {0, 0, 1, 1};
  const MeasuredMachine first = measure(nodes, true)[0];
  ASSERT_EQ(kept().size(), 1u);
  const MeasuredMachine second = measure(nodes, false)[0];
  EXPECT_EQ(second.source, "measured before by this process");
  EXPECT_EQ(second.seconds, 0);
  EXPECT_EQ(to_json(second.machine), to_json(first.machine));

  // What the file says counts, on all ranks.
  edit({{"eager_bytes", "31337"}});
  for (const MeasuredMachine& each : measure(nodes, false)) EXPECT_EQ(each.machine.network.eager_bytes, 31337u);
  EXPECT_EQ(measure(nodes, false)[0].source, "read from " + kept()[0].string());

  // A damaged file does not.
  edit({{"version", "\""}});
  EXPECT_EQ(measure(nodes, false)[0].source, "measured now");
}

TEST_F(MeasuringMachines, AreNotKeptIfToldSo) {
  options().machine_folder = "none";
  EXPECT_EQ(measure({0, 1}, true)[0].source, "measured now");
  EXPECT_EQ(measure({0, 1}, false)[0].source, "measured before by this process");
  EXPECT_FALSE(std::filesystem::exists("none"));
}

TEST_F(MeasuringMachines, OfMoreRanksHoldForFewerUnlessTheySharedCores) {
  measure({0, 0, 1, 1}, true);
  const auto is_read = [&](const std::vector<std::int32_t>& nodes) {
    return measure(nodes, false)[0].source.starts_with("read from");
  };
  edit(kOwnCores);
  EXPECT_TRUE(is_read({0, 0, 1, 1}));
  EXPECT_TRUE(is_read({0, 1}));
  EXPECT_TRUE(is_read({0, 0, 0, 1, 1, 1}));  // less than twice as many
  edit(kSharedCores);
  EXPECT_TRUE(is_read({0, 0, 1, 1}));
  EXPECT_FALSE(is_read({0, 1}));

  options().machine_folder = (folder_ / "fewer").string();
  measure({0, 1}, true);
  edit(kOwnCores);
  EXPECT_TRUE(is_read({0, 1}));
  EXPECT_FALSE(is_read({0, 0, 1, 1}));
}

TEST_F(MeasuringMachines, DecideBetweenNodesWhereRanksHaveCoresOfTheirOwn) {
  const std::vector<std::int32_t> nodes = {0, 0, 1, 1};
  measure(nodes, true);
  options().network = "measured";
  edit(kOwnCores);
  measure(nodes, false);
  EXPECT_TRUE(chose_by_cost()) << reasons_[0];
  measure({0, 0, 0}, false);
  EXPECT_FALSE(chose_by_cost()) << reasons_[0];
  edit(kSharedCores);
  measure(nodes, false);
  EXPECT_FALSE(chose_by_cost()) << reasons_[0];
}

// Whether ranks share cores is measured first, and for a choice nothing else then.
TEST_F(MeasuringMachines, AreMeasuredForAChoiceAndKept) {
  options().network = "measured";
  const MeasuredMachine found = measure({0, 0, 1, 1}, false)[0];
  EXPECT_EQ(chose_by_cost(), found.source == "measured before by this process") << reasons_[0];
}

// A busy host once gave 1e-12 seconds for a byte, and every later job would have read it.
TEST(MeasuringRates, AreNotTakenFromNoise) {
  EXPECT_DOUBLE_EQ(measurement::seconds_per_byte(0.001, 0.002, 1 << 20), 0.001 / (1 << 20));
  EXPECT_DOUBLE_EQ(measurement::seconds_per_byte(0.003, 0.002, 1 << 20), 0.002 / (1 << 22));
  EXPECT_DOUBLE_EQ(measurement::seconds_per_byte(0.002, 0.002, 1 << 20), 0.002 / (1 << 22));
}

}  // namespace
}  // namespace penstock::comm
