#pragma once

#include <string>

#include "penstock/plan.hpp"

namespace penstock::plan {

/// How the plan violates Plan::by_flags; empty if it does not, or if by_flags is false.
std::string broken_promise_of_flags(const Plan& plan);

}  // namespace penstock::plan
