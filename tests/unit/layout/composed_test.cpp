// Layouts of boxes and of copies, and their errors.
#include <gtest/gtest.h>

#include <string>

#include "penstock/error.hpp"
#include "penstock/layout.hpp"

namespace penstock {
namespace {

std::string message_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was wrong";
}

// Owners:
// 0 0 1 1 1
// 2 2 1 1 1
// 2 2 3 3 3
const std::vector<LayoutBox> kWheel{{0, {0, 0}, {1, 2}}, {1, {0, 2}, {2, 3}}, {2, {1, 0}, {2, 2}}, {3, {2, 2}, {1, 3}}};

TEST(Boxes, AreTheLocalArraysOfTheirRanks) {
  const Layout layout = Layout::boxes({3, 5}, kWheel, 5);
  EXPECT_EQ(layout.local_shape(1), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(layout.local_size_elems(4), 0);
  for (std::int32_t rank = 0; rank < 4; ++rank)
    for (const LayoutBlock& block : layout.local_blocks(rank)) {
      const LayoutBox& box = kWheel[static_cast<std::size_t>(rank)];
      EXPECT_EQ(block.strides_elems, (std::vector<std::int64_t>{box.shape[1], 1}));
      EXPECT_EQ(block.local_offset_elems,
                (block.global_start[0] - box.begin[0]) * box.shape[1] + block.global_start[1] - box.begin[1]);
    }
  EXPECT_EQ(Layout::parse(layout.serialize()), layout);
  EXPECT_EQ(layout.relabeled({{1, 0, 2, 3, 4}}).local_shape(0), layout.local_shape(1));
  const LocalMemory padded = layout.local_memory(1, 7);
  EXPECT_EQ(padded.size_elems, 14);
  EXPECT_EQ(padded.tiles.back().offset_elems, 7);
}

TEST(Boxes, SayWhatIsWrong) {
  const auto with = [](std::size_t i, const LayoutBox& box) {
    std::vector<LayoutBox> boxes = kWheel;
    boxes[i] = box;
    return message_of([&] { Layout::boxes({3, 5}, boxes, 4); });
  };
  EXPECT_NE(with(0, {0, {0, 0}, {1, 1}}).find("the boxes hold 14 elements of the array's 15"), std::string::npos);
  EXPECT_NE(with(1, {1, {0, 1}, {2, 4}}).find("overlaps with another"), std::string::npos);
  EXPECT_NE(with(2, {4, {1, 0}, {2, 2}}).find("the owner of boxes[2] is 4"), std::string::npos);
  EXPECT_NE(with(3, {3, {2, 2}, {2, 3}}).find("boxes[3] goes from 2 over 2 elements in dimension 0"),
            std::string::npos);
  EXPECT_NE(with(3, {3, {2}, {1, 3}}).find("boxes[3] has 1 and 2 dimensions"), std::string::npos);
}

TEST(Copies, AnswerForEachRankAlone) {
  const Layout wheel = Layout::boxes({3, 5}, kWheel, 4);
  const Layout rows = Layout::even({3, 5}, 2).on_ranks({{6, 4}}, 7);
  const Layout both = Layout::replicated({wheel, rows});
  EXPECT_EQ(both.copies(), 2);
  EXPECT_EQ(both.ranks(), 7);
  EXPECT_EQ(both.copy_of(2), 0);
  EXPECT_EQ(both.copy_of(6), 1);
  EXPECT_EQ(both.copy_of(5), -1);
  EXPECT_EQ(both.local_shape(6), (std::vector<std::int64_t>{2, 5}));
  EXPECT_EQ(both.local_shape(3), (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(both.local_size_elems(5), 0);
  EXPECT_EQ(both.local_blocks(4)[0].global_start, (std::vector<std::int64_t>{2, 0}));
  EXPECT_EQ(Layout::parse(both.serialize()), both);
  const std::vector<std::int64_t> begin{1, 1};
  const std::vector<std::int64_t> shape{2, 2};
  EXPECT_EQ(both.subarray(begin, shape).local_shape(6), (std::vector<std::int64_t>{1, 2}));
}

TEST(Copies, SayWhatIsWrong) {
  const Layout rows = Layout::even({4, 5}, 2);
  EXPECT_NE(message_of([&] {
              Layout::replicated({rows, rows});
            }).find("rank 0 has parts of copies[0] and of copies[1]"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              Layout::replicated({rows, Layout::even({5, 4}, 2)});
            }).find("another shape"),
            std::string::npos);
  EXPECT_NE(message_of([&] { Layout::replicated({}); }).find("no copies"), std::string::npos);
  EXPECT_NE(message_of([&] {
              rows.on_ranks({{1, 1}}, 2);
            }).find("ranks[1] is 1, which is there already"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              rows.on_ranks({{1, 2}}, 2);
            }).find("ranks[1] is 2; expected one from 0 to 1"),
            std::string::npos);
}

}  // namespace
}  // namespace penstock
