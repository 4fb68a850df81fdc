// A reference for the plans of all ranks in one process. It moves one element at a time.
#pragma once

#include <complex>
#include <cstdint>
#include <random>
#include <vector>

#include "penstock/layout.hpp"
#include "penstock/plan.hpp"
#include "penstock/redistribute.hpp"

namespace penstock::planner_reference {

using Value = std::complex<double>;
using Index = std::vector<std::int64_t>;

/// Placement of each rank's arrays: with padding, and any order and direction of dimensions.
using Parts = std::vector<std::vector<LocalMemory::Tile>>;
Parts random_parts(std::mt19937& random, const Layout& layout, std::int32_t ranks);

/// One leading dimension per rank; 0 for a rank that does not have exactly one tile.
std::vector<std::int64_t> random_leading(std::mt19937& random, const Layout& layout, std::int32_t ranks);

struct Case {
  Layout source;
  Layout target;
  RedistributionOptions options;
  std::int32_t ranks;
  Value alpha = 1.0;
  Value beta = 0.0;
  std::int32_t nodes = 1;  ///< rank r is on node r % nodes
  std::uint64_t shared_limit_bytes = Team{}.shared_limit_bytes;
  bool single_copy = true;
  std::vector<std::int64_t> source_leading_elems = {};  ///< by rank; empty: dense
  std::vector<std::int64_t> target_leading_elems = {};
  Parts source_parts = {};  ///< by rank; empty: as above
  Parts target_parts = {};
};

std::vector<std::int32_t> nodes_of(const Case& c);
std::vector<Plan> plans_of(const Case& c);
/// Number of steps of a kind.
std::size_t count(const Plan& plan, StepKind kind);
/// The compute steps of this source.
std::size_t count(const Plan& plan, StepSource source);

/// Verifies the plans of all ranks, and simulates them on random values.
void expect_correct(const Case& c, std::mt19937& random);

}  // namespace penstock::planner_reference
