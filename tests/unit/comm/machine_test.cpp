// Comm::machine: measured, equal on all ranks, kept and read. The ranks are threads of this process.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
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
      : folder_(std::filesystem::temp_directory_path() / ("penstock-machine-" + std::to_string(::getpid()))),
        before_(options()) {
    std::filesystem::create_directories(folder_);
    options().machine_folder = (folder_ / "kept").string();
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
    if (std::filesystem::exists(folder_ / "kept"))
      for (const auto& each : std::filesystem::directory_iterator(folder_ / "kept")) files.push_back(each.path());
    return files;
  }
  static std::string text_of(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
  Options before_;
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

TEST_F(MeasuringMachines, AreKeptAndReadByRankZero) {
  const std::vector<std::int32_t> nodes = {0, 0, 1, 1};
  const MeasuredMachine first = measure(nodes, true)[0];
  ASSERT_EQ(kept().size(), 1u);
  const MeasuredMachine second = measure(nodes, false)[0];
  EXPECT_EQ(second.source, "read from " + kept()[0].string());
  EXPECT_EQ(second.seconds, 0);
  EXPECT_EQ(to_json(second.machine), to_json(first.machine));

  // What the file says counts, on all ranks.
  std::string text = text_of(kept()[0]);
  const std::string name = "\"eager_bytes\": ";
  const std::size_t begin = text.find(name) + name.size();
  text.replace(begin, text.find(',', begin) - begin, "31337");
  std::ofstream(kept()[0]) << text;
  for (const MeasuredMachine& each : measure(nodes, false)) EXPECT_EQ(each.machine.network.eager_bytes, 31337u);

  // A damaged file does not.
  std::ofstream(kept()[0]) << text.substr(0, text.size() / 2);
  const MeasuredMachine third = measure(nodes, false)[0];
  EXPECT_EQ(third.source, "measured before by this process");
  EXPECT_EQ(to_json(third.machine), to_json(first.machine));
}

TEST_F(MeasuringMachines, AreNotKeptIfToldSo) {
  options().machine_folder = "none";
  EXPECT_EQ(measure({0, 1}, true)[0].source, "measured now");
  EXPECT_EQ(measure({0, 1}, false)[0].source, "measured before by this process");
  EXPECT_TRUE(kept().empty());
}

TEST_F(MeasuringMachines, DecideBetweenNodes) {
  options().network = "measured";
  measure({0, 0, 1, 1}, false);
  EXPECT_NE(reasons_[0].find("least cost on this network"), std::string::npos) << reasons_[0];
  measure({0, 0, 0}, false);
  EXPECT_EQ(reasons_[0].find("least cost on this network"), std::string::npos) << reasons_[0];
}

// A busy host once gave 1e-12 seconds for a byte, and every later job would have read it.
TEST(MeasuringRates, AreNotTakenFromNoise) {
  EXPECT_DOUBLE_EQ(measurement::seconds_per_byte(0.001, 0.002, 1 << 20), 0.001 / (1 << 20));
  EXPECT_DOUBLE_EQ(measurement::seconds_per_byte(0.003, 0.002, 1 << 20), 0.002 / (1 << 22));
  EXPECT_DOUBLE_EQ(measurement::seconds_per_byte(0.002, 0.002, 1 << 20), 0.002 / (1 << 22));
}

}  // namespace
}  // namespace penstock::comm
