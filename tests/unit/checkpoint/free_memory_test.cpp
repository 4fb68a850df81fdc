#include "checkpoint/free_memory.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace penstock::checkpoint::test {
namespace {

constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

TEST(FreeMemory, IsTheLeastOfTheNodeAndAllGroupsAbove) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("penstock-free-memory-" + std::to_string(::getpid()));
  const auto write = [&root](const std::string& file, const std::string& text) {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text << '\n';
  };
  const std::string mount = root.string();
  const std::string meminfo = "MemTotal:       1000 kB\nMemFree:          20 kB\nMemAvailable:    500 kB\n";
  constexpr std::uint64_t kAvailable = 500 * 1024;
  EXPECT_EQ(free_memory_bytes("", "", mount), kUnknown);
  EXPECT_EQ(free_memory_bytes(meminfo, "0::/job/step\n", mount), kAvailable) << "no group has a limit";
  write("job/step/memory.max", "max");
  write("job/step/memory.current", "1000");
  EXPECT_EQ(free_memory_bytes(meminfo, "0::/job/step\n", mount), kAvailable);
  write("job/memory.max", "400000");
  write("job/memory.current", "300000");
  EXPECT_EQ(free_memory_bytes(meminfo, "0::/job/step\n", mount), 100'000u);
  write("job/memory.stat", "anon 250000\ninactive_file 40000\n");
  EXPECT_EQ(free_memory_bytes(meminfo, "0::/job/step\n", mount), 140'000u) << "the page cache can be given up";
  write("job/memory.current", "900000");
  EXPECT_EQ(free_memory_bytes(meminfo, "0::/job/step\n", mount), 0u) << "above the limit, while it is being lowered";
  EXPECT_EQ(free_memory_bytes(meminfo, "0::/\n", mount), kAvailable);
  write("memory/batch/memory.limit_in_bytes", "200000");
  write("memory/batch/memory.usage_in_bytes", "50000");
  write("memory/batch/memory.stat", "inactive_file 7\ntotal_inactive_file 10000\n");
  EXPECT_EQ(free_memory_bytes(meminfo, "4:cpu:/x\n3:memory:/batch/17\n", mount), 160'000u);
  EXPECT_EQ(free_memory_bytes("nonsense\n", "nonsense\n:\n", mount), kUnknown);
  fs::remove_all(root);
}

TEST(FreeMemory, IsKnownHere) {
  EXPECT_GT(free_memory_bytes(), 0u);
  EXPECT_NE(free_memory_bytes(), kUnknown);
}

}  // namespace
}  // namespace penstock::checkpoint::test
