#include <algorithm>
#include <limits>
#include <string>

#include "layout/checked.hpp"
#include "penstock/error.hpp"
#include "penstock/layout.hpp"

namespace penstock {

Axis Axis::cyclic(std::int64_t length, std::int64_t block, std::int64_t coordinates, std::int64_t skipped) {
  const auto demand = [](std::int64_t given, std::int64_t least, const char* what) {
    if (given < least)
      throw Error(ErrorCode::invalid_argument, std::string("layout: ") + what + " is " + std::to_string(given) +
                                                   "; expected at least " + std::to_string(least));
  };
  demand(length, 0, "a dimension's length");
  demand(block, 1, "a block's length");
  demand(coordinates, 1, "a dimension of the process grid");
  demand(skipped, 0, "the part of a block that is skipped");
  if (skipped >= block)
    throw Error(ErrorCode::invalid_argument, "layout: " + std::to_string(skipped) + " elements of a block of " +
                                                 std::to_string(block) + " are skipped; expected fewer");
  if (length > std::numeric_limits<std::int64_t>::max() - skipped)
    throw Error(ErrorCode::invalid_argument, "layout: a dimension's length is " + std::to_string(length) +
                                                 " and the skipped part makes it 2^63 or more");
  Axis axis;
  axis.length_ = length;
  axis.block_ = block;
  axis.coordinates_ = coordinates;
  axis.skipped_ = skipped;
  return axis;
}

Axis Axis::cut(std::vector<std::int64_t> borders) {
  if (borders.empty() || borders.front() != 0)
    throw Error(ErrorCode::invalid_argument,
                "layout: splits must begin with 0" +
                    (borders.empty() ? ", but there are none" : ", given " + std::to_string(borders.front())));
  for (std::size_t i = 1; i < borders.size(); ++i)
    if (borders[i] <= borders[i - 1])
      throw Error(ErrorCode::invalid_argument, "layout: splits must increase strictly, but splits[" +
                                                   std::to_string(i) + "] is " + std::to_string(borders[i]) +
                                                   " after " + std::to_string(borders[i - 1]));
  Axis axis;
  axis.length_ = borders.back();
  axis.coordinates_ = static_cast<std::int64_t>(borders.size()) - 1;
  axis.borders_ = std::move(borders);
  return axis;
}

std::int64_t Axis::intervals() const {
  if (!is_cyclic()) return coordinates_;
  return length_ == 0 ? 0 : (length_ + skipped_ - 1) / block_ + 1;
}

std::int64_t Axis::start(std::int64_t interval) const {
  if (!is_cyclic()) return borders_[static_cast<std::size_t>(interval)];
  if (interval >= intervals()) return length_;
  return interval == 0 ? 0 : interval * block_ - skipped_;
}

std::int64_t Axis::interval_of(std::int64_t position) const {
  if (is_cyclic()) return (position + skipped_) / block_;
  return std::upper_bound(borders_.begin(), borders_.end(), position) - borders_.begin() - 1;
}

std::int64_t Axis::local_length_before(std::int64_t coordinate, std::int64_t position) const {
  if (!is_cyclic())
    return std::clamp<std::int64_t>(position, start(coordinate), start(coordinate + 1)) - start(coordinate);
  const std::int64_t dealt = position + skipped_;
  const std::int64_t whole_blocks = dealt / block_;
  const std::int64_t mine = whole_blocks / coordinates_ + (coordinate < whole_blocks % coordinates_);
  return mine * block_ + (coordinate == whole_blocks % coordinates_ ? dealt % block_ : 0) -
         (coordinate == 0 ? skipped_ : 0);
}

std::int64_t Axis::period() const {
  std::int64_t period = 0;
  if (!is_cyclic() || __builtin_mul_overflow(block_, coordinates_, &period)) return length_;
  return std::min(period, length_);
}

}  // namespace penstock
