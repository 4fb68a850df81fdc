#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <random>
#include <set>
#include <span>
#include <thread>

#include "eventually.hpp"
#include "penstock/dataset.hpp"
#include "penstock/error.hpp"
#include "threads.hpp"
#include "unit/dataset/images.hpp"

namespace penstock {
namespace {

using dataset::test::make_jpeg;

/// `count` raw samples of two bytes. Each has its index as content and the label 1000 + index.
Dataset numbers(std::uint64_t count) {
  std::vector<std::vector<std::byte>> samples;
  std::vector<std::int64_t> labels;
  for (std::uint64_t i = 0; i < count; ++i) {
    samples.push_back({static_cast<std::byte>(i & 255), static_cast<std::byte>(i >> 8)});
    labels.push_back(static_cast<std::int64_t>(1000 + i));
  }
  return Dataset::from_bytes(std::move(samples), std::move(labels)).decode({"none", {1}, DType::uint16, 0});
}

std::vector<std::uint64_t> values(const Batch& batch) {
  std::vector<std::uint64_t> result;
  for (std::uint64_t i = 0; i < batch.size(); ++i) {
    const Bytes sample = batch.sample(i);
    result.push_back(std::to_integer<std::uint64_t>(sample[0]) | std::to_integer<std::uint64_t>(sample[1]) << 8);
    EXPECT_EQ(batch.indices()[i], result.back());
    EXPECT_EQ(batch.labels()[i], static_cast<std::int64_t>(1000 + result.back()));
  }
  return result;
}

std::vector<std::uint64_t> drain(DatasetIterator& iterator) {
  std::vector<std::uint64_t> result;
  while (const auto batch = iterator.next())
    for (std::uint64_t value : values(*batch)) result.push_back(value);
  return result;
}

std::vector<std::uint64_t> expected(const Dataset& dataset, std::uint64_t epoch, std::uint64_t from = 0) {
  std::vector<std::uint64_t> result;
  for (std::uint64_t i = from; i < dataset.samples(); ++i) result.push_back(dataset.index_at(epoch, i));
  return result;
}

class Folder {
 public:
  Folder() {
    std::string pattern = std::filesystem::temp_directory_path() / "penstock-dataset-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string write(const std::string& name, const std::vector<std::byte>& bytes) const {
    std::ofstream(path_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }
  std::string path(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

TEST(Pipeline, DeliversTheOrderWhateverThreadsAndPrefetch) {
  const Dataset base = numbers(103).shuffle(9);
  for (int threads : {1, 2, 5})
    for (int prefetch : {0, 1, 3, 50})
      for (std::uint64_t batch : {1, 7, 103, 500}) {
        const Dataset dataset = base.map([](Sample&) {}, threads).batch(batch).prefetch(prefetch);
        auto iterator = dataset.iterate({4, 0});
        EXPECT_EQ(drain(iterator), expected(dataset, 4));
        EXPECT_FALSE(iterator.next());
        EXPECT_EQ(iterator.state(), (DatasetState{5, 0}));
        EXPECT_EQ(iterator.stats().samples, 103u);
        EXPECT_EQ(iterator.stats().batches, dataset.batches());
      }
}

TEST(Pipeline, RanksTogetherSeeTheGlobalBatches) {
  for (bool after : {true, false})
    for (bool drop : {false, true})
      for (int size : {1, 2, 3, 5}) {
        std::vector<DatasetIterator> iterators;
        std::uint64_t batches = 0;
        for (int rank = 0; rank < size; ++rank) {
          const Dataset base = numbers(50).shuffle(2);
          const Dataset dataset = after ? base.batch(8, drop).shard(rank, size) : base.shard(rank, size).batch(8, drop);
          batches = dataset.batches();
          iterators.push_back(dataset.prefetch(2).iterate({1, 0}));
        }
        const auto order = expected(numbers(50).shuffle(2), 1);
        std::uint64_t position = 0;
        for (std::uint64_t b = 0; b < batches; ++b) {
          std::vector<std::vector<std::uint64_t>> parts;
          for (auto& iterator : iterators) parts.push_back(values(*iterator.next()));
          std::vector<std::uint64_t> global;
          if (after)
            for (const auto& part : parts) global.insert(global.end(), part.begin(), part.end());
          else
            for (std::size_t i = 0; i < parts[0].size(); ++i)
              for (const auto& part : parts)
                if (i < part.size()) global.push_back(part[i]);
          ASSERT_LE(position + global.size(), order.size());
          EXPECT_TRUE(std::equal(global.begin(), global.end(), order.begin() + static_cast<std::ptrdiff_t>(position)));
          position += global.size();
          for (auto& iterator : iterators)
            EXPECT_EQ(iterator.state(), b + 1 == batches ? (DatasetState{2, 0}) : (DatasetState{1, position}));
        }
        const std::uint64_t global_batch = after ? 8 : 8 * static_cast<std::uint64_t>(size);
        EXPECT_EQ(position, drop ? 50 / global_batch * global_batch : 50);
        for (auto& iterator : iterators) EXPECT_FALSE(iterator.next());
      }
}

TEST(Pipeline, ResumesAnywhereWithOtherRanksAndThreads) {
  const Dataset base = numbers(60).shuffle(4);
  const auto order = expected(base, 3);
  for (std::uint64_t stop = 0; stop < 9; ++stop) {
    auto first = base.batch(7).prefetch(4).iterate({3, 0});
    for (std::uint64_t i = 0; i < stop; ++i) ASSERT_TRUE(first.next());
    const DatasetState state = first.state();
    std::vector<std::uint64_t> rest;
    std::vector<DatasetIterator> ranks;
    for (int rank = 0; rank < 3; ++rank)
      ranks.push_back(base.map([](Sample&) {}, 1 + rank).batch(10).shard(rank, 3).prefetch(rank).iterate(state));
    for (bool more = true; more;)
      for (auto& rank : ranks) {
        const auto batch = rank.next();
        more = batch.has_value();
        if (more)
          for (std::uint64_t value : values(*batch)) rest.push_back(value);
      }
    EXPECT_EQ(state.position, stop * 7);
    EXPECT_EQ(rest,
              std::vector<std::uint64_t>(order.begin() + static_cast<std::ptrdiff_t>(state.position), order.end()));
  }
}

TEST(Pipeline, RepeatsEpochsAndEndsWhereTheFirstRunWouldHave) {
  const Dataset dataset = numbers(10).shuffle(1).batch(4).repeat(3).prefetch(5);
  std::vector<std::uint64_t> all;
  for (std::uint64_t epoch : {3, 4, 5})
    for (std::uint64_t value : expected(dataset, epoch)) all.push_back(value);
  auto whole = dataset.iterate({3, 0});
  EXPECT_EQ(drain(whole), all);
  EXPECT_EQ(whole.state(), (DatasetState{6, 0}));
  auto part = dataset.iterate({4, 4});
  EXPECT_EQ(drain(part), std::vector<std::uint64_t>(all.begin() + 14, all.end()));
  auto endless = numbers(3).batch(2).repeat(0).prefetch(2).iterate();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(endless.next());
  EXPECT_EQ(endless.state(), (DatasetState{50, 0}));
}

TEST(Pipeline, EmptyDatasetsAndRemaindersEnd) {
  auto none = numbers(0).batch(4).prefetch(1).iterate();
  EXPECT_FALSE(none.next());
  auto dropped = numbers(3).batch(4, true).repeat(1000000000).iterate();
  EXPECT_FALSE(dropped.next());
  EXPECT_THROW(numbers(3).batch(4, true).repeat(0).iterate(), Error);
  auto empty_share = numbers(1).batch(1).shard(1, 2).iterate();
  const auto batch = empty_share.next();
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->size(), 0u);
  EXPECT_EQ(batch->form(), (SampleForm{DType::uint16, {1}}));
}

TEST(Pipeline, ASlowSampleDelaysOnlyItsBatch) {
  std::atomic<bool> release = false;
  std::atomic<int> made = 0;
  const Dataset dataset = numbers(40)
                              .map(
                                  [&](Sample& sample) {
                                    while (sample.index == 1 && !release)
                                      std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                    ++made;
                                  },
                                  2)
                              .batch(4)
                              .prefetch(5);
  auto iterator = dataset.iterate();
  EXPECT_TRUE(test::eventually([&made] { return made >= 19; }));
  EXPECT_EQ(made, 19);  // all samples of the five batches but the slow one
  EXPECT_FALSE(iterator.ready_within(std::chrono::milliseconds(20)));
  EXPECT_EQ(made, 19);  // nothing beyond the window
  release = true;
  EXPECT_EQ(drain(iterator), expected(dataset, 0));
}

TEST(Pipeline, WithoutPrefetchNothingIsMadeAhead) {
  std::atomic<int> made = 0;
  auto iterator = numbers(20).map([&](Sample&) { ++made; }, 2).batch(5).iterate();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(made, 0);
  ASSERT_TRUE(iterator.next());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(made, 5);
}

TEST(Pipeline, MemoryIsReusedUnlessTheConsumerHoldsIt) {
  const Dataset dataset = numbers(400).batch(4).prefetch(3);
  std::set<const void*> places;
  auto iterator = dataset.iterate();
  while (const auto batch = iterator.next()) places.insert(batch->data().data());
  EXPECT_LE(places.size(), 5u);
  std::vector<Batch> held;
  {
    auto second = dataset.iterate();
    while (auto batch = second.next()) held.push_back(*batch);
  }
  std::vector<std::uint64_t> all;
  for (const Batch& batch : held)
    for (std::uint64_t value : values(batch)) all.push_back(value);
  EXPECT_EQ(all, expected(dataset, 0));
}

TEST(Pipeline, MapChangesFormDataAndLabel) {
  const Dataset doubled = numbers(9).map([](Sample& sample) {
    sample.form = {DType::uint8, {2, 2}};
    sample.data = {sample.data[0], sample.data[0], sample.data[1], sample.data[1]};
    sample.label = -static_cast<std::int64_t>(sample.index);
  });
  auto iterator = doubled.batch(4).iterate();
  std::uint64_t index = 0;
  while (const auto batch = iterator.next()) {
    EXPECT_EQ(batch->form(), (SampleForm{DType::uint8, {2, 2}}));
    for (std::uint64_t i = 0; i < batch->size(); ++i, ++index) {
      EXPECT_EQ(std::to_integer<std::uint64_t>(batch->sample(i)[1]), index);
      EXPECT_EQ(batch->labels()[i], -static_cast<std::int64_t>(index));
    }
  }
  EXPECT_EQ(index, 9u);
  auto uneven = numbers(9)
                    .map([](Sample& sample) {
                      sample.data.resize(2 + 2 * (sample.index % 2));
                      sample.form.shape = {1 + sample.index % 2};
                    })
                    .batch(3)
                    .iterate();
  EXPECT_THROW(uneven.next(), Error);
}

TEST(Pipeline, ParallelCallsOfAMapAreLimited) {
  std::atomic<int> now = 0, most = 0;
  auto iterator = numbers(64)
                      .map([](Sample&) {}, 4)
                      .map(
                          [&](Sample&) {
                            const int running = ++now;
                            int before = most;
                            while (before < running && !most.compare_exchange_weak(before, running)) {
                            }
                            // The first call waits until a second one runs.
                            EXPECT_TRUE(test::eventually([&most] { return most >= 2; }));
                            std::this_thread::sleep_for(std::chrono::microseconds(200));
                            --now;
                          },
                          2)
                      .batch(16)
                      .iterate();
  EXPECT_EQ(drain(iterator).size(), 64u);
  EXPECT_EQ(most, 2);
}

TEST(Pipeline, CacheKeepsWhatItsStagesMade) {
  for (bool late : {false, true}) {
    std::atomic<int> calls = 0;
    const auto count = [&](Sample&) { ++calls; };
    const Dataset dataset =
        (late ? numbers(30).map(count).cache() : numbers(30).cache().map(count)).shuffle(1).batch(7);
    for (std::uint64_t epoch : {0, 1, 2}) {
      auto iterator = dataset.iterate({epoch, 0});
      EXPECT_EQ(drain(iterator), expected(dataset, epoch));
      EXPECT_EQ(iterator.stats().read_bytes, epoch == 0 ? 60u : 0u);
    }
    EXPECT_EQ(calls, late ? 30 : 90);
  }
}

TEST(Pipeline, UndecodedSamplesKeepTheirSizes) {
  std::vector<std::vector<std::byte>> samples;
  for (std::size_t i = 0; i < 10; ++i) samples.emplace_back(i, static_cast<std::byte>(i));
  auto iterator = Dataset::from_bytes(samples).batch(4).prefetch(2).iterate();
  std::size_t i = 0;
  while (const auto batch = iterator.next()) {
    EXPECT_TRUE(batch->ragged());
    for (std::uint64_t k = 0; k < batch->size(); ++k, ++i)
      EXPECT_TRUE(std::ranges::equal(batch->sample(k), samples[i]));
  }
  EXPECT_EQ(i, 10u);
}

TEST(Pipeline, BadFilesAreSkippedInPlaceAndRecorded) {
  const Folder folder;
  std::vector<std::string> paths;
  std::vector<std::int64_t> labels;
  const auto good = make_jpeg({});
  for (int i = 0; i < 12; ++i) {
    const std::string name = std::to_string(i) + ".jpg";
    labels.push_back(i);
    if (i == 2)
      paths.push_back(folder.path("missing.jpg"));
    else if (i == 5)
      paths.push_back(folder.write(name, {good.begin(), good.begin() + 300}));
    else if (i == 6)
      paths.push_back(folder.write(name, {}));
    else if (i == 7)
      paths.push_back("/proc/self/mem");  // reading its first byte gives EIO
    else if (i == 8)
      paths.push_back(std::filesystem::temp_directory_path());
    else
      paths.push_back(folder.write(name, make_jpeg({}, 100 + i)));
  }
  const Dataset base = Dataset::from_files(paths, labels).decode({"jpeg", {8, 8, 3}, DType::uint8, 0});
  auto iterator = base.ignore_errors().batch(3).prefetch(2).iterate();
  std::vector<std::int64_t> seen;
  std::vector<std::uint64_t> sizes;
  while (const auto batch = iterator.next()) {
    sizes.push_back(batch->size());
    for (std::uint64_t i = 0; i < batch->size(); ++i) {
      seen.push_back(batch->labels()[i]);
      // The corner of the image identifies it: compaction moved the right pixels.
      EXPECT_NEAR(std::to_integer<int>(batch->sample(i)[0]), (100 + seen.back()) / 2 + 4, 4);
    }
  }
  EXPECT_EQ(seen, (std::vector<std::int64_t>{0, 1, 3, 4, 9, 10, 11}));
  EXPECT_EQ(sizes, (std::vector<std::uint64_t>{2, 2, 0, 3}));
  const auto skipped = iterator.skipped();
  ASSERT_EQ(skipped.size(), 5u);
  EXPECT_EQ(iterator.stats().skipped, 5u);
  const char* reasons[] = {"No such file", "JPEG", "Empty", "Input/output error", "regular file"};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(skipped[i].path, paths[skipped[i].index]);
    EXPECT_EQ(skipped[i].position, skipped[i].index);
    EXPECT_NE(skipped[i].reason.find(reasons[i]), std::string::npos) << skipped[i].reason;
  }

  auto limited = base.ignore_errors({1}).batch(3).iterate();
  EXPECT_TRUE(limited.next());
  EXPECT_THROW(limited.next(), Error);
}

TEST(Pipeline, AnErrorNamesTheFileAndComesInOrder) {
  const Folder folder;
  std::vector<std::string> paths;
  for (int i = 0; i < 9; ++i) paths.push_back(folder.write(std::to_string(i) + ".jpg", make_jpeg({})));
  paths[4] = folder.path("lost.jpg");
  paths[5] = folder.write("5.jpg", {std::byte{1}});
  auto iterator =
      Dataset::from_files(paths).decode({"auto", {8, 8, 3}, DType::uint8, 0}).batch(3).prefetch(3).iterate();
  EXPECT_TRUE(iterator.next());
  for (int i = 0; i < 2; ++i) {
    try {
      iterator.next();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::not_found);
      EXPECT_NE(error.message().find(paths[4]), std::string::npos);
    }
    EXPECT_EQ(iterator.state(), (DatasetState{0, 3}));
  }
}

TEST(Pipeline, IgnoreErrorsCoversWhatStandsBeforeIt) {
  const auto fail = [](Sample& sample) {
    if (sample.index == 3) throw std::runtime_error("three");
  };
  auto covered = numbers(6).map(fail).ignore_errors().batch(6).iterate();
  EXPECT_EQ(covered.next()->size(), 5u);
  EXPECT_NE(covered.skipped().at(0).reason.find("three"), std::string::npos);
  auto uncovered = numbers(6).ignore_errors().map(fail).batch(6).iterate();
  EXPECT_THROW(uncovered.next(), Error);
}

TEST(Pipeline, LimitsAreErrorsOfTheirSample) {
  const Folder folder;
  const std::string small = folder.write("small", make_jpeg({})), large = folder.path("sparse");
  folder.write("sparse", {});
  std::error_code refused;
  std::filesystem::resize_file(large, std::uintmax_t{1} << 61, refused);
  if (refused) std::filesystem::resize_file(large, std::uintmax_t{1} << 40);
  const Dataset base = Dataset::from_files({small, large, small}).decode({"auto", {8, 8, 3}, DType::uint8, 0});
  auto ignoring = base.ignore_errors().batch(3).iterate();
  EXPECT_EQ(ignoring.next()->size(), 2u);
  EXPECT_NE(ignoring.skipped().at(0).reason.find("limit of 1073741824 bytes"), std::string::npos);
  auto strict = base.batch(3).iterate();
  try {
    strict.next();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find(large), std::string::npos) << error.message();
  }
  auto pixels = base.limits({.bytes = 1 << 20, .pixels = 64 * 48 - 1}).ignore_errors().batch(3).iterate();
  EXPECT_EQ(pixels.next()->size(), 0u);
  EXPECT_NE(pixels.skipped().at(0).reason.find("limit of 3071"), std::string::npos);
  EXPECT_THROW(base.limits({.bytes = 0}), Error);
}

TEST(Pipeline, ASampleThatTakesTooLongIsGivenUp) {
  std::atomic<bool> release = false;
  std::weak_ptr<int> threads;  // each keeps the functions
  {
    const auto kept = std::make_shared<int>();
    threads = kept;
    const auto wait = [&release, kept](Sample& sample) {
      while (sample.index % 5 == 2 && !release) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    const Dataset base = numbers(12).map(wait, 2).limits({.time = std::chrono::milliseconds(100)});
    auto iterator = base.ignore_errors().batch(4).prefetch(2).iterate();
    std::vector<std::uint64_t> all = drain(iterator);
    for (const std::uint64_t delivered : all) EXPECT_NE(delivered % 5, 2u);
    for (const SkippedSample& skipped : iterator.skipped()) {  // on a slow machine others, too
      EXPECT_NE(skipped.reason.find("limit of 100 ms"), std::string::npos) << skipped.reason;
      all.push_back(skipped.index);
    }
    std::ranges::sort(all);
    EXPECT_EQ(all, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    auto strict = base.batch(4).iterate();
    EXPECT_THROW(strict.next(), Error);
  }  // the destructors return before the functions do
  release = true;
  EXPECT_TRUE(test::eventually([&threads] { return threads.expired(); }));
}

TEST(Pipeline, AFunctionCanAskWhetherItsSampleWasGivenUp) {
  std::atomic<int> begun = 0, left = 0, later = 0;
  std::weak_ptr<int> threads;  // each keeps the functions
  {
    const auto kept = std::make_shared<int>();
    threads = kept;
    const auto wait = [&begun, &left, kept](Sample& sample) {
      if (sample.index != 3) return;
      ++begun;
      while (!sample_is_given_up()) std::this_thread::yield();
      ++left;
    };
    const Dataset dataset = numbers(6)
                                .map(wait, 2)
                                .map([&later](Sample& sample) { later += sample.index == 3; })
                                .limits({.time = std::chrono::milliseconds(100)})
                                .ignore_errors();
    auto iterator = dataset.batch(2).prefetch(3).iterate();
    EXPECT_TRUE(test::eventually([&begun] { return begun == 1; }));  // only who waits for a batch gives a sample up
    EXPECT_EQ(std::ranges::count(drain(iterator), 3u), 0);           // on a slow machine others are given up, too
  }
  EXPECT_TRUE(test::eventually([&threads] { return threads.expired(); }));
  EXPECT_EQ(left, 1);
  EXPECT_EQ(later, 0);
  EXPECT_FALSE(sample_is_given_up());
}

TEST(Pipeline, NoFunctionBeginsOnceItsThreadWasInterrupted) {
  for (const bool closing : {false, true}) {
    std::atomic<int> reads = 0, maps = 0;
    std::atomic<bool> interrupted = false;
    ObjectSource source;
    source.size = 1;
    source.get = [&](std::uint64_t index) {
      ++reads;
      interrupted.wait(false);  // what comes after this read is not interrupted
      return std::make_shared<std::uint64_t>(index);
    };
    source.name = [](std::uint64_t) { return "the sample"; };
    ObjectCalls calls;
    calls.interrupt = [&](std::uint64_t) {
      interrupted = true;
      interrupted.notify_all();
      return "in its read";
    };
    calls.collate = [](std::span<const std::shared_ptr<void>> samples) {
      return ObjectCalls::Collated{samples.front(), 8};
    };
    const Dataset dataset = Dataset::from_objects(source)
                                .objects(calls)
                                .map([&maps](Sample&) { ++maps; }, 1)
                                .limits({.time = std::chrono::milliseconds(10)})
                                .ignore_errors();
    auto iterator = dataset.batch(1).prefetch(1).iterate();
    EXPECT_TRUE(test::eventually([&reads] { return reads == 1; }));
    if (!closing) {
      EXPECT_EQ(iterator.next()->size(), 0u);
    }
    iterator.close();
    EXPECT_TRUE(test::eventually([] { return test::other_threads("penstock-loader").empty(); }));
    EXPECT_EQ(maps, 0);
  }
}

TEST(Pipeline, ThreadsThatWaitForTheirTurnEndWithTheirIterator) {
  std::atomic<int> begun = 0;
  std::atomic<bool> interrupted = false;
  ObjectCalls calls;
  calls.interrupt = [&interrupted](std::uint64_t) {
    interrupted = true;
    interrupted.notify_all();
    return "in its function";
  };
  calls.collate = [](std::span<const std::shared_ptr<void>>) { return ObjectCalls::Collated{}; };
  const auto wait = [&](Sample&) {
    ++begun;
    interrupted.wait(false);
  };
  const Dataset dataset = numbers(3).objects(calls).map(wait, 1).budget({3, 0});
  auto iterator = dataset.limits({.time = std::chrono::milliseconds(10)}).batch(3).prefetch(1).iterate();
  EXPECT_TRUE(test::eventually([&begun] { return begun == 1; }));
  EXPECT_TRUE(test::come_to_rest("penstock-loader"));
  iterator.close();
  EXPECT_TRUE(test::eventually([] { return test::other_threads("penstock-loader").empty(); }));
  EXPECT_EQ(begun, 1);
}

TEST(Pipeline, AForkedChildGetsAnErrorAndEndsCleanly) {
  const Dataset dataset = numbers(40).cache().map([](Sample&) {}, 2).batch(4).prefetch(3);
  auto iterator = std::make_unique<DatasetIterator>(dataset.iterate());
  const auto held = iterator->next();
  const pid_t child = test::fork_beside_threads("penstock-loader");
  if (child == 0) {
    int result = 1;
    try {
      iterator->next();
    } catch (const Error& error) {
      result = error.code() == ErrorCode::unsupported ? 0 : 2;
    }
    iterator.reset();
    auto own = dataset.iterate();
    if (drain(own).size() != 40) result = 3;
    _exit(result);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(drain(*iterator).size(), 36u);
}

TEST(Pipeline, ReplacementsAreTheSameForAnyThreadsAndBatches) {
  const auto fail = [](Sample& sample) {
    if (sample.index % 3 == 0) throw std::runtime_error("a third");
  };
  std::vector<std::uint64_t> first;
  for (int threads : {1, 4})
    for (std::uint64_t batch : {5, 30}) {
      const Dataset dataset = numbers(30).shuffle(1).map(fail, threads).ignore_errors({.replace = true}).batch(batch);
      auto iterator = dataset.prefetch(3).iterate({2, 0});
      const auto seen = drain(iterator);
      EXPECT_EQ(seen.size(), 30u);
      for (const std::uint64_t value : seen) EXPECT_NE(value % 3, 0u);
      if (first.empty()) first = seen;
      EXPECT_EQ(seen, first);
      EXPECT_EQ(iterator.skipped().size(), 10u);
      EXPECT_EQ(iterator.state(), (DatasetState{3, 0}));
    }
}

TEST(Pipeline, PrefetchStaysWithinItsBytes) {
  std::atomic<int> made = 0;
  const auto count = [&](Sample&) { ++made; };
  auto iterator = numbers(100).map(count, 2).batch(10).prefetch(8, 3 * 20 + 10).iterate();
  EXPECT_TRUE(test::eventually([&made] { return made >= 30; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(made, 30);
  ASSERT_TRUE(iterator.next());
  EXPECT_TRUE(test::eventually([&made] { return made >= 40; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(made, 40);
  EXPECT_EQ(drain(iterator).size(), 90u);
  // One batch is made even if it is larger than the limit in bytes.
  auto single = numbers(20).map(count).batch(10).prefetch(8, 1).iterate();
  EXPECT_EQ(drain(single).size(), 20u);
  // Undecoded samples count, too.
  std::atomic<int> reads = 0;
  ReaderSource reader;
  reader.size = 100;
  reader.read = [&reads](std::uint64_t, std::uint64_t, std::vector<std::byte>& buffer) {
    buffer.resize(2);
    ++reads;
    return std::uint64_t{2};
  };
  auto undecoded = Dataset::from_reader(reader).batch(10).prefetch(8, 3 * 20 + 10).iterate();
  EXPECT_TRUE(test::eventually([&reads] { return reads >= 30; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(reads, 30);
}

/// Files of many sizes, and one that is larger than all others together.
struct Files {
  static constexpr std::uint64_t kMost = 4000, kHuge = 1 << 20;
  Folder folder;
  std::vector<std::string> paths;
  std::vector<std::uint64_t> sizes;
  Files() {
    std::mt19937 random(5);
    for (std::uint64_t i = 0; i < 60; ++i) {
      sizes.push_back(i == 33 ? kHuge : random() % kMost);
      paths.push_back(folder.write(std::to_string(i), std::vector<std::byte>(sizes.back(), std::byte{1})));
    }
  }
};

TEST(Pipeline, SamplesOfAnySizePassAnyBudgetInOrder) {
  const Files files;
  const auto grow = [](Sample& sample) {
    sample.data.resize(sample.data.size() + 100);
    sample.form.shape = {sample.data.size()};
  };
  ReaderSource reader;
  reader.size = files.paths.size();
  reader.read = [&files](std::uint64_t index, std::uint64_t, std::vector<std::byte>& buffer) {
    if (buffer.size() < files.sizes[index]) buffer.resize(files.sizes[index]);
    return files.sizes[index];
  };
  for (const bool told : {true, false})
    for (const bool maps : {false, true})
      for (const std::uint64_t ram_bytes : {1, 5000, 40000, 1 << 21})
        for (const int threads : {1, 3, 8}) {
          SCOPED_TRACE("sizes told " + std::to_string(told) + ", map " + std::to_string(maps) + ", budget " +
                       std::to_string(ram_bytes) + ", threads " + std::to_string(threads));
          const Dataset files_or_reader = told ? Dataset::from_files(files.paths) : Dataset::from_reader(reader);
          Dataset base = files_or_reader.shuffle(3).budget({threads, ram_bytes});
          if (maps) base = base.map(grow);
          auto iterator = base.batch(maps ? 1 : 4).prefetch(6).iterate();
          std::uint64_t position = 0;
          while (const auto batch = iterator.next())
            for (std::uint64_t i = 0; i < batch->size(); ++i, ++position) {
              const std::uint64_t index = base.index_at(0, position);
              ASSERT_EQ(batch->indices()[i], index);
              ASSERT_EQ(batch->sample(i).size(), files.sizes[index] + (maps ? 100 : 0));
            }
          EXPECT_EQ(position, files.paths.size());
          EXPECT_EQ(iterator.stats().threads, static_cast<std::uint64_t>(threads));
        }
}

TEST(Pipeline, WhatItHoldsStaysInTheBudget) {
  Folder folder;
  constexpr std::uint64_t kBytes = 10000, kBudget = 20 * kBytes;
  std::vector<std::string> paths;
  for (int i = 0; i < 200; ++i)
    paths.push_back(folder.write(std::to_string(i), std::vector<std::byte>(kBytes, std::byte{1})));
  for (const bool decoded : {false, true}) {
    Dataset base = Dataset::from_files(paths);
    if (decoded) base = base.decode({"none", {kBytes}, DType::uint8, 0});
    auto iterator = base.budget({8, kBudget}).batch(3).prefetch(100).iterate();
    std::uint64_t samples = 0;
    while (const auto batch = iterator.next()) samples += batch->size();
    EXPECT_EQ(samples, 200u);
    // A batch and a sample more: those whose turn it is may always go on.
    EXPECT_LE(iterator.stats().held_bytes, kBudget + 4 * (kBytes + 1));
    EXPECT_GE(iterator.stats().held_bytes, 3 * kBytes);
  }
}

// A thread may take long to lay a batch together. The samples behind it wait for its memory.
TEST(Pipeline, WhatItHoldsStaysInTheBudgetWhileBatchesAreLaidTogether) {
  constexpr std::uint64_t kBytes = 10000, kBudget = 20 * kBytes + kBytes / 2;
  std::atomic<int> collated = 0;
  std::promise<void> may_read, may_collate;
  const std::shared_future<void> reads = may_read.get_future().share(), collates = may_collate.get_future().share();
  ObjectSource source;
  source.size = 90;
  source.get = [&](std::uint64_t index) -> std::shared_ptr<void> {
    if (index >= 3) reads.wait();
    return std::make_shared<std::uint64_t>(index);
  };
  source.name = [](std::uint64_t index) { return "number " + std::to_string(index); };
  ObjectCalls calls;
  calls.size_bytes = [](const std::shared_ptr<void>&) { return kBytes; };
  calls.collate = [&](std::span<const std::shared_ptr<void>> samples) {
    // The first batch tells what the others take.
    if (++collated > 1) collates.wait();
    return ObjectCalls::Collated{samples.front(), 8};
  };
  auto iterator = Dataset::from_objects(source).objects(calls).budget({40, kBudget}).batch(3).prefetch(100).iterate();
  std::uint64_t samples = iterator.next()->size();
  EXPECT_TRUE(test::come_to_rest("penstock-loader"));  // 20 threads read, the others wait for memory
  may_read.set_value();
  EXPECT_TRUE(test::eventually([&collated] { return collated > 1; }));
  EXPECT_TRUE(test::come_to_rest("penstock-loader"));
  EXPECT_LE(iterator.stats().held_bytes, kBudget + 4 * kBytes);
  may_collate.set_value();
  while (const auto batch = iterator.next()) samples += batch->size();
  EXPECT_EQ(samples, 90u);
}

/// Samples of a source whose reads take at least this long.
Dataset slow_reads(std::chrono::milliseconds each) {
  ReaderSource source;
  source.size = 400;
  source.read = [each](std::uint64_t index, std::uint64_t, std::vector<std::byte>& buffer) {
    std::this_thread::sleep_for(each);
    buffer.assign({static_cast<std::byte>(index & 255), static_cast<std::byte>(index >> 8)});
    return std::uint64_t{2};
  };
  return Dataset::from_reader(source);
}

TEST(Pipeline, MoreThreadsReadAheadIfTheProgramWaitsForReads) {
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  const auto counts = [&](Sample&) {
    const int now = ++inside;
    for (int known = most; now > known && !most.compare_exchange_weak(known, now);) {
    }
    --inside;
  };
  const Dataset base = slow_reads(std::chrono::milliseconds(2)).shuffle(4);
  const Dataset dataset = base.map(counts).budget({.cpus = 2}).batch(10).prefetch(8).repeat(0);
  auto iterator = dataset.iterate();
  std::uint64_t position = 0;
  EXPECT_TRUE(test::eventually([&] {
    const auto batch = iterator.next();
    for (std::uint64_t i = 0; i < batch->size(); ++i, ++position)
      EXPECT_EQ(batch->indices()[i], base.index_at(position / 400, position % 400));
    return iterator.stats().readers >= 4;
  }));
  EXPECT_EQ(iterator.stats().threads, 2u);
  EXPECT_LE(most, 2) << "they only read";
}

TEST(Pipeline, ASourceThatFetchesAheadNeedsNoMoreReaders) {
  ReaderSource source;
  source.size = 400;
  source.announce = [](std::span<const std::uint64_t>) {};
  source.read = [](std::uint64_t, std::uint64_t, std::vector<std::byte>& buffer) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    buffer.resize(1);
    return std::uint64_t{1};
  };
  auto iterator = Dataset::from_reader(source).batch(10).prefetch(8).iterate();
  while (iterator.next()) EXPECT_EQ(iterator.stats().readers, 0u);
}

TEST(Pipeline, ANumberOfThreadsThatWasGivenStays) {
  auto iterator = slow_reads(std::chrono::milliseconds(1)).map([](Sample&) {}, 2).batch(10).prefetch(8).iterate();
  while (iterator.next()) EXPECT_EQ(iterator.stats().readers, 0u);
}

TEST(Pipeline, ThePrefetchGrowsUntilAllThreadsHaveWork) {
  constexpr int kThreads = 6;
  std::mutex mutex;
  std::condition_variable all_here;
  int here = 0;
  bool open = false;
  // Nobody gets through before all threads have a sample at the same time: six batches of one.
  const auto meet = [&](Sample&) {
    std::unique_lock lock(mutex);
    open = open || ++here == kThreads;
    all_here.notify_all();
    EXPECT_TRUE(all_here.wait_for(lock, test::kHung, [&] { return open; }));
  };
  auto iterator = numbers(100).map(meet, kThreads).batch(1).prefetch(2, 0, true, true).iterate();
  EXPECT_EQ(drain(iterator).size(), 100u);
  EXPECT_GE(iterator.stats().prefetch, static_cast<std::uint64_t>(kThreads));
}

TEST(Pipeline, ThePrefetchStaysIfItWasGivenAndGrowsNoFurtherThanItsBytes) {
  for (const bool adapts : {false, true}) {
    auto iterator = numbers(200).map([](Sample&) {}, 4).batch(1).prefetch(2, adapts ? 8 : 0, true, adapts).iterate();
    EXPECT_EQ(drain(iterator).size(), 200u);
    EXPECT_LE(iterator.stats().prefetch, adapts ? 8u : 2u);
  }
}

TEST(Pipeline, ASourceThatCouldFetchMoreGetsMore) {
  std::mutex mutex;
  std::condition_variable told;
  std::uint64_t announced = 0;
  ReaderSource source;
  source.size = 64;
  source.announce = [&](std::span<const std::uint64_t> indices) {
    const std::lock_guard lock(mutex);
    announced += indices.size();
    told.notify_all();
  };
  source.wants_more = [] { return true; };
  source.read = [&](std::uint64_t, std::uint64_t, std::vector<std::byte>& buffer) {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(told.wait_for(lock, test::kHung, [&] { return announced >= 32; })) << announced << " announced";
    buffer.resize(1);
    return std::uint64_t{1};
  };
  auto iterator = Dataset::from_reader(source).batch(4).prefetch(2, 0, true, true).iterate();
  while (!iterator.ready_within(std::chrono::milliseconds(1))) {
  }
  std::uint64_t samples = 0;
  while (const auto batch = iterator.next()) samples += batch->size();
  EXPECT_EQ(samples, 64u);
}

TEST(Pipeline, ObjectsAreLaidTogetherByTheProgram) {
  ObjectSource source;
  source.size = 10;
  source.get = [](std::uint64_t index) -> std::shared_ptr<void> {
    if (index == 4) throw std::runtime_error("four");
    return std::make_shared<std::uint64_t>(index);
  };
  source.name = [](std::uint64_t index) { return "number " + std::to_string(index); };
  ObjectCalls calls;
  calls.collate = [](std::span<const std::shared_ptr<void>> samples) {
    auto sum = std::make_shared<std::uint64_t>(0);
    for (const auto& sample : samples) *sum += *static_cast<const std::uint64_t*>(sample.get());
    return ObjectCalls::Collated{sum, 8};
  };
  calls.copy = [](const std::shared_ptr<void>& object) {
    return std::make_shared<std::uint64_t>(*static_cast<const std::uint64_t*>(object.get()));
  };
  const Dataset base = Dataset::from_objects(source).objects(calls);
  const auto change = [](Sample& sample) {
    *static_cast<std::uint64_t*>(sample.object.get()) += 100;
    sample.keep = sample.index != 9;
  };
  const Dataset dataset = base.cache().map(change).ignore_errors().batch(5).prefetch(1);
  for (int epoch = 0; epoch < 2; ++epoch) {  // the cached objects do not change
    auto iterator = dataset.iterate();
    const auto first = iterator.next(), second = iterator.next();
    EXPECT_EQ(first->size(), 4u);
    EXPECT_EQ(*static_cast<const std::uint64_t*>(first->object().get()), 0u + 1 + 2 + 3 + 400);
    EXPECT_EQ(second->size(), 4u);
    EXPECT_EQ(*static_cast<const std::uint64_t*>(second->object().get()), 5u + 6 + 7 + 8 + 400);
    ASSERT_EQ(iterator.skipped().size(), 1u);
    EXPECT_EQ(iterator.skipped()[0].path, "number 4");
  }
  auto undecodable = base.decode({"auto", {8, 8, 3}, DType::uint8, 0}).batch(1).iterate();
  EXPECT_THROW(undecodable.next(), Error);
  auto untold = Dataset::from_objects(source).batch(2).iterate();
  EXPECT_THROW(untold.next(), Error);
}

TEST(Pipeline, CanBeDestroyedAtAnyTime) {
  const Dataset dataset = numbers(200)
                              .map([](Sample&) { std::this_thread::sleep_for(std::chrono::microseconds(50)); }, 4)
                              .batch(8)
                              .prefetch(4);
  std::vector<Batch> held;
  for (int after = 0; after < 25; ++after) {
    auto iterator = dataset.iterate();
    for (int i = 0; i < after; ++i) {
      auto batch = iterator.next();
      if (i % 5 == 0) held.push_back(*batch);
    }
    if (after % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100 * after));
  }
  for (const Batch& batch : held) EXPECT_EQ(values(batch).size(), 8u);
}

TEST(Dataset, StagesThatDoNotFitAreRefused) {
  const Dataset base = numbers(10);
  EXPECT_THROW(base.iterate(), Error);
  EXPECT_THROW(base.batches(), Error);
  EXPECT_THROW(base.batch(0), Error);
  EXPECT_THROW(base.batch(2).batch(2), Error);
  EXPECT_THROW(base.prefetch(2), Error);
  EXPECT_THROW(base.batch(2).prefetch(-1), Error);
  EXPECT_THROW(base.batch(2).shuffle(1), Error);
  EXPECT_THROW(base.shard(0, 2).shuffle(1), Error);
  EXPECT_THROW(base.shard(0, 2).take(1), Error);
  EXPECT_THROW(base.shard(2, 2), Error);
  EXPECT_THROW(base.shard(0, 0), Error);
  EXPECT_THROW(base.shard(0, 2).batch(2).shard(0, 2), Error);
  EXPECT_THROW(base.batch(2).map([](Sample&) {}), Error);
  EXPECT_THROW(base.map(nullptr), Error);
  EXPECT_THROW(base.decode({}), Error);
  EXPECT_THROW(base.cache().cache(), Error);
  EXPECT_THROW(base.ignore_errors({-2}), Error);
  EXPECT_THROW(base.batch(2).iterate({0, 11}), Error);
  EXPECT_THROW(base.index_at(0, 10), Error);
  EXPECT_THROW(Dataset::from_files({"a", "b"}, {1}), Error);
  EXPECT_THROW(Dataset::interleave({}), Error);
  const std::vector<Dataset> decoded{base};
  EXPECT_THROW(Dataset::interleave(decoded), Error);
}

/// Samples that a stage holds back until they are let go.
class Gate {
 public:
  explicit Gate(std::set<std::uint64_t> held) : held_(std::move(held)) {}
  void pass(std::uint64_t index) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !held_.contains(index); });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    held_.clear();
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::uint64_t> held_;
};

TEST(Pipeline, BatchesOutOfOrderOvertakeASlowOneAndTheStateKnowsThem) {
  for (const std::uint64_t slow : {0u, 13u, 22u}) {
    const auto gate = std::make_shared<Gate>(std::set{slow});
    const Dataset dataset = numbers(24).map([gate](Sample& sample) { gate->pass(sample.index); }, 3);
    auto first = dataset.batch(4).prefetch(3, 0, false).iterate();
    std::multiset<std::uint64_t> given;
    for (int b = 0; b < 5; ++b)
      for (const std::uint64_t value : values(*first.next())) given.insert(value);
    const DatasetState state = first.state();
    EXPECT_EQ(state.position, slow / 4 * 4);
    EXPECT_FALSE(given.contains(slow));
    EXPECT_LE(state.given.size(), 1u);
    gate->open();
    EXPECT_EQ(first.next()->size(), 4u);
    EXPECT_FALSE(first.next());
    EXPECT_EQ(first.state(), (DatasetState{1, 0}));

    for (const bool in_order : {true, false})
      for (const std::uint64_t batch : {3u, 4u, 9u, 24u}) {
        auto second = dataset.batch(batch).prefetch(2, 0, in_order).iterate(state);
        std::multiset<std::uint64_t> all = given;
        while (const auto next = second.next())
          for (const std::uint64_t value : values(*next)) all.insert(value);
        EXPECT_TRUE(std::ranges::equal(all, expected(numbers(24), 0))) << slow << " " << batch;
        EXPECT_EQ(second.state(), (DatasetState{1, 0}));
      }
  }
}

TEST(Pipeline, StatesOfRanksOutOfOrderMergeToThatOfAll) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const bool after = round % 2 == 0;
    const int size = 1 + round % 4;
    const std::uint64_t repeat = 1 + round % 3;
    const auto of_rank = [&](int rank, int ranks, std::uint64_t batch, const std::shared_ptr<Gate>& gate) {
      Dataset base = numbers(37).shuffle(8).map([gate](Sample& sample) { gate->pass(sample.index); }, 5);
      base = after ? base.batch(batch).shard(rank, ranks) : base.shard(rank, ranks).batch(batch);
      return base.repeat(repeat).prefetch(4, 0, false);
    };
    std::multiset<std::uint64_t> seen;
    std::vector<DatasetState> states;
    std::vector<Dataset> parts;
    for (int rank = 0; rank < size; ++rank) {
      const auto gate = std::make_shared<Gate>(std::set<std::uint64_t>{random() % 37});
      parts.push_back(of_rank(rank, size, 5, gate));
      auto iterator = parts.back().iterate();
      const auto taken = random() % (parts.back().batches() * repeat + 1);
      for (std::uint64_t b = 0; b < taken; ++b) {
        if (2 * b >= taken) gate->open();
        for (const std::uint64_t value : values(*iterator.next())) seen.insert(value);
      }
      states.push_back(iterator.state());
      gate->open();
    }
    const DatasetState merged = parts[0].merge(states);
    if (merged.epoch == repeat) continue;  // all was given
    const auto open = std::make_shared<Gate>(std::set<std::uint64_t>{});
    const int others = 1 + static_cast<int>(random() % 3);
    std::set<std::uint64_t> batches;
    for (int rank = 0; rank < others; ++rank) {
      auto iterator = of_rank(rank, others, 4, open).iterate(merged);
      std::uint64_t count = 0;
      for (; const auto batch = iterator.next(); ++count)
        for (const std::uint64_t value : values(*batch)) seen.insert(value);
      batches.insert(count);
      EXPECT_EQ(iterator.state(), (DatasetState{repeat, 0}));
    }
    EXPECT_EQ(batches.size(), 1u) << "all ranks get the same number of batches";
    ASSERT_EQ(seen.size(), 37 * repeat) << round;
    for (std::uint64_t i = 0; i < 37; ++i) ASSERT_EQ(seen.count(i), repeat) << round << " sample " << i;
  }
}

TEST(Dataset, InterleavedFilesKeepTheirNamesAndLabels) {
  const Folder folder;
  std::vector<Dataset> parts;
  for (int part = 0; part < 2; ++part) {
    std::vector<std::string> paths;
    for (int i = 0; i < 3; ++i)
      paths.push_back(
          folder.write(std::to_string(part) + "-" + std::to_string(i), {static_cast<std::byte>(10 * part + i)}));
    parts.push_back(Dataset::from_files(paths, {10 * part, 10 * part + 1, 10 * part + 2}));
  }
  auto iterator = Dataset::interleave(parts).batch(6).iterate();
  const auto batch = iterator.next();
  EXPECT_TRUE(std::ranges::equal(batch->labels(), std::vector<std::int64_t>{0, 10, 1, 11, 2, 12}));
  for (std::uint64_t i = 0; i < 6; ++i)
    EXPECT_EQ(std::to_integer<std::int64_t>(batch->sample(i)[0]), batch->labels()[i]);
}

}  // namespace
}  // namespace penstock
