// A short way for calls that are repeated and left to MPI, which is faster. Such calls are short, so each nanosecond
// before MPI's function begins matters.
#pragma once

#include <array>
#include <cstddef>

#include "preload/call.hpp"

namespace penstock::preload {

/// The last such call of each operation, in one form.
class Passed {
 public:
  bool has(const Call& call) const noexcept {
    const Call& last = last_[static_cast<std::size_t>(call.kind)];
    return last.comm == call.comm && last.root == call.root && last.op == call.op && same(last.send, call.send) &&
           same(last.receive, call.receive);
  }
  void keep(const Call& call) noexcept { last_[static_cast<std::size_t>(call.kind)] = call; }

 private:
  /// Lists may change without a change of their address.
  static bool same(const Side& a, const Side& b) noexcept {
    return a.count == b.count && a.type == b.type && b.counts == nullptr && b.types == nullptr &&
           (a.buffer == MPI_IN_PLACE) == (b.buffer == MPI_IN_PLACE);
  }

  std::array<Call, kCollectiveKinds> last_{};
};

}  // namespace penstock::preload
