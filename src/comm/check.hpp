// The arguments of a collective: what they mean, and what one rank can check by itself.
#pragma once

#include <cstdint>

#include "engine/engine.hpp"
#include "penstock/collective.hpp"

namespace penstock::comm {

/// The same operation, as the key of the plan cache: what means nothing for it has its default, and operations that
/// only move data count in bytes, so that they share their plans and take any element type.
Collective normalized(const Collective& collective, int rank);

/// Whether it is each rank's own affair that it is in place: what the others do does not depend on it.
inline bool is_in_place_alone(CollectiveKind kind) {
  return is_rooted(kind) || kind == CollectiveKind::scan || kind == CollectiveKind::exscan;
}

/// Equal on all ranks exactly where their calls fit together. Takes a normalized operation.
std::uint64_t signature(const Collective& collective);

/// Equal where the operations of this rank are.
std::uint64_t local_hash(const Collective& collective);

/// The memory that `plan` runs on. Throws Error(invalid_argument) for spans of another size (with counts: for
/// shorter ones), or that overlap.
engine::Bindings bind(const Collective& collective, const Plan& plan, ConstBytes input, Bytes output);

}  // namespace penstock::comm
