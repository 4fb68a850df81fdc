// What the plans of this rank send to ranks of other nodes and receive from them, under which tags.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/core.hpp"
#include "engine/remote/settlement.hpp"
#include "engine/remote/tag_split.hpp"

namespace penstock::engine {

/// Of operations that run, and of those that were over as long as OperationTable remembers them. Has no state.
class RemotePlans {
 public:
  explicit RemotePlans(const Core& core) : tags(core.node.max_tag, core.options.operation_slots), core_(core) {}

  int tag_of(const Operation& operation, StepId step) const {
    return tags.tag(operation.sequence, operation.call.signature, operation.call.compiled->wire_tag(step));
  }
  /// The messages between this rank and the peer; none if the operation was not completed, or is forgotten.
  std::vector<SentMessage> planned(std::uint64_t sequence, int peer, StepKind kind) const;

  const TagSplit tags;

 private:
  const Core& core_;
};

}  // namespace penstock::engine
