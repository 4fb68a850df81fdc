#pragma once

#include <string>

#include "penstock/plan.hpp"

namespace penstock::plan {

/// In what a plan breaks the promise of Plan::by_flags; empty where it does not, or makes none.
std::string broken_promise_of_flags(const Plan& plan);

}  // namespace penstock::plan
