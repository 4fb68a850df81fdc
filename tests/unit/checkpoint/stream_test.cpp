// What a drain holds in memory, how far it reads ahead, and how it keeps to a rate.
#include "checkpoint/stream.hpp"

#include <gtest/gtest.h>

#include <deque>

#include "unit/checkpoint/faulty_backend.hpp"
#include "unit/checkpoint/vector.hpp"

namespace penstock::checkpoint::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(StreamShape, TakesLittleMemoryHoweverLargeTheObject) {
  for (const std::uint64_t chunk_bytes : {64ull, 4096ull, 1ull * kMiB, 3ull * kMiB, 8ull * kMiB, 20ull * kMiB}) {
    for (const std::uint64_t data_bytes : {64ull, 1ull * kMiB, 100ull * kMiB, 1000'000ull * kMiB}) {
      const StreamShape shape = StreamShape::of(data_bytes, chunk_bytes);
      EXPECT_LE(shape.memory_bytes(), 64 * kMiB) << chunk_bytes << " " << data_bytes;
      EXPECT_LE(shape.memory_bytes(), data_bytes + shape.piece_bytes);
      EXPECT_GE(shape.buffers, data_bytes > shape.piece_bytes ? 2u : 1u);
      EXPECT_TRUE(shape.piece_bytes == data_bytes || shape.piece_bytes % chunk_bytes == 0);
    }
  }
  EXPECT_EQ(StreamShape::of(1000 * kMiB, 100 * kMiB).memory_bytes(), 200 * kMiB);
  EXPECT_EQ(StreamShape::of(0, 64).memory_bytes(), 0u);
}

/// A stream over numbers: chunk i of 8 bytes holds i.
class Numbers {
 public:
  explicit Numbers(std::uint64_t chunks, std::uint64_t preferred_bytes = 16)
      : shape(StreamShape::of(8 * chunks, 8, preferred_bytes)), memory(shape.memory_bytes()), chunks_(chunks) {}

  std::unique_ptr<ReadAhead> open(const std::vector<ChunkRange>& ranges) {
    return std::make_unique<ReadAhead>([this](const ChunkRange& range, Bytes to) { load(range, to); }, ranges, 8,
                                       8 * chunks_, shape, memory);
  }
  void wait_until_loaded(std::uint64_t pieces) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, penstock::test::kHung, [&] { return loaded >= pieces; }));
  }

  StreamShape shape;
  std::vector<std::byte> memory;
  std::uint64_t fail_at_chunk = UINT64_MAX;
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t loaded = 0;  ///< pieces

 private:
  void load(const ChunkRange& range, Bytes to) {
    for (std::uint64_t i = 0; i < range.count; ++i) {
      const std::uint64_t chunk = range.first + i;
      if (chunk == fail_at_chunk) throw Error(ErrorCode::corrupt, "chunk " + std::to_string(chunk));
      std::memcpy(to.data() + 8 * i, &chunk, 8);
    }
    const std::lock_guard lock(mutex);
    ++loaded;
    changed.notify_all();
  }

  const std::uint64_t chunks_;
};

/// All chunks of the rest of a stream.
std::vector<std::uint64_t> rest_of(ChunkStream& stream) {
  std::vector<std::uint64_t> found;
  while (const auto piece = stream.next()) {
    for (std::size_t at = 0; at < piece->data.size(); at += 8) {
      std::uint64_t chunk = 0;
      std::memcpy(&chunk, piece->data.data() + at, 8);
      EXPECT_EQ(chunk, piece->first_chunk + at / 8);
      found.push_back(chunk);
    }
    if (stream.full()) stream.release();
  }
  return found;
}

TEST(ReadAhead, GivesTheChunksOfAllRangesInOrder) {
  Numbers numbers(100);
  const auto stream = numbers.open({{0, 5}, {7, 1}, {90, 10}});
  std::vector<std::uint64_t> expected{0, 1, 2, 3, 4, 7};
  for (std::uint64_t chunk = 90; chunk < 100; ++chunk) expected.push_back(chunk);
  EXPECT_EQ(rest_of(*stream), expected);
  EXPECT_FALSE(stream->next());
  EXPECT_TRUE(rest_of(*numbers.open({})).empty());
}

TEST(ReadAhead, ReadsWhileThePieceBeforeIsWrittenAndNoFurtherThanItsBuffers) {
  Numbers numbers(100);
  ASSERT_EQ(numbers.shape.buffers, 6u);
  const auto stream = numbers.open({{0, 100}});
  ASSERT_TRUE(stream->next());
  // The first piece is still in use: as if a slow tier wrote it.
  numbers.wait_until_loaded(6);
  ASSERT_TRUE(stream->next());
  stream->release();
  numbers.wait_until_loaded(8);
  const std::lock_guard lock(numbers.mutex);
  EXPECT_EQ(numbers.loaded, 8u);  // there is no ninth buffer, however long one waits
}

TEST(ReadAhead, DamageComesAfterWhatIsIntactBeforeIt) {
  for (std::uint64_t chunk = 0; chunk < 20; ++chunk) {
    Numbers numbers(20);
    numbers.fail_at_chunk = chunk;
    const auto stream = numbers.open({{0, 20}});
    std::uint64_t intact = 0;
    try {
      while (stream->next()) {
        ++intact;
        stream->release();
      }
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.message(), "chunk " + std::to_string(chunk));
    }
    EXPECT_EQ(intact, chunk / 2);
  }
}

TEST(ReadAhead, CanBeGivenUpAtAnyTime) {
  for (int pieces = 0; pieces < 8; ++pieces) {
    Numbers numbers(100);
    const auto stream = numbers.open({{0, 100}});
    for (int i = 0; i < pieces; ++i) {
      ASSERT_TRUE(stream->next());
      if (stream->full()) stream->release();
    }
  }
}

/// Time passes only when somebody sleeps.
struct SimulatedClock {
  double now_s = 1000;
  std::vector<double> sleeps_s;

  Clock clock() {
    return {[this] { return now_s; },
            [this](double seconds) {
              sleeps_s.push_back(seconds);
              now_s += seconds;
            }};
  }
};

TEST(RateLimit, AdmitsOneCallAheadOfItsRate) {
  SimulatedClock time;
  RateLimit limit(100, time.clock());
  limit.take(50);
  EXPECT_TRUE(time.sleeps_s.empty());
  limit.take(200);
  limit.take(1);
  EXPECT_EQ(time.sleeps_s, (std::vector<double>{0.5, 2.0}));
  EXPECT_EQ(limit.waited_s(), 2.5);
  // Time in which nothing was asked for is not made up for.
  time.now_s += 100;
  limit.take(100);
  limit.take(100);
  EXPECT_EQ(time.sleeps_s.back(), 1.0);
  RateLimit none(0, time.clock());
  none.take(1 << 30);
  none.take(1 << 30);
  EXPECT_EQ(time.sleeps_s.size(), 3u);
}

TEST(Drain, KeepsToItsRateOverAllCheckpointsOfAllRanks) {
  constexpr int kRanks = 2;
  constexpr std::int64_t kElements = 3000;  // 12,000 bytes
  World world;
  world.ranks = kRanks;
  world.options.chunk_bytes = 512;
  world.options.drain_bytes_per_s = 1000;
  world.tuning.piece_bytes = 512;
  world.tiers = shared_tiers(memory(), memory());
  std::deque<SimulatedClock> times(kRanks);
  run_ranks(world, [&](Rank& rank) {
    SimulatedClock& time = times[static_cast<std::size_t>(rank.rank())];
    SaverTuning tuning = world.tuning;
    tuning.clock = time.clock();  // which the drainer of this rank alone uses
    rank.retune(tuning);
    Saver* const saver = &rank.saver();
    for (std::uint64_t step = 1; step <= 3; ++step) {
      const Vector vector(rank, step, kElements);
      saver->save(step, vector.arrays, "");
      saver->finish();
    }
    const double seconds = time.now_s - 1000;
    // 3 * 6,000 bytes at 500 bytes/s, but for the last piece.
    EXPECT_NEAR(seconds, 36.0, 512.0 / 500);
    EXPECT_LE(seconds, 36.0);
    EXPECT_NE(saver->report().find("drain: at most 500 bytes/s on this rank, for which it has waited 3"),
              std::string::npos)
        << saver->report();
  });
}

TEST(Drain, ThatIsTooSlowHoldsUpLaterSavesAndNotTheFirstOnes) {
  World world;
  world.options.undrained_max = 2;
  world.options.drain_bytes_per_s = 1;
  world.options.chunk_bytes = 512;
  world.tuning.piece_bytes = 512;
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  int waiting = 0;
  // Whoever sleeps does so until the gate opens.
  world.tuning.clock = {[] { return 0.0; },
                        [&](double) {
                          std::unique_lock lock(mutex);
                          ++waiting;
                          changed.notify_all();
                          EXPECT_TRUE(changed.wait_for(lock, penstock::test::kHung, [&] { return open; }));
                        }};
  const auto faults = std::make_shared<Faults>();
  std::vector<std::string> manifests;
  faults->on_change = [&](const std::string& operation, const store::Backend& backend, const std::string& key,
                          Faults::When when) {
    if (operation != "put" || when != Faults::When::after || key.find(".manifest.json") == key.npos) return;
    const std::lock_guard lock(mutex);
    manifests.push_back(backend.url() + " " + key.substr(0, key.find('.')));
  };
  const auto slow = store::open_backend("memory:slow-of-backpressure");
  const auto fast = store::open_backend("memory:fast-of-backpressure");
  world.tiers =
      shared_tiers(std::make_shared<FaultyBackend>(slow, faults), std::make_shared<FaultyBackend>(fast, faults));
  run_ranks(world, [&](Rank& rank) {
    std::vector<CheckpointHandle> handles;
    for (std::uint64_t step = 1; step <= 3; ++step) handles.push_back(rank.save(step, Vector(rank, step).arrays));
    handles[1].wait(CheckpointLevel::fast);
    {
      std::unique_lock lock(mutex);
      EXPECT_TRUE(changed.wait_for(lock, penstock::test::kHung, [&] { return waiting > 0; }));
      // Step 1 is being drained, step 2 waits for that, step 3 is staged.
      EXPECT_EQ(manifests.size(), 2u);
      open = true;
    }
    EXPECT_EQ(handles[0].level(), CheckpointLevel::fast);
    changed.notify_all();
    rank.saver().finish();
  });
  ASSERT_EQ(manifests.size(), 6u);
  const auto place = [&](const std::string& url, int step) {
    const std::string name = url + " checkpoints/step-" + std::string(19, '0') + std::to_string(step);
    return std::ranges::find(manifests, name) - manifests.begin();
  };
  // Never more than two are in the burst buffer alone.
  EXPECT_LT(place(slow->url(), 1), place(fast->url(), 3));
}

}  // namespace
}  // namespace penstock::checkpoint::test
