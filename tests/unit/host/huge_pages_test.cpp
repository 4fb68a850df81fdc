// Memory that operations use again moves into huge pages, and nothing else does.
#include "host/huge_pages.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace penstock::host {
namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr int kCollapse = 25;
constexpr int kEnough = 100'000;  ///< uses, if to move a page takes 10,000 times as long as to read it

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

TEST(HugePages, MemoryMovesWhenItIsUsedAgainAndAgain) {
  if (const std::string why = impossible(); !why.empty()) GTEST_SKIP() << why;
  const Mapping memory(8 * kMiB);
  ASSERT_EQ(memory.huge_kib(), 0u);
  use_huge_pages(memory.bytes());
  EXPECT_EQ(memory.huge_kib(), 0u) << "in the first use";
  for (int i = 0; i < kEnough && memory.huge_kib() != 8u << 10; ++i) use_huge_pages(memory.bytes());
  EXPECT_EQ(memory.huge_kib(), 8u << 10);
  for (const std::byte each : memory.bytes()) ASSERT_EQ(each, std::byte{1});
}

TEST(HugePages, OnlyWholePagesOfTheMemoryMove) {
  if (const std::string why = impossible(); !why.empty()) GTEST_SKIP() << why;
  const Mapping memory(8 * kMiB);
  const ConstBytes part = memory.bytes().subspan(64, 6 * kMiB);
  for (int i = 0; i < kEnough && memory.huge_kib() < 4u << 10; ++i) use_huge_pages(part);
  for (int i = 0; i < 100; ++i) use_huge_pages(part);
  EXPECT_EQ(memory.huge_kib(), 4u << 10);
}

TEST(HugePages, ShortMemoryStays) {
  if (const std::string why = impossible(); !why.empty()) GTEST_SKIP() << why;
  const Mapping memory(8 * kMiB);
  for (int i = 0; i < 8; ++i) use_huge_pages(memory.bytes().first(2 * kMiB));
  for (int i = 0; i < 8; ++i) use_huge_pages({});
  EXPECT_EQ(memory.huge_kib(), 0u);
}

/// Four huge pages. One is read in 8 ns, and moves in as many as it is told.
class MemoryInUse {
 public:
  void use(int times = 1) {
    for (int i = 0; i < times; ++i) moves_.use(memory_);
  }
  void take_for_a_move(std::uint64_t ns) { move_ns_ = ns; }
  const std::vector<std::uint64_t>& moved() const { return moved_; }
  std::uint64_t spent_ns() const { return spent_ns_; }

 private:
  static constexpr std::uint64_t kPages = 4;
  /// Nothing reads or writes it.
  const ConstBytes memory_{reinterpret_cast<const std::byte*>(PageMoves::kPageBytes), kPages* PageMoves::kPageBytes};
  std::uint64_t move_ns_ = 16;
  std::uint64_t spent_ns_ = 0;
  std::vector<std::uint64_t> moved_;
  PageMoves moves_{[](const std::byte*) { return std::uint64_t{8}; },
                   [this](const std::byte* page) {
                     moved_.push_back(static_cast<std::uint64_t>(page - memory_.data()) / PageMoves::kPageBytes);
                     spent_ns_ += move_ns_;
                     return move_ns_;
                   }};
};

TEST(PageMoves, TakeNoLongerThanAnEighthOfTheReadsAndTheLastMove) {
  constexpr std::uint64_t kSavedNs = 4;  // of each use: an eighth of four pages of 8 ns
  for (const std::uint64_t move_ns : {1u, 16u, 100u, 5000u}) {
    MemoryInUse memory;
    memory.take_for_a_move(move_ns);
    for (std::uint64_t uses = 1; uses < 3000; ++uses) {
      memory.use();
      ASSERT_LE(memory.spent_ns(), kSavedNs * uses + move_ns) << "use " << uses << ", " << move_ns << " ns for a move";
    }
  }
}

TEST(PageMoves, WaitUntilTheTimeOfACopyIsSaved) {
  MemoryInUse memory;
  memory.use(4);
  EXPECT_TRUE(memory.moved().empty());
  memory.use();
  EXPECT_EQ(memory.moved(), (std::vector<std::uint64_t>{0}));
}

TEST(PageMoves, MoveEachPageOnce) {
  MemoryInUse memory;
  memory.use(31);
  EXPECT_EQ(memory.moved(), (std::vector<std::uint64_t>{0, 1, 2, 3}));
}

TEST(PageMoves, AskAgainForMemoryThatMayBeOther) {
  MemoryInUse memory;
  memory.use(31);
  memory.take_for_a_move(0);  // they lie in huge pages
  memory.use(5);
  EXPECT_EQ(memory.moved(), (std::vector<std::uint64_t>{0, 1, 2, 3, 0, 1, 2, 3})) << "from the 32nd use on";
  memory.use(27);
  EXPECT_EQ(memory.moved().size(), 8u);
  memory.use();
  EXPECT_EQ(memory.moved().size(), 12u) << "in the 64th use";
}

TEST(PageMoves, OfManyMemoriesUsedInTurnAllMove) {
  std::set<const std::byte*> moved;
  PageMoves moves([](const std::byte*) { return std::uint64_t{8}; },
                  [&](const std::byte* page) {
                    moved.insert(page);
                    return std::uint64_t{0};
                  });
  constexpr std::uintptr_t kMemories = 64;
  for (int uses = 0; uses < 16; ++uses)
    for (std::uintptr_t i = 1; i <= kMemories; ++i)
      moves.use({reinterpret_cast<const std::byte*>(2 * i * PageMoves::kPageBytes), 2 * PageMoves::kPageBytes});
  EXPECT_EQ(moved.size(), 2 * kMemories);
}

TEST(PageMoves, ThatTakeLongerThanTheLastOneAreSavedForAgain) {
  MemoryInUse memory;
  memory.use(4);
  memory.take_for_a_move(116);
  memory.use();
  ASSERT_EQ(memory.moved().size(), 1u);  // 16 ns were saved
  memory.use(53);
  EXPECT_EQ(memory.moved().size(), 1u);
  memory.use();
  EXPECT_EQ(memory.moved().size(), 2u);
}

}  // namespace
}  // namespace penstock::host
