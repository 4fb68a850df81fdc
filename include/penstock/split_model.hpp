// The split-tree model: how long a tree collective takes if its upper levels run on communication cores and its last S
// levels on application cores, alone and beside a computation.
// Source: Denis, Jaeger, Jeannot, Perache, Taboada: Dynamic Placement of Progress Thread for Overlapping MPI
// Non-Blocking Collectives on Manycore Processor, Euro-Par 2018, section 4; docs/design/split-tree.md says
// where this differs from the paper, and why.
//
// All functions are pure, local, cheap (a few operations per level) and callable from any thread. Times have the unit
// of the costs: with the default costs 1 is the transfer of one buffer, as in the paper; with measured costs, seconds.
// All throw Error(invalid_argument) for an invalid model or number of cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/collective.hpp"
#include "penstock/export.hpp"

namespace penstock {

/// The time to send a message along one edge of a tree and, in a reduction, to combine it with the receiver's data.
struct EdgeCost {
  double latency = 0;
  double per_byte = 1;

  double of(double bytes) const { return latency + per_byte * bytes; }
};

/// Costs on application cores and on communication cores.
struct StepCosts {
  EdgeCost application{};
  EdgeCost progress{};
};

/// The operation. The defaults with one byte per rank are the paper's unit costs.
struct SplitModel {
  CollectiveKind kind = CollectiveKind::reduce;  ///< bcast, reduce, gather, scatter or allreduce
  double bytes = 1;                              ///< per rank: of the block of one rank for gather and scatter
  int radix = 2;
  /// Length of a segment: of the buffer in the divided policy, and with `waiting_helps` of the edges of bcast, reduce
  /// and allreduce. 0: edges are not cut; the divided policy has arbitrarily small segments without latency.
  double segment_bytes = 0;
  /// true: when an application core has finished its computation, it helps with all levels, as waiting threads of the
  /// engine do. false, as in the paper: application cores run the last S levels only.
  bool waiting_helps = false;
  StepCosts costs{};
};

/// The cores of one node: each rank computes on one of them; the others communicate for all ranks (N and P in the
/// paper).
struct SplitCores {
  int ranks = 1;
  int progress = 0;  ///< 0: every step runs on application cores, as in a blocking operation
};

/// H(N), the levels of a k-nomial tree of `ranks` ranks: ceil(log_radix(ranks)).
PENSTOCK_API int tree_height(int ranks, int radix = 2);
/// F(N, i), the edges at a level of that tree; level 1 is next to the root. The sum over all levels is N - 1. Exact for
/// every N, while equation 3 counts fractions of an edge if N is not a power of two.
PENSTOCK_API std::int64_t tree_edges(int ranks, int level, int radix = 2);

/// C(N): the time of a computation on `ranks` cores that takes `on_all_cores` on `cores` of them and scales linearly.
/// Equation 2, with the fraction the right way up.
PENSTOCK_API double computation_time(double on_all_cores, int cores, int ranks);

/// T_blocking(N), equation 1: all levels on application cores, no computation. One core runs each edge, with and
/// without `waiting_helps`, so that a ratio means the same in both.
PENSTOCK_API double blocking_time(const SplitModel& model, int ranks);
/// C(Nproc): the time on all `cores` cores of a computation that takes `ratio` (more than 0) times as long as the
/// blocking operation on all of them. The paper assumes 1.
PENSTOCK_API double computation_on_all_cores(const SplitModel& model, int cores, double ratio = 1);

/// T_nonblocking(S, N), equation 4: the last `split` levels run on application cores, those above are folded (the
/// paper's word) on the communication cores; no computation. More levels than the tree has: all, as in
/// Collective::split.
PENSTOCK_API double communication_time(const SplitModel& model, SplitCores cores, int split);
/// T_overlapped(S, N), equation 5: the same beside a computation of this length on each application core. Levels on
/// these cores add to it, the others overlap with it.
PENSTOCK_API double overlapped_time(const SplitModel& model, SplitCores cores, int split, double computation);
/// The same without a tree: the buffer is cut into independent segments. The communication cores run what they can
/// finish beside the computation, then all cores run the rest.
PENSTOCK_API double divided_time(const SplitModel& model, SplitCores cores, double computation);

/// What the model says about one number of ranks.
struct SplitPoint {
  SplitCores cores{};
  int best_split = 0;                   ///< the smallest S with the shortest time; the height of the tree if P is 0
  double computation = 0;               ///< C(N)
  double blocking = 0;                  ///< T_blocking(N)
  std::vector<double> communication{};  ///< equation 4 for S = 0 to the height of the tree
  std::vector<double> overlapped{};     ///< equation 5, for the same
  double divided = 0;                   ///< divided_time()

  double best_time() const { return overlapped[static_cast<std::size_t>(best_split)]; }
  bool prefers_divided() const { return divided < best_time(); }
};

PENSTOCK_API SplitPoint evaluate_split(const SplitModel& model, SplitCores cores, double computation);

/// The S with the shortest time beside a computation of this ratio, see computation_on_all_cores(). Deterministic, so
/// equal on all ranks for equal arguments.
PENSTOCK_API int best_split(const SplitModel& model, SplitCores cores, double ratio = 1);

/// All ways to divide a node into ranks and communication cores.
struct SplitAdvice {
  std::vector<SplitPoint> points;  ///< points[n - 1] is for n ranks
  std::size_t best = 0;            ///< index of the point with the shortest best_time(); the first of several
};

/// The model for every number of ranks on `cores` (at least 2) cores, beside a computation that would take
/// `on_all_cores` (at least 0) if all cores computed.
PENSTOCK_API SplitAdvice advise_ranks(const SplitModel& model, int cores, double on_all_cores);

}  // namespace penstock
