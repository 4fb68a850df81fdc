// Replicated layouts: which rank reads which copy.
#pragma once

#include <cstdint>
#include <functional>

#include "penstock/layout.hpp"

namespace penstock::redistribute {

/// The copy of the source that a rank of the target reads: the copy that it owns a part of, so that this part stays on
/// its rank. Ranks outside of the source take turns.
inline std::int32_t copy_read_by(const Layout& source, std::int32_t target_rank) {
  const std::int32_t own = source.copy_of(target_rank);
  return own >= 0 ? own : target_rank % source.copies();
}

/// Whether a rank of the target reads a given copy of the source. Empty: all ranks do.
using ReadsCopy = std::function<bool(std::int32_t target_rank)>;

/// Calls visit(copy of the source, copy of the target, which ranks read that copy) for all pairs of copies.
inline void for_each_copy(const Layout& source, const Layout& target,
                          const std::function<void(const Layout&, const Layout&, const ReadsCopy&)>& visit) {
  for (std::int32_t t = 0; t < target.copies(); ++t)
    for (std::int32_t s = 0; s < source.copies(); ++s) {
      ReadsCopy reads_copy;
      if (source.copies() > 1) reads_copy = [&source, s](std::int32_t rank) { return copy_read_by(source, rank) == s; };
      visit(source.copy(s), target.copy(t), reads_copy);
    }
}

}  // namespace penstock::redistribute
