#include "store/fragments.hpp"

#include <algorithm>
#include <utility>

namespace penstock::store {

namespace {

constexpr std::size_t kMostInBlock = 512;

/// Appends a fragment. Joins it with the last one if they are contiguous, in the blob and in one source.
void add(std::vector<Fragment>& fragments, const Fragment& next) {
  if (!fragments.empty()) {
    Fragment& last = fragments.back();
    if (last.source == next.source && last.end_bytes() == next.offset_bytes &&
        last.source_offset_bytes + last.size_bytes == next.source_offset_bytes) {
      last.size_bytes += next.size_bytes;
      return;
    }
  }
  fragments.push_back(next);
}

Fragment behind(const Fragment& fragment, std::uint64_t offset_bytes) {
  const std::uint64_t skip = offset_bytes - fragment.offset_bytes;
  return {offset_bytes, fragment.size_bytes - skip, fragment.source_offset_bytes + skip, fragment.source};
}

/// The fragments of `run`, and what is left of `old` around and between them. `old` is ascending. Its first
/// fragment begins at or before `run`, if the map has one that does.
std::vector<Fragment> merged(std::span<const Fragment> old, std::span<const Fragment> run) {
  std::vector<Fragment> result;
  result.reserve(old.size() + 2 * run.size());
  std::size_t i = 0;
  Fragment rest = old.empty() ? Fragment{} : old[0];
  const auto next = [&] { rest = ++i < old.size() ? old[i] : Fragment{}; };
  for (const Fragment& fragment : run) {
    while (i < old.size() && rest.end_bytes() <= fragment.offset_bytes) {
      add(result, rest);
      next();
    }
    if (i < old.size() && rest.offset_bytes < fragment.offset_bytes) {
      Fragment before = rest;
      before.size_bytes = fragment.offset_bytes - rest.offset_bytes;
      add(result, before);
    }
    while (i < old.size() && rest.end_bytes() <= fragment.end_bytes()) next();
    if (i < old.size() && rest.offset_bytes < fragment.end_bytes()) rest = behind(rest, fragment.end_bytes());
    add(result, fragment);
  }
  while (i < old.size()) {
    add(result, rest);
    next();
  }
  return result;
}

}  // namespace

std::size_t Fragments::block_of(std::uint64_t offset_bytes) const {
  const auto after =
      std::upper_bound(blocks_.begin(), blocks_.end(), offset_bytes,
                       [](std::uint64_t offset, const auto& block) { return offset < block->front().offset_bytes; });
  return after == blocks_.begin() ? 0 : static_cast<std::size_t>(after - blocks_.begin()) - 1;
}

std::size_t Fragments::first_behind(const Block& block, std::uint64_t offset_bytes) {
  const auto at = std::partition_point(block.begin(), block.end(),
                                       [&](const Fragment& f) { return f.end_bytes() <= offset_bytes; });
  return static_cast<std::size_t>(at - block.begin());
}

void Fragments::replace(std::size_t first, std::size_t last, Block fragments) {
  for (std::size_t i = first; i < last; ++i) count_ -= blocks_[i]->size();
  count_ += fragments.size();
  std::vector<std::shared_ptr<const Block>> made;
  if (!fragments.empty() && fragments.size() <= kMostInBlock) {
    made.push_back(std::make_shared<const Block>(std::move(fragments)));
  } else if (!fragments.empty()) {
    // Make blocks half full, so that later writes find room.
    for (std::size_t at = 0; at < fragments.size(); at += kMostInBlock / 2) {
      const std::size_t size = std::min(kMostInBlock / 2, fragments.size() - at);
      const auto from = fragments.begin() + static_cast<std::ptrdiff_t>(at);
      made.push_back(std::make_shared<const Block>(from, from + static_cast<std::ptrdiff_t>(size)));
    }
  }
  const auto begin = blocks_.begin() + static_cast<std::ptrdiff_t>(first);
  if (made.size() == last - first) {
    std::move(made.begin(), made.end(), begin);
    return;
  }
  blocks_.insert(blocks_.erase(begin, blocks_.begin() + static_cast<std::ptrdiff_t>(last)), made.begin(), made.end());
}

void Fragments::place(std::span<const Fragment> run) {
  if (run.empty()) return;
  const auto begins_before = [&](std::size_t block, std::uint64_t offset) {
    return block < blocks_.size() && blocks_[block]->front().offset_bytes < offset;
  };
  for (std::size_t done = 0; done < run.size();) {
    const std::size_t first = block_of(run[done].offset_bytes);
    std::size_t last = first;
    std::size_t taken = done + 1;
    for (;;) {
      while (begins_before(last + 1, run[taken - 1].end_bytes())) ++last;
      if (taken == run.size()) break;
      const std::uint64_t next = run[taken].offset_bytes;
      // If the run continues in the very next block, merge both at once. Blocks in gaps of the run stay.
      if (begins_before(last + 2, next + 1)) break;
      if (begins_before(last + 1, next + 1)) ++last;
      ++taken;
    }
    const std::size_t end = std::min(last + 1, blocks_.size());
    Block old;
    for (std::size_t i = first; i < end; ++i) old.insert(old.end(), blocks_[i]->begin(), blocks_[i]->end());
    replace(first, end, merged(old, run.subspan(done, taken - done)));
    done = taken;
  }
}

void Fragments::clear(std::uint64_t offset_bytes, std::uint64_t size_bytes) {
  if (size_bytes == 0 || blocks_.empty()) return;
  const std::uint64_t end_bytes = offset_bytes + size_bytes;
  const std::size_t first = block_of(offset_bytes);
  std::size_t last = first;
  Block left;
  while (last < blocks_.size() && (last == first || blocks_[last]->front().offset_bytes < end_bytes)) {
    for (const Fragment& fragment : *blocks_[last]) {
      if (fragment.offset_bytes < offset_bytes) {
        left.push_back(fragment);
        left.back().size_bytes = std::min(fragment.end_bytes(), offset_bytes) - fragment.offset_bytes;
      }
      if (fragment.end_bytes() > end_bytes) {
        left.push_back(fragment.offset_bytes < end_bytes ? behind(fragment, end_bytes) : fragment);
      }
    }
    ++last;
  }
  replace(first, last, std::move(left));
}

void Fragments::clear_all() {
  blocks_.clear();
  count_ = 0;
}

void Fragments::renumber(std::span<const std::uint32_t> numbers) {
  for (auto& block : blocks_) {
    auto renumbered = std::make_shared<Block>(*block);
    for (Fragment& fragment : *renumbered) fragment.source = numbers[fragment.source];
    block = std::move(renumbered);
  }
}

}  // namespace penstock::store
