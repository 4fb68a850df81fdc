// Finds and mends damage by a loss of power, a failing device or manual changes. The rules:
// docs/design/store-repair.md.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "penstock/store.hpp"
#include "store/backend.hpp"

namespace penstock::store {

/// Repairs unreadable entries of one name, and a missing or damaged witness (gc/alive) of its blob. Only reports the
/// actions unless options.apply. Adds to `report`.
void repair_name(const std::shared_ptr<Backend>& backend, std::string_view name, const RepairOptions& options,
                 RepairReport& report);

/// Repairs records, indexes, tags and compacted maps of one blob and, with options.drop_damaged_data, gives up writes
/// with damaged data. Only reports the actions unless options.apply. Adds to `report`.
void repair_blob(const std::shared_ptr<Backend>& backend, std::string_view name, const RepairOptions& options,
                 RepairReport& report);

}  // namespace penstock::store
