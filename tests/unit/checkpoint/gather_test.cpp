#include "checkpoint/gather.hpp"

#include <gtest/gtest.h>

#include "unit/checkpoint/arrays.hpp"

namespace penstock::checkpoint::test {
namespace {

TEST(Gather, AnyLayoutIntoAnyOther) {
  Random random(1);
  int straight = 0;
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
        sort_pieces(pieces[r]);
        const std::vector<std::uint64_t> needed = needed_chunks(pieces[r], chunk_bytes);
        const auto most = static_cast<std::size_t>(between(random, 1, 4));
        for (std::size_t i = 0; i < needed.size();) {
          std::size_t count = 1;
          while (i + count < needed.size() && count < most && needed[i + count] == needed[i] + count) ++count;
          const std::uint64_t begin = needed[i] * chunk_bytes;
          ASSERT_LT(begin, objects[r].size());
          // A buffer of exactly the chunks, so that the address sanitizer finds reads outside of it.
          const ConstBytes from(objects[r]);
          const ConstBytes here = from.subspan(begin, std::min<std::size_t>(count * chunk_bytes, from.size() - begin));
          const std::vector<std::byte> chunks(here.begin(), here.end());
          if (const Bytes to = target_of(pieces[r], begin, chunks.size()); !to.empty()) {
            std::ranges::copy(chunks, to.begin());
            ++straight;
          } else {
            copy_from(pieces[r], begin, chunks);
          }
          i += count;
          EXPECT_TRUE(i == needed.size() || needed[i] > needed[i - 1]);
        }
      }
      ASSERT_EQ(found, expected) << "rank " << rank;
    }
  }
  EXPECT_GT(straight, 50);
}

TEST(Gather, AsksForNoChunkWithoutNeed) {
  const Layout source = Layout::whole({1000, 64});
  const Layout target = Layout::even({1000, 64}, 10);
  std::vector<std::byte> memory(100 * 64);
  std::vector<std::vector<Piece>> pieces(1);
  plan_pieces(source, target, 3, 1, {0}, memory, pieces);
  sort_pieces(pieces[0]);
  std::vector<std::uint64_t> expected(10);
  std::iota(expected.begin(), expected.end(), 30);
  EXPECT_EQ(needed_chunks(pieces[0], 640), expected);
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
