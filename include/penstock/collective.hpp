// The collective operations, the algorithms there are for each, and their plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/export.hpp"
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
/// Whether the operation has a root; whether it combines elements by Collective::op; whether the blocks of the ranks
/// have counts and displacements of their own.
PENSTOCK_API bool is_rooted(CollectiveKind kind) noexcept;
PENSTOCK_API bool computes(CollectiveKind kind) noexcept;
PENSTOCK_API bool has_counts(CollectiveKind kind) noexcept;

/// The blocks of the ranks in one buffer of gatherv, scatterv, allgatherv, alltoallv and reduce_scatter, in elements;
/// both lists have an entry per rank. Without counts every rank has Collective::count, without displacements the
/// blocks follow each other in the order of the ranks.
struct Blocks {
  std::vector<std::uint64_t> counts{};
  std::vector<std::uint64_t> displacements{};

  friend bool operator==(const Blocks&, const Blocks&) = default;
};

/// The operation that a collective call asks for; also the key of the plan cache.
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  /// Elements per rank: of the block of one rank for gather, scatter, allgather, alltoall and reduce_scatter_block;
  /// what this rank sends in gatherv and receives in scatterv, which may differ between the ranks.
  std::uint64_t count = 0;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  /// Of a UserOp, which then stands for dtype and op: the size of its elements, and whether their order is free.
  std::uint64_t element_bytes = 0;
  bool commutative = true;
  /// Reductions: the same bits for any placement, order of the ranks (scan and exscan: for their order), and cut into
  /// messages. The contributions to each element are combined in an order that follows from their values.
  bool reproducible = false;
  int root = 0;
  /// Rooted operations: only the root's value counts; scan and exscan: each rank for itself; the others: equal on all
  /// ranks.
  bool in_place = false;
  Blocks send{};  ///< scatterv (of the root alone), alltoallv without in_place
  Blocks
      receive{};  ///< gatherv (of the root alone), alltoallv; allgatherv and reduce_scatter: equal counts on all ranks
  std::string algorithm{};          ///< a row of algorithms.def; empty: chosen by size and team
  std::uint64_t segment_bytes = 0;  ///< length of a pipeline segment; 0: chosen by the algorithm
  /// Levels of a tree, counted from the leaves, that run on the cores of the application (S in paper 000, section 3);
  /// more than there are means all, kAutomatic that the model chooses.
  int split = kAutomatic;
  int radix = 2;  ///< of algorithms that are trees: each rank that has the data serves radix - 1 others per level

  static constexpr int kAutomatic = -1;

  std::uint64_t item_bytes() const { return element_bytes != 0 ? element_bytes : size_bytes(dtype); }

  friend bool operator==(const Collective&, const Collective&) = default;
};

/// A row of algorithms.def.
struct Algorithm {
  CollectiveKind kind;
  std::string_view name;
  std::string_view cost;  ///< rounds and bytes per rank, for n ranks and m bytes, in words
  /// Whether it can serve this team and operation. Like `plan` a pure function; depends on nothing that may differ
  /// between the ranks.
  bool (*fits)(const Team& team, const Collective& collective);
  Plan (*plan)(const Team& team, const Collective& collective);
  bool keeps_order;   ///< combines the elements in the order of the ranks, as an operation that does not commute needs
  bool reproducible;  ///< can serve Collective::reproducible where the bits depend on the order
};

/// Every algorithm, in the order of algorithms.def.
PENSTOCK_API std::span<const Algorithm> algorithms() noexcept;

struct Choice {
  const Algorithm* algorithm;       ///< never null; static storage
  std::string reason;               ///< for people
  int split = 0;                    ///< levels of the plan's tree on the application's cores; 0 where it is not a tree
  std::uint64_t segment_bytes = 0;  ///< length of a pipeline segment, as in Collective
};

/// The algorithm that serves `collective`: the one it names, the one that was measured to be the best (Team::tuning),
/// or the default for the size and the team; and the split of its tree: the one it asks for, or the one that the model
/// finds best beside a computation that lasts as long as the operation (paper 000, section 4), but never levels between
/// nodes. Depends only on what all ranks know (not on in_place of a rooted operation, nor on team.rank, nor on counts
/// that only some ranks have), so all ranks choose the same. Throws Error(invalid_argument) for a root outside of the
/// team, an operation that the dtype lacks, a reproducible operation that does not commute, lists of another length
/// than the team, blocks that are received over each other, a size beyond 2^63 bytes, or an algorithm that is unknown
/// or does not fit (the message lists those that do).
PENSTOCK_API Choice choose(const Team& team, const Collective& collective);

/// This rank's plan for `collective` by the algorithm that choose() gives. Plan::input_bytes and output_bytes are what
/// the rank must pass: 0 where MPI says that the buffer is not significant. Local; pure; any thread.
PENSTOCK_API Plan plan_collective(const Team& team, const Collective& collective);

}  // namespace penstock
