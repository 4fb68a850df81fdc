// Garbage collection: what it frees, what it keeps, and races between writers and collectors.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "store/blob_state.hpp"
#include "store/collect.hpp"
#include "unit/store/interrupted.hpp"
#include "unit/store/outcomes.hpp"

namespace penstock::store {
namespace {

class Collect : public testing::Test {
 protected:
  static constexpr std::uint64_t kSize = 200'000;
  static constexpr std::chrono::seconds kNow{0};

  Collect() : backend_(open_backend("memory:")), interrupted_(std::make_shared<Interrupted>(backend_)) {
    folder_ = BlobState::create(backend_, "field", {.size_bytes = kSize})->folder();
  }

  Blob open() const { return Blob(BlobState::open(backend_, "field")); }
  Blob open_interrupted() const { return Blob(BlobState::open(interrupted_, "field")); }

  static std::uint64_t write(Blob& blob, int value, std::size_t size = 10'000, std::uint64_t offset = 0) {
    const std::vector<std::byte> data(size, static_cast<std::byte>(value));
    const WriteRegion region{offset, data};
    return blob.write(std::span(&region, 1));
  }

  /// So short that the data lies in the record: the first object that it puts.
  static std::uint64_t write_if(Blob& blob, std::uint64_t parent, int value) {
    const std::vector<std::byte> data(10, static_cast<std::byte>(value));
    const WriteRegion region{0, data};
    return blob.write_if(parent, std::span(&region, 1));
  }

  static int value_at(const Snapshot& snapshot, std::uint64_t offset) {
    std::byte byte;
    const ReadRegion region{offset, Bytes(&byte, 1)};
    snapshot.read(std::span(&region, 1));
    return std::to_integer<int>(byte);
  }

  GcReport collect(const GcOptions& options) const {
    GcReport report;
    collect_blob(*BlobState::open(backend_, "field"), options, report);
    return report;
  }
  GcReport collect(std::uint64_t keep_last = kLatest, std::chrono::seconds lease = kNow) const {
    return collect({.keep_last = keep_last, .lease = lease});
  }

  /// A collector that sleeps before or after its fence is appended, as a test has told `interrupted_`.
  void collect_sleeping() const {
    GcReport report;
    collect_blob(*BlobState::open(interrupted_, "field"), {.lease = kNow}, report);
  }

  /// Changes the record of version `version` to an age of `age`.
  void age(std::uint64_t version, std::chrono::seconds age) const {
    const auto blob = BlobState::open(backend_, "field");
    Record record = blob->record(version);
    record.time_ns = now_ns() - std::chrono::nanoseconds(age).count();
    const std::string key = numbered_key(blob->key("versions"), version);
    const std::vector<std::byte> sealed = encode(record);
    const ConstBytes piece(sealed);
    backend_->remove(key);
    ASSERT_TRUE(backend_->put_if_absent(key, std::span(&piece, 1)));
  }

  CheckReport check() const {
    CheckReport report;
    check_blob(*BlobState::open(backend_, "field"), report);
    return report;
  }

  const std::vector<std::byte> data_ = std::vector(10'000, std::byte{9});
  const WriteRegion nines_{0, data_};
  std::shared_ptr<Backend> backend_;
  std::string folder_;
  std::shared_ptr<Interrupted> interrupted_;
};

// A write that checks the log once failed so, since its process was slow and others wrote and collected. The marks are
// listed after the newest version is found: others come at each of these listings in turn.
TEST_F(Collect, TheNewestVersionMayBeCollectedBeforeItIsRead) {
  const std::vector<std::function<void(Blob&)>> actions = {
      [](Blob& slow) { write(slow, 7); }, [](Blob& slow) { EXPECT_LE(value_at(slow.snapshot(), 0), 5); },
      [](Blob& slow) { EXPECT_EQ(slow.size_bytes(), kSize); },
      [](Blob& slow) {
        std::byte byte{};
        const ReadRegion region{0, Bytes(&byte, 1)};
        slow.read(std::span(&region, 1));
        EXPECT_LE(std::to_integer<int>(byte), 5);
      }};
  int blobs = 0;
  for (const auto& action : actions) {
    int listings = 1;
    for (int late_at = 1; late_at <= listings; ++late_at) {
      const std::string name = "field-" + std::to_string(++blobs);
      BlobState::create(backend_, name, {.size_bytes = kSize});
      Blob slow(BlobState::open(interrupted_, name));
      listings = 0;
      interrupted_->after_list = [&](std::string_view prefix, std::vector<std::string>&) {
        if (!prefix.ends_with("gc") || ++listings != late_at) return;
        Blob other(BlobState::open(backend_, name));
        for (int value = 1; value <= 5; ++value) write(other, value);
        GcReport report;
        collect_blob(*BlobState::open(backend_, name), {.keep_last = 2, .lease = kNow}, report);
      };
      EXPECT_NO_THROW(action(slow)) << name;
      interrupted_->after_list = nullptr;
    }
    EXPECT_GE(listings, 2);
  }
}

TEST_F(Collect, KeepsWhatWasTheNewestWithinATime) {
  using std::chrono::hours;
  Blob blob = open();
  for (int i = 1; i <= 5; ++i) write(blob, i);
  for (const auto& [version, old] : {std::pair(1, 500), {2, 400}, {3, 300}, {4, 200}, {5, 100}})
    age(version, hours(old));
  EXPECT_EQ(collect({.keep_last = 1, .keep_for = hours(1000)}).versions_removed, 0u);
  // Version 2 was the newest 350 hours ago.
  EXPECT_EQ(collect({.keep_last = 1, .keep_for = hours(350)}).versions_removed, 1u);
  EXPECT_EQ(value_at(open().snapshot(2), 0), 2);
  EXPECT_EQ(check().versions, 4u);
  EXPECT_EQ(code_of([&] { open().snapshot(1); }), ErrorCode::not_found);
  EXPECT_EQ(collect({.keep_last = 3, .keep_for = hours(1)}).versions_removed, 1u) << "either rule keeps a version";
  EXPECT_EQ(value_at(open().snapshot(3), 0), 3);
  // The clock of version 4's writer is ahead: version 4 seems newer than version 5.
  age(4, hours(10));
  EXPECT_EQ(collect({.keep_last = 1, .keep_for = hours(50)}).versions_removed, 0u);
  EXPECT_EQ(collect({.keep_last = 1, .keep_for = hours(5)}).versions_removed, 2u);
  EXPECT_EQ(value_at(open().snapshot(5), 0), 5);
}

TEST_F(Collect, KeepsTheLastVersionsAndFreesTheRest) {
  Blob blob = open();
  for (int i = 1; i <= 100; ++i) write(blob, i);
  const Snapshot old = blob.snapshot(50);
  const GcReport report = collect(10);
  EXPECT_EQ(report.versions_removed, 90u);
  EXPECT_EQ(report.objects_removed, 90u);
  EXPECT_GT(report.bytes_freed, 90u * 10'000u);
  EXPECT_EQ(blob.latest(), 100u);
  EXPECT_EQ(open().latest(), 100u);
  for (std::uint64_t version = 91; version <= 100; ++version) {
    EXPECT_EQ(value_at(blob.snapshot(version), 5), static_cast<int>(version));
    EXPECT_EQ(value_at(open().snapshot(version), 5), static_cast<int>(version));
  }
  for (const Blob& each : {blob, open()}) {
    EXPECT_EQ(code_of([&] { each.snapshot(60); }), ErrorCode::not_found);
    EXPECT_EQ(code_of([&] { each.snapshot(0); }), ErrorCode::not_found);
  }
  EXPECT_EQ(code_of([&] { value_at(old, 5); }), ErrorCode::not_found);
  EXPECT_EQ(blob.log().front().version, 91u);
  EXPECT_TRUE(check().problems.empty());
  EXPECT_EQ(check().garbage_objects, 0u);
  EXPECT_EQ(collect(10).objects_removed, 0u);
  EXPECT_EQ(write(blob, 101), 101u);
  EXPECT_EQ(collect(1).versions_removed, 10u);
  EXPECT_EQ(value_at(open().snapshot(), 5), 101);
}

TEST_F(Collect, ACompactedMapThatIsTakenBackHasReplacedNothing) {
  Blob blob = open();
  const std::uint64_t version = write(blob, 7);
  blob.tag("kept", version);
  for (int i = 1; i <= 5; ++i) write(blob, i);
  interrupted_->after_put = [&] {    // of the copy of the data
    interrupted_->after_put = [&] {  // of the compacted map
      collect(1);
      const WriteRegion region{0, data_};
      BlobState::open(backend_, "field")->stage(std::span(&region, 1));  // its writer dies
      collect(1);
    };
  };
  open_interrupted().compact(version);
  EXPECT_EQ(value_at(open().snapshot(version), 0), 7);
  EXPECT_TRUE(check().problems.empty());
}

TEST_F(Collect, ACompactionThatDiesHasReplacedNothing) {
  Blob blob = open();
  const std::uint64_t version = write(blob, 7);
  blob.tag("kept", version);
  for (int i = 1; i <= 5; ++i) write(blob, i);
  interrupted_->after_put = [&] {  // of the copy of the data
    collect(1);
    interrupted_->after_put = [&] { throw Error(ErrorCode::io, "it dies"); };  // with the compacted map
  };
  EXPECT_EQ(code_of([&] { open_interrupted().compact(version); }), ErrorCode::io);
  ASSERT_EQ(backend_->list(folder_ + "/compact").size(), 1u);
  EXPECT_EQ(value_at(open().snapshot(version), 0), 7);
  EXPECT_TRUE(check().problems.empty()) << check().problems.front();
  for (int i = 0; i < 2; ++i) {
    collect(1);
    EXPECT_EQ(value_at(open().snapshot(version), 0), 7);
    EXPECT_TRUE(check().problems.empty()) << check().problems.front();
    open().compact(version);  // cannot tell whether the other process still lives
  }
  open().untag("kept");
  collect(1);
  EXPECT_EQ(backend_->list(folder_ + "/data").size(), 1u);
  for (const char* folder : {"/compact", "/confirmed"}) EXPECT_TRUE(backend_->list(folder_ + folder).empty()) << folder;
}

TEST_F(Collect, KeepsOldObjectsThatANewVersionStillShows) {
  Blob blob = open();
  write(blob, 1, 50'000);
  for (int i = 2; i <= 20; ++i) write(blob, i, 5'000, 10'000);
  collect(1);
  EXPECT_EQ(value_at(open().snapshot(), 49'999), 1);
  EXPECT_EQ(value_at(open().snapshot(), 9'999), 1);
  EXPECT_EQ(value_at(open().snapshot(), 12'000), 20);
  EXPECT_EQ(backend_->list(folder_ + "/data").size(), 2u);
  EXPECT_TRUE(check().problems.empty());
}

TEST_F(Collect, FreesWhatDeadWritersLeftButOnlyAfterTheLease) {
  Blob blob = open();
  write(blob, 1);
  blob.stage(std::span(&nines_, 1));
  EXPECT_EQ(check().garbage_objects, 1u);
  EXPECT_EQ(collect(kLatest, std::chrono::hours(1)).objects_removed, 0u);
  EXPECT_EQ(blob.latest(), 1u) << "nothing to do leaves no trace";
  EXPECT_EQ(collect().objects_removed, 1u);
  EXPECT_EQ(check().garbage_objects, 0u);
  EXPECT_EQ(blob.log().back().kind, "fence");
  EXPECT_EQ(value_at(blob.snapshot(), 5), 1);
  EXPECT_EQ(collect().objects_removed, 0u);
  EXPECT_EQ(write(blob, 2), 3u);
}

TEST_F(Collect, AWriterThatIsGivenUpStoresItsDataAgain) {
  Blob blob = open_interrupted();
  write(blob, 1);
  interrupted_->before_append = [&] { EXPECT_EQ(collect().objects_removed, 1u); };
  EXPECT_EQ(write(blob, 2), 4u) << "2 is the fence, 3 is void";
  EXPECT_EQ(value_at(blob.snapshot(), 5), 2);
  EXPECT_EQ(value_at(blob.snapshot(3), 5), 1);
  EXPECT_EQ(value_at(open().snapshot(3), 5), 1);
  EXPECT_EQ(blob.log()[2].kind, "void");
  EXPECT_TRUE(check().problems.empty());
}

TEST_F(Collect, AStagedPartThatIsGivenUpIsNotCommitted) {
  Blob blob = open();
  const StagedWrite part = blob.stage(std::span(&nines_, 1));
  collect();
  EXPECT_EQ(blob.commit(std::span(&part, 1)), std::nullopt);
  EXPECT_EQ(value_at(blob.snapshot(), 5), 0);
  const StagedWrite again = blob.stage(std::span(&nines_, 1));
  EXPECT_NE(blob.commit(std::span(&again, 1)), std::nullopt);
  EXPECT_EQ(value_at(blob.snapshot(), 5), 9);
}

TEST_F(Collect, AFenceIsNoChangeForAConditionalWrite) {
  Blob blob = open();
  write(blob, 1);
  blob.stage(std::span(&nines_, 1));
  collect();
  ASSERT_EQ(blob.log().back().kind, "fence");
  EXPECT_EQ(blob.write_if(1, std::span(&nines_, 1)), 3u);
  EXPECT_EQ(value_at(blob.snapshot(), 5), 9);
  EXPECT_EQ(code_of([&] { blob.write_if(1, std::span(&nines_, 1)); }), ErrorCode::exists);
}

TEST_F(Collect, AConditionalWriteIsRefusedIfVersionsAfterItsParentWereCollected) {
  Blob blob = open();
  for (int i = 1; i <= 4; ++i) write(blob, i);
  collect(1);
  EXPECT_EQ(code_of([&] { blob.write_if(1, std::span(&nines_, 1)); }), ErrorCode::exists);
  EXPECT_EQ(blob.latest(), 4u);
}

TEST_F(Collect, AConditionalWriterWhoseNumberIsTakenLooksAgain) {
  Blob blob = open_interrupted();
  write(blob, 1);
  interrupted_->before_put = [&] {
    Blob other = open();
    write(other, 2);
  };
  EXPECT_EQ(code_of([&] { write_if(blob, 1, 3); }), ErrorCode::exists);
  EXPECT_EQ(open().latest(), 2u);
  interrupted_->before_put = [&] {
    open().stage(std::span(&nines_, 1));
    EXPECT_EQ(collect().objects_removed, 1u);
  };
  EXPECT_EQ(write_if(blob, 2, 3), 5u) << "3 is the fence, 4 is void";
  EXPECT_EQ(value_at(open().snapshot(), 5), 3);
  EXPECT_TRUE(check().problems.empty());
}

TEST_F(Collect, AConditionalWriterThatSleptWhileItsNumberWasCollectedIsRefused) {
  Blob sleeper = open_interrupted();
  write(sleeper, 1);
  interrupted_->before_put = [&] {
    Blob other = open();
    for (int i = 0; i < 100; ++i) write(other, 50);
    collect(2);
  };
  EXPECT_EQ(code_of([&] { write_if(sleeper, 1, 2); }), ErrorCode::exists);
  EXPECT_FALSE(backend_->exists(numbered_key(folder_ + "/versions", 2)));
  EXPECT_EQ(value_at(open().snapshot(), 5), 50);
  EXPECT_TRUE(check().problems.empty());
}

TEST_F(Collect, AFenceUnderANumberThatWasCollectedIsNoProofThatNothingChanged) {
  Blob blob = open();
  write(blob, 1);
  blob.stage(std::span(&nines_, 1));
  interrupted_->before_append = [&] {
    Blob other = open();
    write(other, 2);
    other.stage(std::span(&nines_, 1));
    collect(1);
    collect(1);  // version 2 goes; its successor is a fence
  };
  interrupted_->after_append = [&] {
    ASSERT_TRUE(backend_->exists(numbered_key(folder_ + "/versions", 2))) << "the fence of the collector that slept";
    EXPECT_EQ(code_of([&] { open().write_if(1, std::span(&nines_, 1)); }), ErrorCode::exists);
  };
  collect_sleeping();
  EXPECT_EQ(value_at(open().snapshot(), 5), 2);
  EXPECT_TRUE(check().problems.empty());
}

TEST_F(Collect, ACollectorThatSleptWhileTheNumberOfItsFenceWasCollectedFencesAgain) {
  Blob slow = open();
  write(slow, 1);
  const StagedWrite part = slow.stage(std::span(&nines_, 1));
  interrupted_->before_append = [&] {
    Blob other = open();
    for (int i = 2; i <= 5; ++i) write(other, i);
    collect(1, std::chrono::hours(1));  // for which the slow writer is alive
  };
  collect_sleeping();
  EXPECT_EQ(backend_->list(folder_ + "/data").size(), 1u);
  EXPECT_EQ(slow.commit(std::span(&part, 1)), std::nullopt) << "its data is gone";
  EXPECT_EQ(value_at(open().snapshot(), 5), 5);
  EXPECT_TRUE(check().problems.empty());
}

TEST_F(Collect, ACollectorThatComesAfterTheRecordKeepsIt) {
  Blob blob = open_interrupted();
  write(blob, 1);
  interrupted_->after_append = [&] { collect(); };
  EXPECT_EQ(write(blob, 2), 2u);
  EXPECT_EQ(value_at(open().snapshot(), 5), 2);
  EXPECT_TRUE(check().problems.empty());
}

TEST_F(Collect, AWriterThatSleptWhileItsNumberWasCollectedNeverGetsIt) {
  Blob sleeper = open_interrupted();
  write(sleeper, 1);
  interrupted_->before_append = [&] {
    Blob other = open();
    for (int i = 0; i < 100; ++i) write(other, 50);
    collect(2);
  };
  // The number that the sleeper was about to take is free again. Taking it must not look like success.
  EXPECT_EQ(write(sleeper, 2), 103u) << "101 versions and a fence";
  const std::uint64_t newest = open().latest();
  EXPECT_EQ(newest, 103u);
  EXPECT_EQ(sleeper.latest(), newest);
  EXPECT_EQ(value_at(open().snapshot(), 5), 2);
  EXPECT_FALSE(backend_->exists(numbered_key(folder_ + "/versions", 2)));
  EXPECT_EQ(write(sleeper, 3), newest + 1);
  EXPECT_TRUE(check().problems.empty());
  collect(1);
  EXPECT_EQ(check().garbage_objects, 0u);
}

TEST_F(Collect, AWriterThatIsCollectedBeforeItCanLookKnowsThatItWrote) {
  Blob sleeper = open_interrupted();
  write(sleeper, 1);
  interrupted_->after_append = [&] {
    Blob other = open();
    for (int i = 0; i < 100; ++i) write(other, 50);
    collect(2);
  };
  EXPECT_EQ(write(sleeper, 2), 2u);
  EXPECT_EQ(value_at(open().snapshot(), 5), 50) << "written once, and overwritten";
  EXPECT_EQ(open().latest(), 102u);
}

TEST_F(Collect, AWriterThatSleptTooLongSaysThatItDoesNotKnow) {
  Blob sleeper = open_interrupted();
  write(sleeper, 1);
  interrupted_->before_append = [&] {
    Blob other = open();
    for (int i = 0; i < 1100; ++i) write(other, 50, 10);
    collect(2);
  };
  EXPECT_EQ(code_of([&] { write(sleeper, 2); }), ErrorCode::io);
  EXPECT_EQ(value_at(open().snapshot(), 5), 50);
  EXPECT_FALSE(backend_->exists(numbered_key(folder_ + "/versions", 2)));
  EXPECT_TRUE(check().problems.empty());
}

TEST_F(Collect, AReaderDoesNotReplayWhatASleeperLeftInACollectedPlace) {
  Blob blob = open();
  for (int i = 1; i <= 49; ++i) write(blob, i);
  const Blob reader = open();
  EXPECT_EQ(value_at(reader.snapshot(48), 5), 48);
  for (int i = 50; i <= 60; ++i) write(blob, i, 10'000, 20'000);
  collect(11);
  // The sleeper saw version 48. It dies right after its record takes the place of version 49.
  Record record;
  std::vector<std::byte> sealed = read_all(*backend_, numbered_key(folder_ + "/versions", 50));
  record = decode_record(sealed, "record");
  Part part;
  part.base = 48;
  part.inlined.assign(4, std::byte{99});
  part.extents = {{4, 4}};
  record.parts.assign(1, part);
  sealed = encode(record);
  const ConstBytes piece(sealed);
  EXPECT_TRUE(backend_->put_if_absent(numbered_key(folder_ + "/versions", 49), std::span(&piece, 1)));
  EXPECT_EQ(value_at(reader.snapshot(), 5), 49);
  EXPECT_EQ(value_at(open().snapshot(), 5), 49);
  collect();
  EXPECT_FALSE(backend_->exists(numbered_key(folder_ + "/versions", 49)));
}

TEST_F(Collect, AnInterruptedRunIsFinishedByTheNext) {
  Blob blob = open();
  for (int i = 1; i <= 20; ++i) write(blob, i);
  // Recreates the state after a collector has died right after its mark.
  BlobState::open(backend_, "field")->put_index(15);
  backend_->put_if_absent(folder_ + "/gc/keep-00000000000000000015", {});
  EXPECT_EQ(code_of([&] { open().snapshot(3); }), ErrorCode::not_found);
  EXPECT_EQ(value_at(open().snapshot(15), 5), 15);
  EXPECT_TRUE(check().problems.empty());
  collect();
  EXPECT_EQ(backend_->list(folder_ + "/versions").size(), 7u) << "15 to 20 and a fence";
  EXPECT_EQ(backend_->list(folder_ + "/data").size(), 6u);
  EXPECT_TRUE(check().problems.empty());
}

TEST_F(Collect, MarksThatOthersStandForAreRemovedAndNeverMissed) {
  Blob blob = open();
  for (int run = 1; run <= 20; ++run) {
    write(blob, run);
    blob.stage(std::vector<WriteRegion>{{0, std::vector<std::byte>(10'000)}});  // never committed: its writer dies
    collect(1);
    EXPECT_LE(backend_->list(folder_ + "/gc").size(), 5u) << "after run " << run;
  }
  // Two runs of gc take place during a listing. The listing misses the old marks, which are removed before it reaches
  // them, and the new ones, which come too late.
  const auto late = BlobState::open(interrupted_, "field");
  const std::uint64_t keep_from = late->marks().keep_from;
  const std::uint64_t fence_below = late->marks().fence_below;
  EXPECT_GT(keep_from, 0u);
  EXPECT_GT(fence_below, 0u);
  int listings = 0;
  interrupted_->after_list = [&](std::string_view prefix, std::vector<std::string>& keys) {
    if (prefix != folder_ + "/gc" || listings++ > 0) return;
    for (int run = 0; run < 2; ++run) {
      write(blob, 30 + run);
      blob.stage(std::vector<WriteRegion>{{0, std::vector<std::byte>(10'000)}});
      collect(1);
    }
    keys.clear();
  };
  const BlobState::Marks marks = late->marks();
  EXPECT_GE(marks.keep_from, keep_from);
  EXPECT_GE(marks.fence_below, fence_below);
}

TEST_F(Collect, RandomHistoriesAgreeWithAModel) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    const std::string name = "random-" + std::to_string(seed);
    Blob blob(BlobState::create(backend_, name, {.size_bytes = 1000, .grows = true}));
    std::vector<std::vector<std::byte>> models = {std::vector<std::byte>(1000)};
    std::uint64_t kept_from = 0;
    for (int step = 0; step < 150; ++step) {
      auto model = models.back();
      const std::uint64_t action = random() % 20;
      if (action < 12) {
        std::vector<std::vector<std::byte>> buffers;
        std::vector<WriteRegion> regions;
        std::uint64_t offset = random() % 3000;
        for (std::uint64_t n = random() % 4; n > 0; --n) {
          buffers.emplace_back(random() % 6 == 0 ? random() % 9000 : random() % 200, static_cast<std::byte>(random()));
          offset += random() % 300;
          if (!buffers.back().empty()) {
            model.resize(std::max<std::size_t>(model.size(), offset + buffers.back().size()));
            std::copy(buffers.back().begin(), buffers.back().end(),
                      model.begin() + static_cast<std::ptrdiff_t>(offset));
          }
          regions.push_back({offset, buffers.back()});
          offset += buffers.back().size();
        }
        for (std::size_t i = 0; i < regions.size(); ++i) regions[i].data = buffers[i];
        std::shuffle(regions.begin(), regions.end(), random);
        EXPECT_EQ(blob.write(regions), models.size());
      } else if (action < 15) {
        const std::vector<std::byte> data(random() % 5000, static_cast<std::byte>(random()));
        const ConstBytes piece(data);
        EXPECT_EQ(blob.append(std::span(&piece, 1)).offset_bytes, model.size());
        model.insert(model.end(), data.begin(), data.end());
      } else if (action < 17) {
        model.resize(random() % 6000);
        EXPECT_EQ(blob.resize(model.size()), models.size());
      } else if (action == 17) {
        blob = Blob(BlobState::open(backend_, name));
        continue;
      } else if (action == 18) {
        GcReport report;
        const std::uint64_t keep = 1 + random() % 40;
        collect_blob(*BlobState::open(backend_, name), {keep, kNow}, report);
        kept_from = std::max(kept_from, models.size() > keep ? models.size() - keep : 0);
        continue;
      } else {
        const std::uint64_t version = random() % models.size();
        if (version < kept_from) {
          EXPECT_EQ(code_of([&] { blob.snapshot(version); }), ErrorCode::not_found);
          continue;
        }
        const Snapshot snapshot = blob.snapshot(version);
        std::vector<std::byte> data(snapshot.size_bytes());
        const ReadRegion region{0, data};
        snapshot.read(std::span(&region, 1));
        ASSERT_EQ(data, models[version]) << "seed " << seed << " version " << version;
        continue;
      }
      models.push_back(std::move(model));
    }
    CheckReport report;
    check_blob(*BlobState::open(backend_, name), report);
    EXPECT_TRUE(report.problems.empty()) << report.problems.front();
    EXPECT_EQ(report.garbage_objects, 0u) << "a writer that finished leaves none";
  }
}

TEST_F(Collect, CompactingEndsWhereACollectorDiedBetweenItsMarkAndItsFence) {
  Blob blob = open();
  write(blob, 1);
  write(blob, 2, 10'000, 5'000);
  ASSERT_TRUE(backend_->put_if_absent(folder_ + "/gc/fence-00000000000000000003", {}));
  int puts = 0;
  const std::function<void()> count = [&] {
    if (++puts > 20) throw Error(ErrorCode::internal, "compacting goes on and on");
    interrupted_->before_put = count;
  };
  interrupted_->before_put = count;
  open_interrupted().compact();
  EXPECT_EQ(backend_->list(folder_ + "/compact").size(), 1u);
  // The next collector finishes the work of the dead one and keeps the compacted data.
  collect(1);
  const Snapshot snapshot = open().snapshot(2);
  EXPECT_EQ(value_at(snapshot, 4'999), 1);
  EXPECT_EQ(value_at(snapshot, 5'000), 2);
}

TEST_F(Collect, CompactingIsRepeatedWhereAFenceCameBeforeIt) {
  Blob blob = open();
  write(blob, 1);
  // The collector runs after the copy is stored and before its map is.
  int puts = 0;
  const std::function<void()> second = [&] {
    if (++puts < 2) {
      interrupted_->before_put = second;
      return;
    }
    collect();
  };
  interrupted_->before_put = second;
  open_interrupted().compact();
  ASSERT_EQ(puts, 2);
  EXPECT_EQ(backend_->list(folder_ + "/compact").size(), 1u);
  EXPECT_EQ(value_at(open().snapshot(1), 0), 1);
  CheckReport report;
  check_blob(*BlobState::open(backend_, "field"), report);
  EXPECT_TRUE(report.problems.empty()) << report.problems.front();
}

}  // namespace
}  // namespace penstock::store
