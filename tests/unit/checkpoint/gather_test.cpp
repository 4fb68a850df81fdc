#include "checkpoint/gather.hpp"

#include <gtest/gtest.h>

#include <numeric>

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
        std::vector<std::uint64_t> read;
        for (const auto& [range, to] : reads_of(pieces[r], needed, chunk_bytes, objects[r].size(), most)) {
          EXPECT_LE(range.count, most);
          for (std::uint64_t i = 0; i < range.count; ++i) read.push_back(range.first + i);
          const std::uint64_t begin = range.first * chunk_bytes;
          ASSERT_LT(begin, objects[r].size());
          // A buffer of exactly the chunks, so that the address sanitizer finds reads outside of it.
          const ConstBytes from(objects[r]);
          const ConstBytes here =
              from.subspan(begin, std::min<std::size_t>(range.count * chunk_bytes, from.size() - begin));
          const std::vector<std::byte> chunks(here.begin(), here.end());
          if (!to.empty()) {
            ASSERT_EQ(to.size(), chunks.size());
            std::ranges::copy(chunks, to.begin());
            ++straight;
          } else {
            copy_from(pieces[r], begin, chunks);
          }
        }
        EXPECT_EQ(read, needed);
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

TEST(Gather, OnlyChunksAtTheBordersOfArraysNeedABuffer) {
  constexpr std::uint64_t kChunkBytes = 64;
  constexpr std::int64_t kArrayBytes = 1000;
  constexpr std::uint64_t kOffsetBytes = 1024;
  const Layout whole = Layout::whole({kArrayBytes}, 0, 1);
  std::vector<std::byte> memory(3 * kArrayBytes);
  std::vector<std::vector<Piece>> pieces(1);
  for (std::uint64_t array = 0; array < 3; ++array) {
    plan_pieces(whole, whole, 0, 1, {array * kOffsetBytes}, Bytes(memory).subspan(array * kArrayBytes, kArrayBytes),
                pieces);
  }
  sort_pieces(pieces[0]);
  std::vector<std::uint64_t> chunks(3 * kOffsetBytes / kChunkBytes);
  std::iota(chunks.begin(), chunks.end(), 0);
  std::vector<std::uint64_t> buffered;
  std::uint64_t reads = 0;
  for (const auto& [range, to] : reads_of(pieces[0], chunks, kChunkBytes, 3 * kOffsetBytes, 16)) {
    ++reads;
    for (std::uint64_t i = 0; to.empty() && i < range.count; ++i) buffered.push_back(range.first + i);
  }
  EXPECT_EQ(buffered, (std::vector<std::uint64_t>{15, 31, 47}));
  EXPECT_EQ(reads, 6U) << "the chunks between are read by one request each";
}

}  // namespace
}  // namespace penstock::checkpoint::test
