// Split-tree placement (paper 000): the wide levels of a tree run on the application's cores, the narrow ones, which
// are most of its length, on the cores of communication.
#pragma once

#include "penstock/plan.hpp"

namespace penstock::plan {

/// Places the last `application_levels` levels of a tree plan (S in paper 000, section 3: counted from the leaves) on
/// Lane::application and everything else on Lane::progress. More levels than the tree has mean all of them (the
/// min(S, H(N)) of equation 4), fewer than 0 mean none. A plan that is not a tree runs on Lane::progress.
void split_tree(Plan& plan, int application_levels);

}  // namespace penstock::plan
