// Blobs with many deltas: what cold readers find is what the log says, whatever is missing, damaged, lost or collected.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "store/blob_state.hpp"
#include "store/map_parts.hpp"
#include "store/repair.hpp"
#include "unit/store/frequent_deltas.hpp"
#include "unit/store/interrupted.hpp"
#include "unit/store/outcomes.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock::store {
namespace {

using Content = std::vector<std::byte>;

/// A blob whose versions change many small ranges, so that no index is due for long. `interval` is that of the deltas.
class BlobWithDeltas : public testing::TestWithParam<std::uint64_t> {
 protected:
  static constexpr std::size_t kBytes = 60'000;

  BlobWithDeltas()
      : often_(GetParam()), url_("file://" + directory_.path() + "/store"), store_(url_, {.durable = false}) {
    store_.create("field", {.size_bytes = kBytes, .grows = true});
    truth_.emplace_back(kBytes);
    backend_ = open_backend(url_, {.durable = false});
  }

  /// Writes, appends and resizes; every writer knows nothing of the blob before if `cold`.
  void write_versions(std::size_t count, bool cold = false) {
    Blob blob = store_.open("field");
    for (std::size_t i = 0; i < count; ++i) {
      if (cold) blob = store_.open("field");
      Content next = truth_.back();
      std::uint64_t made = 0;
      const auto kind = random_() % 10;
      if (kind == 0) {
        const std::size_t size = kBytes / 2 + random_() % kBytes;
        next.resize(size);
        made = blob.resize(size);
      } else if (kind == 1) {
        const Content data(1 + random_() % 300, value());
        const ConstBytes piece(data);
        next.insert(next.end(), data.begin(), data.end());
        made = blob.append(std::span(&piece, 1)).version;
      } else {
        // Some writes are stored in the record, others in an object.
        const Content data(random_() % 2 == 0 ? 30 : 200, value());
        std::vector<WriteRegion> regions;
        const std::size_t step = 400 + random_() % 3'000;
        for (std::size_t at = random_() % 1'000; at + data.size() < next.size(); at += step) {
          regions.push_back({at, data});
          std::copy(data.begin(), data.end(), next.begin() + static_cast<std::ptrdiff_t>(at));
        }
        made = blob.write(regions);
      }
      ASSERT_EQ(made, truth_.size());
      truth_.push_back(std::move(next));
    }
  }
  std::byte value() { return static_cast<std::byte>(1 + random_() % 255); }

  std::shared_ptr<BlobState> state() const { return BlobState::open(backend_, "field"); }
  std::vector<std::string> deltas() const { return backend_->list(state()->key("delta")); }
  std::uint64_t base_of(const std::string& delta) const { return open_delta(backend_, delta).head.base; }

  /// What processes find that know nothing of the blob before.
  void expect_as(const std::vector<Content>& truth, std::uint64_t first = 0) const {
    for (std::uint64_t version = first; version < truth.size(); ++version) {
      const auto cold = state();
      const auto map = cold->readable_at(version).map;
      ASSERT_EQ(map->version(), version);
      Content found(map->size_bytes());
      const ReadRegion region{0, found};
      cold->read(*map, std::span(&region, 1));
      ASSERT_TRUE(found == truth[version]) << "version " << version;
      ASSERT_TRUE(whole_of(*state()->map_at(version)) == truth[version]) << "version " << version << ", by the log";
    }
  }
  Content whole_of(const VersionMap& map) const {
    Content found(map.size_bytes());
    const ReadRegion region{0, found};
    state()->read(map, std::span(&region, 1));
    return found;
  }
  void expect_sound() const {
    const CheckReport report = store_.check();
    EXPECT_TRUE(report.problems.empty()) << report.problems.front();
    const RepairReport repair = Store(url_).repair({});
    EXPECT_TRUE(repair.actions.empty()) << repair.actions.front().object << ": " << repair.actions.front().reason;
  }
  void flip(const std::string& object, std::size_t at) const {
    Content data = read_all(*backend_, object);
    data[at % data.size()] ^= std::byte{4};
    const ConstBytes piece(data);
    backend_->replace(object, std::span(&piece, 1));
  }

  const FrequentDeltas often_;
  const TemporaryDirectory directory_;
  const std::string url_;
  Store store_;
  std::shared_ptr<Backend> backend_;
  std::mt19937_64 random_{GetParam()};
  std::vector<Content> truth_;  ///< by version
};

TEST_P(BlobWithDeltas, EveryVersionIsReadColdAsTheLogSays) {
  write_versions(40);
  write_versions(40, true);
  EXPECT_GE(deltas().size(), 60 / GetParam() / 2);
  expect_as(truth_);
  expect_sound();
}

TEST_P(BlobWithDeltas, AColdReaderFollowsFewDeltasAndRecords) {
  write_versions(63);
  // Nothing but deltas, an index and the last records says where the bytes are.
  for (std::uint64_t version = 1; version <= 63 / GetParam() * GetParam(); ++version) {
    flip(state()->record_key(version), 20);
  }
  const auto cold = state();
  const auto map = cold->readable_at(63).map;
  EXPECT_TRUE(map->is_partial());
  Content found(map->size_bytes());
  const ReadRegion region{0, found};
  cold->read(*map, std::span(&region, 1));
  EXPECT_TRUE(found == truth_[63]);
}

TEST_P(BlobWithDeltas, WhatIsMissingIsReplayed) {
  write_versions(70);
  for (const std::string& delta : deltas()) {
    if (random_() % 2 == 0) backend_->remove(delta);
  }
  expect_as(truth_);
  write_versions(20, true);
  expect_as(truth_, 60);
  expect_sound();
}

TEST_P(BlobWithDeltas, WhatIsDamagedIsPassedOverAndRepaired) {
  write_versions(70);
  for (const std::string& delta : deltas()) flip(delta, random_());
  expect_as(truth_);
  const std::size_t damaged = deltas().size();
  EXPECT_EQ(store_.check().problems.size(), damaged);
  EXPECT_EQ(store_.repair({.apply = true}).actions.size(), damaged);
  EXPECT_TRUE(deltas().empty());
  expect_as(truth_);
  expect_sound();
}

TEST_P(BlobWithDeltas, OneThatSaysSomethingElseIsFound) {
  write_versions(64);
  const std::string delta = state()->delta_key(64);
  ASSERT_TRUE(backend_->exists(delta));
  const std::uint64_t base = base_of(delta);
  VersionMap other(StoredMap::head_only(state()->map_at(base)->head()));
  for (std::uint64_t version = base + 1; version <= 64; ++version) {
    Record record = state()->record(version);
    if (version == 64) record.parts.clear();
    if (version == 64) record.kind = RecordKind::write;
    other.apply(record);
  }
  const std::vector<std::byte> sealed = other.encode_delta();
  const ConstBytes piece(sealed);
  backend_->replace(delta, std::span(&piece, 1));
  ASSERT_EQ(store_.check().problems.size(), 1u);
  const RepairReport report = store_.repair({.apply = true});
  ASSERT_EQ(report.actions.size(), 1u);
  EXPECT_EQ(report.actions[0].object, delta);
  expect_as(truth_);
  expect_sound();
}

/// Then only the map at the keep mark tells.
TEST_P(BlobWithDeltas, OneThatSaysSomethingElseIsFoundWhenItsBaseIsCollected) {
  write_versions(64);
  const std::string delta = state()->delta_key(64);
  ASSERT_TRUE(backend_->exists(delta));
  const std::uint64_t base = base_of(delta);
  ASSERT_LT(base, 55u);
  VersionMap other(StoredMap::head_only(state()->map_at(base)->head()));
  for (std::uint64_t version = base + 1; version <= 64; ++version) {
    Record record = state()->record(version);
    if (version == 60) record.parts.clear();
    if (version == 60) record.kind = RecordKind::write;
    other.apply(record);
  }
  const std::vector<std::byte> sealed = other.encode_delta();
  store_.gc({.keep_last = 10, .lease = std::chrono::seconds(0)});
  expect_sound();
  const ConstBytes piece(sealed);
  backend_->replace(delta, std::span(&piece, 1));
  ASSERT_EQ(store_.check().problems.size(), 1u);
  EXPECT_NE(store_.check().problems[0].find("it differs from what the records say"), std::string::npos);
  const RepairReport report = store_.repair({.apply = true});
  ASSERT_EQ(report.actions.size(), 1u);
  EXPECT_EQ(report.actions[0].object, delta);
  expect_as(truth_, 55);
  expect_sound();
}

TEST_P(BlobWithDeltas, ALostWriteIsInNoDelta) {
  write_versions(50);
  const std::uint64_t lost = 19;
  flip(state()->record_key(lost), 30);
  EXPECT_TRUE(store_.open("field").snapshot().damage().empty()) << "a delta says what the record said";
  EXPECT_EQ(store_.check().problems.size(), 1u);
  store_.repair({.apply = true});
  // Versions from an index on that was made from a delta stay as they were; those before are as the log says.
  std::uint64_t kept = lost;
  while (kept <= 50 && !backend_->exists(state()->index_key(kept))) ++kept;
  EXPECT_LE(kept, 32u) << "a delta of version 32 has version 19";
  std::vector<Content> truth = truth_;
  for (std::uint64_t version = lost; version < kept; ++version) truth[version] = whole_of(*state()->map_at(version));
  EXPECT_TRUE(kept == lost || truth[lost] == truth_[lost - 1]);
  for (const std::string& delta : deltas()) {
    EXPECT_FALSE(base_of(delta) < lost && lost <= number_of(delta)) << delta;
  }
  expect_as(truth);
  expect_sound();
  write_versions(30, true);
  for (std::uint64_t version = 51; version <= 80; ++version) truth.push_back(truth_[version]);
  expect_as(truth);
  for (const std::string& delta : deltas()) {
    EXPECT_FALSE(base_of(delta) < lost && lost <= number_of(delta)) << delta;
  }
  expect_sound();
}

/// It has planned an index that is made from a delta. Others have put it, and taken it away.
TEST_P(BlobWithDeltas, ASlowRepairBringsNothingBack) {
  write_versions(50);
  flip(state()->record_key(19), 30);
  std::vector<Content> truth = truth_;
  const auto slow = std::make_shared<Interrupted>(backend_);
  slow->after_put = [&] {
    const auto indexes = [&] { return backend_->list(state()->key("index")); };
    const std::vector<std::string> before = indexes();
    store_.repair({.apply = true});
    std::vector<std::string> made = indexes();
    std::erase_if(made, [&](const std::string& index) { return std::ranges::count(before, index) > 0; });
    ASSERT_EQ(made.size(), 1u);
    flip(made.front(), 30);
    store_.repair({.apply = true});
    for (std::uint64_t version = 1; version <= 50; ++version) truth[version] = whole_of(*state()->map_at(version));
  };
  RepairReport report;
  repair_blob(slow, "field", {.apply = true}, report);
  EXPECT_EQ(truth[19], truth[18]);
  expect_as(truth);
  expect_sound();
}

TEST_P(BlobWithDeltas, StayReadableWhileVersionsAreCollected) {
  write_versions(75);
  std::vector<Snapshot> opened;
  for (std::uint64_t version = 5; version <= 75; ++version) opened.push_back(store_.open("field").snapshot(version));
  for (const std::uint64_t keep : {48, 33, 9, 3, 1}) {
    store_.gc({.keep_last = keep, .lease = std::chrono::seconds(0)});
    const std::uint64_t first = store_.list().front().first_version;
    ASSERT_EQ(first, truth_.size() - keep);
    expect_as(truth_, first);
    for (const Snapshot& snapshot : opened) {
      if (snapshot.version() < first) continue;
      ASSERT_TRUE(whole(snapshot) == truth_[snapshot.version()]) << snapshot.version();
    }
    for (const std::string& delta : deltas()) EXPECT_GE(number_of(delta), first);
    expect_sound();
    write_versions(3, keep % 2 == 0);
    expect_as(truth_, first);
  }
}

TEST_P(BlobWithDeltas, LateWritesStayVoid) {
  write_versions(10);
  Blob late = store_.open("field");
  const Content data(10'000, std::byte{7});
  const WriteRegion region{0, data};
  const StagedWrite staged = late.stage(std::span(&region, 1));
  write_versions(3);
  store_.gc({.keep_last = 100, .lease = std::chrono::seconds(0)});
  truth_.push_back(truth_.back());  // a fence
  EXPECT_EQ(late.commit(std::span(&staged, 1)), std::nullopt);
  truth_.push_back(truth_.back());
  write_versions(40, true);
  expect_as(truth_);
  expect_sound();
}

TEST_P(BlobWithDeltas, TheNextWriterFillsAGap) {
  write_versions(70);
  for (const std::string& delta : deltas()) backend_->remove(delta);
  const std::uint64_t next = (70 / GetParam() + 1) * GetParam();
  write_versions(next - 70, true);
  std::uint64_t index = 0;
  for (const std::string& key : backend_->list(state()->key("index"))) index = number_of(key);
  ASSERT_EQ(deltas(), std::vector<std::string>{state()->delta_key(next)});
  EXPECT_EQ(base_of(deltas().front()), index);
  expect_as(truth_, 60);
  write_versions(40, true);
  expect_as(truth_, 60);
  expect_sound();
}

TEST_P(BlobWithDeltas, SmallWritesDoNotCopyWhatLargeOnesLeft) {
  Blob blob = store_.open("field");
  std::vector<WriteRegion> regions;
  const Content data(5, std::byte{3});
  for (std::size_t at = 0; at + 10 < kBytes; at += 10) regions.push_back({at, data});
  const std::uint64_t large = 2 * GetParam();
  const std::uint64_t last = 4 * large;
  if (last > 64) GTEST_SKIP() << "an index would be due";
  for (std::uint64_t version = 1; version <= last; ++version) {
    const std::size_t count = version == 1 ? regions.size() : version == large ? 3'000 : 1;
    const auto written = std::span(regions).subspan(version == 1 ? 0 : version * 100 % 2'000, count);
    truth_.push_back(truth_.back());
    for (const WriteRegion& region : written) {
      std::ranges::copy(region.data, truth_.back().begin() + static_cast<std::ptrdiff_t>(region.offset_bytes));
    }
    ASSERT_EQ(blob.write(written), version);
    if (version > 1) continue;
    state()->put_index(1);
    blob = store_.open("field");
    ASSERT_EQ(blob.snapshot().version(), 1u) << "now it knows the index";
  }
  ASSERT_EQ(backend_->list(state()->key("index")).size(), 1u);
  EXPECT_EQ(base_of(state()->delta_key(last)), large);
  expect_as(truth_);
  expect_sound();
}

INSTANTIATE_TEST_SUITE_P(Intervals, BlobWithDeltas, testing::Values(1, 2, 8, 32));

}  // namespace
}  // namespace penstock::store
