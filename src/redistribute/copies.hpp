// Replicated layouts: who reads which copy.
#pragma once

#include <cstdint>
#include <functional>

#include "penstock/layout.hpp"

namespace penstock::redistribute {

/// The copy of the source that a rank of the target reads: the one that it has a part of, so that this part stays where
/// it is; ranks outside of the source take turns.
inline std::int32_t copy_read_by(const Layout& source, std::int32_t target_rank) {
  const std::int32_t own = source.copy_of(target_rank);
  return own >= 0 ? own : target_rank % source.copies();
}

/// Whether one copy of the source serves a rank of the target; empty: all of them.
using Serves = std::function<bool(std::int32_t target_rank)>;

/// Calls visit(copy of the source, copy of the target, who is served) for each two that have something for each other.
inline void for_each_copy(const Layout& source, const Layout& target,
                          const std::function<void(const Layout&, const Layout&, const Serves&)>& visit) {
  for (std::int32_t t = 0; t < target.copies(); ++t)
    for (std::int32_t s = 0; s < source.copies(); ++s) {
      Serves serves;
      if (source.copies() > 1) serves = [&source, s](std::int32_t rank) { return copy_read_by(source, rank) == s; };
      visit(source.copy(s), target.copy(t), serves);
    }
}

}  // namespace penstock::redistribute
