// Looking after a blob as a whole: verifying all of it, and freeing what nobody can reach any more.
#pragma once

#include "penstock/store.hpp"
#include "store/blob_state.hpp"

namespace penstock::store {

/// Adds what it finds to `report`.
void check_blob(BlobState& blob, CheckReport& report);

/// See "Collecting" in docs/design/store.md. Adds what it does to `report`.
void collect_blob(BlobState& blob, const GcOptions& options, GcReport& report);

}  // namespace penstock::store
