// Checks the rules of plans of one short exchange (Plan::by_flags).
#pragma once

#include <string>

#include "penstock/plan.hpp"

namespace penstock::plan {

/// The rule of Plan::by_flags that the plan violates, for messages; empty if it violates none or has by_flags false.
std::string violated_flag_rule(const Plan& plan);

}  // namespace penstock::plan
