#include "engine/cells.hpp"

#include <algorithm>
#include <bit>

#include "penstock/error.hpp"

namespace penstock::engine {
namespace {

// Each receiver keeps its last cell for a while. With so few ranks, every sender has other cells.
constexpr std::uint32_t kFewRanks = 8;
constexpr int kPatience = 100;
constexpr std::uint32_t kFirstCells = 4;
constexpr std::size_t kReserve = 2;  // of large cells, and of small ones

}  // namespace

Cells::Cells(Segment& segment)
    : segment_(segment),
      slot_(segment.slot(segment.local_rank())),
      stub_(Segment::stub(segment.local_rank())),
      patience_(segment.layout().ranks <= kFewRanks ? kPatience : 0),
      head_(stub_),
      quota_(quota_of(segment.layout().cells_per_rank)),
      taken_(segment.layout().cells_per_rank + Segment::kSmallCells),
      taken_by_(segment.layout().ranks, 0) {
  for (std::uint32_t i = Segment::kSmallCells; i-- > 0;)
    free_small_.push_back(Segment::first_cell(segment.local_rank()) + i);
  free_.reserve(segment.layout().cells_per_rank);
}

// At least two cells: the receiver keeps the last one until another follows.
std::uint32_t Cells::quota_of(std::uint32_t cells) const {
  const std::uint32_t peers = std::max(segment_.layout().ranks - 1, 1u);
  return peers == 1 ? cells : std::max({cells / 2 / peers, std::min(cells / 4, 8u), 2u});
}

// Doubles the number of large cells. Without memory for them, short messages use the small cells.
bool Cells::grow() {
  const std::uint32_t all = segment_.layout().cells_per_rank;
  if (large_ == all) return false;
  // Memory may have been freed meanwhile. Asking is a system call, so it is done at growing intervals.
  if (refused_ > 0 && !std::has_single_bit(++asked_)) return false;
  const std::uint32_t wanted = std::min(all, std::max(kFirstCells, 2 * large_));
  try {
    segment_.commit_cells(wanted);
  } catch (const Error&) {
    if (refused_++ == 0) asked_ = 1;
    quota_ = quota_of(Segment::kSmallCells + large_);
    return false;
  }
  refused_ = 0;
  quota_ = quota_of(all);
  for (std::uint32_t i = wanted; i-- > large_;)
    free_.push_back(Segment::first_cell(segment_.local_rank()) + Segment::kSmallCells + i);
  large_ = wanted;
  return true;
}

std::uint64_t Cells::most_payload_bytes(std::uint64_t wanted) {
  if (wanted <= Segment::kSmallPayloadBytes || large_ > 0 || grow())
    return std::min(wanted, segment_.layout().payload_bytes);
  return Segment::kSmallPayloadBytes;
}

void Cells::reclaim(std::size_t at_most) {
  // Collects returned cells, the oldest first; cells still in use move to the end of the ring.
  for (std::size_t looked = std::min(at_most, taken_count_); looked > 0; --looked) {
    const Taken oldest = taken_[taken_first_];
    taken_first_ = taken_first_ + 1 == taken_.size() ? 0 : taken_first_ + 1;
    --taken_count_;
    if (segment_.cell(oldest.index).in_use.load(std::memory_order_acquire) == 0) {
      (Segment::is_small(oldest.index) ? free_small_ : free_).push_back(oldest.index);
      --taken_by_[oldest.receiver];
    } else {
      taken_[(taken_first_ + taken_count_) % taken_.size()] = oldest;
      ++taken_count_;
    }
  }
}

std::vector<std::uint32_t>* Cells::free_for(std::uint64_t payload_bytes, bool leaves_reserve) {
  // Few ranks hold less than all cells, even if each holds its quota.
  const bool can_run_out = (taken_by_.size() - 1) * quota_ >= large_ + Segment::kSmallCells;
  const std::size_t left = leaves_reserve && can_run_out ? kReserve : 0;
  if (free_.size() > left) return &free_;
  return payload_bytes <= Segment::kSmallPayloadBytes && free_small_.size() > left ? &free_small_ : nullptr;
}

Cell* Cells::take(std::uint32_t to_local_rank, std::uint64_t payload_bytes, bool leaves_reserve) {
  // Checking the oldest cell reuses the same one or two cells, which stay in the caches of both sides.
  reclaim(1);
  std::vector<std::uint32_t>* free = free_for(payload_bytes, leaves_reserve);
  if (free == nullptr || taken_by_[to_local_rank] >= quota_) {
    reclaim(taken_count_);
    if (taken_by_[to_local_rank] >= quota_) return nullptr;
    free = free_for(payload_bytes, leaves_reserve);
    if (free == nullptr && grow()) free = free_for(payload_bytes, leaves_reserve);
    if (free == nullptr) return nullptr;
  }
  const std::uint32_t index = free->back();
  free->pop_back();
  taken_[(taken_first_ + taken_count_) % taken_.size()] = {index, to_local_rank};
  ++taken_count_;
  ++taken_by_[to_local_rank];
  Cell& cell = segment_.cell(index);
  // In this order, so that a cell that was taken but not sent has no successor; see mend().
  cell.next.store(0, std::memory_order_relaxed);
  cell.in_use.store(to_local_rank + 1, std::memory_order_release);
  return &cell;
}

void Cells::append(RankSlot& receiver, std::uint32_t index) {
  segment_.cell(index).next.store(0, std::memory_order_relaxed);
  const std::uint32_t previous = receiver.queue_tail.exchange(index, std::memory_order_seq_cst);
  segment_.cell(previous).next.store(index + 1, std::memory_order_release);
}

void Cells::send() {
  const Taken latest = taken_[(taken_first_ + taken_count_ - 1) % taken_.size()];
  RankSlot& receiver = segment_.slot(latest.receiver);
  slot_.sending.store(latest.index + 1, std::memory_order_relaxed);
  append(receiver, latest.index);
  slot_.sending.store(0, std::memory_order_release);
  receiver.bell.ring();
}

bool Cells::advance() {
  const std::uint32_t next = segment_.cell(head_).next.load(std::memory_order_acquire);
  if (next == 0) return false;
  if (head_ != stub_) segment_.cell(head_).in_use.store(0, std::memory_order_release);
  head_ = next - 1;
  return true;
}

Cell* Cells::next_message() {
  while (advance())
    if (head_ != stub_) {
      empty_looks_ = 0;
      return &segment_.cell(head_);
    }
  return nullptr;
}

Cell* Cells::receive() {
  if (is_put_back_) {
    is_put_back_ = false;
    return &segment_.cell(head_);
  }
  if (Cell* message = next_message()) return message;
  if (head_ == stub_ || ++empty_looks_ <= patience_) return nullptr;
  // Unless a sender is appending.
  if (slot_.queue_tail.load(std::memory_order_acquire) == head_) append(slot_, stub_);
  return next_message();
}

// A sender that dies between the two stores of append() leaves a gap: the head has no successor, but the tail is
// further on. RankSlot::sending names the cell that each rank was appending, and the cell names its queue. If no live
// rank is appending to this queue, a dead rank left the gap. Its cell is in the queue if it is the tail or has a
// successor; a cell that was only taken is neither.
bool Cells::mend(const std::vector<bool>& gone) {
  const std::uint32_t tail = slot_.queue_tail.load(std::memory_order_seq_cst);
  Cell& head = segment_.cell(head_);
  if (head_ == tail || head.next.load(std::memory_order_seq_cst) != 0) return false;
  const auto is_sent_here = [&](std::uint32_t index) {
    return segment_.cell(index).in_use.load(std::memory_order_seq_cst) == segment_.local_rank() + 1;
  };
  std::vector<std::uint32_t> lost;
  for (std::uint32_t rank = 0; rank < segment_.layout().ranks; ++rank) {
    const std::uint32_t sending = segment_.slot(rank).sending.load(std::memory_order_seq_cst);
    if (sending == 0 || !is_sent_here(sending - 1)) continue;
    if (!gone[rank]) return false;
    const bool is_queued = sending - 1 == tail || segment_.cell(sending - 1).next.load(std::memory_order_seq_cst) != 0;
    if (is_queued && sending - 1 != head_ && !is_linked(sending - 1)) lost.push_back(sending - 1);
  }
  // If several ranks died, the part of the queue that ends at the tail comes last.
  const auto leads_to_tail = [&](std::uint32_t index) {
    while (index != tail) {
      const std::uint32_t next = segment_.cell(index).next.load(std::memory_order_seq_cst);
      if (next == 0) return false;
      index = next - 1;
    }
    return true;
  };
  std::ranges::stable_partition(lost, [&](std::uint32_t index) { return !leads_to_tail(index); });
  if (lost.empty()) return false;
  head.next.store(lost.front() + 1, std::memory_order_seq_cst);
  return true;
}

bool Cells::is_linked(std::uint32_t index) const {
  for (std::uint32_t rank = 0; rank < segment_.layout().ranks; ++rank) {
    const std::uint32_t first = Segment::first_cell(rank);
    for (std::uint32_t other = first; other < first + segment_.cells_of(rank); ++other)
      if (segment_.cell(other).next.load(std::memory_order_seq_cst) == index + 1 &&
          segment_.cell(other).in_use.load(std::memory_order_seq_cst) == segment_.local_rank() + 1)
        return true;
  }
  return segment_.cell(stub_).next.load(std::memory_order_seq_cst) == index + 1;
}

bool Cells::empty() const noexcept {
  return !is_put_back_ && slot_.queue_tail.load(std::memory_order_seq_cst) == head_;
}

}  // namespace penstock::engine
