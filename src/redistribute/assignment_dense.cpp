// Linear assignment for dense matrices. First an auction with decreasing steps (D. P. Bertsekas, "The auction
// algorithm: a distributed relaxation method for the assignment problem", Annals of Operations Research 14, 1988)
// approximates the prices, as in S. Guthe and D. Thuerck, "Algorithm 1015: a fast scalable solver for the dense linear
// (sum) assignment problem", ACM TOMS 47 (2021). The rest is exact: row reduction and shortest augmenting paths (R.
// Jonker and A. Volgenant, Computing 38, 1987). The prices keep these paths short.
#include <algorithm>
#include <numeric>
#include <utility>

#include "redistribute/assignment.hpp"
#include "redistribute/assignment_kernels.hpp"

namespace penstock::redistribute {
namespace {

constexpr std::size_t kNoIndex = static_cast<std::size_t>(-1);

/// Maximises the sum of weights. At the end each row has a column with its largest profit, weight - price. Then no
/// assignment is better, by duality.
class DenseAssignment {
 public:
  DenseAssignment(std::size_t n, std::span<const std::int64_t> weights)
      : n_(n), weights_(weights), price_(n, 0), column_of_row_(n, kNoIndex), row_of_column_(n, kNoIndex) {
    order_rows();
    reduce_rows();
    if (free_rows_.size() > n_ / kFewFree && n_ > kFewRows) {
      approach_prices();
      reduce_rows();
    }
    distance_.resize(n_);
    previous_row_.resize(n_);
    state_.resize(n_);
    for (const std::size_t row : free_rows_) augment(row);
  }

  std::vector<std::int32_t> columns() const { return {column_of_row_.begin(), column_of_row_.end()}; }

 private:
  static constexpr std::size_t kFewRows = 32;
  static constexpr std::size_t kFewFree = 100;  // with fewer free rows than n / kFewFree, paths are cheaper than prices
  static constexpr std::int64_t kStepDivisor = 5;   // between phases
  static constexpr std::size_t kScansPerRow = 200;  // limit over all phases; hard cases take 60
  static constexpr std::int64_t kFar = std::int64_t{1} << 61;

  const std::int64_t* row(std::size_t i) const { return weights_.data() + i * n_; }
  TwoBest two_best(std::size_t i) const { return kernels_.two_best(row(i), price_.data(), n_); }
  std::int64_t profit(std::size_t i, std::size_t j) const { return weights_[i * n_ + j] - price_[j]; }

  /// Random order of the rows. Neighbouring rows are often alike and want the same columns.
  void order_rows() {
    order_.resize(n_);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::uint64_t state = 0x9e3779b97f4a7c15u;
    for (std::size_t i = n_; i > 1; --i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      std::swap(order_[i - 1], order_[(state >> 33) % i]);
    }
  }

  void assign(std::size_t i, std::size_t j) {
    column_of_row_[i] = j;
    row_of_column_[j] = i;
  }

  void free_all() {
    std::fill(column_of_row_.begin(), column_of_row_.end(), kNoIndex);
    std::fill(row_of_column_.begin(), row_of_column_.end(), kNoIndex);
  }

  /// Runs auction phases until nearly all rows have a column. Only the prices are kept.
  void approach_prices() {
    const auto [least, greatest] = std::minmax_element(weights_.begin(), weights_.end());
    // Prices rise by at most about n steps of each phase.
    const std::uint64_t range = static_cast<std::uint64_t>(*greatest) - static_cast<std::uint64_t>(*least);
    if (range > (std::uint64_t{1} << 58) / n_) return;
    std::fill(price_.begin(), price_.end(), 0);
    std::vector<std::size_t> bidders;
    std::vector<std::size_t> outbid;
    std::size_t scans_left = kScansPerRow * n_;
    for (std::int64_t step = static_cast<std::int64_t>(range); step > 1 && scans_left > 0;) {
      step = std::max<std::int64_t>(step / kStepDivisor, 1);
      free_all();
      for (bidders = order_; bidders.size() > n_ / kFewFree && scans_left > 0; std::swap(bidders, outbid)) {
        outbid.clear();
        scans_left -= std::min(scans_left, bidders.size());
        for (const std::size_t i : bidders) {
          const TwoBest best = two_best(i);
          price_[best.column] += best.first - best.second + step;
          if (const std::size_t loser = row_of_column_[best.column]; loser != kNoIndex) {
            column_of_row_[loser] = kNoIndex;
            outbid.push_back(loser);
          }
          assign(i, best.column);
        }
      }
    }
  }

  /// Each free row takes its best column and raises the price until its second best is equally good. That may free
  /// another row. Starts from any prices.
  void reduce_rows() {
    free_all();
    free_rows_ = order_;
    // With large weights, rows may outbid each other very often. Beyond this limit, augmenting paths are cheaper.
    std::size_t bids_left = 5 * n_;
    for (int pass = 0; pass < 3 && n_ > 1; ++pass) {
      std::vector<std::size_t> still_free;
      for (std::size_t next = 0; next < free_rows_.size();) {
        if (bids_left == 0) {
          still_free.insert(still_free.end(), free_rows_.begin() + static_cast<std::ptrdiff_t>(next), free_rows_.end());
          break;
        }
        --bids_left;
        const std::size_t i = free_rows_[next++];
        const TwoBest best = two_best(i);
        std::size_t j = best.column;
        const bool is_only_best = best.first > best.second;
        if (is_only_best)
          price_[j] += best.first - best.second;
        else if (row_of_column_[j] != kNoIndex)
          j = free_column_as_good_as(i, best);
        const std::size_t loser = row_of_column_[j];
        if (loser != kNoIndex) column_of_row_[loser] = kNoIndex;
        assign(i, j);
        if (loser == kNoIndex) continue;
        if (is_only_best)
          free_rows_[--next] = loser;
        else
          still_free.push_back(loser);
      }
      free_rows_ = std::move(still_free);
    }
    if (n_ == 1) {
      assign(0, 0);
      free_rows_.clear();
    }
  }

  std::size_t free_column_as_good_as(std::size_t i, const TwoBest& best) const {
    for (std::size_t j = 0; j < n_; ++j)
      if (row_of_column_[j] == kNoIndex && profit(i, j) == best.first) return j;
    return best.column;
  }

  /// Dijkstra's algorithm over columns, from a free row to the nearest free column. The length of an edge is the profit
  /// that its row loses by changing to that column.
  void augment(std::size_t free_row) {
    std::fill(distance_.begin(), distance_.end(), kFar);
    for (std::size_t j = 0; j < n_; ++j) state_[j] = row_of_column_[j] == kNoIndex ? 0 : 1;
    settled_.clear();
    const PathState path{distance_.data(), previous_row_.data(), state_.data()};
    std::size_t i = free_row;
    std::int64_t base = two_best(i).first;
    Nearest nearest{};
    for (;;) {
      nearest = kernels_.relax(row(i), price_.data(), base, static_cast<std::int64_t>(i), path, n_);
      if (nearest.key % 2 == 0) break;
      state_[nearest.column] = kSettled;
      settled_.push_back(nearest.column);
      i = row_of_column_[nearest.column];
      base = nearest.key / 2 + profit(i, nearest.column);
    }
    for (const std::size_t j : settled_) price_[j] += nearest.key / 2 - distance_[j];
    for (std::size_t j = nearest.column, at = kNoIndex; at != free_row;) {
      at = static_cast<std::size_t>(previous_row_[j]);
      const std::size_t next = column_of_row_[at];
      assign(at, j);
      j = next;
    }
  }

  std::size_t n_;
  std::span<const std::int64_t> weights_;
  const RowKernels& kernels_ = row_kernels();
  std::vector<std::size_t> order_;
  std::vector<std::int64_t> price_;
  std::vector<std::size_t> column_of_row_;
  std::vector<std::size_t> row_of_column_;
  std::vector<std::size_t> free_rows_;
  std::vector<std::int64_t> distance_;
  std::vector<std::int64_t> previous_row_;
  std::vector<std::int64_t> state_;
  std::vector<std::size_t> settled_;
};

}  // namespace

std::vector<std::int32_t> assign_dense(std::int32_t n, std::span<const std::int64_t> weights) {
  if (n == 0) return {};
  return DenseAssignment(static_cast<std::size_t>(n), weights).columns();
}

}  // namespace penstock::redistribute
