// The send and recv steps whose peer is on another node.
#pragma once

#include <chrono>
#include <vector>

#include "engine/core.hpp"
#include "engine/remote_link.hpp"

namespace penstock::engine {

/// A message of up to eager_bytes() is eager: it travels whole in one packet. A longer one needs a rendezvous
/// handshake: the sender announces it (rts), the receiver posts its receives and answers (cts), then the transport
/// moves the data. Routes owns this object; it owns the link and the handshakes in progress.
class RemoteMessages final : public Mechanism, private RemoteEvents {
 public:
  explicit RemoteMessages(Core& core);

  /// Runs a send step that is ready.
  void post(Operation& operation, StepId step);
  void send(int peer, const Header& header, ConstBytes payload, Operation* owner) {
    if (!core_.transport_broken) link_.send(peer, header, payload, owner);
  }
  /// Runs a recv step that is ready and whose rts has arrived.
  void receive_long(Operation& operation, StepId step, const Header& rts);
  /// Polls the transport even if no message is expected; poll() does so only now and then.
  bool receive() { return core_.may_call_transport() && link_.progress(); }
  /// As RemoteLink::close().
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
  /// A long message from its rts until the transport has sent it.
  struct Send {
    Operation* operation = nullptr;
    StepId step = 0;
    ConstBytes data{};
    bool ready = true;   ///< false: only announced, its step is not ready yet
    bool ahead = false;  ///< takes a place in the window: counted in State::window_used
    int tag = -1;        ///< of its cts; -1: no cts yet
  };
  /// A long message from its cts until its data has arrived.
  struct Receive {
    Operation* operation = nullptr;
    StepId step = 0;
    std::uint64_t bytes = 0;
  };
  struct State {
    bool leaves_node = false;              ///< counted in leaving_
    std::vector<std::uint32_t> announced;  ///< by step: id in sends_ once the rts is sent, else kNone; may be empty
    StepId announce_from = 0;              ///< earlier steps need no rts any more
    std::uint32_t window_used = 0;         ///< announcements in the window: not ready at their rts, not sent yet
  };

  /// Larger than on a node: between nodes a handshake costs more, so longer messages are cheaper to copy.
  std::uint64_t eager_bytes() const { return 4 * core_.node.eager_bytes; }
  /// Sends the rts of a long message and returns its id in sends_.
  std::uint32_t announce(Operation& operation, StepId step, const Send& transfer);
  /// Sends the rts of messages whose steps are not ready, until the window is full.
  void announce_ahead(Operation& operation);
  /// Whether poll() should call the transport now.
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
  std::size_t leaving_ = 0;                       ///< running operations with messages between nodes
  std::chrono::steady_clock::time_point looked_;  ///< last poll while no message was expected
};

}  // namespace penstock::engine
