#include "engine/flag_exchange.hpp"

#include <algorithm>
#include <cstring>

#include "host/pause.hpp"
#include "host/yielding.hpp"
#include "plan/order.hpp"

namespace penstock::engine {
namespace {

constexpr int kLooks = 200;      // some microseconds: enough for the other ranks if each rank has a core
constexpr int kFewLooks = 2;     // if ranks share cores, the one that is waited for may need this core
constexpr int kMostYields = 64;  // then the engine waits, which may sleep

}  // namespace

bool FlagExchange::admit(Operation& operation) {
  // Without memory only this operation fails, also if it is deferred.
  flags_.take(operation.call.compiled->published_bytes());
  flagged_.push_back(&operation);
  if (deferred_.empty() && take_flag(operation)) return true;
  deferred_.push(&operation);
  return false;
}

bool FlagExchange::take_flag(Operation& operation) {
  if (!flags_.is_free(operation.sequence)) return false;
  operation.shared = flags_.own_data(operation.sequence, operation.call.compiled->published_bytes());
  return true;
}

void FlagExchange::begin(Operation& operation) {
  if (!operation.plan().by_flags) return;
  State& state = states_[operation];
  state.published_before = published_for_ == operation.sequence + 1 ? published_before_ : 0;
  state.waiting.clear();
}

void FlagExchange::post(Operation& operation, StepId step) {
  if (operation.step(step).kind == StepKind::wait) {
    states_[operation].waiting.push_back(step);
    return;
  }
  publish(operation, operation.step(step));
  core_.complete(operation, step);
}

void FlagExchange::publish(const Operation& operation, const Step& step) {
  // The first signal of a round raises the flag for all of them.
  if (plan::tells_length(step) && !flags_.is_published(operation.sequence, step.tag))
    for (const Step& each : operation.plan().steps)
      if (each.kind == StepKind::signal && each.tag == step.tag && plan::tells_length(each))
        std::memcpy(operation.shared + each.to.offset_bytes, &each.to.size_bytes, kToldLengthBytes);
  flags_.publish(operation.sequence, step.tag, operation.call.signature, operation.call.compiled->published_bytes());
  core_.slot(core_.local(step.peer)).bell.ring();
}

bool FlagExchange::try_wait(const Operation& operation, const Step& step) const {
  const std::uint32_t peer = core_.local(step.peer);
  const auto is_there = [&] { return flags_.has_published(peer, operation.sequence, step.tag); };
  const auto comes_within = [&](int looks) {
    for (; looks > 0 && !is_there(); --looks) host::pause();
    return looks > 0;
  };
  const auto comes_while_others_run = [&](host::Yields& yields) {
    for (int left = kMostYields; left > 0 && yields.are_useful(); --left) {
      host::yield(yields);
      if (is_there()) return true;
    }
    return false;
  };
  if (!comes_within(kFewLooks)) {
    host::Yields& yields = host::yields_of_this_thread();
    const bool is_crowded = core_.shares_cores || yields.is_core_shared();
    if (is_crowded ? !comes_while_others_run(yields) : !comes_within(kLooks)) return false;
  }
  return flags_.of(peer, operation.sequence).signature == operation.call.signature &&
         (!plan::tells_length(step) || told_by_peer(operation, step) == step.from.size_bytes);
}

std::uint64_t FlagExchange::told_by_peer(const Operation& operation, const Step& wait) const {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, flags_.data_of(core_.local(wait.peer), operation.sequence) + wait.from.offset_bytes,
              kToldLengthBytes);
  return bytes;
}

std::string FlagExchange::differing_lengths(const Operation& operation, int peer) const {
  if (!operation.plan().by_flags) return "";
  for (const Step& step : operation.plan().steps) {
    if (step.kind != StepKind::wait || step.peer != peer || !plan::tells_length(step)) continue;
    if (!has_published(operation, step) ||
        flags_.of(core_.local(peer), operation.sequence).signature != operation.call.signature)
      continue;
    const std::uint64_t told_bytes = told_by_peer(operation, step);
    if (told_bytes != step.from.size_bytes) return core_.other_length(peer, told_bytes, step.from.size_bytes);
  }
  return "";
}

ConstBytes FlagExchange::of_peer(const Operation& operation, const Step& step) const {
  return {flags_.data_of(core_.local(step.peer), operation.sequence) + step.from.offset_bytes, step.from.size_bytes};
}

/// A wait step whose flag is published but which is not complete.
StepId FlagExchange::find_published(const Operation& operation) const {
  if (operation.is_running() && !operation.has_failed())
    for (const StepId step : states_[operation].waiting)
      if (has_published(operation, operation.step(step))) return step;
  return CompiledPlan::kNone;
}

bool FlagExchange::receive() {
  for (Operation* const operation : flagged_) {
    const StepId step = find_published(*operation);
    if (step == CompiledPlan::kNone) continue;
    const int peer = operation->step(step).peer;
    std::erase(states_[*operation].waiting, step);
    if (flags_.of(core_.local(peer), operation->sequence).signature != operation->call.signature) {
      core_.fail_mismatch(*operation, peer, Core::kOtherCall);
    } else if (const std::string lengths = differing_lengths(*operation, peer); !lengths.empty()) {
      core_.fail_mismatch(*operation, peer, lengths);
    } else {
      core_.complete(*operation, step);
      core_.drain();
    }
    return true;  // the operation may have left flagged_
  }
  return false;
}

bool FlagExchange::poll_flagged() {
  bool moved = receive();
  for (; !deferred_.empty() && take_flag(*deferred_.front()); moved = true) core_.launch(*deferred_.pop());
  return moved;
}

bool FlagExchange::has_work(Caller) const {
  return std::ranges::any_of(flagged_,
                             [&](const Operation* each) { return find_published(*each) != CompiledPlan::kNone; });
}

void FlagExchange::cancel(Operation& operation) {
  states_[operation].waiting.clear();
  deferred_.remove_if([&](const Operation* each) { return each == &operation; });
}

StepId FlagExchange::find_missing(const Operation& operation, int peer) const {
  // Flags have no order with messages.
  for (const StepId step : states_[operation].waiting)
    if (operation.step(step).peer == peer && !has_published(operation, operation.step(step))) return step;
  return CompiledPlan::kNone;
}

void FlagExchange::waits_for(const Operation& operation, std::vector<int>& peers) const {
  if (!operation.plan().by_flags) return;
  if (!operation.is_running()) return core_.add_last(&RankSlot::past_flags_of, operation, peers);
  for (const StepId step : states_[operation].waiting)
    if (!has_published(operation, operation.step(step))) peers.push_back(operation.step(step).peer);
}

}  // namespace penstock::engine
