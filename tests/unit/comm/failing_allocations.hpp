// Allocations of a thread that fail.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/transport.hpp"

namespace penstock::test {

/// The number of this thread's allocations before one fails. If negative, none fails.
extern thread_local constinit std::int64_t allocations_left;
/// Allocated and not yet freed, by this thread.
extern thread_local constinit std::int64_t allocated_bytes;

/// Runs the function without failing allocations.
template <typename Function>
auto fed(Function function) {
  struct Meanwhile {
    const std::int64_t before = std::exchange(allocations_left, -1);
    ~Meanwhile() { allocations_left = before; }
  } meanwhile;
  return function();
}

/// A transport whose own allocations do not fail.
class Fed : public engine::Transport {
 public:
  explicit Fed(std::unique_ptr<engine::Transport> under) : under_(std::move(under)) {}

  int rank() const override { return under_->rank(); }
  int size() const override { return under_->size(); }
  const std::vector<std::int32_t>& node_of_rank() const override { return under_->node_of_rank(); }
  bool any_thread() const override { return under_->any_thread(); }
  std::string description() const override { return under_->description(); }
  int max_tag() const override { return under_->max_tag(); }
  bool isend(ConstBytes from, int peer, int tag, Token token) override {
    return fed([&] { return under_->isend(from, peer, tag, token); });
  }
  void irecv(Bytes to, int peer, int tag, Token token) override {
    fed([&] { under_->irecv(to, peer, tag, token); });
  }
  bool take(Bytes to, int tag, Token token) override {
    return fed([&] { return under_->take(to, tag, token); });
  }
  void poll(std::vector<Completion>& complete) override {
    fed([&] { under_->poll(complete); });
  }
  void cancel(Token receive) override { under_->cancel(receive); }
  void poke() noexcept override { under_->poke(); }
  void allgather(ConstBytes mine, Bytes all) override {
    fed([&] { under_->allgather(mine, all); });
  }
  void maximum(std::span<std::uint64_t> values, const std::function<void()>& meanwhile) override {
    if (!meanwhile) return fed([&] { under_->maximum(values, {}); });
    std::int64_t left = allocations_left;  // what the engine allocates meanwhile can fail
    fed([&] {
      under_->maximum(values, [&] {
        std::swap(left, allocations_left);
        meanwhile();
        std::swap(left, allocations_left);
      });
    });
    allocations_left = left;
  }

 private:
  const std::unique_ptr<engine::Transport> under_;
};

}  // namespace penstock::test
