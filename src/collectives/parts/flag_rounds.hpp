// The rows `shared_rounds`: short data inside a node in rounds of flags (Plan::by_flags). A rank looks at the flags of
// a few others in each round, where the rows `shared` look at those of all.
#pragma once

#include "collectives/parts/arguments.hpp"

namespace penstock::collectives {

/// `fits`: all ranks are on one node, and what a rank publishes in all rounds fits beside its flag.
bool few_in_flag_rounds(const Team& team, const Collective& collective);

/// Ranks are divided as for multiplying_allreduce(): ceil(log_k n) rounds, in which each looks at the flags of at most
/// k - 1 others. Parts have consecutive ranks and are combined in their order, on all ranks alike.
Plan allreduce_in_flag_rounds(const std::string& algorithm, const Team& team, const Collective& collective);
/// The same without data, whatever the count.
Plan barrier_in_flag_rounds(const std::string& algorithm, const Team& team, const Collective& collective);
/// Along tree_of_node(): ceil(log2 n) levels. Each rank publishes once.
Plan bcast_in_flag_rounds(const std::string& algorithm, const Team& team, const Collective& collective);
/// The same, or, for an operation that does not commute, along tree_in_order() and then from rank 0 to the root.
Plan reduce_in_flag_rounds(const std::string& algorithm, const Team& team, const Collective& collective);

}  // namespace penstock::collectives
