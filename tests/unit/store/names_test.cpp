// What a name stands for when some who create or remove it sleep between their steps, and others do not.
#include <gtest/gtest.h>

#include "penstock/error.hpp"
#include "store/blob_state.hpp"
#include "store/collect.hpp"
#include "unit/store/interrupted.hpp"
#include "unit/store/outcomes.hpp"

namespace penstock::store {
namespace {

constexpr std::uint64_t kSize = 20'000;

class Names : public testing::Test {
 protected:
  Names() : backend_(open_backend("memory:")), slow_(std::make_shared<Interrupted>(backend_)) {
    create();
    EXPECT_TRUE(find()->remove());
  }

  std::shared_ptr<BlobState> create() { return BlobState::create(backend_, "field", {.size_bytes = kSize}); }
  std::shared_ptr<BlobState> create_slowly() { return BlobState::create(slow_, "field", {.size_bytes = kSize}); }
  std::shared_ptr<BlobState> find() { return BlobState::find(backend_, "field"); }
  std::size_t successors() { return backend_->list("successors/field").size(); }
  void collect() {
    GcReport report;
    BlobState::free_removed(backend_, "field", report);
  }

  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Interrupted> slow_;
};

TEST_F(Names, ACreatorWhoseNumberWasUsedMeanwhileReportsThatItExists) {
  slow_->before_put = [&] { create(); };
  EXPECT_EQ(code_of([&] { create_slowly(); }), ErrorCode::exists);
  EXPECT_EQ(successors(), 1u);
}

TEST_F(Names, ACreatorWhoseNumberWasUsedAndFreedMeanwhileTakesNobodysPlace) {
  std::string folder;
  slow_->before_put = [&] {
    create()->remove();
    folder = create()->folder();
    collect();
    EXPECT_EQ(successors(), 1u) << "the number is not free, so the test tries nothing";
  };
  EXPECT_EQ(code_of([&] { create_slowly(); }), ErrorCode::exists);
  EXPECT_EQ(successors(), 1u);
  ASSERT_NE(find(), nullptr);
  EXPECT_EQ(find()->folder(), folder);
}

TEST_F(Names, WhatADeadCreatorLeftThereIsSeenByNobodyAndCollected) {
  std::string folder;
  slow_->before_put = [&] {
    create()->remove();
    folder = create()->folder();
    collect();
  };
  slow_->after_put = [] { throw Error(ErrorCode::io, "it dies"); };
  EXPECT_EQ(code_of([&] { create_slowly(); }), ErrorCode::io);
  EXPECT_EQ(successors(), 2u);
  EXPECT_EQ(find()->folder(), folder);
  collect();
  EXPECT_EQ(successors(), 1u);
  EXPECT_EQ(find()->folder(), folder);
}

TEST_F(Names, ACreatorThatWasRemovedAndSucceededBeforeItLooksReportsSuccess) {
  slow_->after_put = [&] {
    EXPECT_TRUE(find()->remove());
    create();
    collect();
  };
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
    // As a sleeper does that listed when this number was free.
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
  const std::string folder = create()->folder();
  ASSERT_TRUE(backend_->remove("blobs/field/gc/gone"));
  ASSERT_NE(find(), nullptr);
  EXPECT_EQ(find()->folder(), folder);
}

TEST_F(Names, FoldersOfSuccessorsAreNotWhereAnOlderCollectorLooks) {
  create();
  EXPECT_TRUE(find()->folder().starts_with("homes/")) << find()->folder();
  EXPECT_TRUE(backend_->list("folders").empty());
}

TEST_F(Names, AClonePutUpBehindTheBackOfACollectorStays) {
  const auto blob = create();
  const std::vector<std::byte> data(kSize, std::byte{7});
  const WriteRegion region{0, data};
  Blob(blob).write(std::span(&region, 1));
  blob->clone(1, "copy");
  // It looked when the clone was not there yet.
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
    const std::set<std::string> in_use = BlobState::folders_in_use(backend_);
    collect_folders(backend_, list_folders(*backend_), in_use, std::chrono::seconds(0), report);
    freed = report.objects_removed;
  };
  EXPECT_EQ(code_of([&] { BlobState::open(slow_, "field")->clone(1, "copy"); }), ErrorCode::io);
  EXPECT_GT(freed, 2u);
  EXPECT_EQ(BlobState::find(backend_, "copy"), nullptr);
  slow_->after_list = nullptr;
  blob->clone(1, "copy");
  EXPECT_NE(BlobState::find(backend_, "copy"), nullptr);
}

}  // namespace
}  // namespace penstock::store
