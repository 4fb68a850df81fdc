// One run of a plan, as all mechanisms see it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/compiled_plan.hpp"
#include "engine/engine.hpp"

namespace penstock::engine {

/// The arguments of start(), and what is derived from them.
struct Call {
  std::shared_ptr<const Plan> plan{};
  const CompiledPlan* compiled = nullptr;  ///< lives as long as the plan, see PlanCache
  Bindings bindings{};
  Arithmetic arithmetic{};
  std::uint64_t signature = 0;
  std::uint64_t begin_ns = 0;  ///< if tracing is on
};

/// The record of one operation. start() makes it; if a message of a peer comes first, the message makes it.
/// OperationTable owns the record and reuses it when `owners` is 0. The engine's lock protects all but `finished`.
struct Operation {
  enum class Stage : std::uint8_t {
    expected,  ///< a message has come for it
    started,   ///< start() or fail_next() has been called
    running,   ///< its steps are being issued
  };

  explicit Operation(std::uint32_t number) : index(number) {}

  bool is_running() const { return stage == Stage::running; }
  bool has_failed() const { return error.has_value(); }
  bool is_finished() const { return finished.load(std::memory_order_relaxed); }
  const Plan& plan() const { return *call.plan; }
  const Step& step(StepId id) const { return call.plan->steps[id]; }
  Bytes target(const Region& region) const;
  ConstBytes source(const Region& region) const;

  const std::uint32_t index;  ///< of the record, see PerOperation
  std::uint32_t owners = 0;   ///< users of the record: the table's window and the caller's Run
  std::uint64_t sequence = 0;
  Call call;
  Stage stage = Stage::expected;
  std::optional<Error> error;
  std::byte* scratch = nullptr;
  std::byte* shared = nullptr;
  std::vector<std::uint32_t> waiting_for;  ///< by step: dependencies that are not complete
  std::size_t steps_left = 0;
  std::uint32_t executing = 0;  ///< threads that run its steps without the lock
  std::uint32_t in_flight = 0;  ///< its transport calls, and its control messages that wait for cells
  std::uint32_t pins = 0;       ///< keep the record in the window although the operation has finished
  std::atomic<bool> finished{false};
  Operation* next_dropped = nullptr;  ///< in Executor::dropped_
};

inline Bytes Operation::target(const Region& region) const {
  switch (region.buffer) {
    case Buffer::scratch: return {scratch + region.offset_bytes, region.size_bytes};
    case Buffer::shared: return {shared + region.offset_bytes, region.size_bytes};
    default: return call.bindings.output.subspan(region.offset_bytes, region.size_bytes);
  }
}

inline ConstBytes Operation::source(const Region& region) const {
  if (region.buffer == Buffer::input) return call.bindings.input.subspan(region.offset_bytes, region.size_bytes);
  return target(region);
}

/// A mechanism's state of each operation. States do not move, and are reused by later operations: the mechanism resets
/// the state when an operation begins.
template <typename State>
class PerOperation {
 public:
  State& operator[](const Operation& operation) const {
    while (operation.index >= states_.size()) states_.push_back(std::make_unique<State>());
    return *states_[operation.index];
  }
  /// For a mechanism that resets it late: State::sequence tells of which operation it is.
  State& current(const Operation& operation) const {
    State& found = (*this)[operation];
    if (found.sequence != operation.sequence) found = {.sequence = operation.sequence};
    return found;
  }

 private:
  mutable std::vector<std::unique_ptr<State>> states_;
};

}  // namespace penstock::engine
