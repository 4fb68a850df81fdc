// The split of the split-tree paper: the wide levels of a tree run on application cores; the narrow levels, which are
// most of its height, run on communication cores.
#pragma once

#include "penstock/plan.hpp"

namespace penstock::plan {

/// Places the last `application_levels` levels of a tree plan, counted from the leaves (S in the paper, section 3), on
/// Lane::application and everything else on Lane::progress. More levels than the tree has: all of them (min(S, H(N)) in
/// equation 4). Fewer than 0: none. A plan that is not a tree runs on Lane::progress.
void split_tree(Plan& plan, int application_levels);

}  // namespace penstock::plan
