#include "penstock/layout.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <numeric>
#include <random>

#include "penstock/error.hpp"

namespace penstock {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Checks that every element lies in exactly one block, inside its owner's memory, at a place of its own.
void expect_partition(const Layout& layout) {
  std::vector<int> covered(static_cast<std::size_t>(layout.size_elems()), 0);
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank) {
    std::vector<int> used(static_cast<std::size_t>(layout.local_size_elems(rank)), 0);
    for (const LayoutBlock& block : layout.local_blocks(rank)) {
      std::vector<std::int64_t> index(block.shape.size(), 0);
      for (bool more = true; more;) {
        std::int64_t global = 0;
        std::int64_t local = block.local_offset_elems;
        for (std::size_t d = 0; d < index.size(); ++d) {
          global = global * layout.shape()[d] + block.global_start[d] + index[d];
          local += index[d] * block.strides_elems[d];
        }
        ++covered.at(static_cast<std::size_t>(global));
        ++used.at(static_cast<std::size_t>(local));
        more = false;
        for (std::size_t d = index.size(); d-- > 0 && !more;) {
          more = ++index[d] < block.shape[d];
          if (!more) index[d] = 0;
        }
      }
    }
    for (const int count : used) ASSERT_EQ(count, 1);
  }
  for (const int count : covered) ASSERT_EQ(count, 1);
}

TEST(Layout, BlockCyclicIsScalapacks) {
  const Layout layout = Layout::block_cyclic({10, 7}, {3, 2}, {2, 2});
  EXPECT_EQ(layout.ranks(), 4);
  EXPECT_EQ(layout.local_shape(0), (std::vector<std::int64_t>{6, 4}));  // rows 0-2 6-8, columns 0-1 4-5
  EXPECT_EQ(layout.local_shape(3), (std::vector<std::int64_t>{4, 3}));  // rows 3-5 9, columns 2-3 6
  EXPECT_EQ(layout.owner(std::vector<std::int64_t>{3, 2}), 2);
  EXPECT_EQ(layout.splits(0), (std::vector<std::int64_t>{0, 3, 6, 9, 10}));
  const std::vector<LayoutBlock> blocks = layout.local_blocks(3);
  ASSERT_EQ(blocks.size(), 4u);
  EXPECT_EQ(blocks[3].global_start, (std::vector<std::int64_t>{9, 6}));
  EXPECT_EQ(blocks[3].shape, (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(blocks[3].local_offset_elems, 3 * 3 + 2);
}

TEST(Layout, TheFirstBlockMayBeOnAnyProcessAndTheProcessesAnyRanks) {
  const Layout layout = Layout::block_cyclic(
      {.shape = {10, 7}, .block = {3, 2}, .grid = {2, 2}, .first_process = {1, 0}, .ranks = {7, 5, 0, 2}});
  EXPECT_EQ(layout.ranks(), 8);
  EXPECT_EQ(layout.owner(std::vector<std::int64_t>{0, 0}), 0);
  EXPECT_EQ(layout.owner(std::vector<std::int64_t>{1, 1}), 5);
  EXPECT_EQ(layout.local_shape(0), (std::vector<std::int64_t>{6, 4}));
  EXPECT_EQ(layout.local_size_elems(3), 0);
  expect_partition(layout);
  const auto with = [](const BlockCyclic& what) { return message_of([&] { Layout::block_cyclic(what); }); };
  const BlockCyclic good{.shape = {4, 4}, .block = {2, 2}, .grid = {1, 2}};
  BlockCyclic wrong = good;
  wrong.first_process = {0, 2};
  EXPECT_TRUE(contains(with(wrong), "first_process[1] is 2")) << with(wrong);
  wrong = good;
  wrong.ranks = {3};
  EXPECT_TRUE(contains(with(wrong), "1 ranks given")) << with(wrong);
  wrong.ranks = {3, 3};
  EXPECT_TRUE(contains(with(wrong), "rank 3 stands for two")) << with(wrong);
}

TEST(Layout, AWindowOwnsWhatTheLayoutOwns) {
  std::mt19937 random(4);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 100; ++i) {
    const Layout whole = i % 2 == 0
                             ? Layout::block_cyclic({.shape = {pick(1, 30), pick(1, 30)},
                                                     .block = {pick(1, 6), pick(1, 6)},
                                                     .grid = {2, 3},
                                                     .first_process = {pick(0, 1), pick(0, 2)}})
                             : Layout::grid({{0, 3, 4, 9}, {0, 5, 11}}, {0, 1, 1, 2, 0, 1}, 3, Order::column_major);
    std::vector<std::int64_t> begin, shape;
    for (const std::int64_t length : whole.shape()) {
      begin.push_back(pick(0, length));
      shape.push_back(pick(0, length - begin.back()));
    }
    const Layout subarray = whole.subarray(begin, shape);
    EXPECT_EQ(Layout::parse(subarray.serialize()), subarray);
    expect_partition(subarray);
    // Each element has the same owner and the same place in memory as in the whole array.
    for (std::int32_t rank = 0; rank < whole.ranks(); ++rank) {
      std::map<std::vector<std::int64_t>, std::int64_t> place;
      for (const LayoutBlock& block : whole.local_blocks(rank))
        for (std::int64_t r = 0; r < block.shape[0]; ++r)
          for (std::int64_t c = 0; c < block.shape[1]; ++c)
            place[{block.global_start[0] + r, block.global_start[1] + c}] =
                block.local_offset_elems + r * block.strides_elems[0] + c * block.strides_elems[1];
      const LocalMemory memory = whole.subarray_memory(begin, shape, rank, whole.local_memory(rank));
      const std::vector<LayoutTile> tiles = subarray.local_tiles(rank);
      ASSERT_EQ(memory.tiles.size(), tiles.size());
      for (std::size_t k = 0; k < tiles.size(); ++k)
        for (const LayoutBlock& block : subarray.local_blocks(rank)) {
          if (subarray.dimensions() != 2 || tiles.size() != 1) continue;  // the block's tile is unknown
          for (std::int64_t r = 0; r < block.shape[0]; ++r)
            for (std::int64_t c = 0; c < block.shape[1]; ++c) {
              const std::int64_t local =
                  block.local_offset_elems + r * block.strides_elems[0] + c * block.strides_elems[1];
              const std::int64_t width = tiles[k].shape[subarray.storage() == Order::row_major ? 1 : 0];
              const bool row_major = subarray.storage() == Order::row_major;
              const std::int64_t row = row_major ? local / width : local % width;
              const std::int64_t column = row_major ? local % width : local / width;
              ASSERT_EQ(memory.tiles[k].offset_elems + row * memory.tiles[k].strides_elems[0] +
                            column * memory.tiles[k].strides_elems[1],
                        place.at({begin[0] + block.global_start[0] + r, begin[1] + block.global_start[1] + c}));
            }
        }
    }
  }
}

TEST(Layout, ProcessGridOrderNumbersTheRanks) {
  const Layout row = Layout::block_cyclic({4, 6}, {1, 1}, {2, 3});
  const Layout column = Layout::block_cyclic({4, 6}, {1, 1}, {2, 3}, Order::column_major);
  const std::vector<std::int64_t> block{1, 2};
  EXPECT_EQ(row.owner(block), 5);
  EXPECT_EQ(column.owner(block), 5);
  EXPECT_EQ(row.owner(std::vector<std::int64_t>{1, 0}), 3);
  EXPECT_EQ(column.owner(std::vector<std::int64_t>{1, 0}), 1);
}

TEST(Layout, ColumnMajorStorage) {
  const Layout layout = Layout::block_cyclic({4, 6}, {2, 3}, {1, 1}, Order::row_major, Order::column_major);
  EXPECT_EQ(layout.local_tiles(0).at(0).strides_elems, (std::vector<std::int64_t>{1, 4}));
}

TEST(Layout, GridKeepsBlocksOneAfterAnother) {
  const Layout layout = Layout::grid({{0, 2, 5}, {0, 4}}, {1, 1}, 3);
  EXPECT_EQ(layout.local_size_elems(1), 20);
  EXPECT_EQ(layout.local_shape(1), (std::vector<std::int64_t>{20}));
  EXPECT_EQ(layout.local_shape(0), (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(layout.local_blocks(1).at(1).local_offset_elems, 8);
  EXPECT_EQ(layout.local_size_elems(7), 0) << "ranks beyond the layout own nothing";
}

TEST(Layout, EvenAndWhole) {
  const Layout even = Layout::even({10, 3}, 4);
  EXPECT_EQ(even.local_shape(0), (std::vector<std::int64_t>{3, 3}));
  EXPECT_EQ(even.local_shape(3), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(Layout::even({2}, 4).local_size_elems(3), 0);
  EXPECT_EQ(Layout::whole({}, 1, 2).local_size_elems(1), 1) << "a scalar is one element";
  EXPECT_EQ(Layout::whole({3, 0}).local_size_elems(0), 0);
  EXPECT_EQ(Layout::even({0, 4}, 2).size_elems(), 0);
}

TEST(Layout, EveryElementHasOneOwnerAndOnePlace) {
  expect_partition(Layout::block_cyclic({13, 11, 5}, {2, 3, 1}, {2, 1, 3}, Order::column_major, Order::column_major));
  expect_partition(Layout::block_cyclic({5}, {7}, {3}));
  expect_partition(Layout::grid({{0, 1, 6}, {0, 2, 3, 9}}, {0, 2, 0, 2, 2, 0}, 3, Order::column_major));
  expect_partition(Layout::even({7, 3}, 3, 1));
  expect_partition(Layout::from_axes({Axis::cyclic(9, 2, 2), Axis::cut({0, 4, 5})}, {1, 0, 0, 1}, 2));
  std::mt19937 random(7);
  for (int i = 0; i < 50; ++i) {
    const auto pick = [&](int low, int high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random); };
    expect_partition(
        Layout::block_cyclic({pick(0, 20), pick(1, 20)}, {pick(1, 6), pick(1, 25)}, {pick(1, 4), pick(1, 3)}));
  }
}

TEST(Layout, SerializedTextMakesAnEqualLayout) {
  const std::vector<std::int32_t> cycle{1, 2, 3, 0, 4};
  for (const Layout& layout : {Layout::block_cyclic({100, 70}, {8, 3}, {2, 2}, Order::column_major),
                               Layout::block_cyclic({100, 70}, {8, 3}, {2, 2}).relabeled(cycle),
                               Layout::grid({{0, 3, 9}, {0, 1}}, {1, 0}, 2, Order::column_major),
                               Layout::even({5, 2}, 3, 1), Layout::whole({}), Layout::whole({0, 3})}) {
    const std::string text = layout.serialize();
    const Layout again = Layout::parse(text);
    EXPECT_EQ(again, layout);
    EXPECT_EQ(again.serialize(), text);
    EXPECT_EQ(again.shape(), layout.shape());
    EXPECT_EQ(again.local_shape(0), layout.local_shape(0));
  }
  EXPECT_FALSE(Layout::whole({4, 2}) == Layout::whole({2, 4}));
}

TEST(Layout, DamagedTextIsAnError) {
  const std::string text = Layout::block_cyclic({100, 70}, {8, 3}, {2, 2}).serialize();
  for (std::size_t cut = 0; cut < text.size(); ++cut)
    EXPECT_THROW(Layout::parse(text.substr(0, cut)), Error) << text.substr(0, cut);
  EXPECT_TRUE(contains(message_of([&] { Layout::parse("layout1;row;2;cyclic:4,x,1;owners:0"); }), "'x'"));
  EXPECT_TRUE(contains(message_of([&] { Layout::parse("layout1;row;2;cut:0,4;owners:0+2000000000"); }), "owners"));
  EXPECT_TRUE(contains(message_of([&] { Layout::parse("layout1;row;2;cut:0,4;owners:0;more"); }), "after the owners"));
}

TEST(Layout, RelabelingMovesWholeTiles) {
  const Layout layout = Layout::block_cyclic({6, 6}, {2, 2}, {1, 3});
  const Layout shifted = layout.relabeled(std::vector<std::int32_t>{2, 0, 1, 3});
  EXPECT_EQ(shifted.ranks(), 4);
  EXPECT_EQ(shifted.owner(std::vector<std::int64_t>{0, 0}), 2);
  EXPECT_EQ(shifted.local_blocks(2).at(0).global_start, layout.local_blocks(0).at(0).global_start);
  EXPECT_EQ(shifted.local_size_elems(3), 0);
}

TEST(Layout, SizesAre64BitAndNeverEnumerated) {
  const std::int64_t tera = std::int64_t{1} << 40;
  const Layout layout = Layout::block_cyclic({tera, 4}, {1, 1}, {32, 4});
  EXPECT_EQ(layout.size_elems(), 4 * tera);
  EXPECT_EQ(layout.local_size_elems(127), tera / 32);
  EXPECT_EQ(layout.axes()[0].interval_of(tera - 1), tera - 1);
  EXPECT_EQ(Layout::parse(layout.serialize()), layout);
}

TEST(Layout, TheFirstOffenceIsNamed) {
  const auto cyclic = [](auto... arguments) { return message_of([&] { Layout::block_cyclic(arguments...); }); };
  using V = std::vector<std::int64_t>;
  EXPECT_TRUE(contains(cyclic(V{4, 4}, V{2}, V{1, 1}), "the block has 1"));
  EXPECT_TRUE(contains(cyclic(V{4, 4}, V{2, 0}, V{1, 1}), "block's length is 0"));
  EXPECT_TRUE(contains(cyclic(V{4, -4}, V{2, 1}, V{1, 1}), "length is -4"));
  EXPECT_TRUE(contains(cyclic(V{4, 4}, V{2, 1}, V{1, 0}), "process grid is 0"));
  EXPECT_TRUE(contains(cyclic(V{std::int64_t{1} << 40, std::int64_t{1} << 40}, V{1, 1}, V{1, 1}), "is 2^63 or more"));
  const auto grid = [](std::vector<V> splits, std::vector<std::int32_t> owners, std::int32_t ranks) {
    return message_of([&] { Layout::grid(splits, owners, ranks); });
  };
  EXPECT_TRUE(contains(grid({{0, 5, 3}}, {0, 0}, 1), "splits[2] is 3 after 5"));
  EXPECT_TRUE(contains(grid({{1, 5}}, {0}, 1), "begin with 0"));
  EXPECT_TRUE(contains(grid({{}}, {0}, 1), "begin with 0"));
  EXPECT_TRUE(contains(grid({{0, 5}}, {0, 0}, 1), "2 owners given; expected one for each of 1 blocks"));
  EXPECT_TRUE(contains(grid({{0, 2, 5}}, {0, 3}, 3), "owners[1] is 3"));
  EXPECT_TRUE(contains(grid({{0, 5}}, {0}, 0), "ranks is 0"));
  const Layout layout = Layout::whole({4}, 0, 2);
  EXPECT_TRUE(contains(message_of([&] { layout.relabeled(std::vector<std::int32_t>{1, 1}); }), "permutation[1] is 1"));
  EXPECT_TRUE(contains(message_of([&] { layout.relabeled(std::vector<std::int32_t>{0}); }), "permutation of 1"));
  EXPECT_TRUE(contains(message_of([&] { layout.owner(std::vector<std::int64_t>{1}); }), "block index 1"));
  EXPECT_TRUE(contains(message_of([&] { layout.local_size_elems(-1); }), "rank -1"));
}

}  // namespace
}  // namespace penstock
