#include "plan/sequence.hpp"

#include <algorithm>
#include <utility>

#include "plan/tasks.hpp"

namespace penstock::plan {

// Ensures that no piece crosses `at_bytes`; returns the first piece at or after it.
Sequence::Pieces::iterator Sequence::split(Pieces& pieces, std::uint64_t at_bytes) {
  auto next = pieces.upper_bound(at_bytes);
  if (next == pieces.begin()) return next;
  auto piece = std::prev(next);
  if (piece->first == at_bytes) return piece;
  if (piece->second.end_bytes <= at_bytes) return next;
  Piece tail = piece->second;
  piece->second.end_bytes = at_bytes;
  return pieces.emplace_hint(next, at_bytes, std::move(tail));
}

void Sequence::wait_to_read(Region region) {
  if (region.buffer == Buffer::input) return;  // never written
  Pieces& all = pieces(region);
  const std::uint64_t end_bytes = region.offset_bytes + region.size_bytes;
  for (auto it = split(all, region.offset_bytes); it != all.end() && it->first < end_bytes; ++it)
    waits_.push_back(it->second.writer);
}

void Sequence::wait_to_write(Region region) {
  Pieces& all = pieces(region);
  const std::uint64_t end_bytes = region.offset_bytes + region.size_bytes;
  for (auto it = split(all, region.offset_bytes); it != all.end() && it->first < end_bytes; ++it) {
    const Piece& piece = it->second;
    if (piece.readers.empty())
      waits_.push_back(piece.writer);
    else  // they waited for the writer
      waits_.insert(waits_.end(), piece.readers.begin(), piece.readers.end());
  }
}

void Sequence::has_read(Region region, StepId step) {
  if (region.buffer == Buffer::input) return;
  Pieces& all = pieces(region);
  const std::uint64_t end_bytes = region.offset_bytes + region.size_bytes;
  split(all, end_bytes);
  std::uint64_t at_bytes = region.offset_bytes;
  auto it = split(all, at_bytes);
  while (at_bytes < end_bytes) {
    if (it == all.end() || it->first > at_bytes) {  // nothing has written it: the caller's data
      const std::uint64_t gap_end_bytes = it == all.end() ? end_bytes : std::min(end_bytes, it->first);
      it = all.emplace_hint(it, at_bytes, Piece{gap_end_bytes, kNone, {}});
    }
    it->second.readers.push_back(step);
    at_bytes = it->second.end_bytes;
    ++it;
  }
}

void Sequence::has_written(Region region, StepId step) {
  Pieces& all = pieces(region);
  const std::uint64_t end_bytes = region.offset_bytes + region.size_bytes;
  const auto last = split(all, end_bytes);
  all.erase(split(all, region.offset_bytes), last);
  all.emplace(region.offset_bytes, Piece{end_bytes, step, {}});
}

const std::vector<StepId>& Sequence::waits() {
  std::sort(waits_.begin(), waits_.end());
  waits_.erase(std::unique(waits_.begin(), waits_.end()), waits_.end());
  return waits_;  // PlanBuilder ignores kNone
}

template <typename Add>
StepId Sequence::add(std::span<const Region> read, std::span<const Region> written, After after, Add add) {
  begin(after);
  for (const Region& region : read) wait_to_read(region);
  for (const Region& region : written) wait_to_write(region);
  const StepId step = add(waits());
  for (const Region& region : read) has_read(region, step);
  for (const Region& region : written) has_written(region, step);
  return step;
}

StepId Sequence::send(Region from, int peer, std::uint32_t tag, After after) {
  if (from.size_bytes == 0) return kNone;
  return add({&from, 1}, {}, after, [&](const auto& waits) { return builder_.send(from, peer, tag, waits); });
}

StepId Sequence::recv(Region to, int peer, std::uint32_t tag, After after) {
  if (to.size_bytes == 0) return kNone;
  return add({}, {&to, 1}, after, [&](const auto& waits) { return builder_.recv(to, peer, tag, waits); });
}

StepId Sequence::copy(Region from, Region to, After after) {
  if (from.size_bytes == 0 || from == to) return kNone;
  return add({&from, 1}, {&to, 1}, after, [&](const auto& waits) { return builder_.copy(from, to, waits); });
}

StepId Sequence::reduce(Region from, Region to, After after) {
  if (from.size_bytes == 0) return kNone;
  return add(std::array{from, to}, {&to, 1}, after,
             [&](const auto& waits) { return builder_.reduce(from, to, waits); });
}

StepId Sequence::reduce_sorted(Region from, Region to, After after) {
  if (to.size_bytes == 0) return kNone;
  return add({&from, 1}, {&to, 1}, after, [&](const auto& waits) { return builder_.reduce_sorted(from, to, waits); });
}

StepId Sequence::move(std::span<const Move> moves, std::uint64_t element_bytes, After after) {
  std::vector<Move> kept;
  for (const Move& each : moves)
    if (each.from.size_bytes > 0 && each.from != each.to) kept.push_back(each);
  if (kept.empty()) return kNone;
  if (kept.size() == 1) return copy(kept[0].from, kept[0].to, after);
  const auto end = [](Region region) { return region.offset_bytes + region.size_bytes; };
  Move hull = kept[0];
  for (const Move& each : kept) {
    const auto grow = [&](Region& whole, Region part) {
      const std::uint64_t end_bytes = std::max(end(whole), end(part));
      whole.offset_bytes = std::min(whole.offset_bytes, part.offset_bytes);
      whole.size_bytes = end_bytes - whole.offset_bytes;
    };
    grow(hull.from, each.from);
    grow(hull.to, each.to);
  }
  std::vector<Block> blocks;
  std::vector<Region> read;
  std::vector<Region> written;
  for (const Move& each : kept) {
    blocks.push_back({.from_offset_elems = (each.from.offset_bytes - hull.from.offset_bytes) / element_bytes,
                      .to_offset_elems = (each.to.offset_bytes - hull.to.offset_bytes) / element_bytes,
                      .rows = 1,
                      .columns = each.from.size_bytes / element_bytes,
                      .from_row_stride_elems = 1,
                      .from_column_stride_elems = 1,
                      .to_row_stride_elems = 1,
                      .to_column_stride_elems = 1});
    read.push_back(each.from);
    written.push_back(each.to);
  }
  return add(read, written, after,
             [&](const auto& waits) { return builder_.transform(hull.from, hull.to, blocks, false, waits); });
}

void Sequence::wait_for_shared() {
  for (const auto& [begin_bytes, piece] : pieces_[static_cast<std::size_t>(Buffer::shared)])
    waits_.push_back(piece.writer);
}

StepId Sequence::signal(int peer, std::uint32_t tag, After after) {
  begin(after);
  wait_for_shared();
  return builder_.signal(peer, tag, waits());
}

StepId Sequence::signal_length(Region length, int peer, std::uint32_t tag, After after) {
  begin(after);
  wait_for_shared();
  return builder_.signal_length(length, peer, tag, waits());
}

StepId Sequence::wait_length(Region length, int peer, std::uint32_t tag, After after) {
  begin(after);
  return last_wait_[peer] = builder_.wait_length(length, peer, tag, waits());
}

StepId Sequence::publish(Region published, int peer, std::uint32_t tag, After after) {
  begin(after);
  if (published.size_bytes > 0) wait_to_read(published);
  return builder_.signal(peer, tag, waits());
}

StepId Sequence::wait(int peer, std::uint32_t tag, After after) {
  begin(after);
  return last_wait_[peer] = builder_.wait(peer, tag, waits());
}

StepId Sequence::read(Region from, int peer, Region to, After after) {
  if (to.size_bytes == 0) return kNone;
  std::vector<StepId> earlier(after.begin(), after.end());
  if (const auto it = last_wait_.find(peer); it != last_wait_.end()) earlier.push_back(it->second);
  return add({}, {&to, 1}, earlier, [&](const auto& waits) { return builder_.read(from, peer, to, waits); });
}

StepId Sequence::empty_send(int peer, std::uint32_t tag, After after) {
  begin(after);
  return builder_.send({}, peer, tag, waits());
}

StepId Sequence::empty_recv(int peer, std::uint32_t tag, After after) {
  begin(after);
  return builder_.recv({.buffer = Buffer::output}, peer, tag, waits());
}

StepId Sequence::publish_tasks(After after) {
  const Plan& plan = builder_.so_far();
  const auto first = std::exchange(shared_tasks_, static_cast<std::uint32_t>(plan.tasks.size()));
  if (first == shared_tasks_) return kNone;
  std::vector<Region> read;
  std::vector<Region> written;
  for (const SharedTask& task : std::span(plan.tasks).subspan(first)) {
    for (const RankRegion& each : sources(plan, task))
      if (each.rank == plan.rank) read.push_back(each.region);
    for (const RankRegion& each : targets(plan, task))
      if (each.rank == plan.rank) written.push_back(each.region);
  }
  return add(read, written, after,
             [&](const auto& waits) { return builder_.publish_tasks(first, shared_tasks_ - first, waits); });
}

}  // namespace penstock::plan
