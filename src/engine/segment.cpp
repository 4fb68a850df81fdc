#include "engine/segment.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "engine/flags.hpp"
#include "engine/task_table.hpp"

namespace penstock::engine {
namespace {

constexpr std::uint64_t kPage = host::Heap::kPageBytes;
// Arrays usually begin at a page or a little behind it. Copies are fastest if their source and target have different
// offsets in a page (kernels/copy.hpp), so the ring begins half a page behind one.
constexpr std::uint64_t kRingBehindPage = kPage / 2;
constexpr std::uint64_t kSmallStride = sizeof(Cell) + Segment::kSmallPayloadBytes;
static_assert(kSmallStride % 64 == 0 && sizeof(RankSlot) % 64 == 0);

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

constexpr std::uint64_t leaver_bytes(std::uint32_t ranks) { return round_up(round_up(ranks, 64) / 8, 64); }

SegmentLayout arrange(std::uint32_t ranks, std::uint32_t cells, std::uint64_t payload_bytes, std::uint64_t ring,
                      std::uint64_t task_table_bytes) {
  SegmentLayout layout;
  layout.ranks = ranks;
  layout.cells_per_rank = cells;
  layout.payload_bytes = payload_bytes;
  layout.ring_bytes = ring;
  layout.cell_stride_bytes = round_up(sizeof(Cell) + payload_bytes, 64);
  layout.stub_offset_bytes = sizeof(RankSlot) + leaver_bytes(ranks);
  layout.flags_offset_bytes =
      round_up(layout.stub_offset_bytes + sizeof(Cell) + Segment::kSmallCells * kSmallStride, kPage);
  layout.cells_offset_bytes = round_up(layout.flags_offset_bytes + Flags::kBytesPerRank, kPage);
  const std::uint64_t cells_end = round_up(layout.cells_offset_bytes + cells * layout.cell_stride_bytes, kPage);
  layout.task_table_offset_bytes = task_table_bytes > 0 ? cells_end : 0;
  const std::uint64_t task_table_end = round_up(cells_end + task_table_bytes, kPage);
  layout.ring_offset_bytes = task_table_end + kRingBehindPage;
  layout.block_bytes = round_up(layout.ring_offset_bytes + ring, kPage);
  layout.total_bytes = ranks * layout.block_bytes - (ranks - 1) * (task_table_end - cells_end);
  return layout;
}

}  // namespace

SegmentLayout SegmentLayout::fit(std::uint32_t ranks, std::uint64_t eager_bytes, std::uint64_t limit_bytes) {
  constexpr std::uint64_t kSmallestPayload = 1024;
  const std::uint64_t payload = std::max(round_up(eager_bytes, 64), kSmallestPayload);
  constexpr std::uint64_t kOrdinaryRingBytes = 1 << 20;
  constexpr std::uint64_t kMostInLargeRingsBytes = 16 << 20;  // every communicator has a segment of its own
  for (const std::uint64_t ring : {4u << 20, 2u << 20, 1u << 20, 256u << 10, 64u << 10}) {
    if (ring > kOrdinaryRingBytes && ring * ranks > kMostInLargeRingsBytes) continue;
    for (const std::uint32_t cells : {64u, 32u, 16u}) {
      const SegmentLayout layout = arrange(ranks, cells, payload, ring, TaskTable::bytes(ranks));
      if (layout.total_bytes <= limit_bytes) return layout;
    }
  }
  for (const std::uint32_t cells : {32u, 16u}) {
    const SegmentLayout layout = arrange(ranks, cells, kSmallestPayload, 64 << 10, TaskTable::bytes(ranks));
    if (layout.total_bytes <= limit_bytes) return layout;
  }
  for (const std::uint32_t cells : {16u, 8u}) {
    const SegmentLayout layout = arrange(ranks, cells, kSmallestPayload, 16 << 10, 0);
    if (layout.total_bytes <= limit_bytes) return layout;
  }
  return {};
}

SegmentLayout SegmentLayout::of(std::uint32_t ranks, const SegmentSizes& sizes) {
  return arrange(ranks, sizes.cells_per_rank, sizes.payload_bytes, sizes.ring_bytes,
                 sizes.has_task_table != 0 ? TaskTable::bytes(ranks) : 0);
}

Segment::Segment(const SegmentLayout& layout, std::uint32_t local_rank)
    : block_bytes_(layout.block_bytes),
      local_rank_(local_rank),
      heap_(host::Heap::of_process()),
      blocks_(layout.ranks, nullptr),
      heaps_(layout.ranks),
      offset_(heap_->take(layout.block_bytes, layout.flags_offset_bytes)) {
  lay_out(layout);
  std::byte* const own = blocks_[local_rank] = heap_->base() + offset_;
  heaps_[local_rank] = heap_;
  (new (own) RankSlot)->queue_tail.store(stub(local_rank));
  for (std::uint64_t i = 0; i < leaver_bytes(layout.ranks) / sizeof(Leavers); ++i)
    new (own + sizeof(RankSlot) + i * sizeof(Leavers)) Leavers(0);
  for (std::uint32_t i = 0; i <= kSmallCells; ++i) new (&cell(stub(local_rank) + i)) Cell;
}

// The head of a block, up to its flags, is the same in all layouts.
void Segment::lay_out(const SegmentLayout& layout) noexcept {
  layout_ = layout;
  for (std::uint32_t i = 0; i < kCellsOfRank; ++i)
    cell_offset_[i] = i <= kSmallCells ? layout.stub_offset_bytes + (i == 0 ? 0 : sizeof(Cell) + (i - 1) * kSmallStride)
                                       : layout.cells_offset_bytes + (i - 1 - kSmallCells) * layout.cell_stride_bytes;
}

Segment::~Segment() {
  if (heap_->is_inherited()) return;  // the parent releases it
  if (!is_joined_) {
    heap_->give_back(offset_, block_bytes_, {});
    return;
  }
  for (std::uint32_t peer = 0; peer < layout_.ranks; ++peer)
    if (peer != local_rank_)
      leavers(peer, local_rank_).fetch_or(std::uint64_t{1} << local_rank_ % 64, std::memory_order_acq_rel);
  const auto use = [own = &leavers(local_rank_, 0), slot = &slot(local_rank_), self = local_rank_,
                    heaps = std::move(heaps_)] {
    bool has_died = false;  // one that dies may have been about to commit more
    for (std::uint32_t peer = 0; peer < heaps.size(); ++peer) {
      if (peer == self || (own[peer / 64].load(std::memory_order_acquire) >> peer % 64 & 1) != 0) continue;
      if (heaps[peer] == heaps[self] || heaps[peer]->is_alive()) return host::Heap::Use::some;
      has_died = true;
    }
    if (has_died) return host::Heap::Use::none;
    return slot->has_more.load(std::memory_order_relaxed) != 0 ? host::Heap::Use::more : host::Heap::Use::head;
  };
  try {
    heap_->give_back(offset_, block_bytes_, use,
                     {layout_.flags_offset_bytes, layout_.ring_offset_bytes, committed_ring_bytes_});
  } catch (const std::bad_alloc&) {
    // Without memory for the record, the block stays allocated.
  }
}

BlockAddress Segment::address() const { return {heap_->address(), offset_}; }

Segment::Leavers& Segment::leavers(std::uint32_t of_local_rank, std::uint32_t local_rank) const {
  return reinterpret_cast<Leavers*>(block(of_local_rank) + sizeof(RankSlot))[local_rank / 64];
}

void Segment::commit(std::uint64_t begin, std::uint64_t end) {
  slot(local_rank_).has_more.store(1, std::memory_order_relaxed);
  heap_->commit(offset_ + begin, end - begin);
}

void Segment::commit_cells(std::uint32_t count) {
  std::atomic<std::uint32_t>& committed = slot(local_rank_).large_cells;
  const std::uint32_t before = committed.load(std::memory_order_relaxed);
  if (count <= before) return;
  const std::uint64_t first = layout_.cells_offset_bytes;
  commit(first + before * layout_.cell_stride_bytes, first + count * layout_.cell_stride_bytes);
  for (std::uint32_t i = before; i < count; ++i) new (&cell(first_cell(local_rank_) + kSmallCells + i)) Cell;
  committed.store(count, std::memory_order_release);
}

void Segment::commit_ring(std::uint64_t bytes) {
  if (bytes <= committed_ring_bytes_) return;
  commit(layout_.ring_offset_bytes + committed_ring_bytes_, layout_.ring_offset_bytes + bytes);
  committed_ring_bytes_ = bytes;
}

void Segment::commit_flags() {
  if (slot(local_rank_).has_flags.load(std::memory_order_relaxed) != 0) return;
  commit(layout_.flags_offset_bytes, layout_.flags_offset_bytes + Flags::kDataOffsetBytes);
  Flags::make(block(local_rank_) + layout_.flags_offset_bytes);
  slot(local_rank_).has_flags.store(1, std::memory_order_seq_cst);
}

void Segment::commit_flag_data() {
  commit(layout_.flags_offset_bytes + Flags::kDataOffsetBytes, layout_.flags_offset_bytes + Flags::kBytesPerRank);
}

void Segment::commit_task_table() {
  if (std::exchange(has_task_table_, true)) return;
  slot(0).has_more.store(1, std::memory_order_relaxed);
  try {
    heaps_[0]->commit(static_cast<std::uint64_t>(task_table() - heaps_[0]->base()), TaskTable::bytes(layout_.ranks));
  } catch (...) {
    has_task_table_ = false;
    throw;
  }
}

bool Segment::is_alive(std::uint32_t local_rank) const noexcept {
  if (local_rank == local_rank_) return true;
  if (leavers(local_rank_, local_rank).load(std::memory_order_acquire) >> local_rank % 64 & 1) return false;
  return heaps_[local_rank] == heap_ || heaps_[local_rank]->is_alive();
}

}  // namespace penstock::engine
