#include "checkpoint/gather.hpp"

#include <gtest/gtest.h>

#include "unit/checkpoint/arrays.hpp"

namespace penstock::checkpoint::test {
namespace {

TEST(Gather, AnyLayoutIntoAnyOther) {
  Random random(1);
  for (int trial = 0; trial < 400; ++trial) {
    const int source_ranks = static_cast<int>(between(random, 1, 6));
    const int target_ranks = static_cast<int>(between(random, 1, 6));
    const std::vector<std::int64_t> shape = random_shape(random);
    const Layout source = random_layout(random, shape, source_ranks);
    const Layout target = random_layout(random, shape, target_ranks);
    const std::size_t item_bytes = size_bytes(random_dtype(random));
    const std::uint64_t chunk_bytes = 64 * static_cast<std::uint64_t>(between(random, 1, 8));
    SCOPED_TRACE(source.serialize() + " -> " + target.serialize());

    std::vector<std::vector<std::byte>> objects;
    std::vector<std::uint64_t> offsets;
    for (int r = 0; r < source_ranks; ++r) {
      const std::vector<std::byte> part = local_part(source, r, item_bytes, 7);
      offsets.push_back(64 * static_cast<std::uint64_t>(between(random, 0, 3)));
      objects.emplace_back(offsets.back());
      objects.back().insert(objects.back().end(), part.begin(), part.end());
    }
    for (int rank = 0; rank < target_ranks; ++rank) {
      const std::vector<std::byte> expected = local_part(target, rank, item_bytes, 7);
      std::vector<std::byte> found(expected.size());
      std::vector<std::vector<Piece>> pieces(objects.size());
      plan_pieces(source, target, rank, item_bytes, offsets, found, pieces);
      for (std::size_t r = 0; r < objects.size(); ++r) {
        std::int64_t last_index = -1;
        // A buffer of exactly the chunk, so that the address sanitizer finds reads outside of it.
        std::vector<std::byte> chunk;
        fill(pieces[r], chunk_bytes, [&](std::uint64_t index) {
          EXPECT_GT(static_cast<std::int64_t>(index), last_index);
          last_index = static_cast<std::int64_t>(index);
          EXPECT_LT(index * chunk_bytes, objects[r].size());
          const auto begin = objects[r].begin() + static_cast<std::ptrdiff_t>(index * chunk_bytes);
          const auto end = static_cast<std::uint64_t>(objects[r].end() - begin) < chunk_bytes
                               ? objects[r].end()
                               : begin + static_cast<std::ptrdiff_t>(chunk_bytes);
          chunk.assign(begin, end);
          return ConstBytes(chunk);
        });
      }
      ASSERT_EQ(found, expected) << "rank " << rank;
    }
  }
}

TEST(Gather, AsksForNoChunkWithoutNeed) {
  const Layout source = Layout::whole({1000, 64});
  const Layout target = Layout::even({1000, 64}, 10);
  std::vector<std::byte> memory(100 * 64);
  std::vector<std::vector<Piece>> pieces(1);
  plan_pieces(source, target, 3, 1, {0}, memory, pieces);
  std::vector<std::uint64_t> asked;
  std::vector<std::byte> chunk(640);
  fill(pieces[0], 640, [&](std::uint64_t index) {
    asked.push_back(index);
    return ConstBytes(chunk);
  });
  std::vector<std::uint64_t> expected(10);
  std::iota(expected.begin(), expected.end(), 30);
  EXPECT_EQ(asked, expected);
}

TEST(Gather, FineBlocksTakeLittlePlanning) {
  // 2^24 blocks of one element; the plan stores intervals per dimension only.
  const Layout source = Layout::block_cyclic({4096, 4096}, {1, 1}, {2, 2});
  const Layout target = Layout::block_cyclic({4096, 4096}, {64, 64}, {1, 3});
  std::vector<std::byte> memory(static_cast<std::size_t>(target.local_size_elems(1)));
  std::vector<std::vector<Piece>> pieces(4);
  plan_pieces(source, target, 1, 1, {0, 0, 0, 0}, memory, pieces);
  std::size_t overlaps = 0;
  for (const auto& of_rank : pieces) {
    for (const Piece& piece : of_rank) {
      for (const Extent& extent : piece.extents) overlaps += extent.overlaps.size();
    }
  }
  EXPECT_LE(overlaps, 4u * 2u * 4096u);
  EXPECT_GT(overlaps, 0u);
}

}  // namespace
}  // namespace penstock::checkpoint::test
