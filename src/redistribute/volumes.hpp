// Volumes by source rank: all volumes at once may need too much memory.
#pragma once

#include <functional>
#include <span>

#include "penstock/relabel.hpp"

namespace penstock::redistribute {

/// Calls visit_source with the volumes of source rank 0, 1 and so on, sorted by target rank. For replicated layouts it
/// does so for each pair of copies.
void visit_volumes(const Layout& source, const Layout& target, MatrixOp op,
                   const std::function<void(std::span<const PairVolume>)>& visit_source);

}  // namespace penstock::redistribute
