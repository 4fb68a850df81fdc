#include "engine/inbox.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/copy.hpp"
#include "plan/order.hpp"

namespace penstock::engine {
namespace {

std::uint64_t bytes_of(const Header& header) { return header.kind == MessageKind::signal ? 0 : header.message.bytes; }

}  // namespace

void Inbox::begin(Operation& operation) {
  State& state = states_[operation];
  const std::size_t steps = operation.call.compiled->takes_from_node() ? operation.plan().steps.size() : 0;
  state.flags.assign(steps, 0);
  state.arrived.assign(steps, nullptr);
  Stored* message = std::exchange(state.early_first, nullptr);
  while (message != nullptr) {
    Stored* const next = std::exchange(message->next, nullptr);
    if (operation.has_failed())
      forget(message);
    else
      match(operation, message->header, {message->payload, message->payload_bytes}, message);
    message = next;
  }
}

void Inbox::deliver(Operation& operation, StepId step) {
  Stored* const message = std::exchange(states_[operation].arrived[step], nullptr);
  core_.deliver(operation, step, message->header, {message->payload, message->payload_bytes});
  forget(message);
}

void Inbox::arrive(const Header& header, ConstBytes payload) {
  if (core_.operations.is_over(header.sequence)) return core_.notices.on_late(header);
  Operation& target = core_.operations.at(header.sequence);
  if (target.has_failed()) return;
  if (target.is_running()) return match(target, header, payload, nullptr);
  State& state = states_[target];
  Stored* const message = store(header, payload);
  (state.early_first == nullptr ? state.early_first : state.early_last->next) = message;
  state.early_last = message;
}

void Inbox::match(Operation& operation, const Header& header, ConstBytes payload, Stored* stored) {
  State& state = states_[operation];
  const int source = static_cast<int>(header.source);
  StepId step = CompiledPlan::kNone;
  if (header.signature != operation.call.signature) {
    core_.fail_mismatch(operation, source, Core::kOtherCall);
  } else if (header.kind == MessageKind::probe) {
    promise(operation, source);
  } else {
    const CompiledPlan& compiled = *operation.call.compiled;
    step = compiled.receiver(header.kind == MessageKind::signal, source, header.tag);
    while (step != CompiledPlan::kNone && (state.flags[step] & matched)) step = compiled.next_receiver(step);
    if (step == CompiledPlan::kNone)
      core_.fail_mismatch(operation, source,
                          "the plan of rank " + std::to_string(core_.rank) + " has no step for a message of " +
                              std::to_string(bytes_of(header)) + " bytes under tag " + std::to_string(header.tag));
  }
  if (step != CompiledPlan::kNone) {
    state.flags[step] |= matched;
    if (!(state.flags[step] & posted)) {
      state.arrived[step] = stored != nullptr ? stored : store(header, payload);
      return;
    }
    core_.deliver(operation, step, header, payload);
  }
  if (stored != nullptr) forget(stored);
}

// The asker may wait for a message that this rank's plan does not have, while this rank waits for it.
void Inbox::promise(const Operation& operation, int peer) {
  if (operation.plan().by_flags) return;
  Header answer = core_.header_for(operation, MessageKind::promised);
  answer.count = {
      .messages = static_cast<std::uint64_t>(std::ranges::count_if(
          operation.plan().steps, [&](const Step& step) { return plan::produces(step) && step.peer == peer; }))};
  core_.send(peer, answer, {}, nullptr);
}

StepId Inbox::find_unpromised(const Operation& operation, int peer, std::uint64_t messages) const {
  std::uint64_t expected = 0;
  return find(operation, [&](const Step& step, std::uint8_t) { return step.peer == peer && expected++ == messages; });
}

void Inbox::cancel(Operation& operation) {
  State& state = states_[operation];
  for (Stored* const message : std::exchange(state.arrived, {}))
    if (message != nullptr) forget(message);
  for (Stored* message = std::exchange(state.early_first, nullptr); message != nullptr;)
    forget(std::exchange(message, message->next));
}

template <typename Predicate>
StepId Inbox::find(const Operation& operation, Predicate predicate) const {
  if (!operation.is_running()) return CompiledPlan::kNone;
  const State& state = states_[operation];
  for (StepId step = 0; step < state.flags.size(); ++step)
    if (plan::consumes(operation.step(step)) && predicate(operation.step(step), state.flags[step])) return step;
  return CompiledPlan::kNone;
}

StepId Inbox::find_missing(const Operation& operation, int peer) const {
  return find(operation, [&](const Step& step, std::uint8_t flags) { return step.peer == peer && !(flags & matched); });
}

void Inbox::waits_for(const Operation& operation, std::vector<int>& peers) const {
  find(operation, [&](const Step& step, std::uint8_t flags) {
    if ((flags & (posted | matched)) == posted) peers.push_back(step.peer);
    return false;
  });
}

bool Inbox::has_heard(const Operation& operation, int peer) const {
  return find(operation, [&](const Step& step, std::uint8_t flags) {
           return step.peer == peer && (flags & matched);
         }) != CompiledPlan::kNone;
}

Inbox::Stored* Inbox::store(const Header& header, ConstBytes payload) {
  if (idle_messages_.empty()) {
    idle_messages_.reserve(std::bit_ceil(messages_.size() + 1));  // forget() must not lack memory
    messages_.push_back(std::make_unique<Stored>());
    idle_messages_.push_back(messages_.back().get());
  }
  std::byte* const copy = core_.buffers.take(payload.size());
  Stored* const message = idle_messages_.back();
  idle_messages_.pop_back();
  *message = {header, copy, payload.size(), nullptr};
  kernels::copy_bytes(message->payload, payload.data(), payload.size());
  return message;
}

void Inbox::forget(Stored* message) noexcept {
  core_.buffers.give_back(std::exchange(message->payload, nullptr), message->payload_bytes);
  idle_messages_.push_back(message);
}

}  // namespace penstock::engine
