// Computes which bytes of saved objects make up a rank's part of an array in another layout. It plans per dimension:
// memory is proportional to the number of intervals, not of blocks or elements.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/stream.hpp"
#include "penstock/layout.hpp"
#include "penstock/types.hpp"

namespace penstock::checkpoint {

/// Consecutive positions along one dimension, in a tile of the source and in a tile of the target.
struct Overlap {
  std::int64_t source_start = 0;
  std::int64_t target_start = 0;
  std::int64_t length = 0;
};

/// One dimension of a piece. Overlaps ascend in source_start.
struct Extent {
  std::int64_t source_stride_bytes = 0;
  std::int64_t target_stride_bytes = 0;
  std::vector<Overlap> overlaps;
};

/// The elements that a tile of the source and a tile of the target share: the product of the overlaps of all
/// dimensions.
struct Piece {
  std::uint64_t item_bytes = 1;
  std::uint64_t source_offset_bytes = 0;  ///< of the source's tile, in its rank's object
  std::byte* target = nullptr;            ///< the target's tile, in this rank's memory
  std::vector<Extent> extents;            ///< in order of descending source strides
  std::uint64_t first_byte = 0;           ///< range of the object that holds the piece
  std::uint64_t last_byte = 0;            ///< end of that range
};

/// Appends to pieces[r] what rank r of `source` has of `rank`'s part in `target`. `offsets_bytes` holds the array's
/// offset in each rank's object; `memory` is the target's local part. The shapes must be equal.
void plan_pieces(const Layout& source, const Layout& target, int rank, std::uint64_t item_bytes,
                 const std::vector<std::uint64_t>& offsets_bytes, Bytes memory,
                 std::vector<std::vector<Piece>>& pieces);

/// Prepares the pieces of one object for the functions below.
void sort_pieces(std::vector<Piece>& pieces);

/// The chunks of `chunk_bytes` that hold a byte of a piece, ascending.
std::vector<std::uint64_t> needed_chunks(const std::vector<Piece>& pieces, std::uint64_t chunk_bytes);

/// Copies what the pieces have of `data`, which begins at `offset_bytes` of the object: whole chunks.
void copy_from(const std::vector<Piece>& pieces, std::uint64_t offset_bytes, ConstBytes data);

/// Consecutive chunks of an object, and where they belong in the target if one piece holds all of them in their order.
struct ChunkRead {
  ChunkRange range;
  Bytes target;
};

/// Divides `chunks`, which ascend, of an object of `data_bytes` into reads of at most `most` chunks.
std::vector<ChunkRead> reads_of(const std::vector<Piece>& pieces, const std::vector<std::uint64_t>& chunks,
                                std::uint64_t chunk_bytes, std::uint64_t data_bytes, std::uint64_t most);

/// Where these bytes of the object belong in the target, if one piece holds all of them in their order. Empty
/// otherwise.
Bytes target_of(const std::vector<Piece>& pieces, std::uint64_t offset_bytes, std::uint64_t size_bytes);

}  // namespace penstock::checkpoint
