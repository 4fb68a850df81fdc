// Allocations of a thread that fail. operator new is replaced in this program alone, so its tests of the engine are
// here.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "unit/engine/wrapped_transport.hpp"

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
class Fed : public engine::WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;

  bool isend(ConstBytes from, int peer, int tag, Token token) override {
    return fed([&] { return WrappedTransport::isend(from, peer, tag, token); });
  }
  void irecv(Bytes to, int peer, int tag, Token token) override {
    fed([&] { WrappedTransport::irecv(to, peer, tag, token); });
  }
  bool take(Bytes to, int tag, Token token) override {
    return fed([&] { return WrappedTransport::take(to, tag, token); });
  }
  void poll(std::vector<Completion>& complete) override {
    fed([&] { WrappedTransport::poll(complete); });
  }
  void set_farewell(ConstBytes packet, int tag) override {
    fed([&] { WrappedTransport::set_farewell(packet, tag); });
  }
  void allgather(ConstBytes mine, Bytes all) override {
    fed([&] { WrappedTransport::allgather(mine, all); });
  }
  void maximum(std::span<std::uint64_t> values, const std::function<void()>& meanwhile) override {
    if (!meanwhile) return fed([&] { WrappedTransport::maximum(values, {}); });
    std::int64_t left = allocations_left;  // what the engine allocates meanwhile can fail
    fed([&] {
      WrappedTransport::maximum(values, [&] {
        std::swap(left, allocations_left);
        meanwhile();
        std::swap(left, allocations_left);
      });
    });
    allocations_left = left;
  }
};

}  // namespace penstock::test
