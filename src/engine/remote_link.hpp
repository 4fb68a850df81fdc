// Messages between nodes: packets and long messages over the transport.
//
// Packets (header and payload) travel under tag 0. A ring of receives for kAnyRank is always posted for them. So no
// packet waits behind a rank that is not ready to receive, and the ring's memory does not grow with the number of
// ranks.
//
// A long message travels in Fragments from the sender's memory to the receiver's, under a tag of its own. The receiver
// takes a free tag, posts the receives and then sends the tag in its cts. So a tag never has two long messages in
// flight to one receiver. Messages match by (sequence, source, tag of the step) in their headers, not by the order in
// which steps become ready.
//
// Nothing hangs after a failure: every cts is answered, by an empty message if the sender has failed, and every receive
// whose tag was sent in a cts stays posted until its message arrives, in other memory (Sink) if the receiver has
// failed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/fragments.hpp"
#include "engine/message.hpp"
#include "engine/operation.hpp"
#include "engine/pools.hpp"
#include "engine/transport.hpp"

namespace penstock::engine {

/// Callbacks of RemoteLink, implemented by its owner (RemoteMessages). RemoteLink::progress() calls them.
class RemoteEvents {
 public:
  virtual void on_packet(const Header& header, ConstBytes payload) = 0;
  /// The transport has sent the long message: its memory may change.
  virtual void on_data_sent(std::uint32_t sender_transfer) = 0;
  /// The long message has arrived. `bytes` is smaller than expected if the sender has failed.
  virtual void on_data_received(std::uint32_t receiver_transfer, std::uint64_t bytes) = 0;
  /// A transport call of `owner` is over. The callee decrements owner->in_flight.
  virtual void on_released(Operation* owner) = 0;

 protected:
  ~RemoteEvents() = default;
};

/// Sends and receives the packets and long messages of one communicator. RemoteMessages owns it; `transport` and
/// `events` must outlive it. It owns the memory of packets; the memory of long messages is the operations'. It counts
/// its transport calls in Operation::in_flight, so an operation outlives them. The engine's lock protects all calls.
/// Only progress() and close() call the transport; the other members queue.
class RemoteLink {
 public:
  /// `communicator`: see Node. Drops packets of other communicators.
  RemoteLink(Transport& transport, RemoteEvents& events, std::uint64_t payload_bytes, std::uint16_t communicator);

  std::uint64_t payload_bytes() const { return payload_bytes_; }

  /// Copies the packet. `owner` may be nullptr; otherwise the packet counts in owner->in_flight.
  void send(int peer, const Header& header, ConstBytes payload, Operation* owner);
  /// Answers a cts. `data` must stay valid until on_data_sent(). If the transfer has failed, `owner` is nullptr and
  /// `data` empty.
  void send_data(Operation* owner, std::uint32_t sender_transfer, ConstBytes data, int peer, int tag);
  /// Answers an rts: posts the receives and sends the cts. `to` must stay valid until on_data_received().
  void receive_data(Operation* owner, std::uint32_t receiver_transfer, Bytes to, const Header& rts);
  /// The operation has failed. Its packets lose their owner, its unposted sends become empty answers, and the next
  /// progress() withdraws its posted receives. Posted sends complete: their receivers still take them.
  void abandon(Operation* owner);

  /// Calls the transport and the events. True if something moved.
  bool progress();
  /// Whether packets, sends, receives or sinks are left. A sink counts: its sender's operation is not over before the
  /// data is received.
  bool busy() const {
    return !outbox_.empty() || !packets_.empty() || !sends_.empty() || !receives_.empty() || !sinks_.empty();
  }
  /// Whether long messages are in flight and recent ones took longer than kSlowNs: then a waiting thread has time to
  /// sleep.
  bool is_slow() const { return long_in_flight_ > 0 && service_ns_ > kSlowNs; }
  /// The last call. Waits up to a second until the link is not busy, then withdraws the posted receives. Leaks the
  /// memory of packets in flight, because the transport may still read it. False if the link is still busy: the
  /// transport must not be used again, because a late message could match another user's receive.
  bool close();

 private:
  /// A packet to send, or a posted receive of the ring.
  struct Packet {
    std::unique_ptr<std::byte[]> bytes;
    std::uint64_t size = 0;
    int peer = 0;
    Transport::Handle handle = 0;
    Operation* owner = nullptr;
  };
  /// A long message whose cts has arrived.
  struct Sending {
    Operation* owner = nullptr;
    std::uint32_t transfer = 0;
    ConstBytes data;
    int peer = 0;
    int tag = 0;
    bool posted = false;
    std::uint64_t posted_ns = 0;
    Fragments fragments{};
  };
  /// A long message whose rts has arrived.
  struct Receiving {
    Operation* owner = nullptr;
    std::uint32_t transfer = 0;
    Bytes to;
    Header rts;
    int tag = 0;  ///< 0: not posted yet
    bool abandoned = false;
    std::uint64_t posted_ns = 0;
    Fragments fragments{};
  };
  static constexpr std::uint64_t kSlowNs = 300'000;  ///< several times the length of a nap
  /// Receives the rest of a long message whose receiver failed after it sent the cts.
  struct Sink {
    std::unique_ptr<std::byte[]> bytes;
    int peer = 0;
    int tag = 0;
    Fragments fragments{};
  };

  bool flush();
  bool receive_packets();
  bool complete_packets();
  bool advance_sends();
  bool advance_receives();
  void withdraw(Receiving& receiving);
  void drain_sinks();
  static bool is_long(std::uint64_t bytes) { return bytes >= 64 << 10; }
  void time_long(std::uint64_t posted_ns);

  Transport& transport_;
  RemoteEvents& events_;
  const std::uint64_t payload_bytes_;
  const std::uint16_t communicator_;
  std::vector<Packet> ring_;  ///< posted receives, oldest first from ring_next_
  std::size_t ring_next_ = 0;
  bool ring_posted_ = false;
  Fifo<Packet> outbox_;
  std::vector<Packet> packets_;  ///< in flight
  std::vector<std::unique_ptr<std::byte[]>> spare_;
  std::vector<std::size_t> posted_;  ///< by peer: how many of sends_ the transport has
  std::vector<Sending> sends_;       ///< in the order of their cts
  std::vector<Receiving> receives_;
  std::vector<Sink> sinks_;
  std::vector<std::uint16_t> free_tags_;
  int next_tag_ = 1;
  std::size_t long_in_flight_ = 0;
  std::uint64_t last_done_ns_ = 0;
  std::uint64_t service_ns_ = 0;  ///< moving average of the time that the link takes for a long message
};

}  // namespace penstock::engine
