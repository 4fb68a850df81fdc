// The messages of send and recv steps between nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/remote/epochs.hpp"
#include "engine/remote/in_flight.hpp"
#include "engine/remote/long_messages.hpp"
#include "engine/remote/settlements.hpp"

namespace penstock::engine {

/// A step is one send or one receive of the transport, straight from and into the memory of the operation, under a tag
/// that both ranks know from the operation and the plan (TagSplit). It is posted as soon as Epochs and LongMessages let
/// it. A failed operation is not over before its receives are withdrawn. The engine's lock protects this class.
class StepMessages {
 public:
  StepMessages(Core& core, const RemoteRanks& ranks, const RemotePlans& plans, InFlight& in_flight, Epochs& epochs,
               Settlements& settlements)
      : core_(core), ranks_(ranks), plans_(plans), in_flight_(in_flight), epochs_(epochs), settlements_(settlements) {}

  /// Twice for an operation that ShortExchange has begun.
  void begin(Operation& operation);
  void end(Operation& operation) {
    if (std::exchange(states_[operation].leaves_node, false)) --running_;
  }
  void post(Operation& operation, StepId step);
  // For ShortExchange, which does the rest.
  /// Whether post() would post the step at once.
  bool can_post(const Operation& operation, const Step& what) const {
    return epochs_.may_post(what.peer, operation.sequence) &&
           (what.kind == StepKind::recv || !core_.transport->has_gone(what.peer));
  }
  /// Posts the step. The token of its message, for which the operation is not held yet; none if it is complete already.
  std::optional<Transport::Token> post_unheld(Operation& operation, StepId step, LongMessages::Posted posted = {});
  /// The message is complete, as planned.
  void note_done(const Operation& operation, const InFlight::Entry& done) {
    State& state = states_[operation];
    state.status[done.step] = Status::done;
    if (done.kind == InFlight::Kind::send) return;
    --state.receives_posted;
    epochs_.note_received(done.peer, done.sequence);
  }

  void cancel(Operation& operation);
  void waits_for(const Operation& operation, std::vector<int>& peers) const;
  bool has_heard(const Operation& operation, int peer) const;

  /// Whether an operation runs that has messages.
  bool is_any_running() const { return running_ > 0; }
  /// The communicator cannot be used any more.
  bool are_refused() const { return epochs_.unusable().has_value(); }
  /// Whether steps are not posted, or failed operations not withdrawn.
  bool is_busy() const { return !waiting_.empty() || !blocked_.empty() || !ending_.empty(); }
  /// Whether a step waits for a packet, which tells of an epoch.
  bool is_any_blocked() const { return !blocked_.empty(); }
  const LongMessages& long_messages() const { return long_; }

  /// Around each poll of the transport, see LongMessages.
  void before_poll() { long_.before_poll(!waiting_.empty()); }
  void after_poll() { long_.after_poll(); }
  void after_round(bool has_moved) { long_.after_round(has_moved, !waiting_.empty()); }
  void finish_send(const InFlight::Entry& done, std::uint64_t bytes);
  void finish_receive(const InFlight::Entry& done, const Transport::Completion& completion);
  /// Hands failed operations whose receives are gone to Settlements.
  bool end_failed();
  /// Epochs may let more messages through.
  void retry_blocked() {
    while (!blocked_.empty()) waiting_.push(blocked_.pop());
  }
  bool post_waiting();
  /// Leaves sends of failed operations to the transport if their receiver has gone or left: it reads nothing for them
  /// any more.
  void leave_failed_sends();

 private:
  enum class Status : std::uint8_t { none, posted, done };
  struct State {
    bool leaves_node = false;  ///< counted in running_
    bool is_withdrawn = false;
    std::uint32_t receives_posted = 0;
    std::vector<Status> status;  ///< by step
  };
  struct Waiting {
    Operation* operation = nullptr;
    StepId step = 0;
  };

  bool is_blocked(const Operation& operation, const Step& what);
  bool has_room(const Step& what) const {
    return what.kind == StepKind::recv || long_.has_room(what.peer, what.from.size_bytes);
  }
  bool is_left_to_threads(const Step& what) const;
  void post_now(Operation& operation, StepId step);

  Core& core_;
  const RemoteRanks& ranks_;
  const RemotePlans& plans_;
  InFlight& in_flight_;
  Epochs& epochs_;
  Settlements& settlements_;
  LongMessages long_;
  PerOperation<State> states_;
  std::size_t running_ = 0;         ///< operations that run, with messages from or for ranks of other nodes
  Fifo<Waiting> waiting_;           ///< ready steps, for the next poll, or for long sends before them
  Fifo<Waiting> blocked_;           ///< ready steps whose tags may not be used again yet
  std::vector<Operation*> ending_;  ///< failed, with receives to withdraw; held
};

}  // namespace penstock::engine
