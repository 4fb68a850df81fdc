#include "host/heap_ranges.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "penstock/error.hpp"

namespace penstock::host {

HeapRanges::HeapRanges(std::uint64_t bytes) {
  if (bytes > 0) free_.emplace(0, bytes);
}

std::uint64_t HeapRanges::take(std::uint64_t bytes) {
  const auto found = std::ranges::find_if(free_, [&](const auto& range) { return range.second >= bytes; });
  if (found == free_.end())
    throw Error(ErrorCode::no_space,
                "too many communicators share memory at a time: another one needs " + std::to_string(bytes) +
                    " bytes of addresses, and they are used up; free communicators, or lower PENSTOCK_SHARED_BYTES");
  // What is left of the range stays the entry that it is: nothing is allocated, so nothing is lost if memory is short.
  auto range = free_.extract(found);
  const std::uint64_t offset = range.key();
  if (range.mapped() > bytes) {
    range.key() += bytes;
    range.mapped() -= bytes;
    free_.insert(std::move(range));
  }
  taken_bytes_ += bytes;
  return offset;
}

void HeapRanges::give_back(std::uint64_t offset, std::uint64_t bytes) {
  auto range = free_.emplace(offset, bytes).first;
  taken_bytes_ -= bytes;
  if (const auto next = std::next(range); next != free_.end() && range->first + range->second == next->first) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range == free_.begin()) return;
  const auto before = std::prev(range);
  if (before->first + before->second != range->first) return;
  before->second += range->second;
  free_.erase(range);
}

}  // namespace penstock::host
