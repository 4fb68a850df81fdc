// Control messages between nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/remote/in_flight.hpp"
#include "engine/remote/remote_ranks.hpp"
#include "engine/remote/tag_split.hpp"

namespace penstock::engine {

/// Packets travel beside the messages of steps, under a tag of their own: news of failures, questions of ranks that
/// wait, their answers, and counts. Each is a header and a payload. The engine's lock protects this class.
class Packets {
 public:
  Packets(Core& core, InFlight& in_flight, const RemoteRanks& ranks)
      : core_(core), in_flight_(in_flight), ranks_(ranks) {}

  /// Copies the payload; an owner is not over before the packet has left. A rank that has left gets none.
  void send(int peer, const Header& header, ConstBytes payload = {}, Operation* owner = nullptr);
  void send_list(int peer, std::uint64_t sequence, ListKind kind, const std::vector<SentMessage>& messages);
  /// A packet of a list has come. Returns the list if this is the last one.
  std::optional<std::vector<SentMessage>> collect(const Header& header, ConstBytes payload);

  bool has_unsent() const { return !outbox_.empty(); }
  /// Posts what send() has queued.
  void flush();
  /// Receives the next packet, if one has come. False if none has, or one is being received.
  bool take();
  void has_sent(InFlight::Entry& done) {
    if (done.operation != nullptr) core_.release(*done.operation);
    if (spare_.size() < kMostSpare) spare_.push_back(std::move(done.memory));
  }
  /// A packet has come. Calls `function` with its header and payload.
  template <typename Function>
  void has_taken(InFlight::Entry& done, bool too_long, Function function) {
    is_taking_ = false;
    Header header;
    std::memcpy(&header, done.memory.get(), sizeof header);
    // Another one is what a communicator before this one left.
    if (!too_long && header.communicator == core_.node.communicator)
      function(header, ConstBytes(done.memory.get() + sizeof header, header.payload_bytes));
    spare_.push_back(std::move(done.memory));
  }

 private:
  static constexpr std::uint64_t kPacketBytes = 2048;  ///< every MPI sends as much without a rendezvous handshake
  static constexpr std::uint64_t kPayloadBytes = kPacketBytes - sizeof(Header);
  static_assert(kPayloadBytes >= kNoticeBytes);
  static constexpr std::size_t kMostSpare = 64;
  struct Packet {
    std::unique_ptr<std::byte[]> memory;
    std::uint64_t bytes = 0;
    int peer = 0;
    Operation* owner = nullptr;
  };

  std::unique_ptr<std::byte[]> memory();

  Core& core_;
  InFlight& in_flight_;
  const RemoteRanks& ranks_;
  Fifo<Packet> outbox_;
  std::vector<std::unique_ptr<std::byte[]>> spare_;
  bool is_taking_ = false;                         ///< a packet is being received
  std::map<int, std::vector<SentMessage>> lists_;  ///< in part, by source
};

}  // namespace penstock::engine
