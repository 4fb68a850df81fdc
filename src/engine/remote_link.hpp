// Messages between nodes: packets and long messages over the transport.
//
// Packets (header and payload) go under tag 0 and are received by a ring of receives for kAnyRank that is always
// posted, so they cannot get stuck behind a rank that does not want them, and need memory independent of the number
// of ranks. Long messages travel from the sender's memory to the receiver's, in Fragments, under a tag of their own,
// which the receiver chooses among its free ones and tells in its cts after it has posted the receives. So a tag never
// has two long messages in flight to one receiver, and the order in which steps become ready does not matter for
// matching: it is (sequence, source, tag of the step) of the headers that decides. Every cts is answered, if need be by
// an empty message, and every receive that was announced stays matched by something: nothing is left hanging after a
// failure.
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

/// What the engine does about things that come from other nodes. Called inside RemoteLink::progress().
class RemoteEvents {
 public:
  virtual void on_packet(const Header& header, ConstBytes payload) = 0;
  virtual void on_data_sent(std::uint32_t sender_transfer) = 0;
  virtual void on_data_received(std::uint32_t receiver_transfer, std::uint64_t bytes) = 0;
  /// One of the calls counted in owner->in_flight is over.
  virtual void on_released(Operation* owner) = 0;

 protected:
  ~RemoteEvents() = default;
};

/// Under the engine's lock. Only progress() and close() call the transport; the others queue.
class RemoteLink {
 public:
  /// `communicator`: see Node. Packets of others are dropped.
  RemoteLink(Transport& transport, RemoteEvents& events, std::uint64_t payload_bytes, std::uint16_t communicator);

  std::uint64_t payload_bytes() const { return payload_bytes_; }

  /// Copies the packet. `owner` may be nullptr; otherwise the packet counts in owner->in_flight.
  void send(int peer, const Header& header, ConstBytes payload, Operation* owner);
  /// Answers a cts. Without an owner: the transfer has been given up, an empty message tells so.
  void send_data(Operation* owner, std::uint32_t sender_transfer, ConstBytes data, int peer, int tag);
  /// Answers an rts: posts a receive and sends the cts.
  void receive_data(Operation* owner, std::uint32_t receiver_transfer, Bytes to, const Header& rts);
  /// The operation has failed: its receives are withdrawn by the next progress(), its packets forgotten.
  void abandon(Operation* owner);

  /// True when something moved.
  bool progress();
  /// Whether something is in flight that must not be forgotten: also what a peer that was invited to send still owes,
  /// whose own operation is not over before it is taken.
  bool busy() const {
    return !outbox_.empty() || !packets_.empty() || !sends_.empty() || !receives_.empty() || !sinks_.empty();
  }
  /// Whether long messages are on their way, and the last ones took so long that there is time to sleep meanwhile.
  bool is_slow() const { return long_in_flight_ > 0 && service_ns_ > kSlowNs; }
  /// Withdraws the posted receives after the last use. Packets still in flight keep their memory for ever. False where
  /// data may still come that was invited: another user of the transport must not meet it.
  bool close();

 private:
  struct Packet {
    std::unique_ptr<std::byte[]> bytes;
    std::uint64_t size = 0;
    int peer = 0;
    Transport::Handle handle = 0;
    Operation* owner = nullptr;
  };
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
  static constexpr std::uint64_t kSlowNs = 300'000;  ///< several times what a nap takes
  /// Takes what a sender had already been invited to send when its receiver failed.
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
  std::vector<Packet> packets_;  ///< on their way
  std::vector<std::unique_ptr<std::byte[]>> spare_;
  std::vector<std::size_t> posted_;  ///< by peer: of sends_
  std::vector<Sending> sends_;       ///< in the order of their invitations
  std::vector<Receiving> receives_;
  std::vector<Sink> sinks_;
  std::vector<std::uint16_t> free_tags_;
  int next_tag_ = 1;
  std::size_t long_in_flight_ = 0;
  std::uint64_t last_done_ns_ = 0;
  std::uint64_t service_ns_ = 0;  ///< of a long message, a moving average
};

}  // namespace penstock::engine
