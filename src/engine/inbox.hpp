// Matches messages with steps, for messages of all mechanisms.
#pragma once

#include <memory>
#include <vector>

#include "engine/core.hpp"

namespace penstock::engine {

/// Matches by kind, source and tag. A message that comes before its step is stored; a step that comes first is marked
/// as posted.
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
  /// For a peer that has completed the operation, so that all its messages have come: a step that still waits for this
  /// peer, or kNone.
  StepId find_missing(const Operation& operation, int peer) const;
  /// A step that waits for this peer and gets nothing, since the peer's plan has only so many messages for this rank;
  /// or kNone.
  StepId find_unpromised(const Operation& operation, int peer, std::uint64_t messages) const;

  void begin(Operation& operation) override;
  void cancel(Operation& operation) override;
  void waits_for(const Operation& operation, std::vector<int>& peers) const override;
  bool has_heard(const Operation& operation, int peer) const override;

 private:
  /// A message whose step was not ready.
  struct Stored {
    Header header;
    std::byte* payload = nullptr;  ///< from the engine's pool
    std::uint64_t payload_bytes = 0;
    Stored* next = nullptr;
  };
  enum StepFlag : std::uint8_t { matched = 1, posted = 2 };
  struct State {
    std::vector<std::uint8_t> flags;  ///< StepFlag, by step
    std::vector<Stored*> arrived;     ///< by step: the matched message, if the step was not ready
    Stored* early_first = nullptr;    ///< list of messages that came before the operation began
    Stored* early_last = nullptr;
  };

  void deliver(Operation& operation, StepId step);
  void match(Operation& operation, const Header& header, ConstBytes payload, Stored* stored);
  void promise(const Operation& operation, int peer);
  Stored* store(const Header& header, ConstBytes payload);
  void forget(Stored* message) noexcept;
  template <typename Predicate>
  StepId find(const Operation& operation, Predicate predicate) const;

  Core& core_;
  PerOperation<State> states_;
  std::vector<std::unique_ptr<Stored>> messages_;
  std::vector<Stored*> idle_messages_;
};

}  // namespace penstock::engine
