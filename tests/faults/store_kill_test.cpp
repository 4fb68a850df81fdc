// Writers killed with SIGKILL at random moments: nobody else notices, nothing acknowledged is lost, no version is torn,
// and what the dead left behind is collected.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <random>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kRegions = 40, kStride = 1000, kRegionBytes = 700, kSize = kRegions * kStride;

struct Acknowledgement {
  std::uint64_t version;
  std::uint64_t value;
};

/// 40 regions of one value: a snapshot in which they differ is torn.
std::uint64_t write_value(Blob& blob, int value) {
  const std::vector<std::byte> data(kRegionBytes, static_cast<std::byte>(value));
  std::vector<WriteRegion> regions;
  for (std::uint64_t i = 0; i < kRegions; ++i) regions.push_back({i * kStride, data});
  return blob.write(regions);
}

/// The one value of a snapshot, or -1.
int value_of(const Snapshot& snapshot) {
  std::vector<std::byte> data(kSize);
  const ReadRegion region{0, data};
  snapshot.read(std::span(&region, 1));
  for (std::uint64_t i = 0; i < kRegions; ++i) {
    for (std::uint64_t byte = 0; byte < kStride; ++byte) {
      if (data[i * kStride + byte] != (byte < kRegionBytes ? data[0] : std::byte{0})) return -1;
    }
  }
  return std::to_integer<int>(data[0]);
}

/// The life of a child: writes and collects until it is killed, and tells the parent of every version that it has made.
[[noreturn]] void write_for_ever(const std::string& url, int answers, unsigned seed) {
  try {
    std::mt19937 random(seed);
    Store store(url, {.durable = random() % 2 == 0});
    Blob blob = store.open("field");
    for (;;) {
      const std::uint64_t value = 1 + random() % 250;
      const Acknowledgement answer{write_value(blob, static_cast<int>(value)), value};
      if (::write(answers, &answer, sizeof answer) != sizeof answer) break;
      if (random() % 10 == 0) store.gc({.keep_last = 200, .lease = std::chrono::seconds(0)});
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  _exit(1);
}

TEST(StoreKill, DeadWritersTakeNothingWithThem) {
  const TemporaryDirectory directory;
  const std::string url = directory.url();
  Store store(url, {.durable = false});
  Blob blob = store.create("field", {.size_bytes = kSize});
  std::mt19937 random(11);
  std::map<std::uint64_t, std::uint64_t> acknowledged;
  for (unsigned round = 0; round < 25; ++round) {
    pid_t children[3];
    int answers[3][2];
    for (unsigned i = 0; i < 3; ++i) {
      ASSERT_EQ(pipe(answers[i]), 0);
      children[i] = fork();
      ASSERT_GE(children[i], 0);
      if (children[i] == 0) write_for_ever(url, answers[i][1], round * 3 + i);
      ::close(answers[i][1]);
    }
    for (unsigned i = 0; i < 3; ++i) {
      usleep(static_cast<useconds_t>(5'000 + random() % 60'000));
      kill(children[i], SIGKILL);
      int status = 0;
      waitpid(children[i], &status, 0);
      EXPECT_TRUE(WIFSIGNALED(status)) << "a writer stopped by itself";
      Acknowledgement answer;
      while (::read(answers[i][0], &answer, sizeof answer) == sizeof answer) {
        EXPECT_TRUE(acknowledged.emplace(answer.version, answer.value).second) << "version " << answer.version;
      }
      ::close(answers[i][0]);
    }
    // The survivor is not held up, and sees everything.
    const std::uint64_t mine = write_value(blob, 251);
    acknowledged[mine] = 251;
    EXPECT_EQ(blob.latest(), mine);
    EXPECT_EQ(mine, acknowledged.rbegin()->first);
  }
  EXPECT_GT(acknowledged.size(), 100u);
  const CheckReport report = store.check();
  EXPECT_TRUE(report.problems.empty()) << report.problems.front();
  int value = 0;
  const std::uint64_t first = store.list().front().first_version;
  for (std::uint64_t version = 1; version <= blob.latest(); ++version) {
    const auto at = acknowledged.find(version);
    if (at != acknowledged.end()) value = static_cast<int>(at->second);
    if (version < first) continue;
    const int found = value_of(blob.snapshot(version));
    EXPECT_NE(found, -1) << "version " << version << " is torn";
    // A version that nobody acknowledged is the write of one that died in between, or none at all.
    if (at == acknowledged.end()) value = found;
    EXPECT_EQ(found, value) << "version " << version;
  }
  store.gc({.keep_last = 1, .lease = std::chrono::seconds(0)});
  EXPECT_EQ(store.check().garbage_objects, 0u);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path() + "/store/.tmp"));
  EXPECT_EQ(value_of(blob.snapshot()), 251);
}

}  // namespace
}  // namespace penstock
