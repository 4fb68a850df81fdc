// Checks enumerations of the C interface, which are rows of tables: a C program can pass any number.
#pragma once

#include <cstddef>
#include <string>

#include "penstock/collective.hpp"
#include "penstock/comm.hpp"
#include "penstock/error.hpp"
#include "penstock/penstock.h"

namespace penstock::c {

constexpr int kDtypes = 0
#define PENSTOCK_DTYPE(name, type, size, numpy) +1
#define PENSTOCK_OTHER_DTYPE PENSTOCK_DTYPE
#include "penstock/dtypes.def"
#undef PENSTOCK_OTHER_DTYPE
#undef PENSTOCK_DTYPE
    ;
constexpr int kReduceOps = 0
#define PENSTOCK_REDUCE_OP(name) +1
#include "penstock/reduce_ops.def"
#undef PENSTOCK_REDUCE_OP
    ;
constexpr int kCollectives = 0
#define PENSTOCK_COLLECTIVE(name, rooted, computes) +1
#include "penstock/collectives.def"
#undef PENSTOCK_COLLECTIVE
    ;

constexpr bool is_row(int given, int rows) { return given >= 0 && given < rows; }

inline void check_row(const char* function, const char* table, int given, int rows) {
  if (!is_row(given, rows))
    throw Error(ErrorCode::invalid_argument, std::string(function) + ": " + std::to_string(given) + " is not a " +
                                                 table + "; expected 0 to " + std::to_string(rows - 1));
}

inline CollectiveKind collective_kind(const char* function, penstock_collective collective) {
  check_row(function, "penstock_collective", static_cast<int>(collective), kCollectives);
  return static_cast<CollectiveKind>(collective);
}

/// The entries of the lists of each buffer: ranks, or in a neighbourhood destinations and sources.
struct BlockCounts {
  std::size_t sent;
  std::size_t received;
};
inline BlockCounts block_counts(const Comm& comm, CollectiveKind kind) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  if (!is_neighborhood(kind)) return {ranks, ranks};
  if (comm.graph() == nullptr) return {0, 0};  // the call is refused later
  return {comm.graph()->destinations(comm.rank()).size(), comm.graph()->sources(comm.rank()).size()};
}

}  // namespace penstock::c
