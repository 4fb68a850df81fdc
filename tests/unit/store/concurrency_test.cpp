// Many writers, readers and collectors run concurrently. Every version must equal a sequential model after the same
// writes in the order of their numbers. That order must respect real time (linearizability).
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "unit/store/outcomes.hpp"
#include "unit/store/schemes.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kRows = 16, kWidth = 512, kSize = kRows * kWidth;

struct Write {
  std::uint64_t first_column;
  std::uint64_t columns;
  std::byte value;
};

/// Writes some columns of all rows: one region for each row. The regions overlap those of other writers.
std::uint64_t write_tile(Blob& blob, const Write& write) {
  const std::vector<std::byte> data(write.columns, write.value);
  std::vector<WriteRegion> regions;
  for (std::uint64_t row = 0; row < kRows; ++row) regions.push_back({row * kWidth + write.first_column, data});
  return blob.write(regions);
}

void apply_to(std::vector<std::byte>& model, const Write& write) {
  for (std::uint64_t row = 0; row < kRows; ++row) {
    std::fill_n(model.begin() + static_cast<std::ptrdiff_t>(row * kWidth + write.first_column), write.columns,
                write.value);
  }
}

struct Acknowledged {
  std::uint64_t newest_before;  ///< a version that existed before the write began
  Write write;
};

class Concurrency : public testing::TestWithParam<std::string> {
 protected:
  Concurrency() : url_(store::test_url(GetParam(), directory_)), store_(url_, {.durable = false}) {
    store_.create("field", {.size_bytes = kSize});
  }

  void run(int writers, int writes_each, int readers, bool collect) {
    std::atomic<int> writing{writers};
    std::vector<std::thread> threads;
    for (int w = 0; w < writers; ++w) {
      threads.emplace_back([&, w] {
        Blob blob = Store(url_, {.durable = false}).open("field");
        std::mt19937 random(static_cast<unsigned>(w));
        for (int i = 0; i < writes_each; ++i) {
          const std::uint64_t first = random() % (kWidth - 1);
          const Write write{first, 1 + random() % (kWidth - first), static_cast<std::byte>(1 + random() % 250)};
          const std::uint64_t before = blob.latest();
          const std::uint64_t version = write_tile(blob, write);
          const std::lock_guard lock(mutex_);
          EXPECT_TRUE(acknowledged_.emplace(version, Acknowledged{before, write}).second) << version << " twice";
        }
        --writing;
      });
    }
    for (int r = 0; r < readers; ++r) {
      threads.emplace_back([&] {
        const Blob blob = Store(url_, {.durable = false}).open("field");
        std::uint64_t last = 0;
        while (writing > 0) {
          const std::uint64_t newest = blob.latest();
          EXPECT_GE(newest, last);
          last = newest;
          try {
            const Snapshot snapshot = blob.snapshot(newest);
            auto data = whole(snapshot);
            const std::lock_guard lock(mutex_);
            seen_.insert_or_assign(snapshot.version(), std::move(data));
          } catch (const Error& error) {
            EXPECT_TRUE(collect && error.code() == ErrorCode::not_found) << error.what();
          }
          std::this_thread::yield();
        }
      });
    }
    if (collect) {
      threads.emplace_back([&] {
        Store store(url_, {.durable = false});
        while (writing > 0) {
          // With a lease of 0 every unfinished write counts as dead.
          store.gc({.keep_last = 3, .lease = std::chrono::seconds(0)});
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  /// Compares all acknowledged, read and kept versions with the sequential model.
  void verify(std::uint64_t first_kept) {
    const Blob blob = store_.open("field");
    const std::uint64_t newest = blob.latest();
    std::vector<std::byte> model(kSize);
    std::uint64_t latest_start = 0;
    for (std::uint64_t version = 1; version <= newest; ++version) {
      if (const auto at = acknowledged_.find(version); at != acknowledged_.end()) {
        EXPECT_LT(at->second.newest_before, version);
        apply_to(model, at->second.write);
        latest_start = std::max(latest_start, version);
      }
      if (const auto at = seen_.find(version); at != seen_.end()) {
        EXPECT_EQ(at->second, model) << "version " << version;
      }
      if (version < first_kept) continue;
      EXPECT_EQ(whole(blob.snapshot(version)), model) << "version " << version;
    }
    EXPECT_EQ(latest_start, acknowledged_.rbegin()->first) << "acknowledged, but not there";
    const CheckReport report = store_.check();
    EXPECT_TRUE(report.problems.empty()) << report.problems.front();
  }

  const TemporaryDirectory directory_;
  const std::string url_;
  Store store_;
  std::mutex mutex_;
  std::map<std::uint64_t, Acknowledged> acknowledged_;
  std::map<std::uint64_t, std::vector<std::byte>> seen_;
};

TEST_P(Concurrency, OverlappingTilesAreExplainedByASerialOrder) {
  run(6, 25, 2, false);
  EXPECT_EQ(acknowledged_.size(), 150u);
  EXPECT_EQ(store_.open("field").latest(), 150u) << "no number is lost";
  verify(0);
}

TEST_P(Concurrency, CollectorsDisturbNobody) {
  run(4, 25, 2, true);
  EXPECT_EQ(acknowledged_.size(), 100u);
  store_.gc({.keep_last = 4, .lease = std::chrono::seconds(0)});
  const Blob blob = store_.open("field");
  verify(store_.list().front().first_version);
  EXPECT_EQ(store_.check().garbage_objects, 0u);
}

TEST_P(Concurrency, AppendsNeverOverlap) {
  Blob log = store_.create("log", {.grows = true});
  std::vector<std::thread> threads;
  std::map<std::uint64_t, std::byte> starts;
  for (int w = 0; w < 4; ++w) {
    threads.emplace_back([&, w] {
      Blob blob = Store(url_, {.durable = false}).open("log");
      for (int i = 0; i < 20; ++i) {
        const std::vector<std::byte> data(37, static_cast<std::byte>(w * 20 + i + 1));
        const ConstBytes piece(data);
        const auto appended = blob.append(std::span(&piece, 1));
        const std::lock_guard lock(mutex_);
        starts[appended.offset_bytes] = data.front();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto data = whole(log.snapshot());
  ASSERT_EQ(data.size(), 4u * 20u * 37u);
  ASSERT_EQ(starts.size(), 80u);
  for (std::size_t i = 0; i < data.size(); ++i) EXPECT_EQ(data[i], starts.at(i / 37 * 37));
}

/// Adds 1 to a number in the blob, as often as nobody else came between the read and the write.
void increment(Blob& blob) {
  for (;;) {
    try {
      const Snapshot before = blob.snapshot();
      // Two regions of one write must agree.
      std::vector<std::byte> data(2 * kWidth);
      const ReadRegion all{0, data};
      before.read(std::span(&all, 1));
      std::uint64_t value = 0;
      std::memcpy(&value, data.data(), sizeof value);
      ASSERT_EQ(std::memcmp(data.data(), data.data() + kWidth, kWidth), 0);
      ++value;
      std::vector<std::byte> half(kWidth, static_cast<std::byte>(value % 251));
      std::memcpy(half.data(), &value, sizeof value);
      const WriteRegion halves[] = {{0, half}, {kWidth, half}};
      blob.write_if(before.version(), halves);
      return;
    } catch (const Error& error) {
      // exists: another thread was first; not_found: a collector removed the version before it was read.
      if (error.code() != ErrorCode::exists && error.code() != ErrorCode::not_found) throw;
    }
  }
}

TEST_P(Concurrency, NoConditionalWriteIsLost) {
  for (const bool collect : {false, true}) {
    Blob counter = store_.create(collect ? "collected" : "counter", {.size_bytes = 2 * kWidth});
    const std::string name = counter.name();
    std::atomic<int> counting{4};
    std::vector<std::thread> threads;
    for (int w = 0; w < 4; ++w) {
      threads.emplace_back([&] {
        Blob blob = Store(url_, {.durable = false}).open(name);
        for (int i = 0; i < 15; ++i) increment(blob);
        --counting;
      });
    }
    if (collect) {
      threads.emplace_back([&] {
        Store store(url_, {.durable = false});
        while (counting > 0) store.gc({.keep_last = 2, .lease = std::chrono::seconds(0)});
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::uint64_t value = 0;
    const auto data = whole(counter.snapshot());
    std::memcpy(&value, data.data(), sizeof value);
    EXPECT_EQ(value, 60u);
  }
}

TEST_P(Concurrency, OneHandleServesManyThreads) {
  Blob blob = store_.open("field");
  std::vector<std::thread> threads;
  for (int w = 0; w < 3; ++w) {
    threads.emplace_back([&, w] {
      for (int i = 0; i < 30; ++i) {
        write_tile(blob, {static_cast<std::uint64_t>(w * 100), 150, static_cast<std::byte>(w * 30 + i + 1)});
        const auto data = whole(blob.snapshot());
        for (std::uint64_t at = kWidth; at < kSize; ++at) ASSERT_EQ(data[at], data[at - kWidth]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(blob.latest(), 90u);
}

INSTANTIATE_TEST_SUITE_P(All, Concurrency, testing::ValuesIn(store::test_schemes()),
                         [](const auto& row) { return row.param; });

}  // namespace
}  // namespace penstock
