// The two solvers of the linear assignment problem, and the choice between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "penstock/relabel.hpp"

namespace penstock::redistribute {

std::vector<std::int32_t> assign_dense(std::int32_t n, std::span<const std::int64_t> weights);
std::vector<std::int32_t> assign_sparse(std::int32_t n, std::span<const SparseWeight> weights);

/// Whether this number of positive weights is small enough for the sparse solver.
bool is_sparse(std::int32_t n, std::size_t weights);
/// Estimated time of the faster solver.
double estimated_seconds(std::int32_t n, std::size_t weights);

}  // namespace penstock::redistribute
