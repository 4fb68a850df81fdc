// Memory that operations use again moves into huge pages, and nothing else does.
#include "host/huge_pages.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace penstock::host {
namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr int kCollapse = 25;

/// Memory with a mapping of its own.
class Mapping {
 public:
  explicit Mapping(std::size_t bytes) : bytes_(bytes), all_(map(bytes + 4 * kMiB)) {
    const auto first = reinterpret_cast<std::uintptr_t>(all_) / (2 * kMiB) + 1;
    memory_ = reinterpret_cast<std::byte*>(first * 2 * kMiB);
    std::memset(memory_, 1, bytes_);
  }
  ~Mapping() { ::munmap(all_, bytes_ + 4 * kMiB); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  ConstBytes bytes() const { return {memory_, bytes_}; }
  std::size_t huge_kib() const {
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    bool inside = false;
    while (std::getline(maps, line)) {
      std::uintptr_t begin = 0, end = 0;
      char dash = 0;
      std::istringstream words(line);
      if (words >> std::hex >> begin >> dash >> end && dash == '-')
        inside = begin <= address() && address() < end;
      else if (inside && line.starts_with("AnonHugePages:"))
        return std::stoul(line.substr(line.find(':') + 1));
    }
    return 0;
  }

 private:
  static std::byte* map(std::size_t bytes) {
    return static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(memory_); }

  std::size_t bytes_;
  std::byte* all_;
  std::byte* memory_ = nullptr;
};

/// Why the system gives none, or nothing.
std::string impossible() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string setting;
  if (!std::getline(file, setting) || setting.find("[never]") != std::string::npos)
    return "the system forbids huge pages";
  const Mapping probe(8 * kMiB);
  if (probe.huge_kib() != 0) return "the system gives huge pages to all memory";
  if (::madvise(const_cast<std::byte*>(probe.bytes().data()), 8 * kMiB, kCollapse) != 0)
    return "the kernel cannot move memory into huge pages";
  return probe.huge_kib() == 0 ? "the kernel does not say where huge pages are" : "";
}

TEST(HugePages, MemoryMovesWhenItIsUsedAgain) {
  if (const std::string why = impossible(); !why.empty()) GTEST_SKIP() << why;
  const Mapping memory(8 * kMiB);
  ASSERT_EQ(memory.huge_kib(), 0u);
  use_huge_pages(memory.bytes());
  EXPECT_EQ(memory.huge_kib(), 0u) << "in the first use";
  use_huge_pages(memory.bytes());
  EXPECT_EQ(memory.huge_kib(), 8u << 10) << "in the second use";
  for (const std::byte each : memory.bytes()) ASSERT_EQ(each, std::byte{1});
}

TEST(HugePages, OnlyWholePagesOfTheMemoryMove) {
  if (const std::string why = impossible(); !why.empty()) GTEST_SKIP() << why;
  const Mapping memory(8 * kMiB);
  for (int i = 0; i < 2; ++i) use_huge_pages(memory.bytes().subspan(64, 6 * kMiB));
  EXPECT_EQ(memory.huge_kib(), 4u << 10);
}

TEST(HugePages, ShortMemoryStays) {
  if (const std::string why = impossible(); !why.empty()) GTEST_SKIP() << why;
  const Mapping memory(8 * kMiB);
  for (int i = 0; i < 8; ++i) use_huge_pages(memory.bytes().first(2 * kMiB));
  for (int i = 0; i < 8; ++i) use_huge_pages({});
  EXPECT_EQ(memory.huge_kib(), 0u);
}

}  // namespace
}  // namespace penstock::host
