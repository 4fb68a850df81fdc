// The intersections of two layouts, one dimension at a time: the grid overlay of COSTA, Section 5, without enumerating
// it.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/layout.hpp"
#include "penstock/relabel.hpp"

namespace penstock::redistribute {

enum class Side : std::uint8_t { source, target };

/// A source and a target whose shapes match under `op`. Refers to the layouts, which must outlive it.
class Pairing {
 public:
  /// Throws Error(invalid_argument) if the shapes do not match.
  Pairing(const Layout& source, const Layout& target, MatrixOp op);

  const Layout& source() const { return source_; }
  const Layout& target() const { return target_; }
  std::size_t dimensions() const { return source_.dimensions(); }
  /// The dimension of the target that corresponds to dimension d of the source.
  std::size_t target_dimension(std::size_t d) const { return transposed_ ? 1 - d : d; }
  const Axis& source_axis(std::size_t d) const { return source_.axes()[d]; }
  const Axis& target_axis(std::size_t d) const { return target_.axes()[target_dimension(d)]; }
  /// For each dimension of the source: the difference of tile indices of the target for one step of its coordinate.
  std::vector<std::int64_t> target_tile_strides() const;
  /// The dimensions of the source in the order of that side's memory, slowest first.
  std::vector<std::size_t> memory_order(Side side) const;

 private:
  const Layout& source_;
  const Layout& target_;
  bool transposed_;
};

/// Number of elements that a coordinate of the source axis shares with a coordinate of the target axis.
struct AxisVolume {
  std::int64_t source = 0;
  std::int64_t target = 0;
  std::int64_t elems = 0;
};

/// All pairs of coordinates that share elements, sorted by (source, target).
std::vector<AxisVolume> axis_volumes(const Axis& source, const Axis& target);

/// Elements along one dimension with constant steps in both local arrays.
struct Run {
  std::int64_t source = 0;  ///< index of the first element, among those of its coordinate
  std::int64_t target = 0;
  std::int64_t length = 0;
  std::int64_t source_step = 1;
  std::int64_t target_step = 1;
};

/// The elements that a coordinate of one axis shares with a coordinate of the other.
struct SharedRuns {
  std::int64_t other = 0;
  std::int64_t elems = 0;
  std::vector<Run> runs;  ///< ascending, as long as possible; equal from both sides
};

/// The elements that `coordinate`, of the axis of `side`, shares with each coordinate of the other axis, ascending.
std::vector<SharedRuns> shared_runs(const Axis& source, const Axis& target, Side side, std::int64_t coordinate);

}  // namespace penstock::redistribute
