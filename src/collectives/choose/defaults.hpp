// The choice by thresholds, for machines that are not known, and what other choices share with it.
#pragma once

#include <string>
#include <string_view>

#include "penstock/collective.hpp"

namespace penstock::collectives {

/// nullptr if there is none.
const Algorithm* find(CollectiveKind kind, std::string_view name);
/// Whether the row can run this call, the order in which it combines included.
bool fits(const Algorithm& row, const Team& team, const Collective& collective);
/// Whether a reproducible operation must fix the order of combination: whether the bits depend on it.
bool fixes_order(const Collective& collective);

struct Default {
  std::string_view name;
  std::string reason;
};
Default choose_default(const Team& team, const Collective& collective);

}  // namespace penstock::collectives
