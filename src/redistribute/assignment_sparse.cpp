// Linear assignment for sparse matrices: shortest augmenting paths over the nonzero weights. A row may stay unassigned,
// with profit 0. In the end unassigned rows get the remaining columns.
#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

#include "redistribute/assignment.hpp"

namespace penstock::redistribute {
namespace {

constexpr std::int32_t kNobody = -1;

/// Maximises the sum of weights. A row's profit from a column is weight - price. Every row always has its best column,
/// or none if all profits would be negative. A column that was never assigned has price 0.
class SparseAssignment {
 public:
  SparseAssignment(std::int32_t n, std::span<const SparseWeight> weights)
      : n_(n),
        first_(static_cast<std::size_t>(n) + 1, 0),
        price_(static_cast<std::size_t>(n), 0),
        column_of_row_(static_cast<std::size_t>(n), kNobody),
        row_of_column_(static_cast<std::size_t>(n), kNobody),
        distance_(static_cast<std::size_t>(n), kUnreached),
        previous_row_(static_cast<std::size_t>(n), kNobody) {
    for (const SparseWeight& weight : weights) ++first_[at(weight.row) + 1];
    for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    edges_.resize(weights.size());
    std::vector<std::size_t> next(first_.begin(), first_.end() - 1);
    for (const SparseWeight& weight : weights) edges_[next[at(weight.row)]++] = {weight.column, weight.weight};

    for (std::int32_t row = 0; row < n; ++row) free_rows_.push_back(row);
    for (int pass = 0; pass < 2; ++pass) bid();
    for (const std::int32_t row : free_rows_) augment(row);
    fill();
  }

  std::vector<std::int32_t> columns() && { return std::move(column_of_row_); }

 private:
  static constexpr std::int64_t kUnreached = std::numeric_limits<std::int64_t>::max();

  struct Edge {
    std::int32_t column;
    std::int64_t weight;
  };

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  std::span<const Edge> edges(std::int32_t row) const {
    return std::span(edges_).subspan(first_[at(row)], first_[at(row) + 1] - first_[at(row)]);
  }
  std::int64_t profit(const Edge& edge) const { return edge.weight - price_[at(edge.column)]; }

  void assign(std::int32_t row, std::int32_t column) {
    column_of_row_[at(row)] = column;
    row_of_column_[at(column)] = row;
  }

  /// Each free row takes its best column and raises the price until its second best is equally good.
  void bid() {
    std::vector<std::int32_t> still_free;
    // With large weights, rows may outbid each other very often. Beyond this limit, augmenting paths are cheaper.
    std::int64_t bids_left = 8 * static_cast<std::int64_t>(n_);
    for (std::size_t next = 0; next < free_rows_.size();) {
      if (bids_left-- == 0) {
        still_free.insert(still_free.end(), free_rows_.begin() + static_cast<std::ptrdiff_t>(next), free_rows_.end());
        break;
      }
      const std::int32_t row = free_rows_[next++];
      const Edge* best = nullptr;
      std::int64_t first = 0;
      std::int64_t second = 0;
      for (const Edge& edge : edges(row)) {
        const std::int64_t mine = profit(edge);
        const bool is_as_good_and_free = mine == first && best != nullptr &&
                                         row_of_column_[at(best->column)] != kNobody &&
                                         row_of_column_[at(edge.column)] == kNobody;
        if (mine > first || is_as_good_and_free) {
          second = first;
          first = mine;
          best = &edge;
        } else if (mine > second) {
          second = mine;
        }
      }
      if (best == nullptr) continue;  // no column has a positive profit, and prices never fall
      price_[at(best->column)] += first - second;
      const std::int32_t loser = row_of_column_[at(best->column)];
      assign(row, best->column);
      if (loser == kNobody) continue;
      column_of_row_[at(loser)] = kNobody;
      if (first > second)
        free_rows_[--next] = loser;
      else
        still_free.push_back(loser);
    }
    free_rows_ = std::move(still_free);
  }

  /// Augments along the shortest path from a free row to a free column, or to a row that becomes unassigned.
  void augment(std::int32_t free_row) {
    struct Place {
      std::int64_t distance;
      bool is_taken;
      std::int32_t column;
      bool operator>(const Place& other) const {
        return std::tie(distance, is_taken, column) > std::tie(other.distance, other.is_taken, other.column);
      }
    };
    std::priority_queue<Place, std::vector<Place>, std::greater<>> open;
    std::vector<std::int32_t> reached;
    std::vector<std::int32_t> settled;
    std::int64_t best_profit = 0;
    for (const Edge& edge : edges(free_row)) best_profit = std::max(best_profit, profit(edge));
    std::int64_t end_distance = best_profit;
    std::int32_t end_row = free_row;
    std::int32_t end_column = kNobody;
    const auto relax = [&](std::int32_t row, std::int64_t base) {
      for (const Edge& edge : edges(row)) {
        const std::int64_t distance = base - profit(edge);
        std::int64_t& known = distance_[at(edge.column)];
        if (distance >= known || distance >= end_distance) continue;
        if (known == kUnreached) reached.push_back(edge.column);
        known = distance;
        previous_row_[at(edge.column)] = row;
        open.push({distance, row_of_column_[at(edge.column)] != kNobody, edge.column});
      }
    };
    relax(free_row, best_profit);
    while (!open.empty()) {
      const Place place = open.top();
      open.pop();
      if (place.distance >= end_distance) break;
      if (place.distance != distance_[at(place.column)]) continue;
      if (!place.is_taken) {
        end_distance = place.distance;
        end_column = place.column;
        break;
      }
      settled.push_back(place.column);
      const std::int32_t row = row_of_column_[at(place.column)];
      std::int64_t mine = 0;
      for (const Edge& edge : edges(row))
        if (edge.column == place.column) mine = profit(edge);
      if (place.distance + mine < end_distance) {
        end_distance = place.distance + mine;
        end_row = row;
      }
      relax(row, place.distance + mine);
    }
    for (const std::int32_t column : settled) price_[at(column)] += end_distance - distance_[at(column)];
    std::int32_t column = end_column;
    if (column == kNobody) {
      column = column_of_row_[at(end_row)];
      column_of_row_[at(end_row)] = kNobody;
    }
    for (std::int32_t row = kNobody; column != kNobody && row != free_row;) {
      row = previous_row_[at(column)];
      const std::int32_t next = column_of_row_[at(row)];
      assign(row, column);
      column = next;
    }
    for (const std::int32_t each : reached) distance_[at(each)] = kUnreached;
  }

  /// Assigns unassigned rows to remaining columns: to the column of the same index, if possible.
  void fill() {
    for (std::int32_t row = 0; row < n_; ++row)
      if (column_of_row_[at(row)] == kNobody && row_of_column_[at(row)] == kNobody) assign(row, row);
    std::int32_t column = 0;
    for (std::int32_t row = 0; row < n_; ++row) {
      if (column_of_row_[at(row)] != kNobody) continue;
      while (row_of_column_[at(column)] != kNobody) ++column;
      assign(row, column);
    }
  }

  std::int32_t n_;
  std::vector<std::size_t> first_;  ///< begin of each row's edges; last, the end
  std::vector<Edge> edges_;
  std::vector<std::int64_t> price_;
  std::vector<std::int32_t> column_of_row_;
  std::vector<std::int32_t> row_of_column_;
  std::vector<std::int32_t> free_rows_;
  std::vector<std::int64_t> distance_;
  std::vector<std::int32_t> previous_row_;
};

}  // namespace

std::vector<std::int32_t> assign_sparse(std::int32_t n, std::span<const SparseWeight> weights) {
  return SparseAssignment(n, weights).columns();
}

}  // namespace penstock::redistribute
