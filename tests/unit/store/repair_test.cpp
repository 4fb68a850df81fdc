// Damaged stores: what stays readable, which calls fail, and what repair does.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>

#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "store/backend.hpp"
#include "store/blob_state.hpp"
#include "store/repair.hpp"
#include "unit/store/interrupted.hpp"
#include "unit/store/outcomes.hpp"
#include "unit/store/schemes.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock {
namespace {

constexpr std::uint64_t kRepairBytes = 100'000;

class Repair : public testing::TestWithParam<std::string> {
 protected:
  Repair() : url_(store::test_url(GetParam(), directory_)), store_(url_, {.durable = false}) {
    backend_ = store::open_backend(url_, {.durable = false});
    Blob blob = store_.create("field", {.size_bytes = kRepairBytes});
    folder_ = store::BlobState::open(backend_, "field")->folder();
    truth_.emplace_back(kRepairBytes);
  }

  /// Version i writes the value i to a region that overlaps those of its neighbours.
  void write_versions(int count, std::size_t size = 6'000) {
    Blob blob = open();
    for (int i = 0; i < count; ++i) {
      const std::uint64_t offset = truth_.size() * 1'500 % (kRepairBytes - size);
      const std::vector<std::byte> data(size, static_cast<std::byte>(truth_.size()));
      const WriteRegion region{offset, data};
      ASSERT_EQ(blob.write(std::span(&region, 1)), truth_.size());
      truth_.push_back(truth_.back());
      std::copy(data.begin(), data.end(), truth_.back().begin() + static_cast<std::ptrdiff_t>(offset));
      written_.push_back({offset, size});
    }
  }

  /// The content of version `version` without the write of version `lost`.
  std::vector<std::byte> truth_without(std::uint64_t version, std::uint64_t lost) const {
    std::vector<std::byte> data(kRepairBytes);
    for (std::uint64_t v = 1; v <= version; ++v) {
      if (v == lost) continue;
      const auto [offset, size] = written_[v - 1];
      std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(offset), size, static_cast<std::byte>(v));
    }
    return data;
  }

  void flip(const std::string& object) {
    std::vector<std::byte> data = store::read_all(*backend_, object);
    ASSERT_FALSE(data.empty()) << object;
    data[data.size() / 2] ^= std::byte{4};
    const ConstBytes piece(data);
    backend_->replace(object, std::span(&piece, 1));
  }
  std::string record(std::uint64_t version) const { return store::numbered_key(folder_ + "/versions", version); }

  /// Opens the blob as another process does.
  Blob open(const std::string& name = "field") const { return Store(url_, {.create = false}).open(name); }
  std::uint64_t write_one() const {
    const std::vector<std::byte> data(10, std::byte{1});
    const WriteRegion region{0, data};
    return open().write(std::span(&region, 1));
  }
  RepairReport repair(const RepairOptions& options = {.apply = true}) { return store_.repair(options); }
  void expect_sound() const {
    const CheckReport report = store_.check();
    EXPECT_TRUE(report.problems.empty()) << report.problems.front();
    EXPECT_TRUE(Store(url_).repair({}).actions.empty());
  }

  const TemporaryDirectory directory_;
  const std::string url_;
  Store store_;
  std::shared_ptr<store::Backend> backend_;
  std::string folder_;
  std::vector<std::vector<std::byte>> truth_;
  std::vector<std::pair<std::uint64_t, std::size_t>> written_;
};

TEST_P(Repair, AnUnreadableRecordStopsWritersButNotReaders) {
  write_versions(5);
  flip(record(3));
  const Blob blob = open();
  EXPECT_EQ(blob.latest(), 5u);
  const Snapshot newest = blob.snapshot();
  EXPECT_EQ(newest.version(), 2u);
  EXPECT_EQ(whole(newest), truth_[2]);
  EXPECT_NE(newest.damage().find("version 2 is read in place of the newest"), std::string::npos) << newest.damage();
  EXPECT_NE(newest.damage().find("repair"), std::string::npos) << newest.damage();
  EXPECT_TRUE(blob.snapshot(1).damage().empty());
  EXPECT_EQ(code_of([&] { blob.snapshot(4); }), ErrorCode::corrupt);
  EXPECT_EQ(code_of([&] { write_one(); }), ErrorCode::corrupt);
  EXPECT_EQ(open().latest(), 5u) << "nothing was written";
  EXPECT_EQ(blob.log()[2].kind, "unreadable");
  EXPECT_EQ(blob.log().size(), 5u);
  EXPECT_FALSE(store_.list()[0].damage.empty());
  EXPECT_EQ(store_.list()[0].latest_version, 2u);
  EXPECT_EQ(store_.check().problems.size(), 1u);
}

TEST_P(Repair, GivesUpWhatAnUnreadableRecordWroteAndNothingElse) {
  write_versions(5);
  flip(record(3));
  const RepairReport plan = repair({});
  ASSERT_EQ(plan.actions.size(), 1u);
  EXPECT_EQ(plan.actions[0].object, record(3));
  EXPECT_EQ(plan.actions[0].blob, "field");
  EXPECT_TRUE(plan.remaining.empty());
  EXPECT_EQ(code_of([&] { open().snapshot(4); }), ErrorCode::corrupt) << "a dry run changed something";
  EXPECT_EQ(repair().actions.size(), 1u);
  for (std::uint64_t version = 0; version <= 5; ++version) {
    EXPECT_EQ(whole(open().snapshot(version)), truth_without(version, 3)) << version;
  }
  EXPECT_EQ(open().log()[2].kind, "lost");
  EXPECT_EQ(store_.check().lost_versions, 1u);
  EXPECT_EQ(backend_->list(folder_ + "/lost").size(), 1u);
  EXPECT_EQ(write_one(), 6u);
  expect_sound();
  store_.gc({.keep_last = 2, .lease = std::chrono::seconds(0)});
  expect_sound();
}

TEST_P(Repair, VersionsWithAnIndexBehindTheLossStayAsTheyWere) {
  write_versions(6);
  store::BlobState::open(backend_, "field")->put_index(4);
  write_versions(2);
  flip(record(2));
  EXPECT_EQ(whole(open().snapshot()), truth_[8]) << "an index comes after the damage";
  EXPECT_TRUE(open().snapshot().damage().empty());
  EXPECT_FALSE(store_.check().problems.empty());
  repair();
  for (const std::uint64_t version : {0, 1, 4, 5, 6, 7, 8}) {
    EXPECT_EQ(whole(open().snapshot(version)), truth_[version]) << version;
  }
  EXPECT_EQ(whole(open().snapshot(3)), truth_without(3, 2));
  expect_sound();
  // gc keeps the data of the lost write: the index refers to it.
  store_.gc({.lease = std::chrono::seconds(0)});
  EXPECT_EQ(whole(open().snapshot(8)), truth_[8]);
  expect_sound();
}

/// Whatever the process has read before: versions behind an index that decides, and those before it, in any order.
TEST_P(Repair, ProcessesAgreeOnVersionsBehindALoss) {
  write_versions(5);
  store::BlobState::open(backend_, "field")->put_index(1);
  store::BlobState::open(backend_, "field")->put_index(4);
  write_versions(3);
  flip(record(3));
  repair();
  const auto expected = [&](std::uint64_t version) { return version == 3 ? truth_without(3, 3) : truth_[version]; };
  for (std::uint64_t first = 1; first <= 8; ++first) {
    for (std::uint64_t second = 1; second <= 8; ++second) {
      const Blob blob = open();
      ASSERT_EQ(whole(blob.snapshot(first)), expected(first)) << first;
      ASSERT_EQ(whole(blob.snapshot(second)), expected(second)) << second << " after " << first;
    }
  }
  open().tag("between", 3);
  const Blob tagger = open();
  tagger.snapshot(3);
  EXPECT_EQ(whole(tagger.snapshot(6)), truth_[6]) << "an index between the loss and the one that decides";
  expect_sound();
  flip(record(8));
  const Blob blob = open();
  blob.snapshot(2);
  EXPECT_EQ(blob.snapshot().version(), 7u);
  EXPECT_EQ(whole(blob.snapshot()), truth_[7]) << "read in place of the newest";
}

TEST_P(Repair, CollectorsKeepWhatAnIndexBehindALossShows) {
  for (const std::uint64_t keep_last : {7, 6, 5, 4, 1}) {
    SCOPED_TRACE("keeps " + std::to_string(keep_last));
    const std::string name = "kept-" + std::to_string(keep_last);
    store_.create(name, {.size_bytes = kRepairBytes});
    const auto state = [&] { return store::BlobState::open(backend_, name); };
    std::vector<std::byte> truth(kRepairBytes);
    for (int version = 1; version <= 8; ++version) {
      if (version == 7) state()->put_index(5);
      const std::vector<std::byte> data(6'000, static_cast<std::byte>(version));
      const WriteRegion region{static_cast<std::uint64_t>(version) * 1'500, data};
      open(name).write(std::span(&region, 1));
      std::copy(data.begin(), data.end(), truth.begin() + static_cast<std::ptrdiff_t>(region.offset_bytes));
    }
    flip(store::numbered_key(state()->folder() + "/versions", 2));
    repair();
    ASSERT_EQ(whole(open(name).snapshot()), truth);
    for (int run = 0; run < 2; ++run) {
      store_.gc({.keep_last = keep_last, .lease = std::chrono::seconds(0)});
      ASSERT_EQ(whole(open(name).snapshot(8)), truth) << "run " << run;
      ASSERT_EQ(whole(open(name).snapshot()), truth) << "run " << run;
      expect_sound();
    }
  }
}

/// It has read the write before that was lost, and still holds the map.
TEST_P(Repair, AProcessThatKnewALostWriteDoesNotBringItBack) {
  write_versions(5);
  Blob knowing = open();
  EXPECT_EQ(whole(knowing.snapshot()), truth_[5]);
  const std::vector<std::byte> data(100, std::byte{6});
  const WriteRegion region{90'000, data};
  for (const std::string& object : backend_->list(folder_ + "/data")) {
    if (object.find("/data/" + std::string(19, '0') + "2-") != std::string::npos) flip(object);  // of version 3
  }
  repair({.apply = true, .drop_damaged_data = true});
  std::vector<std::byte> expected = truth_without(5, 3);
  EXPECT_EQ(knowing.write(std::span(&region, 1)), 6u);
  std::copy(data.begin(), data.end(), expected.begin() + 90'000);
  EXPECT_EQ(whole(knowing.snapshot()), expected);
  store_.gc({.keep_last = 100, .lease = std::chrono::seconds(0)});
  knowing.tag("kept", 6);
  knowing.compact(5);
  EXPECT_EQ(whole(open().snapshot(6)), expected);
  EXPECT_EQ(whole(open().snapshot(5)), truth_without(5, 3));
  expect_sound();
}

/// Its plan is out of date: the index that it would build later versions on is gone.
TEST_P(Repair, PlansAnewIfAnotherRepairWasFaster) {
  write_versions(6);
  store::BlobState::open(backend_, "field")->put_index(4);
  flip(record(3));
  const auto slow = std::make_shared<store::Interrupted>(backend_);
  slow->before_put = [&] {
    flip(store::numbered_key(folder_ + "/index", 4));
    EXPECT_EQ(repair().actions.size(), 2u);
  };
  RepairReport report;
  store::repair_blob(slow, "field", {.apply = true}, report);
  EXPECT_TRUE(report.actions.empty()) << report.actions.front().object;
  for (const std::string& mark : backend_->list(folder_ + "/gc")) EXPECT_EQ(mark.find("base-"), std::string::npos);
  EXPECT_EQ(whole(open().snapshot(6)), truth_without(6, 3));
  expect_sound();
}

TEST_P(Repair, TwoAtOnceTakeTheSameSteps) {
  write_versions(6);
  store::BlobState::open(backend_, "field")->put_index(4);
  flip(record(3));
  const auto slow = std::make_shared<store::Interrupted>(backend_);
  const std::string index = store::numbered_key(folder_ + "/index", 4);
  slow->after_put = [&] {
    EXPECT_EQ(repair().actions.front().action, "it is ended");
    EXPECT_EQ(whole(open().snapshot(6)), truth_[6]);
    flip(index);
    EXPECT_FALSE(repair().actions.empty());
    slow->before_put = [&] {
      for (const std::string& mark : backend_->list(folder_ + "/gc")) EXPECT_EQ(mark.find("base-"), std::string::npos);
      expect_sound();  // it has taken none of its steps again
    };
  };
  RepairReport report;
  store::repair_blob(slow, "field", {.apply = true}, report);
  expect_sound();
  EXPECT_EQ(whole(open().snapshot(6)), truth_without(6, 3));
}

/// A process died after it had put its plan. Meanwhile there is an index that a new plan would keep, but the other
/// process may have taken its last step before that.
TEST_P(Repair, EndsOneThatWasCutShort) {
  write_versions(6);
  const auto knowing = store::BlobState::open(backend_, "field");
  EXPECT_EQ(knowing->map_at(4)->version(), 4u);
  flip(record(3));
  const auto dying = std::make_shared<store::Interrupted>(backend_);
  dying->after_put = [] { throw std::runtime_error("dead"); };
  RepairReport report;
  EXPECT_THROW(store::repair_blob(dying, "field", {.apply = true}, report), std::runtime_error);
  const std::vector<std::byte> sealed = knowing->map_at(4)->encode();
  const ConstBytes piece(sealed);
  backend_->put_if_absent(knowing->index_key(4), std::span(&piece, 1));
  EXPECT_EQ(Store(url_).repair({}).actions.size(), 3u) << "a dry run shows what is left, and that one is under way";
  EXPECT_EQ(repair().actions.front().action, "it is ended");
  EXPECT_EQ(whole(open().snapshot(6)), truth_without(6, 3));
  expect_sound();
}

TEST_P(Repair, EndsOneOfAnOlderPenstock) {
  write_versions(3);
  flip(record(2));
  backend_->put_if_absent(folder_ + "/gc/repair-00000000000000000001", {});
  EXPECT_EQ(repair().actions.size(), 2u);
  EXPECT_EQ(whole(open().snapshot(3)), truth_without(3, 2));
  expect_sound();
}

TEST_P(Repair, FillsAGapSoThatNobodyWritesInThePast) {
  write_versions(5);
  backend_->remove(record(4));
  EXPECT_EQ(whole(open().snapshot()), truth_[3]);
  EXPECT_FALSE(store_.check().problems.empty());
  ASSERT_EQ(repair().actions.size(), 1u);
  EXPECT_EQ(whole(open().snapshot()), truth_without(5, 4));
  EXPECT_EQ(write_one(), 6u);
  expect_sound();
}

TEST_P(Repair, DamagedDataIsGivenUpOnlyIfAskedTo) {
  write_versions(5);
  for (const std::string& object : backend_->list(folder_ + "/data")) {
    if (object.find("/data/" + std::string(19, '0') + "2-") != std::string::npos) flip(object);  // of version 3
  }
  const RepairReport kept = repair();
  EXPECT_TRUE(kept.actions.empty());
  ASSERT_EQ(kept.remaining.size(), 1u);
  EXPECT_NE(kept.remaining[0].find("version 3"), std::string::npos) << kept.remaining[0];
  EXPECT_EQ(code_of([&] { whole(open().snapshot()); }), ErrorCode::corrupt);
  store::BlobState::open(backend_, "field")->put_index(4);
  const RepairReport dropped = repair({.apply = true, .drop_damaged_data = true});
  EXPECT_EQ(dropped.actions.size(), 2u) << "the write, and the index that refers to it";
  EXPECT_EQ(whole(open().snapshot()), truth_without(5, 3));
  expect_sound();
}

TEST_P(Repair, TagsIndexesAndCompactedMapsThatCannotBeReadGo) {
  write_versions(4);
  Blob blob = open();
  blob.tag("good", 2);
  blob.tag("bad", 3);
  blob.compact(4);
  flip(folder_ + "/tags/bad");
  flip(store::numbered_key(folder_ + "/index", 3));
  flip(store::numbered_key(folder_ + "/compact", 4));
  EXPECT_EQ(code_of([&] { store_.gc({.keep_last = 1}); }), ErrorCode::corrupt);
  EXPECT_EQ(whole(open().snapshot()), truth_[4]);
  EXPECT_EQ(repair().actions.size(), 3u);
  ASSERT_EQ(open().tags().size(), 1u);
  EXPECT_EQ(open().tags()[0].name, "good");
  expect_sound();
  store_.gc({.keep_last = 1, .lease = std::chrono::seconds(0)});
  EXPECT_EQ(whole(open().snapshot(2)), truth_[2]);
  EXPECT_EQ(whole(open().snapshot(4)), truth_[4]);
  expect_sound();
}

TEST_P(Repair, ATagOutlivesItsIndex) {
  write_versions(5);
  open().tag("kept", 3);
  flip(store::numbered_key(folder_ + "/index", 3));
  EXPECT_EQ(code_of([&] { store_.gc({.keep_last = 1, .lease = std::chrono::seconds(0)}); }), ErrorCode::corrupt);
  EXPECT_EQ(repair().actions.size(), 1u);
  store_.gc({.keep_last = 1, .lease = std::chrono::seconds(0)});
  EXPECT_EQ(whole(open().snapshot(3)), truth_[3]);
  expect_sound();
}

TEST_P(Repair, AnIndexThatDiffersFromTheRecordsGoes) {
  write_versions(4);
  const auto state = store::BlobState::open(backend_, "field");
  store::VersionMap other = *state->map_at(2);
  store::Record record = state->record(3);
  record.parts.clear();
  other.apply(record);
  const std::vector<std::byte> sealed = other.encode();
  const ConstBytes piece(sealed);
  backend_->put_if_absent(state->index_key(3), std::span(&piece, 1));
  EXPECT_EQ(store_.check().problems.size(), 1u);
  const RepairReport report = repair();
  ASSERT_EQ(report.actions.size(), 1u);
  EXPECT_EQ(report.actions[0].object, state->index_key(3));
  EXPECT_EQ(whole(open().snapshot(3)), truth_[3]);
  EXPECT_EQ(whole(open().snapshot()), truth_[4]);
  expect_sound();
}

TEST_P(Repair, WithoutTheBaseOfTheLogVersionsAfterTheNextIndexRemain) {
  write_versions(6);
  store_.gc({.keep_last = 4, .lease = std::chrono::seconds(0)});  // keeps versions 3 to 6, based on index 3
  write_versions(2);
  const std::string base = store::numbered_key(folder_ + "/index", 3);
  flip(base);
  EXPECT_EQ(repair().remaining.size(), 1u) << "nothing to go on";
  // Adds the index that the writer of version 6 may have put.
  const auto truth = truth_[6];
  flip(base);
  store::BlobState::open(backend_, "field")->put_index(6);
  flip(base);
  EXPECT_EQ(repair().actions.size(), 1u);
  EXPECT_EQ(whole(open().snapshot(6)), truth_[6]);
  EXPECT_EQ(whole(open().snapshot(8)), truth_[8]);
  EXPECT_EQ(code_of([&] { open().snapshot(5); }), ErrorCode::not_found);
  expect_sound();
}

TEST_P(Repair, AnEntryComesBackFromItsCopyAndTheCopyFromTheEntry) {
  write_versions(3);
  store_.create("other", {.size_bytes = 10});
  flip("catalog/field");
  EXPECT_EQ(code_of([&] { open(); }), ErrorCode::corrupt);
  EXPECT_EQ(store_.list().size(), 2u) << "one damaged blob hides the others";
  EXPECT_FALSE(store_.check().problems.empty());
  ASSERT_EQ(repair().actions.size(), 1u);
  EXPECT_EQ(whole(open().snapshot()), truth_[3]);
  expect_sound();

  const std::string witness = folder_ + "/gc/alive";
  for (const bool missing : {false, true}) {
    if (missing) {
      backend_->remove(witness);
    } else {
      flip(witness);
    }
    EXPECT_FALSE(store_.check().problems.empty()) << missing;
    try {
      store_.gc({.keep_last = 1, .lease = std::chrono::seconds(0)});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
    }
    ASSERT_EQ(repair().actions.size(), 1u) << missing;
    EXPECT_EQ(whole(open().snapshot(3)), truth_[3]);
    expect_sound();
  }
}

TEST_P(Repair, ATornEntryOfABlobThatHoldsNothingFreesTheName) {
  store_.create("torn", {.size_bytes = 10});
  const std::string folder = store::BlobState::open(backend_, "torn")->folder();
  flip("catalog/torn");
  flip(folder + "/gc/alive");
  ASSERT_EQ(repair().actions.size(), 1u);
  EXPECT_FALSE(store_.exists("torn"));
  EXPECT_EQ(store_.create("torn", {.size_bytes = 20}).size_bytes(), 20u);
  expect_sound();
}

TEST_P(Repair, AfterAnyDamageTheRestIsReadableAndWritable) {
  std::mt19937 random(11);
  write_versions(60, 5'000);
  open().tag("kept", 20);
  open().compact(20);
  store_.gc({.keep_last = 50, .lease = std::chrono::seconds(0)});
  for (int round = 0; round < 12; ++round) {
    std::vector<std::string> objects = backend_->list(folder_);
    std::erase_if(objects, [&](const std::string& object) {
      return object.find("/lost/") != std::string::npos || object.find("/gc/") != std::string::npos ||
             object == store::numbered_key(folder_ + "/index", 11);
    });
    for (int i = 0; i < 3; ++i) {
      const std::string& object = objects[random() % objects.size()];
      if (!backend_->exists(object)) continue;
      if (random() % 3 == 0) {
        backend_->remove(object);
      } else {
        flip(object);
      }
    }
    const std::uint64_t before = open().latest();
    const RepairReport report = repair({.apply = true, .drop_damaged_data = true});
    // Data that only the base of the log refers to has no record that repair could drop.
    if (!report.remaining.empty()) return;
    const CheckReport found = store_.check();
    ASSERT_TRUE(found.problems.empty()) << "round " << round << ": " << found.problems.front();
    ASSERT_TRUE(open().snapshot().damage().empty());
    whole(open().snapshot());
    ASSERT_GT(write_one(), before == 60 ? 59u : 58u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Repair, testing::ValuesIn(store::test_schemes()),
                         [](const auto& scheme) { return scheme.param; });

}  // namespace
}  // namespace penstock
