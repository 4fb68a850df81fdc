// The collective operations, the algorithms there are for each, and their plans.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "penstock/export.hpp"
#include "penstock/plan.hpp"
#include "penstock/types.hpp"

namespace penstock {

enum class CollectiveKind : std::uint8_t {
#define PENSTOCK_COLLECTIVE(name, rooted, computes) name,
#include "penstock/collectives.def"
#undef PENSTOCK_COLLECTIVE
};

PENSTOCK_API std::string_view name(CollectiveKind kind) noexcept;
/// The operation with this name ("allreduce"). Throws Error(invalid_argument) that lists the known names.
PENSTOCK_API CollectiveKind collective_kind_from_name(std::string_view name);
/// Whether the operation has a root; whether it combines elements by Collective::op.
PENSTOCK_API bool is_rooted(CollectiveKind kind) noexcept;
PENSTOCK_API bool computes(CollectiveKind kind) noexcept;

/// The operation that a collective call asks for; also the key of the plan cache.
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  std::uint64_t count = 0;  ///< elements per rank: of the block of one rank for gather, scatter and allgather
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  /// reduce, gather, scatter: only the root's value counts; allreduce, allgather: equal on all ranks.
  bool in_place = false;
  std::string algorithm{};          ///< a row of algorithms.def; empty: chosen by size and team
  std::uint64_t segment_bytes = 0;  ///< length of a pipeline segment; 0: chosen by the algorithm
  /// Levels of a tree, counted from the leaves, that run on the cores of the application (S in paper 000, section 3);
  /// more than there are means all, kAutomatic that the model chooses.
  int split = kAutomatic;
  int radix = 2;  ///< of algorithms that are trees: each rank that has the data serves radix - 1 others per level

  static constexpr int kAutomatic = -1;

  friend bool operator==(const Collective&, const Collective&) = default;
};

/// A row of algorithms.def.
struct Algorithm {
  CollectiveKind kind;
  std::string_view name;
  std::string_view cost;  ///< rounds and bytes per rank, for n ranks and m bytes, in words
  /// Whether it can serve this team and operation. Like `plan` a pure function; depends on nothing that may differ
  /// between the ranks.
  bool (*fits)(const Team& team, const Collective& what);
  Plan (*plan)(const Team& team, const Collective& what);
};

/// Every algorithm, in the order of algorithms.def.
PENSTOCK_API std::span<const Algorithm> algorithms() noexcept;

struct Choice {
  const Algorithm* algorithm;  ///< never null; static storage
  std::string reason;          ///< for people
  int split = 0;               ///< levels of the plan's tree on the application's cores; 0 where it is not a tree
};

/// The algorithm that serves `what`: the one it names, or the default for the size and the team; and the split of its
/// tree: the one it asks for, or the one that the model finds best beside a computation that lasts as long as the
/// operation (paper 000, section 4), but never levels between nodes. Depends only on what
/// all ranks know (not on in_place of a rooted operation, nor on team.rank), so all ranks choose the same.
/// Throws Error(invalid_argument) for a root outside of the team, an operation that the dtype lacks, a size beyond
/// 2^64 bytes, or an algorithm that is unknown or does not fit (the message lists those that do).
PENSTOCK_API Choice choose(const Team& team, const Collective& what);

/// This rank's plan for `what` by the algorithm that choose() gives. Plan::input_bytes and output_bytes are what
/// the rank must pass: 0 where MPI says that the buffer is not significant. Local; pure; any thread.
PENSTOCK_API Plan plan_collective(const Team& team, const Collective& what);

}  // namespace penstock
