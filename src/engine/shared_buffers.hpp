// Plan::shared_bytes of an operation: where it lies here and at the peers, and what waits for it.
#pragma once

#include <optional>
#include <vector>

#include "engine/core.hpp"
#include "engine/ring_allocator.hpp"

namespace penstock::engine {

/// Also keeps operations back whose place among the Failures is not free.
class SharedBuffers final : public Mechanism {
 public:
  explicit SharedBuffers(Core& core) : core_(core) {
    if (core.node.segment) ring_.emplace(core.node.segment->layout().ring_bytes);
  }

  /// Whether it may be launched now; otherwise it is launched as soon as there is space.
  bool admit(Operation& operation);
  /// A peer signals its buffer.
  void set_peer(const Operation& operation, int peer, std::uint64_t offset_bytes);
  /// The memory of the peer that a step of the operation reads.
  ConstBytes of_peer(const Operation& operation, const Step& step) const;

  bool poll() override;
  bool needs_polling(Caller) const override { return !deferred_.empty(); }
  void begin(Operation& operation) override;
  void cancel(Operation& operation) override;
  void waits_for(const Operation& operation, std::vector<int>& peers) const override;

 private:
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};

  bool take(Operation& operation);

  Core& core_;
  std::optional<RingAllocator> ring_;
  Fifo<Operation*> deferred_;
  PerOperation<std::vector<std::uint64_t>> offset_at_peer_;  ///< by local rank, from their signal messages
};

}  // namespace penstock::engine
