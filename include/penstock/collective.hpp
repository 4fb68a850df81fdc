// The collective operations, the algorithms there are for each, and their plans.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/export.hpp"
#include "penstock/plan.hpp"
#include "penstock/types.hpp"

namespace penstock {

enum class CollectiveKind : std::uint8_t { bcast, reduce, allreduce, gather, scatter, allgather, barrier };

/// The operation that a collective call asks for; also the key of the plan cache.
struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  std::uint64_t count = 0;  ///< elements per rank: of the block of one rank for gather, scatter and allgather
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  /// reduce, gather, scatter: only the root's value counts; allreduce, allgather: equal on all ranks.
  bool in_place = false;
  std::string algorithm;            ///< a row of algorithms.def; empty: chosen by size and team
  std::uint64_t segment_bytes = 0;  ///< length of a pipeline segment; 0: chosen by the planner

  friend bool operator==(const Collective&, const Collective&) = default;
};

}  // namespace penstock
