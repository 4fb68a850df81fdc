// Mending what a loss of power, a failing device or a hand has damaged: see docs/design/store-repair.md.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "penstock/store.hpp"
#include "store/backend.hpp"

namespace penstock::store {

/// Entries of one name that cannot be read, and a blob whose witness is missing. Adds to `report`.
void repair_name(const std::shared_ptr<Backend>& backend, std::string_view name, const RepairOptions& options,
                 RepairReport& report);

/// Records, indexes, tags, compacted maps and, if asked to, data of one blob. Adds to `report`.
void repair_blob(const std::shared_ptr<Backend>& backend, std::string_view name, const RepairOptions& options,
                 RepairReport& report);

}  // namespace penstock::store
