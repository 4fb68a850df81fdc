// The send and recv steps whose peer is on another node.
#pragma once

#include <chrono>
#include <vector>

#include "engine/remote/epochs.hpp"
#include "engine/remote/in_flight.hpp"
#include "engine/remote/packets.hpp"
#include "engine/remote/remote_checks.hpp"
#include "engine/remote/remote_plans.hpp"
#include "engine/remote/remote_ranks.hpp"
#include "engine/remote/settlements.hpp"
#include "engine/remote/short_exchange.hpp"
#include "engine/remote/step_messages.hpp"

namespace penstock::engine {

/// Polls the transport, and gives what has come to the part that it belongs to. Each part owns its state, and uses only
/// parts that are declared before it. docs/design/network.md has their invariants.
class RemoteMessages final : public Mechanism {
 public:
  explicit RemoteMessages(Core& core);

  /// A send or recv whose peer is on another node.
  void post(Operation& operation, StepId step) { steps_.post(operation, step); }
  /// A packet, see Packets.
  void send(int peer, const Header& header, ConstBytes payload, Operation* owner) {
    packets_.send(peer, header, payload, owner);
  }
  bool receive();
  /// If the operation was completed here, tells the other nodes what this rank has sent for it, once, and takes what
  /// they have sent besides.
  void has_failed_elsewhere(std::uint64_t sequence) { settlements_.has_failed_elsewhere(sequence); }
  /// After each change of what is over here, if the transport may be called.
  void close_epochs() { epochs_.close(); }
  /// The fast path of an operation that no mechanism knows yet: ShortExchange::run(), if nothing is in flight and
  /// nothing unusual is known.
  bool may_run_short() const {
    return !core_.transport_broken && !is_busy() && !core_.detector.knows_of_any() && !steps_.are_refused();
  }
  ShortExchange& short_exchange() { return short_exchange_; }
  /// It has not completed the operation: holds it for what is posted.
  void hold_posted(Operation& operation) { operation.in_flight = static_cast<std::uint32_t>(in_flight_.size()); }
  /// Then, after Core::launch_rest(): finishes what the transport has reported meanwhile, and looks for packets.
  void go_on();
  /// It has completed it.
  void end_short(Operation& operation) { steps_.end(operation); }
  bool has_epochs_to_close() const { return epochs_.has_to_close(); }
  /// What the failure detector asks at each check.
  RemoteChecks& checks() { return checks_; }
  /// After the last use. False if something is still in flight: another user of the transport must not meet it.
  bool close();
  /// While some are in flight, the driving threads may leave the transport alone, or must not.
  const LongMessages& long_messages() const { return steps_.long_messages(); }
  bool expects_messages() const { return steps_.is_any_running() || is_busy(); }

  bool poll() override;
  bool needs_polling(Caller caller) const override {
    return !core_.transport_broken && expects_messages() &&
           (caller == Caller::application || core_.transport->any_thread());
  }
  /// After a death, ranks of other nodes may have begun what this rank never calls. They learn here how it ends, and
  /// what they have sent for it is received.
  bool is_idle() const override { return core_.transport_broken || (!is_busy() && !core_.detector.knows_of_any()); }
  void begin(Operation& operation) override { steps_.begin(operation); }
  void end(Operation& operation) override;
  void cancel(Operation& operation) override {
    if (!core_.transport_broken) steps_.cancel(operation);
  }
  void waits_for(const Operation& operation, std::vector<int>& peers) const override {
    steps_.waits_for(operation, peers);
  }
  bool has_heard(const Operation& operation, int peer) const override { return steps_.has_heard(operation, peer); }

 private:
  bool is_busy() const {
    return !in_flight_.empty() || packets_.has_unsent() || steps_.is_busy() || !settlements_.empty();
  }
  bool is_its_turn();
  bool progress(bool look_for_packets);
  void finish_all();
  void finish(const Transport::Completion& completion);
  void on_packet(const Header& header, ConstBytes payload);
  void on_list(const Header& header, ConstBytes payload);
  void on_left(int peer);
  void ask_for_failed();
  void drop_gone();

  Core& core_;
  const RemotePlans plans_;
  RemoteRanks ranks_;
  InFlight in_flight_;
  Packets packets_;
  Epochs epochs_;
  Settlements settlements_;
  StepMessages steps_;
  ShortExchange short_exchange_;
  RemoteChecks checks_;
  std::vector<Transport::Completion> complete_;
  std::uint32_t polls_ = 0;
  std::chrono::steady_clock::time_point looked_;  ///< while nothing was expected
  std::chrono::steady_clock::time_point asked_;   ///< last question after ranks that hold up failed operations
};

}  // namespace penstock::engine
