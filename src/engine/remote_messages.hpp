// Messages to and from ranks of other nodes.
#pragma once

#include <chrono>
#include <vector>

#include "engine/core.hpp"
#include "engine/remote_link.hpp"

namespace penstock::engine {

/// Short messages go whole, in packets. Long ones are announced (rts), invited (cts) and then sent by the transport.
class RemoteMessages final : public Mechanism, private RemoteEvents {
 public:
  explicit RemoteMessages(Core& core);

  void post(Operation& operation, StepId step);
  void send(int peer, const Header& header, ConstBytes payload, Operation* owner) {
    if (!core_.transport_broken) link_.send(peer, header, payload, owner);
  }
  void receive_long(Operation& operation, StepId step, const Header& rts);
  bool receive() { return core_.may_call_transport() && link_.progress(); }
  bool close() { return core_.transport_broken || link_.close(); }
  bool is_slow() const { return link_.is_slow(); }
  bool expects_messages() const { return leaving_ > 0 || link_.busy(); }

  bool poll() override;
  bool needs_polling(Caller caller) const override {
    return !core_.transport_broken && expects_messages() &&
           (caller == Caller::application || core_.transport->any_thread());
  }
  bool is_idle() const override { return core_.transport_broken || !link_.busy(); }
  void begin(Operation& operation) override;
  void end(Operation& operation) override {
    if (std::exchange(states_[operation].leaves_node, false)) --leaving_;
  }
  void cancel(Operation& operation) override;
  void waits_for(const Operation& operation, std::vector<int>& peers) const override;

 private:
  struct Send {
    Operation* operation = nullptr;
    StepId step = 0;
    ConstBytes data{};
    bool ready = true;   ///< false: announced before its step was ready
    bool ahead = false;  ///< counted in State::announced_ahead
    int tag = -1;        ///< under which the receiver waits for it, once known
  };
  struct Receive {
    Operation* operation = nullptr;
    StepId step = 0;
    std::uint64_t bytes = 0;
  };
  struct State {
    bool leaves_node = false;              ///< counted in leaving_
    std::vector<std::uint32_t> announced;  ///< by step: the number of a transfer that the receiver knows of; or empty
    StepId announce_from = 0;              ///< sends before it are announced, or need not be
    std::uint32_t announced_ahead = 0;     ///< of `announced`, before they were ready, and not sent yet
  };

  /// Between nodes asking first costs more than copying longer messages does.
  std::uint64_t eager_bytes() const { return 4 * core_.node.eager_bytes; }
  std::uint32_t announce(Operation& operation, StepId step, const Send& transfer);
  void announce_ahead(Operation& operation);
  bool is_its_turn();
  void on_cts(const Header& header);
  void on_packet(const Header& header, ConstBytes payload) override {
    header.kind == MessageKind::cts ? on_cts(header) : core_.arrive(header, payload);
  }
  void on_data_sent(std::uint32_t sender_transfer) override;
  void on_data_received(std::uint32_t receiver_transfer, std::uint64_t bytes) override;
  void on_released(Operation* owner) override { core_.release(*owner); }

  Core& core_;
  RemoteLink link_;
  SlotTable<Send> sends_;
  SlotTable<Receive> receives_;
  PerOperation<State> states_;
  std::size_t leaving_ = 0;  ///< operations that run, with messages from or for ranks of other nodes
  std::chrono::steady_clock::time_point looked_;  ///< while nothing was expected
};

}  // namespace penstock::engine
