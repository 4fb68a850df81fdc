// What two layouts have in common, one dimension at a time: the grid overlay of COSTA, Section 5, without ever
// enumerating it.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/layout.hpp"
#include "penstock/relabel.hpp"

namespace penstock::redistribute {

enum class Side : std::uint8_t { source, target };

/// A source and a target whose shapes fit together under `op`. Refers to the layouts, which must outlive it.
class Pairing {
 public:
  /// Throws Error(invalid_argument) where the shapes do not fit.
  Pairing(const Layout& source, const Layout& target, MatrixOp op);

  const Layout& source() const { return source_; }
  const Layout& target() const { return target_; }
  std::size_t dimensions() const { return source_.dimensions(); }
  /// The dimension of the target that dimension d of the source becomes.
  std::size_t target_dimension(std::size_t d) const { return transposed_ ? 1 - d : d; }
  const Axis& source_axis(std::size_t d) const { return source_.axes()[d]; }
  const Axis& target_axis(std::size_t d) const { return target_.axes()[target_dimension(d)]; }
  /// For each dimension of the source, what one step of its target coordinate adds to the target's tile number.
  std::vector<std::int64_t> target_tile_strides() const;
  /// The dimensions of the source in the order of that side's memory, the slowest first.
  std::vector<std::size_t> memory_order(Side side) const;

 private:
  const Layout& source_;
  const Layout& target_;
  bool transposed_;
};

/// How many elements a coordinate of the source axis shares with one of the target axis.
struct AxisVolume {
  std::int64_t source = 0;
  std::int64_t target = 0;
  std::int64_t elems = 0;
};

/// All pairs that share something, in order of (source, target).
std::vector<AxisVolume> axis_volumes(const Axis& source, const Axis& target);

/// Elements that step regularly through both local arrays, counted along one dimension.
struct Run {
  std::int64_t source = 0;  ///< of the first element, among those of its coordinate
  std::int64_t target = 0;
  std::int64_t length = 0;
  std::int64_t source_step = 1;
  std::int64_t target_step = 1;
};

/// What a coordinate of one axis shares with a coordinate of the other.
struct SharedRuns {
  std::int64_t other = 0;
  std::int64_t elems = 0;
  std::vector<Run> runs;  ///< ascending, as long as possible; the same seen from either axis
};

/// The runs that `coordinate` of the axis of that side shares with each coordinate of the other axis, ascending.
std::vector<SharedRuns> shared_runs(const Axis& source, const Axis& target, Side side, std::int64_t coordinate);

}  // namespace penstock::redistribute
