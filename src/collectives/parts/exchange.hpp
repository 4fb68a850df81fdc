// Exchanges among the ranks of a group: of all ranks of a communicator, or of the leaders of the nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collectives/parts/arguments.hpp"
#include "collectives/parts/group.hpp"
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {

/// An exchange uses tags below first_tag + kExchangeTags.
inline constexpr std::uint32_t kExchangeTags = 2048;
inline constexpr std::uint64_t kMaxExchangePieces =
    512;  // parts or rounds times segments: bounds the length of the plan
inline constexpr std::uint64_t kMaxExchangeSegments = 64;

/// The arguments of one rank of the group. `own` is its contribution, `target` gets the result; both may be the same.
struct Exchange {
  Region own;
  Region target;
  std::uint64_t elements = 0;
  std::uint64_t element_bytes = 1;
  std::uint64_t segment_bytes = 0;  ///< 0: the algorithm's own
  int radix = 2;                    ///< of multiplying_allreduce
  std::uint32_t first_tag = 0;
  /// If given, the exchange calls it with each region of `own` before it adds the first step on that region. It may add
  /// the steps that make the region ready. Steps that are only needed later can wait for `sent`.
  std::function<void(Region own, StepId sent)> prepare = nullptr;
};

/// The exchange of the whole buffers of an allreduce.
Exchange whole_exchange(const Team& team, const Collective& collective);

/// An allreduce among the group. Only members call it.
using AllreduceExchange = void (*)(Sequence& sequence, const Group& group, const Exchange& exchange);

/// Ring reduce-scatter, then ring allgather, of n parts: 2 * (n - 1) rounds, 2 * m * (n - 1) / n bytes sent, the
/// minimum.
void ring_allreduce(Sequence& sequence, const Group& group, const Exchange& exchange);
/// Rabenseifner's algorithm: recursive halving combines, recursive doubling gathers. 2 * log2 n rounds. As many bytes
/// as the ring if n is a power of two, otherwise m more for some ranks (Thakur, Rabenseifner and Gropp 2005).
void halving_allreduce(Sequence& sequence, const Group& group, const Exchange& exchange);
/// Recursive doubling in segments: log2 n rounds of m bytes; 2 more for some ranks unless n is a power of two.
void doubling_allreduce(Sequence& sequence, const Group& group, const Exchange& exchange);
/// For short data: in each round up to `radix` parts of the group exchange their sums at once. ceil(log_k n) rounds of
/// k - 1 messages of m bytes, for any n (Ruefenacht, Bull and Booth 2017).
void multiplying_allreduce(Sequence& sequence, const Group& group, const Exchange& exchange);
/// Of one of its ranks in one round.
struct PartsRound {
  struct Peer {
    int part;
    int index;  ///< of the group
  };
  int parts = 0;
  int own = 0;
  std::vector<Peer> sources{};  ///< one of each other part, those behind this one first
  std::vector<Peer> targets{};
};
/// Of the rank group.self, the last round first.
std::vector<PartsRound> rounds_of(const Group& group, std::span<const int> radices);
/// `radices`: of its rounds. Bounds the length of the plan.
std::uint64_t most_multiplying_segments(std::span<const int> radices);

/// As halving_allreduce, but only the first rank of the group gets the result.
void halving_reduce(Sequence& sequence, const Group& group, const Exchange& exchange);
/// Van de Geijn's broadcast from the first rank of the group: it scatters its `target` along a binomial tree, then a
/// ring allgathers the parts. About 2 * m * (n - 1) / n bytes sent.
void scatter_allgather(Sequence& sequence, const Group& group, const Exchange& exchange);
/// The same with an allgather of ceil(log2 n) rounds, for any n: in round d a rank sends the parts that it has from its
/// own on to the rank d places before it (Bruck et al. 1997). Ranks that have their parts from the scatter do not
/// receive them again.
void scatter_doubling(Sequence& sequence, const Group& group, const Exchange& exchange);

}  // namespace penstock::collectives
