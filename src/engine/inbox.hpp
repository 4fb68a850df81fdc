// Which message belongs to which step, whatever it came through.
#pragma once

#include <memory>
#include <vector>

#include "engine/core.hpp"

namespace penstock::engine {

/// Messages and steps that take one meet here, by kind, source and tag; whichever comes first waits.
class Inbox final : public Mechanism {
 public:
  explicit Inbox(Core& core) : core_(core) {}
  ~Inbox() {
    for (const auto& message : messages_) core_.buffers.give_back(message->payload, message->payload_bytes);
  }

  void post(Operation& operation, StepId step) {
    State& state = states_[operation];
    state.flags[step] |= posted;
    if (state.arrived[step] != nullptr) deliver(operation, step);
  }
  void arrive(const Header& header, ConstBytes payload);
  /// The peer has completed the operation: what it sent came before this. A step that still waits for it, or kNone.
  StepId find_missing(const Operation& operation, int peer) const;

  void begin(Operation& operation) override;
  void cancel(Operation& operation) override;
  void waits_for(const Operation& operation, std::vector<int>& peers) const override;
  bool has_heard(const Operation& operation, int peer) const override;

 private:
  /// A message that came before its step was ready.
  struct Stored {
    Header header;
    std::byte* payload = nullptr;  ///< of the engine's pool
    std::uint64_t payload_bytes = 0;
    Stored* next = nullptr;
  };
  enum StepFlag : std::uint8_t { matched = 1, posted = 2 };
  struct State {
    std::vector<std::uint8_t> flags;  ///< StepFlag, by step
    std::vector<Stored*> arrived;     ///< by step: matched before the step was ready
    Stored* early_first = nullptr;    ///< came before the operation began
    Stored* early_last = nullptr;
  };

  void deliver(Operation& operation, StepId step);
  void match(Operation& operation, const Header& header, ConstBytes payload, Stored* stored);
  Stored* store(const Header& header, ConstBytes payload);
  void forget(Stored* message);
  template <typename Predicate>
  StepId find(const Operation& operation, Predicate predicate) const;

  Core& core_;
  PerOperation<State> states_;
  std::vector<std::unique_ptr<Stored>> messages_;
  std::vector<Stored*> idle_messages_;
};

}  // namespace penstock::engine
