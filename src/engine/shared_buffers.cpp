#include "engine/shared_buffers.hpp"

namespace penstock::engine {

bool SharedBuffers::admit(Operation& operation) {
  if ((deferred_.empty() || operation.plan().shared_bytes == 0) && take(operation)) return true;
  deferred_.push(&operation);
  return false;
}

bool SharedBuffers::take(Operation& operation) {
  const std::uint64_t bytes = operation.plan().shared_bytes;
  if (!ring_) {
    operation.shared = core_.buffers.take(bytes);
    return true;
  }
  if (!Failures::may_begin(operation.sequence, core_.operations.base())) return false;
  if (bytes > 0) {
    ring_->free_before(core_.completed_by_all());
    const auto offset = ring_->take(operation.sequence, bytes);
    if (!offset) return false;
    core_.node.segment->commit_ring(*offset + bytes);
    operation.shared = core_.node.segment->ring(core_.self()) + *offset;
  }
  Failures::begin(core_.own_slot(), operation.sequence);
  return true;
}

bool SharedBuffers::poll() {
  bool moved = false;
  for (; !deferred_.empty(); moved = true) {
    Operation& next = *deferred_.front();
    try {
      if (!take(next)) break;
    } catch (const Error& error) {
      core_.fail(next, error);  // removes it from deferred_
      continue;
    }
    deferred_.pop();
    core_.launch(next);
  }
  return moved;
}

void SharedBuffers::begin(Operation& operation) {
  if (operation.call.compiled->reads_peers()) offset_at_peer_[operation].assign(core_.node.ranks.size(), kUnknown);
}

void SharedBuffers::set_peer(const Operation& operation, int peer, std::uint64_t offset_bytes) {
  if (operation.call.compiled->reads_peers()) offset_at_peer_[operation][core_.local(peer)] = offset_bytes;
}

ConstBytes SharedBuffers::of_peer(const Operation& operation, const Step& step) const {
  const std::uint32_t peer = core_.local(step.peer);
  const std::uint64_t base = offset_at_peer_[operation][peer];
  if (base == kUnknown)
    throw Error(ErrorCode::internal,
                "the plan '" + operation.plan().algorithm + "' reads the shared buffer of rank " +
                    std::to_string(step.peer) + " before a wait of it",
                core_.rank);
  return {core_.node.segment->ring(peer) + base + step.from.offset_bytes, step.from.size_bytes};
}

void SharedBuffers::cancel(Operation& operation) {
  deferred_.remove_if([&](const Operation* each) { return each == &operation; });
  if (ring_ && operation.is_running() && !operation.plan().by_flags)
    Failures::add(core_.own_slot(), operation.sequence);
}

void SharedBuffers::waits_for(const Operation& operation, std::vector<int>& peers) const {
  if (!operation.is_running() && !operation.plan().by_flags)
    core_.add_last(&RankSlot::completed_before, operation, peers);
}

}  // namespace penstock::engine
