// Volumes of one source rank after the other, where all of them at once would take too much memory.
#pragma once

#include <functional>
#include <span>

#include "penstock/relabel.hpp"

namespace penstock::redistribute {

/// transfer_volumes() in pieces: calls visit_source with all volumes of source rank 0, 1 and so on, by target rank; of
/// replicated layouts so for each two of their copies.
void visit_volumes(const Layout& source, const Layout& target, MatrixOp op,
                   const std::function<void(std::span<const PairVolume>)>& visit_source);

}  // namespace penstock::redistribute
