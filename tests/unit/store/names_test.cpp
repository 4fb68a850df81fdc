// The meaning of a name while some of its creators and removers sleep between their steps.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>

#include "penstock/error.hpp"
#include "store/blob_state.hpp"
#include "store/collect.hpp"
#include "store/encoding.hpp"
#include "unit/store/interrupted.hpp"
#include "unit/store/outcomes.hpp"

namespace penstock::store {
namespace {

constexpr std::uint64_t kSize = 20'000;

class Names : public testing::Test {
 protected:
  Names() : backend_(open_backend("memory:")), slow_(std::make_shared<Interrupted>(backend_)) {
    first_ = create();
    EXPECT_TRUE(find()->remove());
  }

  std::shared_ptr<BlobState> create() { return BlobState::create(backend_, "field", {.size_bytes = kSize}); }
  std::shared_ptr<BlobState> create_slowly() { return BlobState::create(slow_, "field", {.size_bytes = kSize}); }
  std::shared_ptr<BlobState> find() { return BlobState::find(backend_, "field"); }
  std::size_t successors() { return backend_->list("successors/field").size(); }
  /// Runs the action before the first put of a creation, its entry.
  void before_entry(std::function<void()> action) { slow_->before_put = std::move(action); }
  void after_entry(std::function<void()> action) { slow_->after_put = std::move(action); }
  /// Runs the action after the second put of a creation: from there on the blob is there.
  void after_witness(std::function<void()> action) {
    slow_->after_put = [this, action = std::move(action)] { slow_->after_put = action; };
  }
  static std::uint64_t write(const std::shared_ptr<BlobState>& blob) {
    const std::vector<std::byte> data(kSize, std::byte{7});
    const WriteRegion region{0, data};
    return Blob(blob).write(std::span(&region, 1));
  }
  /// Changes the time at which the blob of an entry was made to two hours ago.
  void age(const std::string& entry) {
    const std::vector<std::byte> sealed = read_all(*backend_, entry);
    const auto payload = unseal(sealed, entry);
    std::vector<std::byte> bytes(payload.begin(), payload.end());
    constexpr std::int64_t kMinute = 60'000'000'000;
    bool found = false;
    for (std::size_t at = 0; at + 8 <= bytes.size() && !found; ++at) {
      std::int64_t time_ns = 0;
      std::memcpy(&time_ns, &bytes[at], 8);
      if (std::abs(time_ns - now_ns()) > 10 * kMinute) continue;
      time_ns -= 120 * kMinute;
      std::memcpy(&bytes[at], &time_ns, 8);
      found = true;
    }
    ASSERT_TRUE(found);
    Encoder encoder;
    encoder.raw(bytes);
    const std::vector<std::byte> aged = encoder.seal();
    const ConstBytes piece(aged);
    backend_->replace(entry, std::span(&piece, 1));
  }
  void collect(std::chrono::seconds lease = std::chrono::hours(1)) {
    GcReport report;
    BlobState::free_names(backend_, lease, report);
  }

  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Interrupted> slow_;
  std::shared_ptr<BlobState> first_;  ///< removed
};

TEST_F(Names, ACreatorWhoseNumberWasUsedMeanwhileReportsThatItExists) {
  before_entry([&] { create(); });
  EXPECT_EQ(code_of([&] { create_slowly(); }), ErrorCode::exists);
  EXPECT_EQ(successors(), 1u);
}

TEST_F(Names, ACreatorWhoseNumberWasUsedAndFreedMeanwhileTakesNobodysPlace) {
  std::string folder;
  before_entry([&] {
    create()->remove();
    folder = create()->folder();
    collect();
    EXPECT_EQ(successors(), 1u) << "the number is not free, so the test tries nothing";
  });
  EXPECT_EQ(code_of([&] { create_slowly(); }), ErrorCode::exists);
  ASSERT_NE(find(), nullptr);
  EXPECT_EQ(find()->folder(), folder);
  collect();
  EXPECT_EQ(successors(), 1u) << "the entry that was given up stays";
  EXPECT_EQ(find()->folder(), folder);
}

TEST_F(Names, WhatADeadCreatorLeftThereIsSeenByNobodyAndCollected) {
  std::string folder;
  before_entry([&] {
    create()->remove();
    folder = create()->folder();
    collect();
  });
  after_entry([] { throw Error(ErrorCode::io, "it dies"); });
  EXPECT_EQ(code_of([&] { create_slowly(); }), ErrorCode::io);
  EXPECT_EQ(successors(), 2u);
  EXPECT_EQ(find()->folder(), folder);
  collect();
  EXPECT_EQ(successors(), 1u);
  EXPECT_EQ(find()->folder(), folder);
}

TEST_F(Names, ACreatorThatWasRemovedAndSucceededBeforeItLooksReportsSuccess) {
  after_witness([&] {
    EXPECT_TRUE(find()->remove());
    create();
    collect();
  });
  const auto created = create_slowly();
  EXPECT_TRUE(backend_->exists(created->gone_key()));
  ASSERT_NE(find(), nullptr);
  EXPECT_NE(find()->folder(), created->folder());
}

TEST_F(Names, AReaderThatListedBeforeTheNumberWasFreedDoesNotFindWhoeverTookItThen) {
  create();
  std::string stale;
  slow_->after_list = [&](std::string_view prefix, std::vector<std::string>&) {
    if (prefix != "successors/field" || !stale.empty()) return;
    stale = "x";
    find()->remove();
    create();
    collect();
    // Acts as a sleeping creator: it listed while this number was free.
    const auto taken = backend_->list("successors/field").back();
    const std::vector<std::byte> content = read_all(*backend_, "catalog/field");
    const ConstBytes piece(content);
    ASSERT_TRUE(backend_->put_if_absent("successors/field/00000000000000000001", std::span(&piece, 1))) << taken;
  };
  const auto found = BlobState::find(slow_, "field");
  ASSERT_FALSE(stale.empty());
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->folder(), find()->folder());
}

TEST_F(Names, ABlobStaysWhereTheMarkOfItsPredecessorIsLost) {
  const std::string first = first_->folder();
  const std::string folder = create()->folder();
  ASSERT_TRUE(backend_->remove(first + "/gc/gone"));
  ASSERT_NE(find(), nullptr);
  EXPECT_EQ(find()->folder(), folder);
}

TEST_F(Names, FoldersOfSuccessorsAreNotWhereAnOlderCollectorLooks) {
  create();
  EXPECT_TRUE(find()->folder().starts_with("places/")) << find()->folder();
  EXPECT_TRUE(backend_->list("folders").empty());
  EXPECT_TRUE(backend_->list("homes").empty());
}

TEST_F(Names, NothingOfARemovedBlobStays) {
  create()->remove();
  collect();
  EXPECT_FALSE(backend_->list("catalog").empty()) << "its creator may not have looked yet";
  collect(std::chrono::seconds(0));
  for (const char* folder : {"catalog", "successors", "places"}) EXPECT_TRUE(backend_->list(folder).empty()) << folder;
  EXPECT_EQ(backend_->list("freed").size(), 1u);
  EXPECT_TRUE(BlobState::names(*backend_).empty());
  // Many rounds of creation and removal leave no more than one round.
  for (int round = 0; round < 3; ++round) {
    const auto blob = create();
    EXPECT_EQ(code_of([&] { create(); }), ErrorCode::exists);
    EXPECT_EQ(find()->folder(), blob->folder());
    EXPECT_TRUE(find()->remove());
    collect(std::chrono::seconds(0));
  }
  EXPECT_LE(backend_->list("freed").size(), 2u);
  EXPECT_TRUE(backend_->list("places").empty());
}

TEST_F(Names, AWriterThatSleptThroughRemovalAndFreeingIsToldSo) {
  collect(std::chrono::seconds(0));
  create();
  const std::vector<std::byte> data(kSize, std::byte{7});
  const WriteRegion region{0, data};
  Blob writer(BlobState::open(slow_, "field"));
  writer.write(std::span(&region, 1));
  slow_->before_append = [&] {
    find()->remove();
    collect(std::chrono::seconds(0));
    EXPECT_TRUE(backend_->list("places").empty());
  };
  EXPECT_EQ(code_of([&] { writer.write(std::span(&region, 1)); }), ErrorCode::not_found);
  // What the sleeping writer left belongs to no blob.
  create();
  GcReport report;
  collect_folders(backend_, list_folders(*backend_), {find()->folder()}, std::chrono::seconds(0), report);
  EXPECT_EQ(list_folders(*backend_).size(), 1u);
  EXPECT_EQ(find()->latest(), 0u);
}

TEST_F(Names, ACreatorThatSleptWhileNamesWereFreedBeginsAnew) {
  before_entry([&] { collect(std::chrono::seconds(0)); });
  const auto made = create_slowly();
  ASSERT_NE(find(), nullptr);
  EXPECT_EQ(find()->folder(), made->folder());
  EXPECT_FALSE(made->is_removed());
  // If another creator took the name meanwhile, its blob stays.
  made->remove();
  std::string folder;
  before_entry([&] {
    collect(std::chrono::seconds(0));
    folder = create()->folder();
  });
  EXPECT_EQ(code_of([&] { create_slowly(); }), ErrorCode::exists);
  EXPECT_EQ(find()->folder(), folder);
}

TEST_F(Names, WhatWasWrittenToABlobThatSomebodyFoundStays) {
  // A collector frees another name while the creator is between its entry and its look at what was freed.
  BlobState::create(backend_, "other", {.size_bytes = kSize})->remove();
  std::shared_ptr<BlobState> found;
  after_entry([&] {
    collect(std::chrono::seconds(0));
    found = find();
    if (found) write(found);
  });
  const auto made = create_slowly();
  ASSERT_NE(find(), nullptr);
  EXPECT_EQ(find()->folder(), made->folder());
  if (found) {
    EXPECT_EQ(found->folder(), made->folder());
    EXPECT_EQ(find()->latest(), 1u);
  }
}

TEST_F(Names, ACreatorThatDiedAfterItsEntryBlocksNobody) {
  after_entry([] { throw Error(ErrorCode::io, "it dies"); });
  EXPECT_EQ(code_of([&] { create_slowly(); }), ErrorCode::io);
  EXPECT_EQ(find(), nullptr);
  const auto made = create();
  EXPECT_EQ(find()->folder(), made->folder());
  EXPECT_EQ(write(find()), 1u);
  made->remove();
  collect(std::chrono::seconds(0));
  EXPECT_TRUE(BlobState::names(*backend_).empty());
  // Nor does its name stay.
  after_entry([] { throw Error(ErrorCode::io, "it dies"); });
  EXPECT_EQ(code_of([&] { create_slowly(); }), ErrorCode::io);
  collect();
  EXPECT_FALSE(BlobState::names(*backend_).empty()) << "it may be slow";
  collect(std::chrono::seconds(0));
  EXPECT_TRUE(BlobState::names(*backend_).empty());
}

TEST_F(Names, ACreatorThatWasGivenUpWhileItSleptBeginsAnew) {
  std::string folder;
  after_entry([&] { folder = create()->folder(); });
  EXPECT_EQ(code_of([&] { create_slowly(); }), ErrorCode::exists);
  EXPECT_EQ(find()->folder(), folder);
  find()->remove();
  after_entry([&] { collect(std::chrono::seconds(0)); });
  const auto made = create_slowly();
  EXPECT_EQ(find()->folder(), made->folder());
}

TEST_F(Names, ACreatorThatWasFreedJustBeforeItsBlobWouldExistBeginsAnew) {
  bool tried = false;
  before_entry([&] {
    slow_->before_put = [&] {
      collect(std::chrono::seconds(0));
      tried = BlobState::names(*backend_).empty();
    };
  });
  const auto made = create_slowly();
  EXPECT_TRUE(tried);
  ASSERT_NE(find(), nullptr);
  EXPECT_EQ(find()->folder(), made->folder());
}

TEST_F(Names, ARemovalThatTookEffectSaysSoAlthoughACollectorComesAtOnce) {
  collect(std::chrono::seconds(0));
  const auto made = create();
  age(backend_->list("successors/field").back());
  const auto slow = BlobState::open(slow_, "field");
  slow_->after_put = [&] { collect(); };
  EXPECT_TRUE(slow->remove());
  EXPECT_EQ(find(), nullptr);
}

TEST_F(Names, ARemoverThatSleptWhileItsBlobWasFreedRemovesNothing) {
  const auto slow = create();
  EXPECT_TRUE(find()->remove());
  collect(std::chrono::seconds(0));
  const auto next = create();
  EXPECT_FALSE(slow->remove());
  ASSERT_NE(find(), nullptr);
  EXPECT_EQ(find()->folder(), next->folder());
}

TEST_F(Names, AClonePutUpBehindTheBackOfACollectorStays) {
  const auto blob = create();
  const std::vector<std::byte> data(kSize, std::byte{7});
  const WriteRegion region{0, data};
  Blob(blob).write(std::span(&region, 1));
  blob->clone(1, "copy");
  // The collector listed the blobs before the clone existed.
  GcReport report;
  collect_folders(backend_, list_folders(*backend_), {}, std::chrono::seconds(0), report);
  const auto copy = BlobState::find(backend_, "copy");
  ASSERT_NE(copy, nullptr);
  CheckReport found;
  check_blob(*copy, found);
  EXPECT_TRUE(found.problems.empty()) << found.problems.front();
}

TEST_F(Names, ACloneThatACollectorGaveUpIsNotReportedAsMade) {
  const auto blob = create();
  const std::vector<std::byte> data(kSize, std::byte{7});
  const WriteRegion region{0, data};
  Blob(blob).write(std::span(&region, 1));
  int listed = 0;
  std::uint64_t freed = 0;
  slow_->after_list = [&](std::string_view prefix, std::vector<std::string>&) {
    if (prefix != "successors/copy" || ++listed != 2) return;
    GcReport report;
    collect_folders(backend_, list_folders(*backend_), {}, std::chrono::seconds(0), report);
    freed = report.objects_removed;
  };
  EXPECT_EQ(code_of([&] { BlobState::open(slow_, "field")->clone(1, "copy"); }), ErrorCode::io);
  EXPECT_GT(freed, 2u);
  EXPECT_EQ(BlobState::find(backend_, "copy"), nullptr);
  slow_->after_list = nullptr;
  blob->clone(1, "copy");
  EXPECT_NE(BlobState::find(backend_, "copy"), nullptr);
}

TEST_F(Names, ACloneWhoseFolderWasErasedAndWhoseProcessThenDiedIsNoDamage) {
  write(create());
  // The collector takes the process for dead, but it goes on until the name has its entry.
  std::function<void()> die_once_named = [&] {
    if (BlobState::names(*backend_).contains("copy")) throw Error(ErrorCode::io, "it dies");
    slow_->after_put = die_once_named;
  };
  GcReport report;
  slow_->after_put = [&] {
    collect_folders(backend_, list_folders(*backend_), {}, std::chrono::seconds(0), report);
    slow_->after_put = die_once_named;
  };
  EXPECT_EQ(code_of([&] { BlobState::open(slow_, "field")->clone(1, "copy"); }), ErrorCode::io);
  EXPECT_EQ(report.objects_removed, 1u) << "only the mark of the clone was there";
  ASSERT_TRUE(BlobState::names(*backend_).contains("copy")) << "it died before its entry";
  EXPECT_EQ(BlobState::find(backend_, "copy"), nullptr);
  EXPECT_TRUE(BlobState::damaged_entries(backend_, "copy").empty());
  collect(std::chrono::seconds(0));
  EXPECT_FALSE(BlobState::names(*backend_).contains("copy"));
}

}  // namespace
}  // namespace penstock::store
