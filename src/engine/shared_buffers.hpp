// Places Plan::shared_bytes of each operation in this rank's ring, and knows where the peers placed theirs.
#pragma once

#include <optional>
#include <vector>

#include "engine/core.hpp"
#include "engine/ring_allocator.hpp"

namespace penstock::engine {

/// Defers operations until there is space in the ring and their bit of Failures is free.
class SharedBuffers final : public Mechanism {
 public:
  explicit SharedBuffers(Core& core) : core_(core) {
    if (core.node.segment) ring_.emplace(core.node.segment->layout().ring_bytes);
  }

  /// Whether the operation may be launched now. If not, it is deferred and launched by poll().
  bool admit(Operation& operation);
  /// Called for the first signal of a peer, which tells where the peer's buffer lies.
  void set_peer(const Operation& operation, int peer, std::uint64_t offset_bytes);
  /// The peer's memory that the step reads.
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
