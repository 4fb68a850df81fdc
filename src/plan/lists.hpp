// Lists of numbers, one after another in one array.
#pragma once

#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

namespace penstock::plan {

template <typename Number>
class Lists {
 public:
  Lists() = default;
  /// `for_each(visit)` calls visit(list, number) for what the `count` lists hold, each time in the same order.
  template <typename ForEach>
  Lists(std::size_t count, const ForEach& for_each) : first_(count + 2) {
    for_each([this](std::size_t list, Number) { ++first_[list + 2]; });
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    numbers_.resize(first_.back());
    // first_[list + 1] moves from where the list begins to where it ends.
    for_each([this](std::size_t list, Number number) { numbers_[first_[list + 1]++] = number; });
    first_.pop_back();
  }
  /// Adds one more list.
  void add(std::span<const Number> list) {
    numbers_.insert(numbers_.end(), list.begin(), list.end());
    first_.push_back(static_cast<Number>(numbers_.size()));
  }

  std::span<const Number> of(std::size_t list) const {
    return std::span(numbers_).subspan(first_[list], first_[list + 1] - first_[list]);
  }
  bool are_empty() const { return numbers_.empty(); }

 private:
  std::vector<Number> first_{0};
  std::vector<Number> numbers_;
};

}  // namespace penstock::plan
