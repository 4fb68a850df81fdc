#include "engine/cells.hpp"

#include <algorithm>

namespace penstock::engine {
namespace {

// Receivers keep a cell each meanwhile: so few that every sender has others.
constexpr std::uint32_t kFewRanks = 8;
constexpr int kPatience = 100;

}  // namespace

Cells::Cells(Segment& segment)
    : segment_(segment),
      slot_(segment.slot(segment.local_rank())),
      stub_(segment.stub(segment.local_rank())),
      patience_(segment.layout().ranks <= kFewRanks ? kPatience : 0),
      head_(stub_),
      taken_(segment.layout().cells_per_rank),
      taken_by_(segment.layout().ranks, 0) {
  const std::uint32_t cells = segment.layout().cells_per_rank;
  const std::uint32_t peers = std::max(segment.layout().ranks - 1, 1u);
  share_ = peers == 1 ? cells : std::max(cells / 2 / peers, std::min(cells / 4, 8u));
  for (std::uint32_t i = cells; i-- > 0;) free_.push_back(segment.local_rank() * cells + i);
}

void Cells::reclaim(std::size_t at_most) {
  // Returned cells are collected from the oldest on; those still in use keep their place at the end of the ring.
  for (std::size_t looked = std::min(at_most, taken_count_); looked > 0; --looked) {
    const Taken oldest = taken_[taken_first_];
    taken_first_ = (taken_first_ + 1) % taken_.size();
    --taken_count_;
    if (segment_.cell(oldest.index).in_use.load(std::memory_order_acquire) == 0) {
      free_.push_back(oldest.index);
      --taken_by_[oldest.receiver];
    } else {
      taken_[(taken_first_ + taken_count_) % taken_.size()] = oldest;
      ++taken_count_;
    }
  }
}

Cell* Cells::take(std::uint32_t to_local_rank) {
  // Looking at the oldest keeps one or two cells going round, which stay in the caches of both sides.
  reclaim(1);
  if (free_.empty() || taken_by_[to_local_rank] >= share_) reclaim(taken_count_);
  if (free_.empty() || taken_by_[to_local_rank] >= share_) return nullptr;
  const std::uint32_t index = free_.back();
  free_.pop_back();
  taken_[(taken_first_ + taken_count_) % taken_.size()] = {index, to_local_rank};
  ++taken_count_;
  ++taken_by_[to_local_rank];
  Cell& cell = segment_.cell(index);
  cell.in_use.store(1, std::memory_order_relaxed);
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
  append(receiver, latest.index);
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
  if (Cell* message = next_message()) return message;
  if (head_ == stub_ || ++empty_looks_ <= patience_) return nullptr;
  // Unless a sender is just appending.
  if (slot_.queue_tail.load(std::memory_order_acquire) == head_) append(slot_, stub_);
  return next_message();
}

bool Cells::empty() const noexcept { return slot_.queue_tail.load(std::memory_order_seq_cst) == head_; }

}  // namespace penstock::engine
