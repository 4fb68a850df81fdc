#include "penstock/relabel.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/error.hpp"
#include "redistribute/assignment.hpp"
#include "redistribute/volumes.hpp"

namespace penstock {
namespace {

/// Elements that a rank has of, or wants from, the part of a rank in the relabeled layout. They stay if it takes it.
struct Kept {
  std::int32_t rank;
  std::int32_t part;
  std::int64_t elems;
};

/// A transfer with all of its facts.
struct Transfer {
  const Layout& source;
  const Layout& target;
  RelabeledSide side;
  std::int64_t element_bytes;
  MatrixOp op;

  Transfer(const RelabelTransfer& given, const RelabelOptions& options)
      : source(given.source),
        target(given.target),
        side(given.side),
        element_bytes(static_cast<std::int64_t>(given.element_bytes.value_or(options.element_bytes))),
        op(given.op.value_or(options.op)) {
    if (element_bytes < 1)
      throw Error(ErrorCode::invalid_argument,
                  "relabel: elements of " + std::to_string(element_bytes) + " bytes given; expected at least 1");
  }

  std::int32_t ranks() const { return std::max(source.ranks(), target.ranks()); }
  bool is_replicated() const { return source.copies() > 1 || target.copies() > 1; }
  /// Calls visit(volumes) with all volumes of a rank of the source.
  void visit(const auto& visit_source) const { redistribute::visit_volumes(source, target, op, visit_source); }
  void visit_kept(const auto& visit_one) const {
    visit([&](std::span<const PairVolume> volumes) {
      for (const PairVolume& volume : volumes) {
        if (side == RelabeledSide::target)
          visit_one(Kept{volume.source, volume.target, volume.elems});
        else
          visit_one(Kept{volume.target, volume.source, volume.elems});
      }
    });
  }
  /// Of all elements, those that a rank reads as its own.
  std::int64_t size_bytes() const {
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(source.size_elems(), element_bytes, &bytes) ||
        __builtin_mul_overflow(bytes, std::int64_t{target.copies()}, &bytes))
      throw Error(ErrorCode::invalid_argument, "redistribute: " + std::to_string(source.size_elems()) +
                                                   " elements of " + std::to_string(element_bytes) +
                                                   " bytes are 2^63 bytes or more");
    return bytes;
  }
};

/// Facts about the volumes, known before the assignment is solved.
struct Survey {
  std::int32_t ranks = 0;
  std::size_t pairs = 0;
  std::int64_t total_bytes = 0;
  std::int64_t local_bytes = 0;  ///< what stays on its rank, with the layouts as given
  std::int64_t bound_bytes = 0;  ///< upper bound of local_bytes for any relabeling

  explicit Survey(std::int32_t least_ranks) : ranks(least_ranks) {}

  void add(const Transfer& transfer) {
    if (__builtin_add_overflow(total_bytes, transfer.size_bytes(), &total_bytes))
      throw Error(ErrorCode::invalid_argument, "relabel: the transfers together have 2^63 bytes or more");
    ranks = std::max(ranks, transfer.ranks());
    std::vector<std::int64_t> most_of_target(static_cast<std::size_t>(transfer.target.ranks()), 0);
    std::int64_t local_elems = 0;
    std::int64_t source_bound = 0;
    transfer.visit([&](std::span<const PairVolume> volumes) {
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
    local_bytes += local_elems * transfer.element_bytes;
    bound_bytes +=
        std::min(source_bound, std::reduce(most_of_target.begin(), most_of_target.end())) * transfer.element_bytes;
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
  const auto gain_bytes = static_cast<double>(survey.bound_bytes - survey.local_bytes);
  const double gain_seconds = options.expected_runs * gain_bytes / survey.ranks / kBytesPerSecond;
  const double solver_seconds = redistribute::estimated_seconds(survey.ranks, survey.pairs);
  if (solver_seconds < kAlwaysWorthSeconds || gain_seconds >= solver_seconds) return {};
  return "the assignment of " + std::to_string(survey.ranks) + " ranks would take about " +
         seconds_text(solver_seconds) + ", and a relabeling would save at most " + seconds_text(gain_seconds);
}

/// Sums up what several transfers move between the same two ranks.
template <typename Entry, typename Amount>
void merge(std::vector<Entry>& entries, const auto& key, Amount Entry::*amount) {
  std::ranges::sort(entries, {}, key);
  std::size_t merged = 0;
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (std::invoke(key, entries[i]) == std::invoke(key, entries[merged]))
      entries[merged].*amount += entries[i].*amount;
    else
      entries[++merged] = entries[i];
  }
  if (!entries.empty()) entries.resize(merged + 1);
}

/// COSTA, Remark 2: relabeling x to y gains V(y, x) and loses V(x, x). The losses are equal for every permutation, so
/// the best permutation maximizes the sum of V(permutation[x], x).
std::vector<std::int32_t> keep_most(std::span<const Transfer> transfers, const Survey& survey) {
  const auto n = static_cast<std::size_t>(survey.ranks);
  std::int64_t unit_bytes = 0;  // weights are elements where all have one size: the solver's range is limited
  for (const Transfer& transfer : transfers) unit_bytes = std::gcd(unit_bytes, transfer.element_bytes);
  const auto visit = [&](const auto& visit_one) {
    for (const Transfer& transfer : transfers)
      transfer.visit_kept([&, scale = transfer.element_bytes / unit_bytes](const Kept& kept) {
        visit_one(kept.rank, kept.part, kept.elems * scale);
      });
  };
  std::vector<std::int32_t> part_of_rank;
  if (redistribute::is_sparse(survey.ranks, survey.pairs)) {
    std::vector<SparseWeight> weights;
    weights.reserve(survey.pairs);
    visit([&](std::int32_t rank, std::int32_t part, std::int64_t weight) { weights.push_back({rank, part, weight}); });
    if (transfers.size() > 1)
      merge(
          weights, [](const SparseWeight& each) { return std::pair(each.row, each.column); }, &SparseWeight::weight);
    part_of_rank = assign_max_weight_sparse(survey.ranks, weights);
  } else {
    std::vector<std::int64_t> weights(n * n, 0);
    visit([&](std::int32_t rank, std::int32_t part, std::int64_t weight) {
      weights[static_cast<std::size_t>(rank) * n + static_cast<std::size_t>(part)] += weight;
    });
    part_of_rank = assign_max_weight(survey.ranks, weights);
  }
  std::vector<std::int32_t> permutation(n);
  for (std::size_t rank = 0; rank < n; ++rank)
    permutation[static_cast<std::size_t>(part_of_rank[rank])] = static_cast<std::int32_t>(rank);
  return permutation;
}

/// The cost of each part of the targets on each rank, for costs other than the volume.
class CostTable {
 public:
  CostTable(std::span<const Transfer> transfers, const TransferCost& cost, std::int32_t ranks)
      : n_(static_cast<std::size_t>(ranks)), cost_(n_ * n_, 0.0) {
    if (cost.ranks() != 0 && cost.ranks() != ranks)
      throw Error(ErrorCode::invalid_argument, "relabel: the costs are for " + std::to_string(cost.ranks()) +
                                                   " ranks, the layouts and the communicator have " +
                                                   std::to_string(ranks));
    std::vector<std::vector<TransferPackage>> packages(n_);
    for (const Transfer& transfer : transfers) {
      if (transfer.side == RelabeledSide::source)
        throw Error(ErrorCode::invalid_argument,
                    "relabel: a cost given with a relabeled source; expected relabeled targets, or no cost, which "
                    "minimizes the bytes that change rank");
      transfer.visit_kept([&](const Kept& kept) {
        packages[static_cast<std::size_t>(kept.part)].push_back(
            {kept.rank, static_cast<std::uint64_t>(kept.elems * transfer.element_bytes)});
      });
    }
    for (std::size_t part = 0; part < n_; ++part) {
      if (transfers.size() > 1) merge(packages[part], &TransferPackage::source, &TransferPackage::bytes);
      const std::span<double> costs = std::span(cost_).subspan(part * n_, n_);
      cost.add(packages[part], costs);
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

Relabeling relabel(std::span<const RelabelTransfer> given, const RelabelOptions& options) {
  std::vector<Transfer> transfers;
  Survey survey(options.ranks);
  for (const RelabelTransfer& each : given) survey.add(transfers.emplace_back(each, options));
  Relabeling result;
  result.permutation.resize(static_cast<std::size_t>(survey.ranks));
  std::iota(result.permutation.begin(), result.permutation.end(), 0);
  result.bytes_before = result.bytes_after = static_cast<std::uint64_t>(survey.total_bytes - survey.local_bytes);

  const bool is_volume = options.cost.is_volume();
  std::optional<CostTable> table;
  if (is_volume)
    result.cost_before = static_cast<double>(result.bytes_before);
  else
    result.cost_before = table.emplace(transfers, options.cost, survey.ranks).sum(result.permutation);
  result.cost_after = result.cost_before;

  if (options.policy == RelabelPolicy::never) {
    result.skipped = "not asked for";
    return result;
  }
  if (std::ranges::any_of(transfers, &Transfer::is_replicated)) {
    result.skipped = "replicated layouts are not relabeled: each rank reads the copy that it has a part of";
    return result;
  }
  if (is_volume && survey.local_bytes == survey.bound_bytes) return result;
  if (is_volume && options.policy == RelabelPolicy::worthwhile)
    if (result.skipped = reason_to_skip(survey, options); !result.skipped.empty()) return result;

  std::vector<std::int32_t> best = is_volume ? keep_most(transfers, survey) : table->best();
  if (!is_volume && table->sum(best) >= result.cost_before) return result;
  std::int64_t local_bytes = 0;
  for (const Transfer& transfer : transfers)
    transfer.visit_kept([&](const Kept& kept) {
      if (best[static_cast<std::size_t>(kept.part)] == kept.rank) local_bytes += kept.elems * transfer.element_bytes;
    });
  if (is_volume && local_bytes <= survey.local_bytes) return result;
  result.permutation = std::move(best);
  result.bytes_after = static_cast<std::uint64_t>(survey.total_bytes - local_bytes);
  result.cost_after = is_volume ? static_cast<double>(result.bytes_after) : table->sum(result.permutation);
  return result;
}

Relabeling relabel(const Layout& source, const Layout& target, const RelabelOptions& options) {
  const RelabelTransfer only{source, target};
  return relabel(std::span(&only, 1), options);
}

}  // namespace penstock
