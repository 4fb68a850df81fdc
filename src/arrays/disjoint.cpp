#include "arrays/disjoint.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "base/overlap.hpp"
#include "penstock/error.hpp"

namespace penstock::arrays {
namespace {

std::int64_t reach(const StridedRange& range, bool forward) {
  std::int64_t bytes = 0;
  for (std::size_t d = 0; d < range.shape.size(); ++d)
    if ((range.strides_bytes[d] > 0) == forward) bytes += range.strides_bytes[d] * (range.shape[d] - 1);
  return bytes;
}

/// A multiple of a step, with any factor from `least` to `most`.
struct Term {
  std::int64_t step;
  std::int64_t least;
  std::int64_t most;
};

/// The terms of the distance between an element of a and an element of b, longest steps first.
std::vector<Term> distance_terms(const StridedRange& a, const StridedRange& b) {
  std::vector<Term> terms;
  const auto add = [&](std::int64_t stride, std::int64_t length, bool negative) {
    if (length == 1 || stride == 0) return;
    const bool down = (stride < 0) != negative;
    const Term term{std::abs(stride), down ? 1 - length : 0, down ? 0 : length - 1};
    const auto same = std::ranges::find(terms, term.step, &Term::step);
    if (same == terms.end()) return terms.push_back(term);
    same->least += term.least;
    same->most += term.most;
  };
  for (std::size_t d = 0; d < a.shape.size(); ++d) add(a.strides_bytes[d], a.shape[d], false);
  for (std::size_t d = 0; d < b.shape.size(); ++d) add(b.strides_bytes[d], b.shape[d], true);
  std::ranges::sort(terms, [](const Term& x, const Term& y) { return x.step > y.step; });
  return terms;
}

std::int64_t divide_down(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && a < 0 ? 1 : 0); }
std::int64_t divide_up(std::int64_t a, std::int64_t b) { return -divide_down(-a, b); }

/// Whether the terms from t on can sum to a number between `least` and `most`.
bool can_be(const std::vector<Term>& terms, std::size_t t, std::int64_t least, std::int64_t most, int& steps_left) {
  if (t == terms.size()) return least <= 0 && 0 <= most;
  if (--steps_left < 0) return true;
  std::int64_t rest_least = 0;
  std::int64_t rest_most = 0;
  for (std::size_t i = t + 1; i < terms.size(); ++i) {
    rest_least += terms[i].step * terms[i].least;
    rest_most += terms[i].step * terms[i].most;
  }
  const Term& term = terms[t];
  const std::int64_t first = std::max(term.least, divide_up(least - rest_most, term.step));
  const std::int64_t last = std::min(term.most, divide_down(most - rest_least, term.step));
  for (std::int64_t factor = first; factor <= last; ++factor)
    if (can_be(terms, t + 1, least - factor * term.step, most - factor * term.step, steps_left)) return true;
  return false;
}

bool has_elements(const StridedRange& range) {
  return range.element_bytes > 0 && std::ranges::find(range.shape, 0) == range.shape.end();
}

}  // namespace

const std::byte* StridedRange::begin() const { return first + reach(*this, false); }
const std::byte* StridedRange::end() const { return first + reach(*this, true) + element_bytes; }

StridedRange dense_range(const std::byte* data, std::uint64_t size_bytes, const char* what, bool is_written) {
  return {data, {}, {}, static_cast<std::int64_t>(size_bytes), what, is_written};
}

bool overlap(const StridedRange& a, const StridedRange& b) {
  if (!base::overlap(a.begin(), a.end(), b.begin(), b.end())) return false;
  const std::int64_t apart = b.first - a.first;
  int steps_left = 4096;
  return can_be(distance_terms(a, b), 0, apart - a.element_bytes + 1, apart + b.element_bytes - 1, steps_left);
}

OrderedRanges::OrderedRanges(std::span<const StridedRange> ranges) {
  entries_.reserve(ranges.size() + 1);
  for (const StridedRange& range : ranges)
    if (has_elements(range)) entries_.push_back({range.begin(), range.end(), &range});
  std::ranges::sort(entries_, std::less<const std::byte*>(), &Entry::begin);
}

void OrderedRanges::add(const StridedRange& range) {
  if (!has_elements(range)) return;
  const Entry entry{range.begin(), range.end(), &range};
  entries_.insert(std::ranges::upper_bound(entries_, entry.begin, std::less<const std::byte*>(), &Entry::begin), entry);
}

void OrderedRanges::check_disjoint() const {
  // In most calls the ranges follow one another, or many sources are one array. Neither needs a check of all pairs.
  const std::byte* end = nullptr;
  const std::byte* written_end = nullptr;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::byte* const limit = entries_[i].range->is_written ? end : written_end;
    for (std::size_t j = 0; j < i && limit != nullptr && std::less<>()(entries_[i].begin, limit); ++j) {
      const StridedRange* a = entries_[j].range;
      const StridedRange* b = entries_[i].range;
      if ((!a->is_written && !b->is_written) || !overlap(*a, *b)) continue;
      // The message asks to move a: the written array, and a workspace rather than a target.
      if (!a->is_written || (b->is_written && a < b)) std::swap(a, b);
      throw Error(ErrorCode::invalid_argument, std::string("redistribute: the memory of ") + b->what + " and " +
                                                   a->what + " overlaps; give the " + a->what + " memory of its own");
    }
    if (end == nullptr || std::less<>()(end, entries_[i].end)) end = entries_[i].end;
    if (entries_[i].range->is_written && (written_end == nullptr || std::less<>()(written_end, entries_[i].end)))
      written_end = entries_[i].end;
  }
}

std::vector<ConstBytes> OrderedRanges::joined(std::uint64_t near_bytes) const {
  std::vector<ConstBytes> result;
  const auto address = [](const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); };
  for (const Entry& entry : entries_) {
    const std::byte* const end = result.empty() ? nullptr : result.back().data() + result.back().size();
    if (end == nullptr || address(entry.begin) > address(end) + near_bytes)
      result.emplace_back(entry.begin, entry.end);
    else if (address(end) < address(entry.end))
      result.back() = {result.back().data(), entry.end};
  }
  return result;
}

}  // namespace penstock::arrays
