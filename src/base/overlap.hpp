// Overlap of ranges of memory or of a buffer.
#pragma once

#include <functional>

#include "penstock/types.hpp"

namespace penstock::base {

/// Whether [a_begin, a_end) and [b_begin, b_end) overlap; an empty range does not. Pointers may point into different
/// objects.
template <class At>
constexpr bool overlap(At a_begin, At a_end, At b_begin, At b_end) {
  const std::less<At> before;
  return before(a_begin, a_end) && before(b_begin, b_end) && before(a_begin, b_end) && before(b_begin, a_end);
}
inline bool overlap(ConstBytes a, ConstBytes b) {
  return overlap(a.data(), a.data() + a.size(), b.data(), b.data() + b.size());
}

}  // namespace penstock::base
