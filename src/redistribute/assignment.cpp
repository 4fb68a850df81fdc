// The linear assignment problem after R. Jonker and A. Volgenant, "A shortest augmenting path algorithm for dense and
// sparse linear assignment problems", Computing 38 (1987): column reduction, reduction transfer and augmenting row
// reduction assign most rows cheaply, shortest augmenting paths the rest. O(n^3) worst case.
#include <limits>
#include <numeric>
#include <string>

#include "penstock/error.hpp"
#include "penstock/redistribute.hpp"

namespace penstock {
namespace {

constexpr std::int64_t kInfinite = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kNobody = std::numeric_limits<std::size_t>::max();

/// Minimises the sum of cost(i, column_of_row[i]) with cost = -weight. `price` are the dual variables of the columns:
/// an assigned column is always among the cheapest of its row, cost(i, j) - price[j].
class Assignment {
 public:
  Assignment(std::size_t n, std::span<const std::int64_t> weights)
      : n_(n), weights_(weights), price_(n, kInfinite), column_of_row_(n, kNobody), row_of_column_(n, kNobody) {
    reduce_columns();
    for (int pass = 0; pass < 2; ++pass) reduce_rows();
    distance_.resize(n_);
    previous_row_.resize(n_);
    columns_.resize(n_);
    for (const std::size_t row : free_rows_) augment(row);
  }

  std::vector<std::int32_t> columns() const { return {column_of_row_.begin(), column_of_row_.end()}; }

 private:
  std::int64_t reduced_cost(std::size_t row, std::size_t column) const {
    return -weights_[row * n_ + column] - price_[column];
  }

  void assign(std::size_t row, std::size_t column) {
    column_of_row_[row] = column;
    row_of_column_[column] = row;
  }

  void reduce_columns() {
    std::vector<std::size_t> cheapest_row(n_, 0);
    for (std::size_t i = 0; i < n_; ++i)
      for (std::size_t j = 0; j < n_; ++j)
        if (-weights_[i * n_ + j] < price_[j]) {
          price_[j] = -weights_[i * n_ + j];
          cheapest_row[j] = i;
        }
    std::vector<int> times_cheapest(n_, 0);
    for (std::size_t j = n_; j-- > 0;)
      if (++times_cheapest[cheapest_row[j]] == 1) assign(cheapest_row[j], j);
    for (std::size_t i = 0; i < n_; ++i) {
      if (times_cheapest[i] == 0) free_rows_.push_back(i);
      if (times_cheapest[i] != 1 || n_ == 1) continue;
      // Reduction transfer: how much dearer this row's only column may become before another one is as cheap.
      std::int64_t second = kInfinite;
      for (std::size_t j = 0; j < n_; ++j)
        if (j != column_of_row_[i]) second = std::min(second, reduced_cost(i, j));
      price_[column_of_row_[i]] -= second;
    }
  }

  /// Gives each free row its cheapest column, taking it away from another row where the second cheapest is dearer.
  void reduce_rows() {
    if (n_ < 2) return;
    std::vector<std::size_t> still_free;
    // Rows can outbid each other very often when weights are large; beyond this, augmenting paths are cheaper.
    std::size_t bids_left = 8 * n_;
    for (std::size_t next = 0; next < free_rows_.size();) {
      if (bids_left-- == 0) {
        still_free.insert(still_free.end(), free_rows_.begin() + static_cast<std::ptrdiff_t>(next), free_rows_.end());
        break;
      }
      const std::size_t row = free_rows_[next++];
      std::size_t first_column = 0;
      std::size_t second_column = 1;
      std::int64_t first = reduced_cost(row, 0);
      std::int64_t second = reduced_cost(row, 1);
      if (second < first) {
        std::swap(first, second);
        std::swap(first_column, second_column);
      }
      for (std::size_t j = 2; j < n_; ++j) {
        const std::int64_t cost = reduced_cost(row, j);
        if (cost >= second) continue;
        second = cost;
        second_column = j;
        if (second < first) {
          std::swap(first, second);
          std::swap(first_column, second_column);
        }
      }
      std::size_t column = first_column;
      if (first < second)
        price_[column] -= second - first;
      else if (row_of_column_[column] != kNobody)
        column = second_column;
      const std::size_t loser = row_of_column_[column];
      if (loser != kNobody) column_of_row_[loser] = kNobody;
      assign(row, column);
      if (loser == kNobody) continue;
      if (first < second)
        free_rows_[--next] = loser;
      else
        still_free.push_back(loser);
    }
    free_rows_ = std::move(still_free);
  }

  /// Dijkstra over the columns, from a free row to the nearest free column. columns_[0, done) have their final
  /// distance and are scanned, [done, scan_end) have the smallest distance so far, the rest are farther away.
  void augment(std::size_t free_row) {
    for (std::size_t j = 0; j < n_; ++j) {
      distance_[j] = reduced_cost(free_row, j);
      previous_row_[j] = free_row;
      columns_[j] = j;
    }
    std::size_t done = 0;
    std::size_t scan_end = 0;
    std::size_t settled = 0;  // columns whose distance is smaller than the current one
    std::size_t target = kNobody;
    std::int64_t nearest = 0;
    while (target == kNobody) {
      if (done == scan_end) {
        settled = done;
        nearest = kInfinite;
        for (std::size_t k = done; k < n_; ++k) {
          const std::size_t column = columns_[k];
          if (distance_[column] > nearest) continue;
          if (distance_[column] < nearest) {
            nearest = distance_[column];
            scan_end = done;
          }
          std::swap(columns_[k], columns_[scan_end++]);
        }
        for (std::size_t k = done; k < scan_end && target == kNobody; ++k)
          if (row_of_column_[columns_[k]] == kNobody) target = columns_[k];
        if (target != kNobody) break;
      }
      const std::size_t scanned = columns_[done++];
      const std::size_t row = row_of_column_[scanned];
      const std::int64_t base = nearest - reduced_cost(row, scanned);
      for (std::size_t k = scan_end; k < n_; ++k) {
        const std::size_t column = columns_[k];
        const std::int64_t distance = base + reduced_cost(row, column);
        if (distance >= distance_[column]) continue;
        distance_[column] = distance;
        previous_row_[column] = row;
        if (distance > nearest) continue;
        if (row_of_column_[column] == kNobody) {
          target = column;
          break;
        }
        std::swap(columns_[k], columns_[scan_end++]);
      }
    }
    for (std::size_t k = 0; k < settled; ++k) price_[columns_[k]] += distance_[columns_[k]] - nearest;
    for (std::size_t column = target, row = kNobody; row != free_row;) {
      row = previous_row_[column];
      const std::size_t next = column_of_row_[row];
      assign(row, column);
      column = next;
    }
  }

  std::size_t n_;
  std::span<const std::int64_t> weights_;
  std::vector<std::int64_t> price_;
  std::vector<std::size_t> column_of_row_;
  std::vector<std::size_t> row_of_column_;
  std::vector<std::size_t> free_rows_;
  std::vector<std::int64_t> distance_;
  std::vector<std::size_t> previous_row_;
  std::vector<std::size_t> columns_;
};

}  // namespace

std::vector<std::int32_t> assign_max_weight(std::int32_t n, std::span<const std::int64_t> weights) {
  if (n < 0 || weights.size() != static_cast<std::size_t>(n) * static_cast<std::size_t>(n))
    throw Error(ErrorCode::invalid_argument, "assign_max_weight: " + std::to_string(weights.size()) +
                                                 " weights given, expected n*n of them for n = " + std::to_string(n));
  // Sums of costs along a path stay below this, so that no distance can wrap around.
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 61;
  std::uint64_t magnitude = 0;
  for (const std::int64_t weight : weights) {
    magnitude += weight < 0 ? 0 - static_cast<std::uint64_t>(weight) : static_cast<std::uint64_t>(weight);
    if (magnitude >= kLimit)
      throw Error(ErrorCode::unsupported, "assign_max_weight: the magnitudes of the weights sum up to 2^61 or more");
  }
  if (n == 0) return {};
  return Assignment(static_cast<std::size_t>(n), weights).columns();
}

}  // namespace penstock
