#include "engine/remote/packets.hpp"

#include <algorithm>
#include <span>

namespace penstock::engine {

std::unique_ptr<std::byte[]> Packets::memory() {
  if (spare_.empty()) return std::unique_ptr<std::byte[]>(new std::byte[kPacketBytes]);
  std::unique_ptr<std::byte[]> memory = std::move(spare_.back());
  spare_.pop_back();
  return memory;
}

void Packets::send(int peer, const Header& header, ConstBytes payload, Operation* owner) {
  if (core_.transport_broken || ranks_.has_left(peer)) return;
  Packet packet{.memory = memory(), .bytes = sizeof header + payload.size(), .peer = peer, .owner = owner};
  Header of_this = header;
  of_this.communicator = core_.node.communicator;
  std::memcpy(packet.memory.get(), &of_this, sizeof of_this);
  if (!payload.empty()) std::memcpy(packet.memory.get() + sizeof of_this, payload.data(), payload.size());
  if (owner != nullptr) core_.hold(*owner);
  outbox_.push(std::move(packet));
}

void Packets::send_list(int peer, std::uint64_t sequence, ListKind kind, const std::vector<SentMessage>& messages) {
  constexpr std::size_t kMost = kPayloadBytes / sizeof(SentMessage);
  std::size_t begin = 0;
  do {
    const ConstBytes part = std::as_bytes(std::span(messages).subspan(begin, std::min(kMost, messages.size() - begin)));
    Header header = core_.header(sequence, MessageKind::sent);
    header.list = {.kind = kind, .items = messages.size()};
    header.payload_bytes = static_cast<std::uint32_t>(part.size());
    send(peer, header, part);
    begin += kMost;
  } while (begin < messages.size());
}

std::optional<std::vector<SentMessage>> Packets::collect(const Header& header, ConstBytes payload) {
  std::vector<SentMessage>& list = lists_[static_cast<int>(header.source)];
  const std::size_t before = list.size();
  list.resize(before + payload.size() / sizeof(SentMessage));
  if (!payload.empty()) std::memcpy(list.data() + before, payload.data(), payload.size());
  if (list.size() < header.list.items) return std::nullopt;
  return std::exchange(list, {});
}

void Packets::flush() {
  while (!outbox_.empty()) {
    in_flight_.next();  // add() must not lack memory
    Packet packet = outbox_.pop();
    std::byte* const bytes = packet.memory.get();
    const std::uint32_t token = in_flight_.add({.kind = InFlight::Kind::packet_out,
                                                .peer = packet.peer,
                                                .operation = packet.owner,
                                                .memory = std::move(packet.memory)});
    if (core_.transport->isend({bytes, packet.bytes}, packet.peer, TagSplit::kControlTag, token)) {
      InFlight::Entry done = in_flight_.remove(token);
      has_sent(done);
    }
  }
}

bool Packets::take() {
  if (is_taking_) return false;
  std::unique_ptr<std::byte[]> memory = this->memory();
  std::byte* const bytes = memory.get();
  const std::uint32_t token = in_flight_.add({.kind = InFlight::Kind::packet_in, .memory = std::move(memory)});
  is_taking_ = core_.transport->take({bytes, kPacketBytes}, TagSplit::kControlTag, token);
  if (!is_taking_) spare_.push_back(in_flight_.remove(token).memory);
  return is_taking_;
}

}  // namespace penstock::engine
