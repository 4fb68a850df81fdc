// Ranks of other nodes that leave: how they tell it, and what becomes of the messages for them and from them.
#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/remote_messages.hpp"

namespace penstock::engine {
namespace {

// The failure detector's checks after which what a rank had sent before it left has come. The second number: the rank
// has sent more than has been received, so it is on its way, unless the plans do not fit.
constexpr std::uint32_t kLeastChecks = 3;
constexpr std::uint32_t kMostChecks = 50;

}  // namespace

std::set<int> RemoteMessages::present() const {
  std::set<int> ranks(remote_.begin(), remote_.end());
  for (const auto& [peer, left] : left_) ranks.erase(peer);
  return ranks;
}

void RemoteMessages::leave() {
  if (core_.transport_broken || std::exchange(is_leaving_, true)) return;
  for (const int peer : remote_) {
    const auto with = pairs_.find(peer);
    Header header;
    header.sequence = core_.operations.next();
    header.bytes = with == pairs_.end() ? 0 : with->second.counts.sent();
    header.source = static_cast<std::uint32_t>(core_.rank);
    header.kind = MessageKind::left;
    send(peer, header, {}, nullptr);
    flush();
  }
}

void RemoteMessages::on_left(const Header& header) {
  const int peer = static_cast<int>(header.source);
  left_[peer] = {.sequence = header.sequence, .sent = header.bytes};
  for (auto& [sequence, settlement] : settlements_) settlement.stop_hearing(peer);
  are_fewer_blocked_ = !blocked_.empty();
}

int RemoteMessages::find_left(Operation& operation, const std::vector<int>& peers) {
  if (left_.empty()) return -1;
  std::uint32_t& checks = states_[operation].checks_since_left;
  const auto lacks = [&](int peer) {
    if (!has_left(peer)) return false;
    if (is_without(operation, peer)) return true;
    return checks >= (pair(peer).counts.received() < left_.at(peer).sent ? kMostChecks : kLeastChecks);
  };
  if (std::ranges::any_of(peers, [&](int peer) { return has_left(peer); })) ++checks;
  const auto found = std::ranges::find_if(peers, lacks);
  return found == peers.end() ? -1 : *found;
}

void RemoteMessages::drop_gone() {
  const auto has_gone = [&](int peer) { return core_.transport->has_gone(peer); };
  for (const int peer : remote_) {
    if (!has_gone(peer)) continue;
    for (auto& [sequence, settlement] : settlements_) settlement.give_up(peer);
    std::erase(hearing_, peer);
  }
  std::vector<std::uint32_t> sinks;
  std::vector<Operation*> freed;
  in_flight_.for_each_id([&](std::uint32_t token, InFlight& each) {
    const bool is_gone = has_gone(each.peer);
    if (is_gone && (each.kind == Kind::sink || each.kind == Kind::excess)) sinks.push_back(token);
    // The send is left to the transport, which reads nothing for it any more.
    if ((is_gone || has_left(each.peer)) && each.kind == Kind::send && each.operation != nullptr &&
        each.operation->has_failed())
      freed.push_back(std::exchange(each.operation, nullptr));
  });
  for (const std::uint32_t token : sinks) core_.transport->cancel(token);
  for (Operation* const operation : freed) core_.release(*operation);
}

bool RemoteMessages::close() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  // Answers packets that have come, also if this rank has nothing left to do.
  const auto drain = [&] {
    while (!core_.transport_broken && (progress(true) || is_busy()) && std::chrono::steady_clock::now() < deadline) {
      drop_gone();
      std::this_thread::yield();
    }
  };
  drain();
  leave();
  drain();
  // The transport may still use it.
  in_flight_.for_each_id([](std::uint32_t, InFlight& each) { static_cast<void>(each.memory.release()); });
  if (core_.transport_broken) return true;
  if (is_busy()) return false;
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(core_.node.team.size()));
  std::uint64_t received = 0;
  for (const auto& [peer, each] : pairs_) {
    sent[static_cast<std::size_t>(peer)] = each.counts.sent();
    received += each.counts.received();
  }
  core_.transport->retire(std::move(sent), received);
  return true;
}

}  // namespace penstock::engine
