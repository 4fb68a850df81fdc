// The collective operations, the algorithms there are for each, and their plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/cost_model.hpp"
#include "penstock/export.hpp"
#include "penstock/graph.hpp"
#include "penstock/plan.hpp"
#include "penstock/types.hpp"

namespace penstock {

enum class CollectiveKind : std::uint8_t {
#define PENSTOCK_COLLECTIVE(name, rooted, computes) name,
#include "penstock/collectives.def"
#undef PENSTOCK_COLLECTIVE
};

inline constexpr std::size_t kCollectiveKinds = 0
#define PENSTOCK_COLLECTIVE(name, rooted, computes) +1
#include "penstock/collectives.def"
#undef PENSTOCK_COLLECTIVE
    ;

PENSTOCK_API std::string_view name(CollectiveKind kind) noexcept;
/// The operation with this name ("allreduce"). Throws Error(invalid_argument) that lists the known names.
PENSTOCK_API CollectiveKind collective_kind_from_name(std::string_view name);
/// Whether the operation has a root.
PENSTOCK_API bool is_rooted(CollectiveKind kind) noexcept;
/// Whether it combines elements by Collective::op.
PENSTOCK_API bool computes(CollectiveKind kind) noexcept;
/// Whether it is among the neighbours in Collective::graph.
PENSTOCK_API bool is_neighborhood(CollectiveKind kind) noexcept;
/// Whether the blocks of the ranks have different counts: gatherv, scatterv, allgatherv, alltoallv, alltoallw,
/// reduce_scatter and neighbor_allgatherv, neighbor_alltoallv, neighbor_alltoallw.
PENSTOCK_API bool has_counts(CollectiveKind kind) noexcept;
/// Whether it has counts in Collective::send: scatterv, alltoallv, alltoallw and the neighbourhood forms.
PENSTOCK_API bool has_send_counts(CollectiveKind kind) noexcept;
/// Whether it has counts in Collective::receive: all of has_counts() but scatterv.
PENSTOCK_API bool has_receive_counts(CollectiveKind kind) noexcept;
/// Whether each block of items has a datatype and a displacement in bytes: alltoallw and neighbor_alltoallw. As bytes
/// they are alltoallv and neighbor_alltoallv.
PENSTOCK_API bool has_datatypes(CollectiveKind kind) noexcept;

/// The blocks of the ranks in one buffer of an operation with counts, see has_counts(), in elements. Each list has one
/// entry per rank, or in a neighbourhood per destination (send) or source (receive). If `counts` is empty, every block
/// has Collective::count elements. If `displacements` is empty, the blocks follow each other in this order.
struct Blocks {
  std::vector<std::uint64_t> counts{};
  std::vector<std::uint64_t> displacements{};

  friend bool operator==(const Blocks&, const Blocks&) = default;
};

/// One collective operation with its arguments, without the buffers. Also the key of the plan cache.
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  /// Elements per rank. gather, scatter, allgather, alltoall and reduce_scatter_block: of one block. gatherv: what this
  /// rank sends; scatterv: what it receives; these two may differ between ranks. neighbor_allgather: of what this rank
  /// sends; neighbor_alltoall: of one block; equal on all ranks that have neighbours.
  /// neighbor_allgatherv: what this rank sends.
  std::uint64_t count = 0;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  /// Of a UserOp, which replaces dtype and op: the size of its elements. 0: no UserOp.
  std::uint64_t element_bytes = 0;
  bool commutative = true;  ///< of the UserOp
  /// A reproducible reduction: the same bits for any placement, rank order (scan and exscan: for the given rank order)
  /// and segmentation. The contributions to each element are sorted by value before they are combined.
  bool reproducible = false;
  int root = 0;
  /// MPI_IN_PLACE. Rooted operations: the root's value counts. scan and exscan: each rank decides for itself. The
  /// others: equal on all ranks. Neighbourhood collectives have none.
  bool in_place = false;
  Blocks send{};  ///< scatterv (at the root), alltoallv and alltoallw without in_place
  /// gatherv (at the root), alltoallv, alltoallw, allgatherv and reduce_scatter; the last two need equal counts on all
  /// ranks.
  Blocks receive{};
  std::string algorithm{};          ///< a row of algorithms.def; empty: Penstock chooses, see choose()
  std::uint64_t segment_bytes = 0;  ///< length of a pipeline segment; 0: the algorithm chooses
  /// Levels of a tree, counted from the leaves, that run on application cores (S in the split-tree paper, section 3).
  /// More than the tree has: all. kAutomatic: the model chooses.
  int split = kAutomatic;
  /// Of tree algorithms: each rank that has the data sends to radix - 1 others per level. Of `leader_multiplying` and
  /// barriers: a leader sends radix - 1 messages in a round; 2: as many as take least on a known machine
  /// (Team::by_cost).
  int radix = 2;
  /// Of neighbourhood collectives, equal on all ranks. nullptr in a call of Comm: its graph, see Comm::graph.
  std::shared_ptr<const Graph> graph{};

  static constexpr int kAutomatic = -1;

  std::uint64_t item_bytes() const { return element_bytes != 0 ? element_bytes : size_bytes(dtype); }

  friend bool operator==(const Collective&, const Collective&) = default;
};

/// A Collective without lists, user operation, graph or wishes.
struct PlainCall {
  CollectiveKind kind = CollectiveKind::barrier;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  bool in_place = false;
  int root = 0;
  std::uint64_t count = 0;

  /// nullopt if `collective` has more than that.
  static std::optional<PlainCall> of(const Collective& collective) {
    const PlainCall made{.kind = collective.kind,
                         .dtype = collective.dtype,
                         .op = collective.op,
                         .in_place = collective.in_place,
                         .root = collective.root,
                         .count = collective.count};
    return made.collective() == collective ? std::optional(made) : std::nullopt;
  }
  Collective collective() const {
    return {.kind = kind, .count = count, .dtype = dtype, .op = op, .root = root, .in_place = in_place};
  }
  friend bool operator==(const PlainCall&, const PlainCall&) = default;
};

/// A row of algorithms.def.
struct Algorithm {
  CollectiveKind kind;
  std::string_view name;
  std::string_view cost;  ///< rounds and bytes per rank, for n ranks and m bytes, in words
  /// Whether it can run this operation on this team. Pure, like `plan`. The answer is equal on all ranks.
  bool (*fits)(const Team& team, const Collective& collective);
  Plan (*plan)(const Team& team, const Collective& collective);
  bool keeps_order;   ///< combines elements in rank order, as an operation that does not commute needs
  bool reproducible;  ///< can run Collective::reproducible if the bits depend on the order of combination
  /// What simulated_seconds() of its plans says, within 10%; on many nodes in a small part of the time. And the same
  /// with terms. None if the row has no cost for this team. `fits` must hold. Team::rank does not matter. Pure, any
  /// thread.
  std::optional<double> seconds(const Team& team, const Collective& collective, const Machine& machine) const {
    return seconds_up_to(team, collective, machine, std::numeric_limits<double>::infinity());
  }
  /// The same, or none if it is more than `most_seconds`, which takes less time to find out.
  std::optional<double> (*seconds_up_to)(const Team& team, const Collective& collective, const Machine& machine,
                                         double most_seconds);
  std::optional<Cost> (*seconds_by_term)(const Team& team, const Collective& collective, const Machine& machine);
};

/// Every algorithm, in the order of algorithms.def.
PENSTOCK_API std::span<const Algorithm> algorithms() noexcept;

struct Choice {
  const Algorithm* algorithm;       ///< never null; static storage
  std::string reason;               ///< one sentence for people
  int split = 0;                    ///< levels of the plan's tree on application cores; 0 if it is not a tree
  std::uint64_t segment_bytes = 0;  ///< length of a pipeline segment, as in Collective
  int radix = 2;                    ///< as in Collective
};

/// Chooses the algorithm for `collective`, in this order: the one it names; the best one measured (Team::tuning); the
/// one of least cost on a known machine (Team::by_cost, ChoiceByCost::find); the default for the size and the team.
/// Chooses the split of its tree: the one it names, or the one that the model finds best beside a computation as long
/// as the operation (split-tree paper, section 4). Levels between nodes are never split. All ranks choose the same: the
/// choice does not depend on team.rank, on in_place of a rooted operation or on counts that only some ranks have.
/// Throws Error(invalid_argument) for a root outside of the team, an operation that the dtype lacks, a reproducible
/// operation that does not commute, a neighbourhood without a graph, lists that do not have one entry per rank,
/// received blocks that overlap, a size beyond 2^63 bytes, and an algorithm that is unknown or does not fit (the
/// message lists those that do).
PENSTOCK_API Choice choose(const Team& team, const Collective& collective);

/// This rank's plan for `collective`, by the algorithm that choose() returns. Plan::input_bytes and output_bytes are
/// the sizes of the buffers that the rank must pass; 0 if MPI says that the buffer is not significant. Local, pure, any
/// thread.
PENSTOCK_API Plan plan_collective(const Team& team, const Collective& collective);

}  // namespace penstock
