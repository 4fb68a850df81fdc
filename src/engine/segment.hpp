// The memory that the ranks of one node share for one communicator: its layout, its setup and its release.
//
// Each rank has a block of addresses in the heap of its process. Only the first page has memory from the beginning. The
// rest is committed on first use, before a peer learns of it:
//  - cells and ring of a rank by that rank, before a message names them
//  - flags of a rank by that rank, which then sets RankSlot::has_flags; memory for data that do not lie beside a flag
//    when it first has such data
//  - the task table, in the block of the first rank, by each rank that publishes tasks; committing it again is harmless
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/doorbell.hpp"
#include "engine/message.hpp"
#include "host/heap.hpp"

namespace penstock::engine {

/// A cell of the message queue: a link of the receiver's queue, then header and payload.
struct Cell {
  std::atomic<std::uint32_t> next{0};    ///< index + 1 of the next cell of the queue
  std::atomic<std::uint32_t> in_use{0};  ///< the owner sets the receiver's local rank + 1; the receiver sets 0: free
  Header header;

  std::byte* payload() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};
static_assert(sizeof(Cell) == 64);

/// What one rank publishes to the others of its node.
struct RankSlot {
  static constexpr std::uint64_t kFailureBits = 4096;
  static constexpr std::uint64_t kFailedForAllWords = 16;

  alignas(64) std::atomic<std::uint32_t> queue_tail{0};  ///< index of the last cell of its queue
  alignas(64) std::atomic<std::uint32_t> sending{0};  ///< index + 1 of the cell that it is appending to a queue; or 0
  alignas(64) Doorbell bell;
  std::atomic<std::uint32_t> has_flags{0};                     ///< 1 once its flags have memory
  std::atomic<std::uint32_t> large_cells{0};                   ///< of its cells, besides the small ones, have memory
  std::atomic<std::uint32_t> has_more{0};                      ///< 1 once its block has memory behind the first page
  alignas(64) std::atomic<std::uint64_t> completed_before{0};  ///< all operations with a smaller sequence are over
  std::atomic<std::uint64_t> past_flags_of{0};  ///< it reads no flags of operations with a smaller sequence any more
  std::atomic<std::uint64_t> failed[kFailureBits / 64]{};           ///< see Failures
  std::atomic<std::uint64_t> failed_for_all[kFailedForAllWords]{};  ///< see FailuresForAll
};

/// What a layout follows from, beside the number of ranks. Ranks exchange it as bytes.
struct SegmentSizes {
  std::uint64_t payload_bytes = 0;   ///< of a large cell
  std::uint64_t ring_bytes = 0;      ///< of a rank
  std::uint32_t cells_per_rank = 0;  ///< large ones; 0: no segment fits
  std::uint32_t has_task_table = 0;

  /// The smaller one of each. A layout of these sizes fits into the blocks of both.
  SegmentSizes common_with(const SegmentSizes& other) const {
    return {std::min(payload_bytes, other.payload_bytes), std::min(ring_bytes, other.ring_bytes),
            std::min(cells_per_rank, other.cells_per_rank), std::min(has_task_table, other.has_task_table)};
  }
};

/// Sizes and offsets, equal on all ranks of the node.
struct SegmentLayout {
  std::uint32_t ranks = 0;
  std::uint32_t cells_per_rank = 0;  ///< large cells of a rank; the small ones come on top
  std::uint64_t payload_bytes = 0;   ///< of a large cell
  std::uint64_t ring_bytes = 0;      ///< of a rank
  std::uint64_t cell_stride_bytes = 0;
  // Offsets in the block of a rank.
  std::uint64_t stub_offset_bytes = 0;
  std::uint64_t flags_offset_bytes = 0;
  std::uint64_t cells_offset_bytes = 0;
  std::uint64_t task_table_offset_bytes = 0;  ///< 0: there is no task table, so no shared tasks
  std::uint64_t ring_offset_bytes = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t total_bytes = 0;  ///< the most memory that the node uses

  /// Enough for buffers of a useful size, if the user asks for no other limit.
  static constexpr std::uint64_t usual_bytes(std::uint32_t ranks) {
    return std::max(std::uint64_t{64} << 20, ranks * (std::uint64_t{2} << 20));
  }
  /// The largest useful layout within `limit_bytes`; ranks == 0 if not even the smallest fits.
  static SegmentLayout fit(std::uint32_t ranks, std::uint64_t eager_bytes, std::uint64_t limit_bytes);
  static SegmentLayout of(std::uint32_t ranks, const SegmentSizes& sizes);
  SegmentSizes sizes() const {
    return {payload_bytes, ring_bytes, ranks == 0 ? 0 : cells_per_rank, task_table_offset_bytes == 0 ? 0u : 1u};
  }
};

/// Where a rank's block lies. Ranks exchange it as bytes.
struct BlockAddress {
  host::HeapAddress heap;
  std::uint64_t offset = 0;
};

/// One rank's view of the segment. It owns this rank's block, and maps those of the others. Throws Error(no_space) or
/// Error(io) if the system refuses.
class Segment {
 public:
  /// Every rank has these cells from the beginning, for messages that must not fail for lack of memory.
  static constexpr std::uint32_t kSmallCells = 7;
  static constexpr std::uint64_t kSmallPayloadBytes = 960;
  static_assert(kSmallPayloadBytes >= kNoticeBytes);

  /// Allocates this rank's block, for this layout or a smaller one.
  Segment(const SegmentLayout& layout, std::uint32_t local_rank);
  /// Releases the block: at once before join(), and then when no live rank uses the segment.
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  BlockAddress address() const;
  /// Sets the layout that all ranks of the node use. Maps the heaps of the peers, which may fail, and locates their
  /// blocks. They must have been allocated. `address_of`: their address(), by local rank.
  template <typename Function>
  void locate(const SegmentLayout& common, Function address_of) {
    lay_out(common);
    for (std::uint32_t rank = 0; rank < common.ranks; ++rank) {
      const BlockAddress address = address_of(rank);
      if (rank != local_rank_) heaps_[rank] = host::Heap::open(address.heap);
      blocks_[rank] = heaps_[rank]->base() + address.offset;
    }
  }
  /// From now on peers may access the block, and this rank theirs. All ranks call it, after all have called locate().
  void join() noexcept { is_joined_ = true; }

  const SegmentLayout& layout() const { return layout_; }
  std::uint32_t local_rank() const { return local_rank_; }

  RankSlot& slot(std::uint32_t local_rank) const { return *reinterpret_cast<RankSlot*>(block(local_rank)); }
  /// A cell index encodes a rank and one of its cells: first its stub (cells.hpp), then the small cells, then the large
  /// ones.
  Cell& cell(std::uint32_t index) const {
    return *reinterpret_cast<Cell*>(block(index / kCellsOfRank) + cell_offset_[index % kCellsOfRank]);
  }
  static std::uint32_t stub(std::uint32_t local_rank) { return local_rank * kCellsOfRank; }
  static std::uint32_t first_cell(std::uint32_t local_rank) { return stub(local_rank) + 1; }
  /// The number of cells of a rank that have memory.
  std::uint32_t cells_of(std::uint32_t local_rank) const {
    return kSmallCells + slot(local_rank).large_cells.load(std::memory_order_acquire);
  }
  static bool is_small(std::uint32_t index) { return index % kCellsOfRank <= kSmallCells; }
  std::byte* ring(std::uint32_t local_rank) const { return block(local_rank) + layout_.ring_offset_bytes; }
  /// nullptr until they have memory.
  std::byte* flags(std::uint32_t local_rank) const {
    return slot(local_rank).has_flags.load(std::memory_order_seq_cst) == 0
               ? nullptr
               : block(local_rank) + layout_.flags_offset_bytes;
  }
  std::byte* task_table() const { return block(0) + layout_.task_table_offset_bytes; }

  /// Commits the first `count` large cells of this rank.
  void commit_cells(std::uint32_t count);
  /// Commits the first `bytes` of this rank's ring.
  void commit_ring(std::uint64_t bytes);
  void commit_flags();
  void commit_flag_data();
  void commit_task_table();

  /// Whether that rank still uses the segment: false if its process has ended, even if a forked child lives on, or if
  /// it has released the segment.
  bool is_alive(std::uint32_t local_rank) const noexcept;

 private:
  static constexpr std::uint32_t kCellsOfRank = 128;
  using Leavers = std::atomic<std::uint64_t>;  ///< a bit for each of 64 ranks: set when that rank releases the segment

  std::byte* block(std::uint32_t local_rank) const { return blocks_[local_rank]; }
  Leavers& leavers(std::uint32_t of_local_rank, std::uint32_t local_rank) const;
  void commit(std::uint64_t begin, std::uint64_t end);
  void lay_out(const SegmentLayout& layout) noexcept;

  SegmentLayout layout_;
  const std::uint64_t block_bytes_;
  const std::uint32_t local_rank_;
  std::array<std::uint64_t, kCellsOfRank> cell_offset_{};
  std::shared_ptr<host::Heap> heap_;
  bool is_joined_ = false;
  std::vector<std::byte*> blocks_;                  ///< by local rank
  std::vector<std::shared_ptr<host::Heap>> heaps_;  ///< by local rank
  std::uint64_t offset_;
  std::uint64_t committed_ring_bytes_ = 0;
  bool has_task_table_ = false;
};

}  // namespace penstock::engine
