// Operations among equals, ranks of a group, that plans for whole communicators or for the leaders of nodes use.
#pragma once

#include <cstdint>
#include <functional>

#include "collectives/parts/arguments.hpp"
#include "collectives/parts/group.hpp"
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

/// What a rank of the group has, and where the result shall lie; `own` may be `target`. Not an empty group.
struct Exchange {
  Region own;
  Region target;
  std::uint64_t elements = 0;
  std::uint64_t element_bytes = 1;
  std::uint64_t segment_bytes = 0;  ///< 0: the algorithm's own
  std::uint32_t first_tag = 0;
  /// If given: called before steps on this region of `own` are written for the first time. It may write the steps that
  /// make the region ready; what is needed later only, they may put off until `sent` is done.
  std::function<void(Region own, StepId sent)> prepare = nullptr;
};

/// Of the whole buffers of an allreduce.
Exchange whole_exchange(const Team& team, const Collective& collective);

/// An allreduce among the group, called by its members.
using AllreduceExchange = void (*)(Sequence& sequence, const Group& group, const Exchange& exchange);

/// In n - 1 rounds each of n parts travels around the ring and is combined on its way, in n - 1 more the results travel
/// around: 2 * m * (n - 1) / n bytes sent, the least possible.
void ring_allreduce(Sequence& sequence, const Group& group, const Exchange& exchange);
/// Rabenseifner's: recursive halving combines, recursive doubling collects, in 2 * log2 n rounds; as many bytes as the
/// ring where n is a power of two, m more for two of the ranks otherwise (Thakur, Rabenseifner and Gropp 2005).
void halving_allreduce(Sequence& sequence, const Group& group, const Exchange& exchange);
/// Recursive doubling: log2 n rounds of m bytes, in segments; 2 more for some unless n is a power of two.
void doubling_allreduce(Sequence& sequence, const Group& group, const Exchange& exchange);

/// As halving_allreduce, but the sum is collected by the first of the group alone.
void halving_reduce(Sequence& sequence, const Group& group, const Exchange& exchange);
/// The first of the group deals its `target` out along a binomial tree, then the parts travel around the ring: about
/// 2 * m * (n - 1) / n bytes sent (van de Geijn).
void scatter_allgather(Sequence& sequence, const Group& group, const Exchange& exchange);

}  // namespace penstock::collectives
