// Measured choices of algorithms, and the parts of hierarchical collectives that are measured to make them (paper 001).
#pragma once

#include <cstdint>
#include <span>

#include "penstock/collective.hpp"
#include "penstock/export.hpp"
#include "penstock/plan.hpp"

namespace penstock {

/// What happens to one segment in a hierarchical collective (paper 001, figures 1 and 5): reductions (r) and broadcasts
/// (b), inside a node through shared memory (s) and between the nodes' leaders (i).
enum class Stage : std::uint8_t { sr, ir, ib, sb };

}  // namespace penstock
