// A short way for calls that are repeated and left to MPI, which is faster. Such calls are short, so each nanosecond
// before MPI's function begins matters.
#pragma once

#include <array>
#include <cstddef>

#include "preload/call.hpp"
#include "preload/trial.hpp"
#include "preload/types.hpp"

namespace penstock::preload {

/// The last such call of each operation, in one form.
class Passed {
 public:
  struct Entry {
    Call call{};
    bool synchronises = false;
    Trial* trial = nullptr;  ///< that counts the call
  };

  /// nullptr if it is not the call that is kept.
  const Entry* find(const Call& call) const noexcept {
    const Entry& last = last_[static_cast<std::size_t>(call.kind)];
    if (last.trial == nullptr || last.call.comm != call.comm) return nullptr;
    // One trial has all calls of an operation whose lengths are not known.
    const bool equal =
        !last.trial->knows_length() || (last.call.root == call.root && last.call.op == call.op &&
                                        same(last.call.send, call.send) && same(last.call.receive, call.receive));
    return equal ? &last : nullptr;
  }
  void keep(const Call& call, Trial& trial) noexcept {
    if (!trial.knows_length() || (is_lasting(call.send.type) && is_lasting(call.receive.type)))
      last_[static_cast<std::size_t>(call.kind)] = {call, preload::synchronises(call), &trial};
  }

 private:
  /// Lists may change without a change of their address.
  static bool same(const Side& a, const Side& b) noexcept {
    return a.count == b.count && a.type == b.type && b.counts == nullptr && b.types == nullptr &&
           (a.buffer == MPI_IN_PLACE) == (b.buffer == MPI_IN_PLACE);
  }
  /// A derived type may be freed, and its handle become that of a type of another length.
  static bool is_lasting(MPI_Datatype type) noexcept {
    return type == MPI_DATATYPE_NULL || named_type(type) != nullptr;
  }

  std::array<Entry, kCollectiveKinds> last_{};
};

}  // namespace penstock::preload
