// Ranks of other nodes that leave: how they tell it, and what becomes of the messages for them and from them.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "engine/remote/remote_messages.hpp"

namespace penstock::engine {
namespace {

// The failure detector's checks after which what a rank had sent before it left has come.
constexpr std::uint32_t kChecks = 3;
constexpr std::chrono::milliseconds kAskAgain{500};

}  // namespace

void RemoteMessages::on_left(int peer) {
  ranks_.note_left(peer);
  for (auto& [sequence, settlement] : settlements_) settlement.stop_hearing(peer);
  are_fewer_blocked_ = !blocked_.empty();
}

int RemoteMessages::find_left(Operation& operation, const std::vector<int>& peers) {
  const auto found = std::ranges::find_if(peers, [&](int peer) { return ranks_.has_left(peer); });
  return found != peers.end() && ++states_[operation].checks_since_left >= kChecks ? *found : -1;
}

// A send of a failed operation holds it up until its peer has received the message, or has left. The failure detector
// does not look at failed operations, so a probe asks here.
void RemoteMessages::ask_for_failed() {
  const auto now = std::chrono::steady_clock::now();
  if (now - asked_ < kAskAgain) return;
  asked_ = now;
  in_flight_.for_each([&](const InFlight::Entry& each) {
    if (each.kind != Kind::send || each.operation == nullptr || !each.operation->has_failed()) return;
    packets_.send(each.peer, core_.header_for(*each.operation, MessageKind::probe));
  });
}

void RemoteMessages::drop_gone() {
  ask_for_failed();
  const auto has_gone = [&](int peer) { return core_.transport->has_gone(peer); };
  for (const int peer : ranks_.all()) {
    if (!has_gone(peer)) continue;
    for (auto& [sequence, settlement] : settlements_) settlement.give_up(peer);
    std::erase(hearing_, peer);
  }
  std::vector<Operation*> freed;
  in_flight_.withdraw_if([&](const InFlight::Entry& each) {
    return (each.kind == Kind::sink || each.kind == Kind::excess) && has_gone(each.peer);
  });
  in_flight_.for_each([&](InFlight::Entry& each) {
    // The send is left to the transport, which reads nothing for it any more.
    if ((has_gone(each.peer) || ranks_.has_left(each.peer)) && each.kind == Kind::send && each.operation != nullptr &&
        each.operation->has_failed())
      freed.push_back(std::exchange(each.operation, nullptr));
  });
  for (Operation* const operation : freed) core_.release(*operation);
}

bool RemoteMessages::close() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  // Answers packets that have come, also if this rank has nothing left to do.
  while (!core_.transport_broken && (progress(true) || is_busy()) && std::chrono::steady_clock::now() < deadline) {
    drop_gone();
    std::this_thread::yield();
  }
  in_flight_.leave_memory();
  if (core_.transport_broken) return true;
  if (is_busy()) return false;
  core_.transport->retire();
  return true;
}

}  // namespace penstock::engine
