// Power cuts on a file system in memory. It keeps synced changes, and a random part of the unsynced ones. After each
// cut the test opens the store again: no acknowledged version is lost or torn, and all visible versions are readable.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "faults/volatile_files.hpp"
#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "store/blob_state.hpp"
#include "store/collect.hpp"
#include "store/posix_backend.hpp"
#include "store/repair.hpp"
#include "takes_all.hpp"
#include "unit/store/frequent_deltas.hpp"

namespace penstock::store {
namespace {

struct Ways {
  bool mixed = false;        ///< some changes are made without durability; then each restart repairs the store first
  bool cuts_repair = false;  ///< with `mixed`: the power is also cut during the repair, which then begins anew
  bool compresses = false;   ///< each life writes with or without compression, by chance
};

/// Writes and collects until the power is cut at a random call, many times over the same store.
class Machine {
 public:
  explicit Machine(unsigned seed, const Ways& ways = {}) : random_(seed), ways_(ways) {}

  void live_and_die() {
    // verify() has made calls, too: without them in the sum most lives would end before they begin.
    files_.cut_at(files_.calls() + 20 + random_() % 900);
    try {
      const auto safe = open_directory("/data/store", "file:///data/store", {}, files_);
      const auto quick =
          ways_.mixed ? open_directory("/data/store", "file:///data/store", {.durable = false}, files_) : safe;
      if (!BlobState::find(safe, "field")) {
        BlobState::create(random_() % 2 == 0 ? safe : quick, "field", {.size_bytes = kSize});
      }
      const auto open = [&](const std::shared_ptr<Backend>& backend) {
        const auto state = BlobState::open(backend, "field");
        if (ways_.compresses) state->compress(random_() % 2 == 0 ? 3 : 0);
        return Blob(state);
      };
      Blob safe_blob = open(safe);
      Blob quick_blob = open(quick);
      for (;;) {
        const bool waits = !ways_.mixed || random_() % 2 == 0;
        // Freeing is always durable, as in Store::gc and Store::remove.
        const auto backend = durable_backend(waits ? safe : quick);
        Blob& blob = waits ? safe_blob : quick_blob;
        if (random_() % 12 == 0) {
          GcReport report;
          collect_blob(*BlobState::open(backend, "field"), {1 + random_() % 5, std::chrono::seconds(0)}, report);
          continue;
        }
        if (random_() % 30 == 0) {
          collect_all(backend);
          continue;
        }
        if (random_() % 40 == 0 && !clones_.empty()) {
          removing_ = clones_.begin()->first;
          remove(backend, removing_);
          removed_.insert(removing_);
          clones_.erase(removing_);
          removing_.clear();
          continue;
        }
        const std::uint64_t version = blob.latest();
        if (random_() % 25 == 0 && waits && acknowledged_.contains(version)) {
          const std::string name = "clone-" + std::to_string(++clones_tried_);
          BlobState::open(backend, "field")->clone(version, name);
          clones_[name] = acknowledged_.at(version);
          continue;
        }
        if (random_() % 20 == 0 && waits && acknowledged_.contains(version)) {
          const std::string tag = "v" + std::to_string(version);
          blob.compact(version);
          const auto tags = blob.tags();
          if (std::none_of(tags.begin(), tags.end(), [&](const Tag& t) { return t.name == tag; }))
            blob.tag(tag, version);
          tagged_.insert(version);
          continue;
        }
        const int value = 1 + static_cast<int>(random_() % 250);
        const std::vector<std::byte> data(random_() % 3 == 0 ? 100 : 6'000, static_cast<std::byte>(value));
        const WriteRegion regions[] = {{random_() % 5'000, data}, {20'000 + random_() % 5'000, data}};
        attempted_ = {regions[0].offset_bytes, regions[1].offset_bytes, data.size(), value};
        const std::uint64_t made = blob.write(regions);
        unsynced_[made] = attempted_;
        if (!waits) continue;
        // A durable version makes all versions before it durable.
        acknowledged_.merge(unsynced_);
        unsynced_.clear();
      }
    } catch (const Error& error) {
      EXPECT_TRUE(files_.is_off()) << "an error although the power is on: " << error.what();
    }
    files_.restart(random_);
    unsynced_.clear();
    if (!ways_.mixed) return;
    if (ways_.cuts_repair) {
      files_.cut_at(random_() % 400);
      try {
        repair();
      } catch (const Error& error) {
        EXPECT_TRUE(files_.is_off()) << "an error although the power is on: " << error.what();
        ++cut_repairs_;
      }
      files_.restart(random_);
    }
    repair();
  }

  std::size_t repairs() const { return repairs_; }
  std::size_t cut_repairs() const { return cut_repairs_; }

  void verify() {
    const auto backend = open_directory("/data/store", "file:///data/store", {}, files_);
    if (!BlobState::find(backend, "field")) {
      EXPECT_TRUE(acknowledged_.empty()) << "everything is lost";
      return;
    }
    const auto state = BlobState::open(backend, "field");
    CheckReport report;
    check_blob(*state, report);
    ASSERT_TRUE(report.problems.empty()) << report.problems.front();
    const Blob blob(state);
    const std::uint64_t newest = blob.latest();
    const std::uint64_t last = acknowledged_.empty() ? 0 : acknowledged_.rbegin()->first;
    ASSERT_GE(newest, last) << "acknowledged, but lost";
    if (ways_.compresses) {
      for (const std::string& key : backend->list(state->key("data"))) {
        compressed_objects_ += backend->size_bytes(key) < 6'000 ? 1 : 0;  // two regions of 6,000 bytes
      }
    }
    std::set<std::uint64_t> readable = tagged_;
    for (std::uint64_t version = state->marks().keep_from; version <= newest; ++version) readable.insert(version);
    for (const std::uint64_t version : readable) {
      // As another process reads it.
      const auto cold = BlobState::open(backend, "field");
      deltas_read_ += cold->readable_at(version).map->is_partial() ? 1 : 0;
      const Snapshot snapshot = Blob(cold).snapshot(version);
      const auto at = acknowledged_.find(version);
      if (at == acknowledged_.end()) continue;
      expect_attempt(snapshot, at->second);
    }
    if (!removing_.empty()) {
      // The removal was not acknowledged: it has happened, or it can be repeated.
      if (BlobState::find(backend, removing_)) remove(backend, removing_);
      clones_.erase(removing_);
      removed_.insert(removing_);
      removing_.clear();
    }
    for (const std::string& name : removed_) ASSERT_EQ(BlobState::find(backend, name), nullptr) << name << " is back";
    // An unacknowledged clone exists completely or not at all.
    for (const std::string& name : BlobState::names(*backend)) {
      const auto clone = BlobState::find(backend, name);
      if (!clone) continue;
      CheckReport found;
      check_blob(*clone, found);
      ASSERT_TRUE(found.problems.empty()) << found.problems.front();
    }
    for (const auto& [name, attempt] : clones_) {
      ASSERT_NE(BlobState::find(backend, name), nullptr) << name << " is lost";
      expect_attempt(Blob(BlobState::open(backend, name)).snapshot(), attempt);
    }
  }

  std::size_t acknowledged() const { return acknowledged_.size(); }
  std::size_t tagged() const { return tagged_.size(); }
  std::size_t cloned() const { return clones_.size() + removed_.size(); }
  std::size_t removed() const { return removed_.size(); }
  std::size_t deltas_read() const { return deltas_read_; }
  std::size_t compressed_objects() const { return compressed_objects_; }

 private:
  static constexpr std::uint64_t kSize = 40'000;
  struct Attempt {
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    std::size_t size = 0;
    int value = 0;
  };

  static void expect_attempt(const Snapshot& snapshot, const Attempt& attempt) {
    for (const std::uint64_t offset : {attempt.first, attempt.second}) {
      std::vector<std::byte> data(attempt.size);
      const ReadRegion region{offset, data};
      snapshot.read(std::span(&region, 1));
      ASSERT_EQ(data, std::vector<std::byte>(data.size(), static_cast<std::byte>(attempt.value)));
    }
  }

  /// Do the same as Store::remove and Store::gc.
  static void remove(const std::shared_ptr<Backend>& backend, const std::string& name) {
    const auto blob = BlobState::open(backend, name);
    blob->remove();
    remove_folder(*backend, blob->folder());
  }
  static void collect_all(const std::shared_ptr<Backend>& backend) {
    GcReport report;
    const std::set<std::string> folders = list_folders(*backend);
    std::set<std::string> in_use;
    for (const std::string& name : BlobState::names(*backend)) {
      if (const auto blob = BlobState::find(backend, name)) in_use.insert(blob->folder());
    }
    BlobState::free_names(backend, std::chrono::seconds(0), report);
    collect_folders(backend, folders, in_use, std::chrono::seconds(0), report);
  }

  /// Does the same as Store::repair. It must not drop any version up to the newest acknowledged one.
  void repair() {
    const auto backend = open_directory("/data/store", "file:///data/store", {}, files_);
    RepairReport report;
    const RepairOptions options{.apply = true, .drop_damaged_data = true};
    const std::uint64_t last = acknowledged_.empty() ? 0 : acknowledged_.rbegin()->first;
    bool whole = true;
    for (const std::string& name : BlobState::names(*backend)) {
      const std::size_t before = report.actions.size();
      repair_name(backend, name, {}, report);
      whole = whole && report.actions.size() == before;
      if (name == "field" && last > 0) {
        EXPECT_EQ(report.actions.size(), before) << report.actions.back().reason;
      }
      repair_name(backend, name, options, report);
      repair_blob(backend, name, options, report);
    }
    for (const RepairAction& action : report.actions) {
      if (action.blob == "field" && action.object.find("/versions/") != std::string::npos) {
        EXPECT_GT(number_of(action.object), last) << action.object << ": " << action.reason;
      }
    }
    EXPECT_TRUE(report.remaining.empty()) << report.remaining.front();
    repairs_ += report.actions.size();
    backend->declare_whole();
  }

  std::mt19937 random_;
  const Ways ways_;
  std::size_t repairs_ = 0;
  std::size_t cut_repairs_ = 0;
  std::size_t deltas_read_ = 0;
  std::size_t compressed_objects_ = 0;
  VolatileFiles files_;
  std::map<std::string, Attempt> clones_;
  std::set<std::string> removed_;
  std::string removing_;
  int clones_tried_ = 0;
  Attempt attempted_;
  std::map<std::uint64_t, Attempt> acknowledged_;  ///< acknowledged as durable
  std::map<std::uint64_t, Attempt> unsynced_;      ///< written since then without durability
  std::set<std::uint64_t> tagged_;                 ///< tagged and compacted
};

const unsigned kFewer = fewer_if_sanitized(4);

void live_six_times(Machine& machine) {
  for (int life = 0; life < 6; ++life) {
    machine.live_and_die();
    machine.verify();
    ASSERT_FALSE(testing::Test::HasFailure()) << "life " << life;
  }
}

TEST(StorePowerCut, LosesNothingThatWasAcknowledged) {
  std::size_t acknowledged = 0;
  std::size_t tagged = 0;
  std::size_t cloned = 0;
  std::size_t removed = 0;
  for (unsigned seed = 0; seed < 170 / kFewer; ++seed) {
    Machine machine(seed);
    ASSERT_NO_FATAL_FAILURE(live_six_times(machine)) << "seed " << seed;
    acknowledged += machine.acknowledged();
    tagged += machine.tagged();
    cloned += machine.cloned();
    removed += machine.removed();
  }
  EXPECT_GT(cloned, 50u / kFewer);
  EXPECT_GT(removed, 10u / kFewer);
  EXPECT_GT(tagged, 50u / kFewer);
  EXPECT_GT(acknowledged, 1000u / kFewer);
}

TEST(StorePowerCut, WhatOthersDidNotSyncTakesNothingAwayThatWasAcknowledged) {
  std::size_t acknowledged = 0;
  std::size_t repairs = 0;
  for (unsigned seed = 1000; seed < 1000 + 150 / kFewer; ++seed) {
    Machine machine(seed, {.mixed = true});
    ASSERT_NO_FATAL_FAILURE(live_six_times(machine)) << "seed " << seed;
    acknowledged += machine.acknowledged();
    repairs += machine.repairs();
  }
  EXPECT_GT(acknowledged, 1000u / kFewer);
  EXPECT_GT(repairs, 100u / kFewer) << "nothing was ever torn, so the test proves nothing";
}

TEST(StorePowerCut, DeltasChangeNothingOfThat) {
  std::size_t acknowledged = 0;
  std::size_t repairs = 0;
  std::size_t deltas_read = 0;
  for (unsigned seed = 2000; seed < 2000 + 120 / kFewer; ++seed) {
    const FrequentDeltas often(1 + seed % 3);
    Machine machine(seed, {.mixed = seed % 2 == 0});
    ASSERT_NO_FATAL_FAILURE(live_six_times(machine)) << "seed " << seed;
    acknowledged += machine.acknowledged();
    repairs += machine.repairs();
    deltas_read += machine.deltas_read();
  }
  EXPECT_GT(acknowledged, 1000u / kFewer);
  EXPECT_GT(repairs, 50u / kFewer);
  EXPECT_GT(deltas_read, 100u / kFewer) << "no version was read by a delta, so the test proves nothing";
}

TEST(StorePowerCut, NorDoesCompression) {
  std::size_t acknowledged = 0;
  std::size_t compressed_objects = 0;
  for (unsigned seed = 3000; seed < 3000 + 120 / kFewer; ++seed) {
    Machine machine(seed, {.mixed = seed % 2 == 0, .cuts_repair = seed % 4 == 0, .compresses = true});
    ASSERT_NO_FATAL_FAILURE(live_six_times(machine)) << "seed " << seed;
    acknowledged += machine.acknowledged();
    compressed_objects += machine.compressed_objects();
  }
  EXPECT_GT(acknowledged, 1000u / kFewer);
  EXPECT_GT(compressed_objects, 500u / kFewer);
}

TEST(StorePowerCut, ARepairThatIsCutTakesNothingAway) {
  std::size_t acknowledged = 0;
  std::size_t repairs = 0;
  std::size_t cut_repairs = 0;
  for (unsigned seed = 4000; seed < 4000 + 120 / kFewer; ++seed) {
    const FrequentDeltas often(seed % 2 == 0 ? 2 : 1000);
    Machine machine(seed, {.mixed = true, .cuts_repair = true});
    ASSERT_NO_FATAL_FAILURE(live_six_times(machine)) << "seed " << seed;
    acknowledged += machine.acknowledged();
    repairs += machine.repairs();
    cut_repairs += machine.cut_repairs();
  }
  EXPECT_GT(acknowledged, 1000u / kFewer);
  EXPECT_GT(repairs, 50u / kFewer);
  EXPECT_GT(cut_repairs, 100u / kFewer);
}

TEST(StorePowerCut, AnObjectThatIsMadeWhileItIsPutIsThereAsAWholeOrNotAtAll) {
  std::vector<std::vector<std::byte>> pieces;
  for (int i = 0; i < 5; ++i) pieces.emplace_back(1000, static_cast<std::byte>(i + 1));
  const auto begin = [&] {
    return [&, next = std::size_t{0}]() mutable {
      return next < pieces.size() ? ConstBytes(pieces[next++]) : ConstBytes{};
    };
  };
  int made = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    bool survived = false;
    for (std::uint64_t at = 0; !survived; ++at) {
      SCOPED_TRACE("power fails before call " + std::to_string(at));
      ASSERT_LT(at, 100u);
      VolatileFiles files;
      const auto backend = open_directory("/data/store", "file:///data/store", {}, files);
      const std::uint64_t before = files.calls();
      files.cut_at(before + at);
      bool acknowledged = false;
      try {
        acknowledged = backend->put_stream_if_absent("some/where/a", {5000, begin});
      } catch (const Error&) {
      }
      survived = !files.is_off();
      EXPECT_TRUE(acknowledged || !survived);
      files.restart(random);
      const auto after = open_directory("/data/store", "file:///data/store", {.create = false}, files);
      if (!after->exists("some/where/a")) {
        EXPECT_FALSE(acknowledged);
        continue;
      }
      ++made;
      const std::vector<std::byte> found = read_all(*after, "some/where/a");
      ASSERT_EQ(found.size(), 5000u);
      for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], pieces[i / 1000][0]) << i;
    }
  }
  EXPECT_GE(made, 20);
}

TEST(StorePowerCut, TheSimulationNoticesAMissingSync) {
  // Without durability the same history must lose data; otherwise the test above proves nothing.
  bool lost = false;
  for (unsigned seed = 0; seed < 20 && !lost; ++seed) {
    std::mt19937 random(seed);
    VolatileFiles files;
    {
      const auto backend = open_directory("/data/store", "file:///data/store", {.durable = false}, files);
      BlobState::create(backend, "field", {.size_bytes = 10'000});
      Blob blob(BlobState::open(backend, "field"));
      const std::vector<std::byte> data(9'000, std::byte{1});
      const WriteRegion region{0, data};
      blob.write(std::span(&region, 1));
    }
    files.restart(random);
    try {
      const auto backend = open_directory("/data/store", "file:///data/store", {.create = false}, files);
      const Blob blob(BlobState::open(backend, "field"));
      std::vector<std::byte> data(9'000);
      const ReadRegion region{0, data};
      blob.read(std::span(&region, 1), 1);
    } catch (const Error&) {
      lost = true;
    }
  }
  EXPECT_TRUE(lost);
}

}  // namespace
}  // namespace penstock::store
