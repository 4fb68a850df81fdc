#include "engine/operation_table.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/segment.hpp"

namespace penstock::engine {
namespace {

constexpr std::size_t kFewestPasts = 16;

}  // namespace

/// Called before an operation starts: its end must not lack memory.
void OperationTable::make_room(std::uint64_t sequence) {
  const auto needed = static_cast<std::size_t>(std::min<std::uint64_t>(sequence + 1, kPasts));
  if (needed > past_.size()) past_.resize(std::max<std::size_t>(std::bit_ceil(needed), kFewestPasts));
}

Operation& OperationTable::at(std::uint64_t sequence) {
  make_room(sequence);
  const auto index = static_cast<std::size_t>(sequence - base_);
  while (window_.size() <= index) window_.push(nullptr);
  Operation*& entry = window_[index];
  if (entry == nullptr) {
    if (idle_.empty()) {
      idle_.reserve(std::bit_ceil(records_.size() + 1));  // drop() must not lack memory
      records_.push_back(std::make_unique<Operation>(static_cast<std::uint32_t>(records_.size())));
      idle_.push_back(records_.back().get());
    }
    entry = idle_.back();
    idle_.pop_back();
    entry->sequence = sequence;
    entry->owners = 1;
  }
  return *entry;
}

Operation* OperationTable::find(std::uint64_t sequence) const {
  return sequence < base_ || sequence - base_ >= window_.size() ? nullptr
                                                                : window_[static_cast<std::size_t>(sequence - base_)];
}

void OperationTable::start(Operation& next) {
  next.stage = Operation::Stage::started;
  ++next_;
  ++unfinished_;
}

void OperationTable::run_through(std::uint64_t signature) {
  Past& past = past_[next_ % kPasts];
  past.sequence = next_;
  past.signature = signature;
  past.failed = past.failed_elsewhere = false;
  if (past.traffic != nullptr) past.traffic.reset();
  base_ = ++next_;
  publish();
}

void OperationTable::run_through(Operation& only) {
  remember(only);
  window_.pop();
  base_ = ++next_;
  drop(only);
  publish();
}

void OperationTable::remember(const Operation& operation) {
  Past& past = past_[operation.sequence % kPasts];
  past.sequence = operation.sequence;
  past.signature = operation.call.signature;
  past.failed = operation.has_failed();
  past.failed_elsewhere = false;
  const CompiledPlan* const compiled = operation.call.compiled;
  // A program that repeats its calls often finds the same one here, which then is not counted anew.
  if (compiled == nullptr)
    past.traffic.reset();
  else if (past.traffic != compiled->traffic())
    past.traffic = compiled->traffic();
}

void OperationTable::finish(Operation& operation) {
  remember(operation);
  --unfinished_;
  operation.finished.store(true, std::memory_order_seq_cst);
}

void OperationTable::advance() {
  while (!window_.empty() && window_.front() != nullptr && window_.front()->pins == 0 &&
         window_.front()->is_finished()) {
    Operation* const first = window_.pop();
    ++base_;
    drop(*first);
  }
  publish();
}

void OperationTable::publish() const {
  if (segment_ != nullptr)
    segment_->slot(segment_->local_rank()).completed_before.store(base_, std::memory_order_release);
}

void OperationTable::drop(Operation& operation) {
  if (--operation.owners > 0) return;
  if (operation.call.arithmetic.user) dropped_.push_back(std::move(operation.call.arithmetic.user));
  operation.call.plan.reset();
  operation.call.compiled = nullptr;
  operation.call.begin_ns = 0;
  operation.error.reset();
  operation.stage = Operation::Stage::expected;
  operation.steps_left = 0;
  operation.finished.store(false, std::memory_order_relaxed);
  idle_.push_back(&operation);
}

}  // namespace penstock::engine
