#include "engine/remote_link.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace penstock::engine {
namespace {

constexpr std::size_t kPostedReceives = 16;
constexpr int kPacketTag = 0;
// Long sends that the transport has at a time for one peer. Some MPIs interleave all sends that they have, so that none
// completes early. A pipeline needs them one after the other; a few keep the link busy.
constexpr std::size_t kMostPosted = 3;

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

template <typename T>
void remove_at(std::vector<T>& list, std::size_t i) {
  if (i + 1 != list.size()) list[i] = std::move(list.back());
  list.pop_back();
}

}  // namespace

RemoteLink::RemoteLink(Transport& transport, RemoteEvents& events, std::uint64_t payload_bytes,
                       std::uint16_t communicator)
    : transport_(transport),
      events_(events),
      payload_bytes_(payload_bytes),
      communicator_(communicator),
      posted_(static_cast<std::size_t>(transport.size())) {}

void RemoteLink::send(int peer, const Header& header, ConstBytes payload, Operation* owner) {
  Packet packet;
  if (spare_.empty()) {
    packet.bytes.reset(new std::byte[sizeof(Header) + payload_bytes_]);
  } else {
    packet.bytes = std::move(spare_.back());
    spare_.pop_back();
  }
  Header stamped = header;
  stamped.communicator = communicator_;
  std::memcpy(packet.bytes.get(), &stamped, sizeof stamped);
  if (!payload.empty()) std::memcpy(packet.bytes.get() + sizeof header, payload.data(), payload.size());
  packet.size = sizeof header + payload.size();
  packet.peer = peer;
  packet.owner = owner;
  outbox_.push(std::move(packet));
  if (owner != nullptr) ++owner->in_flight;
}

void RemoteLink::send_data(Operation* owner, std::uint32_t sender_transfer, ConstBytes data, int peer, int tag) {
  sends_.push_back({.owner = owner, .transfer = sender_transfer, .data = data, .peer = peer, .tag = tag});
  if (owner != nullptr) ++owner->in_flight;
}

void RemoteLink::receive_data(Operation* owner, std::uint32_t receiver_transfer, Bytes to, const Header& rts) {
  receives_.push_back({.owner = owner, .transfer = receiver_transfer, .to = to, .rts = rts});
  ++owner->in_flight;
}

void RemoteLink::abandon(Operation* owner) {
  const auto forget = [&](Packet& packet) {
    if (packet.owner != owner) return;
    packet.owner = nullptr;
    --owner->in_flight;
  };
  for (std::size_t i = 0; i < outbox_.size(); ++i) forget(outbox_[i]);
  for (Packet& packet : packets_) forget(packet);
  for (std::size_t i = receives_.size(); i-- > 0;) {
    if (receives_[i].owner != owner) continue;
    receives_[i].abandoned = true;
    if (receives_[i].tag == 0) {
      --owner->in_flight;
      receives_.erase(receives_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  // A send that is not posted yet becomes an empty answer. The receiver still takes one that is posted.
  for (Sending& sending : sends_)
    if (sending.owner == owner && !sending.posted) {
      sending.owner = nullptr;
      sending.data = {};
      --owner->in_flight;
    }
}

void RemoteLink::time_long(std::uint64_t posted_ns) {
  --long_in_flight_;
  // Messages queue on the link: the time of this one begins when it is posted or when the previous one ends.
  const std::uint64_t now = now_ns();
  service_ns_ = (3 * service_ns_ + (now - std::max(posted_ns, last_done_ns_))) / 4;
  last_done_ns_ = now;
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
  transport_.poll();
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
  // Receives for one tag match in the order of posting, so only the oldest is tested.
  std::size_t received = 0;
  for (; received < 2 * kPostedReceives; ++received) {
    Packet& packet = ring_[ring_next_];
    if (!transport_.test(packet.handle)) break;
    Header header;
    std::memcpy(&header, packet.bytes.get(), sizeof header);
    if (header.communicator == communicator_)
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
  for (std::size_t i = 0; i < sends_.size();) {
    Sending& sending = sends_[i];
    std::size_t& posted = posted_[static_cast<std::size_t>(sending.peer)];
    if (!sending.posted && posted < kMostPosted) {
      sending.fragments.isend(transport_, sending.data, sending.peer, sending.tag);
      sending.posted = moved = true;
      ++posted;
      if (is_long(sending.data.size())) {
        sending.posted_ns = now_ns();
        ++long_in_flight_;
      }
    }
    if (!sending.posted || !sending.fragments.test(transport_)) {
      ++i;
      continue;
    }
    const Sending done = sending;
    --posted;
    if (is_long(done.data.size())) time_long(done.posted_ns);
    sends_.erase(sends_.begin() + static_cast<std::ptrdiff_t>(i));
    moved = true;
    if (done.owner == nullptr) continue;
    events_.on_data_sent(done.transfer);
    events_.on_released(done.owner);
  }
  return moved;
}

bool RemoteLink::advance_receives() {
  bool moved = false;
  // In order: the data that is needed first gets its cts first.
  for (std::size_t i = 0; i < receives_.size(); ++i) {
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
      receiving.fragments.irecv(transport_, receiving.to, peer, receiving.tag);
      if (is_long(receiving.to.size())) {
        receiving.posted_ns = now_ns();
        ++long_in_flight_;
      }
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
      if (is_long(gone.to.size())) --long_in_flight_;
      receives_.erase(receives_.begin() + static_cast<std::ptrdiff_t>(i--));
      events_.on_released(gone.owner);
      moved = true;
      continue;
    }
    const auto bytes = receiving.fragments.test(transport_);
    if (!bytes) continue;
    const Receiving done = receiving;
    if (is_long(done.to.size())) time_long(done.posted_ns);
    free_tags_.push_back(static_cast<std::uint16_t>(done.tag));
    receives_.erase(receives_.begin() + static_cast<std::ptrdiff_t>(i--));
    moved = true;
    events_.on_data_received(done.transfer, *bytes);
    events_.on_released(done.owner);
  }
  return moved;
}

void RemoteLink::withdraw(Receiving& receiving) {
  if (!receiving.fragments.withdraw(transport_)) {
    free_tags_.push_back(static_cast<std::uint16_t>(receiving.tag));
    return;
  }
  Sink sink{.bytes = std::unique_ptr<std::byte[]>(new std::byte[receiving.to.size()]),
            .peer = static_cast<int>(receiving.rts.source),
            .tag = receiving.tag,
            .fragments = receiving.fragments};
  sink.fragments.irecv_rest(transport_, {sink.bytes.get(), receiving.to.size()}, sink.peer, receiving.tag);
  sinks_.push_back(std::move(sink));
}

void RemoteLink::drain_sinks() {
  for (std::size_t i = sinks_.size(); i-- > 0;) {
    if (!sinks_[i].fragments.test(transport_)) {
      if (!transport_.has_gone(sinks_[i].peer)) continue;
      sinks_[i].fragments.withdraw(transport_);
    }
    free_tags_.push_back(static_cast<std::uint16_t>(sinks_[i].tag));
    remove_at(sinks_, i);
  }
}

bool RemoteLink::close() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (busy() && std::chrono::steady_clock::now() < deadline)
    if (!progress()) std::this_thread::yield();
  const bool quiet = !busy();
  for (Sink& sink : sinks_) sink.fragments.withdraw(transport_);
  if (ring_posted_)
    for (Packet& packet : ring_) transport_.cancel(packet.handle);
  // The transport may still read these packets, so their memory is leaked.
  for (Packet& packet : packets_) static_cast<void>(packet.bytes.release());
  return quiet;
}

}  // namespace penstock::engine
