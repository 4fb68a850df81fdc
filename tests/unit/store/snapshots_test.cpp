// Operations on snapshots: tags, differences, compaction and clones; and the removal of blobs.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "eventually.hpp"
#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "store/backend.hpp"
#include "store/blob_state.hpp"
#include "unit/store/outcomes.hpp"
#include "unit/store/schemes.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kSize = 200'000;
constexpr std::chrono::seconds kNoLease{0};

class Snapshots : public testing::TestWithParam<std::string> {
 protected:
  Snapshots() : url_(store::test_url(GetParam(), directory_)), store_(url_, {.durable = false}) {
    truth_.emplace_back(kSize);
    blob_ = store_.create("field", {.size_bytes = kSize});
  }

  /// Each version writes two regions of random size. Some are small enough to be stored in the record.
  void write_versions(int count) {
    for (int i = 0; i < count; ++i) {
      const std::size_t size = random_() % 3 == 0 ? 50 : 5'000 + random_() % 20'000;
      const std::vector<std::byte> data(size, static_cast<std::byte>(1 + random_() % 250));
      const WriteRegion regions[] = {{random_() % 60'000, data}, {100'000 + random_() % 60'000, data}};
      const std::uint64_t version = blob_->write(regions);
      // A collector may have used numbers for fences, and may have voided slower writes.
      while (truth_.size() < version) truth_.push_back(truth_.back());
      auto next = truth_.back();
      for (const WriteRegion& region : regions) {
        std::copy(data.begin(), data.end(), next.begin() + static_cast<std::ptrdiff_t>(region.offset_bytes));
      }
      truth_.push_back(std::move(next));
      ASSERT_EQ(version, truth_.size() - 1);
    }
  }

  Blob reopened(const std::string& name = "field") { return Store(url_, {.create = false}).open(name); }
  void expect_sound() {
    const CheckReport report = store_.check();
    EXPECT_TRUE(report.problems.empty()) << report.problems.front();
  }

  const TemporaryDirectory directory_;
  const std::string url_;
  Store store_;
  std::optional<Blob> blob_;
  std::vector<std::vector<std::byte>> truth_;  ///< by version
  std::mt19937 random_{5};
};

TEST_P(Snapshots, TagsKeepVersionsFromGc) {
  write_versions(30);
  blob_->tag("begin", 3);
  blob_->tag("middle", 14);
  blob_->tag("now");
  EXPECT_EQ(code_of([&] { blob_->tag("begin", 5); }), ErrorCode::exists);
  EXPECT_EQ(blob_->tagged("now"), 30u);
  write_versions(10);
  store_.gc({.keep_last = 2, .lease = kNoLease});
  expect_sound();
  for (const std::uint64_t version : {3, 14, 30, 39, 40}) {
    EXPECT_EQ(whole(reopened().snapshot(version)), truth_[version]) << version;
    EXPECT_EQ(whole(blob_->snapshot(version)), truth_[version]) << version;
  }
  EXPECT_EQ(code_of([&] { reopened().snapshot(15); }), ErrorCode::not_found);
  EXPECT_EQ(code_of([&] { blob_->tag("late", 14); }), ErrorCode::not_found);
  const auto tags = reopened().tags();
  ASSERT_EQ(tags.size(), 3u);
  EXPECT_EQ(tags[0].name, "begin");
  EXPECT_EQ(tags[1].version, 14u);

  blob_->untag("begin");
  EXPECT_EQ(code_of([&] { blob_->untag("begin"); }), ErrorCode::not_found);
  EXPECT_EQ(code_of([&] { blob_->tagged("begin"); }), ErrorCode::not_found);
  store_.gc({.keep_last = 2, .lease = kNoLease});
  EXPECT_EQ(code_of([&] { reopened().snapshot(3); }), ErrorCode::not_found);
  EXPECT_EQ(whole(reopened().snapshot(14)), truth_[14]);
  expect_sound();
  EXPECT_EQ(store_.check().garbage_objects, 0u);
}

TEST_P(Snapshots, DifferencesAreWhatWasWrittenBetween) {
  write_versions(3);
  const std::vector<std::byte> data(6'000, std::byte{9});
  const WriteRegion regions[] = {{1'000, data}, {90'000, data}};
  blob_->write(regions);
  const WriteRegion small{95'000, ConstBytes(data).first(2'000)};
  blob_->write(std::span(&small, 1));
  EXPECT_EQ(blob_->diff(3, 4), (std::vector<Range>{{1'000, 6'000}, {90'000, 6'000}}));
  EXPECT_EQ(blob_->diff(3), (std::vector<Range>{{1'000, 6'000}, {90'000, 7'000}}));
  EXPECT_EQ(blob_->diff(5, 3), blob_->diff(3, 5));
  EXPECT_TRUE(reopened().diff(4, 4).empty());
  EXPECT_EQ(reopened().diff(4, 5), (std::vector<Range>{{95'000, 2'000}}));
  blob_->compact(4);
  EXPECT_EQ(reopened().diff(4, 5), (std::vector<Range>{{95'000, 2'000}})) << "the same bytes in another place";
  EXPECT_EQ(code_of([&] { blob_->diff(4, 77); }), ErrorCode::not_found);

  Blob log = store_.create("log", {.grows = true});
  const ConstBytes piece(data);
  log.append(std::span(&piece, 1));
  log.append(std::span(&piece, 1));
  EXPECT_EQ(log.diff(1, 2), (std::vector<Range>{{6'000, 6'000}}));
}

TEST_P(Snapshots, CompactedVersionsReadTheSameAndNeedNothingElse) {
  write_versions(40);
  blob_->compact(20);
  blob_->compact(20);
  blob_->compact();
  expect_sound();
  for (const std::uint64_t version : {19, 20, 21, 39, 40}) {
    EXPECT_EQ(whole(reopened().snapshot(version)), truth_[version]) << version;
  }
  blob_->tag("kept", 20);
  write_versions(20);
  store_.gc({.keep_last = 1, .lease = kNoLease});
  expect_sound();
  EXPECT_EQ(whole(reopened().snapshot(20)), truth_[20]);
  EXPECT_EQ(whole(reopened().snapshot()), truth_[60]);
  blob_->untag("kept");
  store_.gc({.keep_last = 1, .lease = kNoLease});
  EXPECT_EQ(code_of([&] { reopened().snapshot(20); }), ErrorCode::not_found);
  EXPECT_EQ(store_.check().garbage_objects, 0u);
}

TEST_P(Snapshots, AMapOfBeforeACompactionReadsTheCopyOnceTheRestIsCollected) {
  write_versions(6);
  Blob other = reopened();
  const Snapshot held = other.snapshot(6);
  ASSERT_EQ(whole(held), truth_[6]);
  blob_->tag("kept", 6);
  blob_->compact(6);
  write_versions(20);
  store_.gc({.keep_last = 1, .lease = kNoLease});
  EXPECT_EQ(whole(held), truth_[6]);
  EXPECT_EQ(whole(other.snapshot(6)), truth_[6]);
  blob_->untag("kept");
  store_.gc({.keep_last = 1, .lease = kNoLease});
  EXPECT_EQ(code_of([&] { whole(held); }), ErrorCode::not_found);
}

TEST_P(Snapshots, WritersAndCollectorsGoOnWhileVersionsAreCompactedAndTagged) {
  write_versions(5);
  std::atomic<bool> stop{false};
  std::thread collector([&] {
    Store store(url_, {.durable = false});
    while (!stop) store.gc({.keep_last = 6, .lease = kNoLease});
  });
  Blob other = Store(url_, {.durable = false}).open("field");
  std::vector<std::uint64_t> tagged;
  for (int i = 0; i < 40; ++i) {
    write_versions(1);
    const std::uint64_t version = truth_.size() - 2;
    try {
      if (i % 2 == 0) other.compact(version);
      other.tag("t" + std::to_string(i), version);
      tagged.push_back(version);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::not_found) << error.what();
    }
    try {
      const Snapshot snapshot = reopened().snapshot(version);
      EXPECT_EQ(whole(snapshot), truth_[version]);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::not_found) << error.what();
    }
    if (testing::Test::HasFailure()) break;
  }
  stop = true;
  collector.join();
  expect_sound();
  EXPECT_FALSE(tagged.empty());
  for (const std::uint64_t version : tagged) EXPECT_EQ(whole(reopened().snapshot(version)), truth_[version]) << version;
}

TEST_P(Snapshots, ClonesAreIndependent) {
  write_versions(12);
  Blob clone = store_.clone("field", 7, "branch");
  EXPECT_EQ(clone.latest(), 1u);
  EXPECT_EQ(whole(clone.snapshot()), truth_[7]);
  EXPECT_EQ(code_of([&] { store_.clone("field", 7, "branch"); }), ErrorCode::exists);
  EXPECT_EQ(code_of([&] { store_.clone("field", 99, "other"); }), ErrorCode::not_found);
  EXPECT_EQ(code_of([&] { clone.snapshot(0); }), ErrorCode::not_found);

  const std::vector<std::byte> data(10'000, std::byte{77});
  const WriteRegion region{50, data};
  EXPECT_EQ(clone.write(std::span(&region, 1)), 2u);
  auto changed = truth_[7];
  std::copy(data.begin(), data.end(), changed.begin() + 50);
  store_.remove("field");
  store_.gc({.keep_last = 1, .lease = kNoLease});
  EXPECT_EQ(whole(reopened("branch").snapshot()), changed);
  Blob grandchild = store_.clone("branch", kLatest, "leaf");
  store_.remove("branch");
  EXPECT_EQ(whole(reopened("leaf").snapshot()), changed);
  expect_sound();
  EXPECT_EQ(store_.check().garbage_objects, 0u);
  ASSERT_EQ(store_.list().size(), 1u);
  EXPECT_EQ(store_.list()[0].name, "leaf");
  for (std::uint64_t version = 2; version < 5; ++version) EXPECT_EQ(grandchild.write(std::span(&region, 1)), version);
}

TEST_P(Snapshots, RemovedBlobsAreGoneForEverybody) {
  write_versions(5);
  Blob writer = reopened();
  EXPECT_EQ(writer.latest(), 5u);
  const std::vector<std::byte> data(10'000, std::byte{7});
  const WriteRegion region{0, data};
  const StagedWrite late = writer.stage(std::span(&region, 1));
  EXPECT_GT(store_.remove("field").objects_removed, 5u);
  EXPECT_FALSE(store_.exists("field"));
  EXPECT_EQ(code_of([&] { store_.remove("field"); }), ErrorCode::not_found);
  EXPECT_EQ(code_of([&] { writer.commit(std::span(&late, 1)); }), ErrorCode::not_found);
  EXPECT_EQ(code_of([&] { writer.write(std::span(&region, 1)); }), ErrorCode::not_found);
  EXPECT_EQ(code_of([&] { writer.snapshot(); }), ErrorCode::not_found);

  Blob again = store_.create("field", {.size_bytes = 20'000});
  EXPECT_EQ(again.latest(), 0u);
  EXPECT_EQ(again.write(std::span(&region, 1)), 1u);
  EXPECT_EQ(code_of([&] { writer.write(std::span(&region, 1)); }), ErrorCode::not_found);
  EXPECT_EQ(whole(reopened().snapshot()).size(), 20'000u);
  EXPECT_EQ(reopened().latest(), 1u);
  expect_sound();
  store_.remove("field");
  EXPECT_EQ(store_.create("field", {.size_bytes = 1}).size_bytes(), 1u);
  EXPECT_TRUE(store_.list().size() == 1 && store_.list()[0].latest_version == 0);
}

TEST_P(Snapshots, ARemovalThatWasCutShortDisturbsNobodyAndCanBeRepeated) {
  write_versions(5);
  store_.create("other", {.size_bytes = 10});
  const auto backend = store::open_backend(url_, {.durable = false});
  const std::string folder = store::BlobState::open(backend, "field")->folder();
  backend->put_if_absent(folder + "/gc/gone", {});
  EXPECT_EQ(store_.list().size(), 1u);
  EXPECT_GT(store_.gc({.keep_last = 1, .lease = kNoLease}).objects_removed, 5u);
  EXPECT_TRUE(store_.check().problems.empty());
  EXPECT_TRUE(backend->list(folder + "/data").empty());
  EXPECT_FALSE(store_.exists("field"));
  EXPECT_EQ(code_of([&] { store_.remove("field"); }), ErrorCode::not_found);
  EXPECT_EQ(store_.create("field", {.size_bytes = 7}).size_bytes(), 7u);
  EXPECT_EQ(store_.list().size(), 2u);
}

TEST_P(Snapshots, ARemovalThatSleptDoesNotTouchTheNextBlobOfThatName) {
  const std::vector<std::byte> data(10'000, std::byte{9});
  const WriteRegion region{0, data};
  const auto backend = store::open_backend(url_, {.durable = false});
  const auto slow = store::BlobState::open(backend, "field");
  for (int turn = 0; turn < 4; ++turn) {
    store_.remove("field");
    EXPECT_FALSE(store_.exists("field"));
    EXPECT_EQ(code_of([&] { store_.open("field"); }), ErrorCode::not_found);
    Blob next = store_.create("field", {.size_bytes = 10'000});
    EXPECT_EQ(code_of([&] { store_.create("field", {.size_bytes = 1}); }), ErrorCode::exists);
    EXPECT_EQ(next.write(std::span(&region, 1)), 1u);
    EXPECT_FALSE(slow->remove());
    store_.gc({.lease = kNoLease});
    EXPECT_EQ(whole(store_.open("field").snapshot()), data);
    EXPECT_EQ(backend->list("successors/field").size(), 1u);
  }
  expect_sound();
}

TEST_P(Snapshots, OfManyWhoRemoveAndCreateAtOnceEachBlobHasOneOfEach) {
  constexpr int kThreads = 4;
  std::atomic<int> created{1};
  std::atomic<int> removed{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      Store store(url_, {.durable = false});
      for (int turn = 0; turn < 25; ++turn) {
        try {
          if ((thread + turn) % 2 == 0) {
            store.remove("field");
            ++removed;
          } else {
            store.create("field", {.size_bytes = 1});
            ++created;
          }
          // The lease protects names whose creators have not finished their checks.
          if (turn % 8 == 0) store.gc({});
        } catch (const Error& error) {
          EXPECT_TRUE(error.code() == ErrorCode::not_found || error.code() == ErrorCode::exists) << error.what();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(removed, 1);
  EXPECT_EQ(created - removed, store_.exists("field") ? 1 : 0);
  expect_sound();
}

TEST_P(Snapshots, NamesAreFreedWhileOthersUseThem) {
  constexpr int kNames = 3;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      Store store(url_, {.durable = false});
      for (int turn = 0; turn < 30; ++turn) {
        const std::string name = "name" + std::to_string((thread + turn / 2) % kNames);
        const std::vector<std::byte> data(5'000, static_cast<std::byte>(thread + 1));
        const WriteRegion region{0, data};
        try {
          Blob blob = store.create(name, {.size_bytes = 5'000});
          blob.write(std::span(&region, 1));
          store.remove(name);
        } catch (const Error& error) {
          EXPECT_TRUE(error.code() == ErrorCode::not_found || error.code() == ErrorCode::exists) << error.what();
        }
        if (turn % 4 == 0) store.gc({.lease = kNoLease});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int name = 0; name < kNames; ++name) {
    if (store_.exists("name" + std::to_string(name))) store_.remove("name" + std::to_string(name));
  }
  expect_sound();
  store_.gc({.lease = kNoLease});
  store_.gc({.lease = kNoLease});
  const auto backend = store::open_backend(url_, {.durable = false});
  EXPECT_EQ(backend->list("catalog").size(), 1u) << "that of field";
  EXPECT_TRUE(backend->list("successors").empty());
  EXPECT_EQ(backend->list_parts("places").size(), 1u);
}

TEST_P(Snapshots, UnfinishedClonesAreCollectedAfterTheLease) {
  const auto backend = store::open_backend(url_, {.durable = false});
  const std::string folder = "folders/00000000001700000000-0123456789abcdef";
  backend->put_if_absent(folder + "/index/00000000000000000001", {});
  store_.gc({.lease = std::chrono::hours(24 * 365 * 300)});
  EXPECT_EQ(backend->list(folder).size(), 1u);
  store_.gc({});
  ASSERT_EQ(backend->list(folder).size(), 1u);
  EXPECT_EQ(backend->list(folder).front(), folder + "/gc/gone");
}

TEST_P(Snapshots, WaitingEndsWithTheVersion) {
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    write_versions(1);
  });
  EXPECT_TRUE(reopened().wait(1, test::kHung));
  writer.join();
  EXPECT_FALSE(reopened().wait(2, std::chrono::milliseconds(5)));
}

TEST_P(Snapshots, IndexesFollowWhatReplayingCosts) {
  const auto indexes = [&] {
    const auto backend = store::open_backend(url_, {.durable = false});
    return backend->list(store::BlobState::open(backend, "field")->key("index")).size();
  };
  write_versions(8);
  EXPECT_EQ(indexes(), 0u) << "a few small records are read as fast as an index";
  const std::vector<std::byte> data(2, std::byte{1});
  std::vector<WriteRegion> regions;
  for (std::uint64_t i = 0; i < 400; ++i) regions.push_back({i * 500, data});
  for (int i = 0; i < 48; ++i) blob_->write(regions);
  EXPECT_EQ(indexes(), 2u);
  EXPECT_EQ(reopened().latest(), 56u);
}

INSTANTIATE_TEST_SUITE_P(All, Snapshots, testing::ValuesIn(store::test_schemes()),
                         [](const auto& scheme) { return scheme.param; });

}  // namespace
}  // namespace penstock
