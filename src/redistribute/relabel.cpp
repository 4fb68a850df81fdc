#include "penstock/relabel.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>
#include <string>

#include "penstock/error.hpp"
#include "redistribute/assignment.hpp"
#include "redistribute/volumes.hpp"

namespace penstock {
namespace {

using redistribute::visit_volumes;

/// Facts about the volumes, known before the assignment is solved.
struct Survey {
  std::int32_t ranks = 0;
  std::size_t pairs = 0;
  std::int64_t local_elems = 0;  ///< elements that stay on their ranks, with the target as given
  std::int64_t bound_elems = 0;  ///< upper bound of local_elems for any relabeling

  Survey(const Layout& source, const Layout& target, const RelabelOptions& options)
      : ranks(std::max({source.ranks(), target.ranks(), options.ranks})) {
    std::vector<std::int64_t> most_of_target(static_cast<std::size_t>(target.ranks()), 0);
    std::int64_t source_bound = 0;
    visit_volumes(source, target, options.op, [&](std::span<const PairVolume> volumes) {
      pairs += volumes.size();
      std::int64_t most = 0;
      for (const PairVolume& volume : volumes) {
        if (volume.source == volume.target) local_elems += volume.elems;
        most = std::max(most, volume.elems);
        std::int64_t& most_of = most_of_target[static_cast<std::size_t>(volume.target)];
        most_of = std::max(most_of, volume.elems);
      }
      source_bound += most;
    });
    bound_elems = std::min(source_bound, std::reduce(most_of_target.begin(), most_of_target.end()));
  }
};

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g s", seconds);
  return text;
}

/// Why a search is not worthwhile; empty if it is. Depends only on values that all ranks know.
std::string reason_to_skip(const Survey& survey, const RelabelOptions& options) {
  constexpr double kBytesPerSecond = 1e9;
  constexpr double kAlwaysWorthSeconds = 1e-3;
  const double gain_bytes =
      static_cast<double>(survey.bound_elems - survey.local_elems) * static_cast<double>(options.element_bytes);
  const double gain_seconds = options.expected_runs * gain_bytes / survey.ranks / kBytesPerSecond;
  const double solver_seconds = redistribute::estimated_seconds(survey.ranks, survey.pairs);
  if (solver_seconds < kAlwaysWorthSeconds || gain_seconds >= solver_seconds) return {};
  return "the assignment of " + std::to_string(survey.ranks) + " ranks would take about " +
         seconds_text(solver_seconds) + ", and a relabeling would save at most " + seconds_text(gain_seconds);
}

/// COSTA, Remark 2: relabeling x to y gains V(y, x) and loses V(x, x). The losses are equal for every permutation, so
/// the best permutation maximizes the sum of V(permutation[x], x).
std::vector<std::int32_t> keep_most(const Layout& source, const Layout& target, MatrixOp op, const Survey& survey) {
  const auto n = static_cast<std::size_t>(survey.ranks);
  std::vector<std::int32_t> part_of_rank;
  if (redistribute::is_sparse(survey.ranks, survey.pairs)) {
    std::vector<SparseWeight> kept_local;
    kept_local.reserve(survey.pairs);
    visit_volumes(source, target, op, [&](std::span<const PairVolume> volumes) {
      for (const PairVolume& volume : volumes) kept_local.push_back({volume.source, volume.target, volume.elems});
    });
    part_of_rank = assign_max_weight_sparse(survey.ranks, kept_local);
  } else {
    std::vector<std::int64_t> kept_local(n * n, 0);
    visit_volumes(source, target, op, [&](std::span<const PairVolume> volumes) {
      for (const PairVolume& volume : volumes)
        kept_local[static_cast<std::size_t>(volume.source) * n + static_cast<std::size_t>(volume.target)] =
            volume.elems;
    });
    part_of_rank = assign_max_weight(survey.ranks, kept_local);
  }
  std::vector<std::int32_t> permutation(n);
  for (std::size_t rank = 0; rank < n; ++rank)
    permutation[static_cast<std::size_t>(part_of_rank[rank])] = static_cast<std::int32_t>(rank);
  return permutation;
}

/// The cost of each part of the target on each rank, for costs other than the volume.
class CostTable {
 public:
  CostTable(const Layout& source, const Layout& target, const RelabelOptions& options, std::int32_t ranks)
      : n_(static_cast<std::size_t>(ranks)), cost_(n_ * n_, 0.0) {
    if (options.cost.ranks() != 0 && options.cost.ranks() != ranks)
      throw Error(ErrorCode::invalid_argument, "relabel: the costs are for " + std::to_string(options.cost.ranks()) +
                                                   " ranks, the layouts and the communicator have " +
                                                   std::to_string(ranks));
    std::vector<std::vector<TransferPackage>> packages(n_);
    visit_volumes(source, target, options.op, [&](std::span<const PairVolume> volumes) {
      for (const PairVolume& volume : volumes)
        packages[static_cast<std::size_t>(volume.target)].push_back(
            {volume.source, static_cast<std::uint64_t>(volume.elems) * options.element_bytes});
    });
    for (std::size_t part = 0; part < n_; ++part) {
      const std::span<double> costs = std::span(cost_).subspan(part * n_, n_);
      options.cost.add(packages[part], costs);
      for (std::size_t rank = 0; rank < n_; ++rank) {
        if (!std::isfinite(costs[rank]))
          throw Error(ErrorCode::invalid_argument, "relabel: part " + std::to_string(part) + " costs " +
                                                       std::to_string(costs[rank]) + " on rank " +
                                                       std::to_string(rank) + "; expected a finite number");
        greatest_ = std::max(greatest_, std::abs(costs[rank]));
      }
    }
  }

  double sum(std::span<const std::int32_t> permutation) const {
    double result = 0;
    for (std::size_t part = 0; part < n_; ++part)
      result += cost_[part * n_ + static_cast<std::size_t>(permutation[part])];
    return result;
  }

  /// Solves the assignment with integers: costs are scaled by a power of two, which keeps integers exact.
  std::vector<std::int32_t> best() const {
    const int room = 57 - static_cast<int>(std::ceil(std::log2(static_cast<double>(n_) + 1)));
    const int exponent = greatest_ > 0 ? room - std::ilogb(greatest_) : 0;
    std::vector<std::int64_t> weights(cost_.size());
    std::transform(cost_.begin(), cost_.end(), weights.begin(),
                   [&](double cost) { return -std::llrint(std::ldexp(cost, exponent)); });
    return assign_max_weight(static_cast<std::int32_t>(n_), weights);
  }

 private:
  std::size_t n_;
  std::vector<double> cost_;  ///< [part][rank]
  double greatest_ = 0;
};

}  // namespace

Relabeling relabel(const Layout& source, const Layout& target, const RelabelOptions& options) {
  const Survey survey(source, target, options);
  std::int64_t total_bytes = 0;
  if (__builtin_mul_overflow(source.size_elems(), static_cast<std::int64_t>(options.element_bytes), &total_bytes) ||
      __builtin_mul_overflow(total_bytes, std::int64_t{target.copies()}, &total_bytes))
    throw Error(ErrorCode::invalid_argument, "redistribute: " + std::to_string(source.size_elems()) + " elements of " +
                                                 std::to_string(options.element_bytes) +
                                                 " bytes are 2^63 bytes or more");
  const auto remote_bytes = [&](std::int64_t local_elems) {
    return static_cast<std::uint64_t>(source.size_elems() * target.copies() - local_elems) * options.element_bytes;
  };
  Relabeling result;
  result.permutation.resize(static_cast<std::size_t>(survey.ranks));
  std::iota(result.permutation.begin(), result.permutation.end(), 0);
  result.bytes_before = result.bytes_after = remote_bytes(survey.local_elems);

  const bool is_volume = options.cost.is_volume();
  std::optional<CostTable> table;
  if (is_volume)
    result.cost_before = static_cast<double>(result.bytes_before);
  else
    result.cost_before = table.emplace(source, target, options, survey.ranks).sum(result.permutation);
  result.cost_after = result.cost_before;

  if (options.policy == RelabelPolicy::never) {
    result.skipped = "not asked for";
    return result;
  }
  if (source.copies() > 1 || target.copies() > 1) {
    result.skipped = "replicated layouts are not relabeled: each rank reads the copy that it has a part of";
    return result;
  }
  if (is_volume && survey.local_elems == survey.bound_elems) return result;
  if (is_volume && options.policy == RelabelPolicy::worthwhile)
    if (result.skipped = reason_to_skip(survey, options); !result.skipped.empty()) return result;

  std::vector<std::int32_t> best = is_volume ? keep_most(source, target, options.op, survey) : table->best();
  if (!is_volume && table->sum(best) >= result.cost_before) return result;
  std::int64_t local_elems = 0;
  visit_volumes(source, target, options.op, [&](std::span<const PairVolume> volumes) {
    for (const PairVolume& volume : volumes)
      if (best[static_cast<std::size_t>(volume.target)] == volume.source) local_elems += volume.elems;
  });
  if (is_volume && local_elems <= survey.local_elems) return result;
  result.permutation = std::move(best);
  result.bytes_after = remote_bytes(local_elems);
  result.cost_after = is_volume ? static_cast<double>(result.bytes_after) : table->sum(result.permutation);
  return result;
}

}  // namespace penstock
