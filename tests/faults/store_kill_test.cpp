// Kills processes with SIGKILL at random moments: writers, readers, collectors, and processes that tag, compact, clone
// and remove. Others continue, no acknowledged version is lost, no version is torn, and gc collects what is left.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "unit/store/frequent_deltas.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kRegions = 40, kStride = 1000, kRegionBytes = 700, kSize = kRegions * kStride;
constexpr std::uint64_t kKept = 100;

/// The number of processes to kill: PENSTOCK_TEST_KILLS (`./dev test --all`: 1,000), by default 64.
unsigned kills() {
  const char* const given = std::getenv("PENSTOCK_TEST_KILLS");
  return given == nullptr ? 64 : static_cast<unsigned>(std::strtoul(given, nullptr, 10));
}

enum class Role : unsigned { writer, reader, collector, keeper };

/// A message from a child to its parent: it wrote a version with a value, tagged a version, or finished a turn.
struct Message {
  enum Kind : std::uint64_t { wrote, tagged, turned } kind;
  std::uint64_t version;
  std::uint64_t value;
};

/// Writes one value to 40 regions. A snapshot in which the regions differ is torn.
std::uint64_t write_value(Blob& blob, int value) {
  const std::vector<std::byte> data(kRegionBytes, static_cast<std::byte>(value));
  std::vector<WriteRegion> regions;
  for (std::uint64_t i = 0; i < kRegions; ++i) regions.push_back({i * kStride, data});
  return blob.write(regions);
}

/// The value of a snapshot, or -1 if it is torn.
int bytes_value_of(const Snapshot& snapshot) {
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

/// The work of a child process until its parent kills it.
class Child {
 public:
  Child(const std::string& url, int answers, unsigned seed, bool compressed)
      : random_(seed),
        seed_(seed),
        answers_(answers),
        store_(url, {.durable = random_() % 2 == 0, .compress_level = compressed && random_() % 2 == 0 ? 3 : 0}),
        blob_(store_.open("field")) {}

  void live(Role role) {
    for (;;) {
      switch (role) {
        case Role::writer: write(); break;
        case Role::reader: read(); break;
        case Role::collector: collect(); break;
        case Role::keeper: keep(); break;
      }
      tell(Message::turned);
    }
  }

 private:
  void tell(Message::Kind kind, std::uint64_t version = 0, std::uint64_t value = 0) const {
    const Message message{kind, version, value};
    if (::write(answers_, &message, sizeof message) != sizeof message) _exit(1);
  }

  void write() {
    const std::uint64_t value = 1 + random_() % 250;
    tell(Message::wrote, write_value(blob_, static_cast<int>(value)), value);
    if (random_() % 10 == 0) collect();
  }

  void read() {
    const std::uint64_t newest = blob_.latest();
    for (const std::uint64_t version : {newest, newest - random_() % (newest + 1)}) {
      tolerating_collected([&] {
        if (bytes_value_of(blob_.snapshot(version)) < 0) throw Error(ErrorCode::corrupt, "a version is torn");
      });
    }
  }

  void collect() { store_.gc({.keep_last = kKept, .lease = std::chrono::seconds(0)}); }

  void keep() {
    const std::uint64_t version = blob_.latest();
    const std::string name = std::to_string(seed_) + "-" + std::to_string(version) + "-" + std::to_string(++count_);
    tolerating_collected([&] {
      switch (random_() % 5) {
        case 4:
          // All children remove and create this name concurrently.
          if (random_() % 2 == 0) return static_cast<void>(store_.remove("shared"));
          try {
            store_.create("shared", {.size_bytes = kSize});
          } catch (const Error& error) {
            if (error.code() != ErrorCode::exists) throw;
          }
          break;
        case 0:
          blob_.tag(name, version);
          tell(Message::tagged, version);
          break;
        case 1: blob_.compact(version); break;
        case 2: {
          const Blob copy = store_.clone("field", version, "clone-" + name);
          if (bytes_value_of(copy.snapshot()) < 0) throw Error(ErrorCode::corrupt, "a clone is torn");
          break;
        }
        default:
          for (const BlobInfo& info : store_.list()) {
            if (info.name.starts_with("clone-" + std::to_string(seed_) + "-")) store_.remove(info.name);
          }
      }
    });
  }

  /// Ignores errors due to collection: another child may have collected the version. As the lease is 0, it may also
  /// have collected the unfinished work of a live process.
  template <typename Action>
  void tolerating_collected(const Action& action) {
    try {
      action();
    } catch (const Error& error) {
      const bool given_up = std::string_view(error.what()).find("unfinished clone") != std::string_view::npos;
      if (error.code() != ErrorCode::not_found && !given_up) throw;
    }
  }

  std::mt19937 random_;
  const unsigned seed_;
  const int answers_;
  Store store_;
  Blob blob_;
  int count_ = 0;
};

[[noreturn]] void live_in_child(const std::string& url, int answers, unsigned seed, bool compressed) {
  try {
    Child(url, answers, seed, compressed).live(static_cast<Role>(seed % 4));
  } catch (const Error& error) {
    std::fprintf(stderr, "role %u: %s\n", seed % 4, error.what());
  }
  _exit(1);
}

/// `compressed`: half of the processes write compressed data.
void expect_that_the_dead_take_nothing(bool compressed = false) {
  const TemporaryDirectory directory;
  const std::string url = directory.url();
  Store store(url, {.durable = false});
  Blob blob = store.create("field", {.size_bytes = kSize});
  std::mt19937 random(11);
  std::map<std::uint64_t, std::uint64_t> acknowledged;
  std::set<std::uint64_t> tagged;
  constexpr unsigned kChildren = 4;
  constexpr std::chrono::duration<double> kLongestTurns{0.05};
  for (unsigned round = 0; round * kChildren < kills(); ++round) {
    pid_t children[kChildren];
    int answers[kChildren][2];
    for (unsigned i = 0; i < kChildren; ++i) {
      ASSERT_EQ(pipe(answers[i]), 0);
      children[i] = fork();
      ASSERT_GE(children[i], 0);
      if (children[i] == 0) live_in_child(url, answers[i][1], round * kChildren + i, compressed);
      ::close(answers[i][1]);
    }
    for (unsigned i = 0; i < kChildren; ++i) {
      unsigned turns = 0;
      const auto hear = [&] {
        Message message;
        if (::read(answers[i][0], &message, sizeof message) != sizeof message) return false;
        if (message.kind == Message::tagged) tagged.insert(message.version);
        if (message.kind == Message::wrote) {
          EXPECT_TRUE(acknowledged.emplace(message.version, message.value).second) << "version " << message.version;
        }
        if (message.kind == Message::turned) ++turns;
        return true;
      };
      // The kill comes during one of the first turns, independently of the speed of the machine.
      const unsigned until = random() % 6;
      const auto begin = std::chrono::steady_clock::now();
      bool lives = true;
      while (lives && turns < until) lives = hear();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      std::this_thread::sleep_for(std::min(taken, kLongestTurns) * (static_cast<double>(random() % 1000) / 1000));
      kill(children[i], SIGKILL);
      int status = 0;
      waitpid(children[i], &status, 0);
      EXPECT_TRUE(WIFSIGNALED(status)) << "a process stopped by itself, round " << round << " child " << i;
      while (hear()) {
      }
      ::close(answers[i][0]);
    }
    // The surviving process is not blocked, and sees all versions.
    const std::uint64_t mine = write_value(blob, 251);
    EXPECT_TRUE(acknowledged.emplace(mine, 251).second);
    EXPECT_EQ(blob.latest(), mine);
    EXPECT_EQ(mine, acknowledged.rbegin()->first);
    ASSERT_FALSE(testing::Test::HasFailure()) << "round " << round;
  }
  EXPECT_GT(acknowledged.size(), kills() / 4 + 5);
  EXPECT_FALSE(tagged.empty());
  const CheckReport report = store.check();
  EXPECT_TRUE(report.problems.empty()) << report.problems.front();
  int value = 0;
  std::uint64_t first = 0;
  for (const BlobInfo& info : store.list()) {
    if (info.name == "field") {
      first = info.first_version;
    } else {
      EXPECT_NE(bytes_value_of(store.open(info.name).snapshot()), -1) << info.name << " is torn";
      store.remove(info.name);
    }
  }
  for (std::uint64_t version = 1; version <= blob.latest(); ++version) {
    const auto at = acknowledged.find(version);
    const bool known = at != acknowledged.end();
    if (known) value = static_cast<int>(at->second);
    if (version < first && !tagged.contains(version)) continue;
    const int found = bytes_value_of(blob.snapshot(version));
    EXPECT_NE(found, -1) << "version " << version << " is torn";
    // An unacknowledged version is the write of a killed process, or a version that changes nothing.
    if (!known) value = found;
    EXPECT_EQ(found, value) << "version " << version;
  }
  for (const Tag& tag : blob.tags()) blob.untag(tag.name);
  store.gc({.keep_last = 1, .lease = std::chrono::seconds(0)});
  EXPECT_EQ(store.check().garbage_objects, 0u);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path() + "/store/.tmp"));
  EXPECT_EQ(bytes_value_of(blob.snapshot()), 251);
}

TEST(StoreKill, TheDeadTakeNothingWithThem) { expect_that_the_dead_take_nothing(); }

TEST(StoreKill, NorWithManyDeltas) {
  const store::FrequentDeltas often(2);
  expect_that_the_dead_take_nothing();
}

TEST(StoreKill, NorDoThoseWhoCompress) { expect_that_the_dead_take_nothing(true); }

}  // namespace
}  // namespace penstock
