// The names of the parts of a plan, for error texts and printers.
#pragma once

#include <string>
#include <string_view>

#include "penstock/plan.hpp"

namespace penstock::plan {

std::string_view name(StepKind kind) noexcept;
std::string_view name(Computation computation) noexcept;
std::string_view name(StepSource source) noexcept;
std::string_view name(Buffer buffer) noexcept;
std::string_view name(Lane lane) noexcept;

/// "output[0, 64)".
std::string describe(Region region);
/// "send output[0, 64) to 3 tag 1".
std::string describe(const Plan& plan, const Step& step);

}  // namespace penstock::plan
