// The two solvers of the linear assignment problem, and when which of them is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/relabel.hpp"

namespace penstock::redistribute {

std::vector<std::int32_t> assign_dense(std::int32_t n, std::span<const std::int64_t> weights);
std::vector<std::int32_t> assign_sparse(std::int32_t n, std::span<const SparseWeight> weights);

/// Whether so many weights above 0 are few.
bool is_sparse(std::int32_t n, std::size_t weights);
/// About how long the better of the solvers takes.
double estimated_seconds(std::int32_t n, std::size_t weights);

}  // namespace penstock::redistribute
