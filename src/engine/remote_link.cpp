#include "engine/remote_link.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace penstock::engine {
namespace {

constexpr std::size_t kPostedReceives = 16;
constexpr int kPacketTag = 0;

template <typename T>
void remove_at(std::vector<T>& list, std::size_t i) {
  if (i + 1 != list.size()) list[i] = std::move(list.back());
  list.pop_back();
}

}  // namespace

RemoteLink::RemoteLink(Transport& transport, RemoteEvents& events, std::uint64_t payload_bytes)
    : transport_(transport), events_(events), payload_bytes_(payload_bytes) {}

void RemoteLink::send(int peer, const Header& header, ConstBytes payload, Operation* owner) {
  Packet packet;
  if (spare_.empty()) {
    packet.bytes.reset(new std::byte[sizeof(Header) + payload_bytes_]);
  } else {
    packet.bytes = std::move(spare_.back());
    spare_.pop_back();
  }
  std::memcpy(packet.bytes.get(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(packet.bytes.get() + sizeof header, payload.data(), payload.size());
  packet.size = sizeof header + payload.size();
  packet.peer = peer;
  packet.owner = owner;
  outbox_.push(std::move(packet));
  if (owner != nullptr) ++owner->remote_pending;
}

void RemoteLink::send_data(Operation* owner, std::uint32_t sender_transfer, ConstBytes data, int peer, int tag) {
  sends_.push_back({.owner = owner, .transfer = sender_transfer, .data = data, .peer = peer, .tag = tag});
  if (owner != nullptr) ++owner->remote_pending;
}

void RemoteLink::receive_data(Operation* owner, std::uint32_t receiver_transfer, Bytes to, const Header& rts) {
  receives_.push_back({.owner = owner, .transfer = receiver_transfer, .to = to, .rts = rts});
  ++owner->remote_pending;
}

void RemoteLink::abandon(Operation* owner) {
  const auto forget = [&](Packet& packet) {
    if (packet.owner != owner) return;
    packet.owner = nullptr;
    --owner->remote_pending;
  };
  for (std::size_t i = 0; i < outbox_.size(); ++i) forget(outbox_[i]);
  for (Packet& packet : packets_) forget(packet);
  for (std::size_t i = receives_.size(); i-- > 0;) {
    if (receives_[i].owner != owner) continue;
    receives_[i].abandoned = true;
    if (receives_[i].tag == 0) {
      --owner->remote_pending;
      remove_at(receives_, i);
    }
  }
  // A send that is not posted yet turns into the empty answer; one that is posted will be received.
  for (Sending& sending : sends_)
    if (sending.owner == owner && !sending.posted) {
      sending.owner = nullptr;
      sending.data = {};
      --owner->remote_pending;
    }
}

bool RemoteLink::progress() {
  if (!ring_posted_) {
    ring_.resize(kPostedReceives);
    for (Packet& packet : ring_) {
      packet.size = sizeof(Header) + payload_bytes_;
      packet.bytes.reset(new std::byte[packet.size]);
      packet.handle = transport_.irecv({packet.bytes.get(), packet.size}, kAnyRank, kPacketTag);
    }
    ring_posted_ = true;
  }
  bool moved = receive_packets();
  moved |= advance_receives();
  moved |= advance_sends();
  moved |= flush();
  moved |= complete_packets();
  if (!sinks_.empty()) drain_sinks();
  return moved;
}

bool RemoteLink::flush() {
  if (outbox_.empty()) return false;
  while (!outbox_.empty()) {
    Packet packet = outbox_.pop();
    packet.handle = transport_.isend({packet.bytes.get(), packet.size}, packet.peer, kPacketTag);
    packets_.push_back(std::move(packet));
  }
  return true;
}

bool RemoteLink::receive_packets() {
  // Receives for one tag are filled in the order of posting, so it is enough to test the oldest.
  std::size_t received = 0;
  for (; received < 2 * kPostedReceives; ++received) {
    Packet& packet = ring_[ring_next_];
    if (!transport_.test(packet.handle)) break;
    Header header;
    std::memcpy(&header, packet.bytes.get(), sizeof header);
    events_.on_packet(header, {packet.bytes.get() + sizeof header, header.payload_bytes});
    packet.handle = transport_.irecv({packet.bytes.get(), packet.size}, kAnyRank, kPacketTag);
    ring_next_ = (ring_next_ + 1) % ring_.size();
  }
  return received > 0;
}

bool RemoteLink::complete_packets() {
  bool moved = false;
  for (std::size_t i = packets_.size(); i-- > 0;) {
    if (!transport_.test(packets_[i].handle)) continue;
    Operation* owner = packets_[i].owner;
    if (spare_.size() < 64) spare_.push_back(std::move(packets_[i].bytes));
    remove_at(packets_, i);
    moved = true;
    if (owner != nullptr) events_.on_released(owner);
  }
  return moved;
}

bool RemoteLink::advance_sends() {
  bool moved = false;
  for (std::size_t i = sends_.size(); i-- > 0;) {
    Sending& sending = sends_[i];
    if (!sending.posted) {
      sending.handle = transport_.isend(sending.data, sending.peer, sending.tag);
      sending.posted = moved = true;
    }
    if (!transport_.test(sending.handle)) continue;
    const Sending done = sending;
    remove_at(sends_, i);
    moved = true;
    if (done.owner == nullptr) continue;
    events_.on_data_sent(done.transfer);
    events_.on_released(done.owner);
  }
  return moved;
}

bool RemoteLink::advance_receives() {
  bool moved = false;
  for (std::size_t i = receives_.size(); i-- > 0;) {
    if (i >= receives_.size()) continue;  // an event made an operation fail, which removes its receives
    Receiving& receiving = receives_[i];
    if (receiving.tag == 0) {
      if (!free_tags_.empty()) {
        receiving.tag = free_tags_.back();
        free_tags_.pop_back();
      } else if (next_tag_ <= kMaxTransportTag) {
        receiving.tag = next_tag_++;
      } else {
        continue;  // all tags are in flight: later
      }
      const int peer = static_cast<int>(receiving.rts.source);
      receiving.handle = transport_.irecv(receiving.to, peer, receiving.tag);
      Header cts = receiving.rts;
      cts.kind = MessageKind::cts;
      cts.source = static_cast<std::uint32_t>(transport_.rank());
      cts.address = static_cast<std::uint64_t>(receiving.tag);
      cts.receiver_transfer = receiving.transfer;
      cts.payload_bytes = 0;
      send(peer, cts, {}, nullptr);
      moved = true;
      continue;
    }
    if (receiving.abandoned) {
      const Receiving gone = receiving;
      withdraw(receiving);
      remove_at(receives_, i);
      events_.on_released(gone.owner);
      moved = true;
      continue;
    }
    const auto bytes = transport_.test(receiving.handle);
    if (!bytes) continue;
    const Receiving done = receiving;
    free_tags_.push_back(static_cast<std::uint16_t>(done.tag));
    remove_at(receives_, i);
    moved = true;
    events_.on_data_received(done.transfer, *bytes);
    events_.on_released(done.owner);
  }
  return moved;
}

void RemoteLink::withdraw(Receiving& receiving) {
  if (!transport_.cancel(receiving.handle)) {
    free_tags_.push_back(static_cast<std::uint16_t>(receiving.tag));
    return;
  }
  Sink sink;
  sink.bytes.reset(new std::byte[receiving.to.size()]);
  sink.tag = receiving.tag;
  sink.handle =
      transport_.irecv({sink.bytes.get(), receiving.to.size()}, static_cast<int>(receiving.rts.source), receiving.tag);
  sinks_.push_back(std::move(sink));
}

void RemoteLink::drain_sinks() {
  for (std::size_t i = sinks_.size(); i-- > 0;) {
    if (!transport_.test(sinks_[i].handle)) continue;
    free_tags_.push_back(static_cast<std::uint16_t>(sinks_[i].tag));
    remove_at(sinks_, i);
  }
}

void RemoteLink::close() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (busy() && std::chrono::steady_clock::now() < deadline)
    if (!progress()) std::this_thread::yield();
  for (Sink& sink : sinks_) transport_.cancel(sink.handle);
  if (ring_posted_)
    for (Packet& packet : ring_) transport_.cancel(packet.handle);
  // What the transport may still read must not be freed.
  for (Packet& packet : packets_) static_cast<void>(packet.bytes.release());
}

}  // namespace penstock::engine
