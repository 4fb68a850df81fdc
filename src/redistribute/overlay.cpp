#include "redistribute/overlay.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>

#include "penstock/error.hpp"

namespace penstock::redistribute {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t d = 0; d < shape.size(); ++d) text += (d ? ", " : "") + std::to_string(shape[d]);
  return text + ")";
}

void sum_equal_pairs(std::vector<AxisVolume>& volumes) {
  const auto key = [](const AxisVolume& volume) { return std::tie(volume.source, volume.target); };
  std::sort(volumes.begin(), volumes.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  std::size_t kept = 0;
  for (const AxisVolume& volume : volumes) {
    if (kept > 0 && key(volumes[kept - 1]) == key(volume))
      volumes[kept - 1].elems += volume.elems;
    else
      volumes[kept++] = volume;
  }
  volumes.resize(kept);
}

/// Calls visit(outer coordinate, inner coordinate, elems) for the elements in [0, end). Walks the outer axis by
/// interval. An interval that spans many inner intervals is counted by coordinate.
template <class Visit>
void walk(const Axis& outer, const Axis& inner, std::int64_t end, const Visit& visit) {
  for (std::int64_t i = 0; i < outer.intervals() && outer.start(i) < end; ++i) {
    const std::int64_t low = outer.start(i);
    const std::int64_t high = std::min(outer.start(i + 1), end);
    const std::int64_t mine = i % outer.coordinates();
    const std::int64_t first = inner.interval_of(low);
    const std::int64_t last = inner.interval_of(high - 1);
    if (last - first < inner.coordinates()) {
      for (std::int64_t j = first; j <= last; ++j)
        visit(mine, j % inner.coordinates(), std::min(high, inner.start(j + 1)) - std::max(low, inner.start(j)));
    } else {
      for (std::int64_t c = 0; c < inner.coordinates(); ++c)
        visit(mine, c, inner.local_length_before(c, high) - inner.local_length_before(c, low));
    }
  }
}

/// The volumes of the elements in [0, end).
std::vector<AxisVolume> volumes_before(const Axis& source, const Axis& target, std::int64_t end) {
  constexpr std::size_t kMaxPending = std::size_t{1} << 22;
  std::vector<AxisVolume> volumes;
  std::size_t compact_at = kMaxPending;
  const auto add = [&](std::int64_t s, std::int64_t t, std::int64_t elems) {
    if (elems == 0) return;
    volumes.push_back({s, t, elems});
    if (volumes.size() < compact_at) return;
    sum_equal_pairs(volumes);
    compact_at = std::max(kMaxPending, 2 * volumes.size());
  };
  if (source.intervals() <= target.intervals())
    walk(source, target, end, add);
  else
    walk(target, source, end, [&](std::int64_t t, std::int64_t s, std::int64_t elems) { add(s, t, elems); });
  sum_equal_pairs(volumes);
  return volumes;
}

void append(SharedRuns& shared, Run piece) {
  shared.elems += piece.length;
  if (!shared.runs.empty()) {
    Run& last = shared.runs.back();
    const std::int64_t source_step = piece.source - last.source;
    const std::int64_t target_step = piece.target - last.target;
    const bool adjacent =
        last.source_step == 1 && last.target_step == 1 && source_step == last.length && target_step == last.length;
    const bool continues = piece.length == 1 && source_step == last.length * last.source_step &&
                           target_step == last.length * last.target_step;
    if (adjacent || continues) {
      last.length += piece.length;
      return;
    }
    if (piece.length == 1 && last.length == 1) {
      last.length = 2;
      last.source_step = source_step;
      last.target_step = target_step;
      return;
    }
  }
  shared.runs.push_back(piece);
}

}  // namespace

Pairing::Pairing(const Layout& source, const Layout& target, MatrixOp op)
    : source_(source), target_(target), transposed_(op != MatrixOp::none) {
  std::vector<std::int64_t> expected = source.shape();
  if (transposed_ && expected.size() != 2)
    throw Error(ErrorCode::invalid_argument,
                "redistribute: op T and C need two dimensions, the source has the shape " + shape_text(source.shape()));
  if (transposed_) std::swap(expected[0], expected[1]);
  if (expected != target.shape())
    throw Error(ErrorCode::invalid_argument, "redistribute: a source of the shape " + shape_text(source.shape()) +
                                                 " becomes " + shape_text(expected) +
                                                 (transposed_ ? " under op T or C" : " under op N") +
                                                 ", but the target has the shape " + shape_text(target.shape()));
}

std::vector<std::int64_t> Pairing::target_tile_strides() const {
  std::vector<std::int64_t> strides(dimensions(), 1);
  for (std::size_t d = dimensions(); d-- > 1;) strides[d - 1] = strides[d] * target_.axes()[d].coordinates();
  if (transposed_) std::swap(strides[0], strides[1]);
  return strides;
}

std::vector<std::size_t> Pairing::memory_order(Side side) const {
  const bool is_source = side == Side::source;
  const bool row_major = (is_source ? source_ : target_).storage() == Order::row_major;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < dimensions(); ++i) {
    const std::size_t d = row_major ? i : dimensions() - 1 - i;
    order.push_back(is_source ? d : target_dimension(d));
  }
  return order;
}

std::vector<AxisVolume> axis_volumes(const Axis& source, const Axis& target) {
  const std::int64_t length = source.length();
  std::int64_t period = length;
  if (source.is_cyclic() && target.is_cyclic() && source.period() < length && target.period() < length) {
    const std::int64_t step = target.period() / std::gcd(source.period(), target.period());
    std::int64_t common = 0;
    if (!__builtin_mul_overflow(source.period(), step, &common)) period = std::min(common, length);
  }
  if (period == 0 || length / period == 1) return volumes_before(source, target, length);
  std::vector<AxisVolume> volumes = volumes_before(source, target, period);
  for (AxisVolume& volume : volumes) volume.elems *= length / period;
  const std::vector<AxisVolume> rest = volumes_before(source, target, length % period);
  volumes.insert(volumes.end(), rest.begin(), rest.end());
  sum_equal_pairs(volumes);
  return volumes;
}

std::vector<SharedRuns> shared_runs(const Axis& source, const Axis& target, Side side, std::int64_t coordinate) {
  const Axis& mine = side == Side::source ? source : target;
  const Axis& other = side == Side::source ? target : source;
  std::map<std::int64_t, SharedRuns> by_coordinate;
  for (std::int64_t i = coordinate; i < mine.intervals(); i += mine.coordinates()) {
    std::int64_t at = mine.start(i);
    const std::int64_t end = mine.start(i + 1);
    for (std::int64_t j = other.interval_of(at); at < end; ++j) {
      const std::int64_t next = std::min(end, other.start(j + 1));
      const std::int64_t my_place = mine.local_start(i) + at - mine.start(i);
      const std::int64_t other_place = other.local_start(j) + at - other.start(j);
      const Run piece =
          side == Side::source ? Run{my_place, other_place, next - at} : Run{other_place, my_place, next - at};
      append(by_coordinate[j % other.coordinates()], piece);
      at = next;
    }
  }
  std::vector<SharedRuns> shared;
  for (auto& [c, runs] : by_coordinate) {
    runs.other = c;
    shared.push_back(std::move(runs));
  }
  return shared;
}

}  // namespace penstock::redistribute
