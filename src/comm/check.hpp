// Normalizes the arguments of a collective, and checks what one rank can check alone.
#pragma once

#include <cstdint>

#include "engine/engine.hpp"
#include "penstock/collective.hpp"

namespace penstock::comm {

/// The same operation as a key of the plan cache. Arguments that the operation ignores get their default. Operations
/// that only move data count in bytes, so that element types share plans.
Collective normalized(const Collective& collective, int rank);

/// Whether each rank decides alone if it is in place: the plans of the other ranks do not depend on it.
inline bool is_in_place_alone(CollectiveKind kind) {
  return is_rooted(kind) || kind == CollectiveKind::scan || kind == CollectiveKind::exscan;
}

/// Whether each rank knows only the counts of its own buffers.
inline bool knows_counts_alone(CollectiveKind kind) {
  return has_send_counts(kind) || kind == CollectiveKind::gatherv || kind == CollectiveKind::neighbor_allgatherv;
}

/// Equal on two ranks if and only if their calls match. Takes a normalized operation.
std::uint64_t signature(const Collective& collective);

/// A hash for this rank's plan cache: equal operations have equal hashes.
std::uint64_t local_hash(const Collective& collective);

/// The memory for a run of `plan`. Throws Error(invalid_argument) for spans of a wrong size (operations with counts:
/// too short) or that overlap.
engine::Bindings bind(const Collective& collective, const Plan& plan, ConstBytes input, Bytes output);

}  // namespace penstock::comm
