#include <gtest/gtest.h>

#include <map>
#include <random>

#include "penstock/error.hpp"
#include "penstock/redistribute.hpp"
#include "redistribute_cases.hpp"

namespace penstock {
namespace {

using testing_layouts::owner_of;
using testing_layouts::random_layout;

std::vector<PairVolume> counted(const Layout& source, const Layout& target, bool transposed) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> volumes;
  testing_layouts::for_each_index(source.shape(), [&](const std::vector<std::int64_t>& index) {
    std::vector<std::int64_t> target_index = index;
    if (transposed) std::swap(target_index[0], target_index[1]);
    ++volumes[{owner_of(source, index), owner_of(target, target_index)}];
  });
  std::vector<PairVolume> result;
  for (const auto& [pair, elems] : volumes) result.push_back({pair.first, pair.second, elems});
  return result;
}

TEST(Volumes, EqualThoseCountedElementByElement) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const bool transposed = i % 2 == 1;
    std::vector<std::int64_t> shape = testing_layouts::random_shape(random, transposed ? 2 : 1 + i % 3);
    const Layout source = random_layout(random, shape, 5);
    if (transposed) std::swap(shape[0], shape[1]);
    const Layout target = random_layout(random, shape, 5);
    EXPECT_EQ(transfer_volumes(source, target, transposed ? MatrixOp::transpose : MatrixOp::none),
              counted(source, target, transposed))
        << source.serialize() << " -> " << target.serialize();
  }
}

TEST(Volumes, NeedOnePeriodOfALongAxis) {
  const std::int64_t tera = std::int64_t{1} << 40;
  const Layout source = Layout::block_cyclic({tera + 5, 8}, {3, 2}, {4, 4});
  const Layout target = Layout::block_cyclic({tera + 5, 8}, {128, 1}, {2, 8}, Order::column_major);
  std::int64_t sum = 0;
  for (const PairVolume& volume : transfer_volumes(source, target)) sum += volume.elems;
  EXPECT_EQ(sum, (tera + 5) * 8);
  const Layout halves = Layout::even({tera + 5, 8}, 2);
  sum = 0;
  for (const PairVolume& volume : transfer_volumes(source, halves)) sum += volume.elems;
  EXPECT_EQ(sum, (tera + 5) * 8);
}

TEST(Volumes, OfAnArrayWithoutDimensions) {
  const std::vector<PairVolume> moved = {{1, 2, 1}};
  EXPECT_EQ(transfer_volumes(Layout::whole({}, 1, 3), Layout::whole({}, 2, 3)), moved);
}

TEST(Volumes, ShapesMustFit) {
  const Layout a = Layout::whole({4, 6});
  EXPECT_THROW(transfer_volumes(a, Layout::whole({6, 4})), Error);
  EXPECT_NO_THROW(transfer_volumes(a, Layout::whole({6, 4}), MatrixOp::transpose));
  EXPECT_THROW(transfer_volumes(a, a, MatrixOp::conjugate_transpose), Error);
  const Layout cube = Layout::whole({2, 2, 2});
  EXPECT_THROW(transfer_volumes(cube, cube, MatrixOp::transpose), Error);
}

TEST(Relabel, IdenticalUpToAPermutationCostsNothing) {
  for (std::int32_t ranks : {2, 3, 4, 7, 64}) {
    const Layout source = Layout::block_cyclic({1000}, {3}, {ranks});
    std::vector<std::int32_t> shift;
    for (std::int32_t r = 0; r < ranks; ++r) shift.push_back((r + 1) % ranks);
    const Layout target = source.relabeled(shift);
    const Relabeling relabeling = relabel(source, target, {.element_bytes = 8});
    EXPECT_EQ(relabeling.bytes_before, 8000u);
    EXPECT_EQ(relabeling.bytes_after, 0u);
    EXPECT_EQ(target.relabeled(relabeling.permutation), source);
  }
}

TEST(Relabel, FigureThreeEndsAtNothing) {
  const auto volume_bytes = [](std::int64_t block) {
    const Layout source = Layout::block_cyclic({100000, 100000}, {block, block}, {10, 10});
    const Layout target = Layout::block_cyclic({100000, 100000}, {10000, 10000}, {10, 10}, Order::column_major);
    return relabel(source, target, {.element_bytes = 8});
  };
  EXPECT_EQ(volume_bytes(10000).bytes_before, 72000000000u);  // all but the diagonal of the process grid
  EXPECT_EQ(volume_bytes(10000).bytes_after, 0u);
  EXPECT_EQ(volume_bytes(1).bytes_before, 79200000000u) << "each rank keeps one hundredth";
  EXPECT_EQ(volume_bytes(1).bytes_after, 79200000000u);
  EXPECT_LT(volume_bytes(3000).bytes_after, volume_bytes(3000).bytes_before);
}

TEST(Relabel, TheIdentityWhereNothingIsBetter) {
  const Layout source = Layout::even({12}, 3);
  const Relabeling relabeling = relabel(source, source, {.element_bytes = 4, .ranks = 5});
  EXPECT_EQ(relabeling.permutation, (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(relabeling.bytes_before, 0u);
}

TEST(Relabel, MayMoveTheTargetToOtherRanks) {
  const Layout source = Layout::whole({10}, 2, 3);
  const Layout target = Layout::whole({10}, 0, 1);
  const Relabeling relabeling = relabel(source, target, {.element_bytes = 4});
  EXPECT_EQ(relabeling.bytes_before, 40u);
  EXPECT_EQ(relabeling.bytes_after, 0u);
  EXPECT_EQ(relabeling.permutation.at(0), 2);
}

TEST(Relabel, BytesBeyondSixtyThreeBitsAreAnError) {
  const Layout layout = Layout::whole({std::int64_t{1} << 61});
  EXPECT_THROW(relabel(layout, layout, {.element_bytes = 8}), Error);
}

}  // namespace
}  // namespace penstock
