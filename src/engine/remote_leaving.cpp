// Ranks of other nodes that leave: how they tell it, and what becomes of the messages for them and from them.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "engine/remote_messages.hpp"

namespace penstock::engine {
namespace {

// The failure detector's checks after which what a rank had sent before it left has come.
constexpr std::uint32_t kChecks = 3;
constexpr std::chrono::milliseconds kAskAgain{500};

/// The transport may use the memory until the process ends, so it is never freed. The list is for leak checkers.
void leave_to_transport(std::unique_ptr<std::byte[]> memory) noexcept {
  const std::byte* const bytes = memory.release();
  try {
    static std::mutex mutex;
    static auto* const left = new std::vector<const std::byte*>;
    const std::lock_guard lock(mutex);
    left->push_back(bytes);
  } catch (const std::bad_alloc&) {
    // Then a leak checker reports it.
  }
}

}  // namespace

std::set<int> RemoteMessages::present() const {
  std::set<int> ranks(remote_.begin(), remote_.end());
  for (const int peer : left_) ranks.erase(peer);
  return ranks;
}

void RemoteMessages::on_left(int peer) {
  left_.insert(peer);
  for (auto& [sequence, settlement] : settlements_) settlement.stop_hearing(peer);
  are_fewer_blocked_ = !blocked_.empty();
}

int RemoteMessages::find_left(Operation& operation, const std::vector<int>& peers) {
  const auto found = std::ranges::find_if(peers, [&](int peer) { return has_left(peer); });
  return found != peers.end() && ++states_[operation].checks_since_left >= kChecks ? *found : -1;
}

// A send of a failed operation holds it up until its peer has received the message, or has left. The failure detector
// does not look at failed operations, so a probe asks here.
void RemoteMessages::ask_for_failed() {
  const auto now = std::chrono::steady_clock::now();
  if (now - asked_ < kAskAgain) return;
  asked_ = now;
  in_flight_.for_each_id([&](std::uint32_t, const InFlight& each) {
    if (each.kind != Kind::send || each.operation == nullptr || !each.operation->has_failed()) return;
    send(each.peer, core_.header_for(*each.operation, MessageKind::probe), {}, nullptr);
  });
}

void RemoteMessages::drop_gone() {
  ask_for_failed();
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
  while (!core_.transport_broken && (progress(true) || is_busy()) && std::chrono::steady_clock::now() < deadline) {
    drop_gone();
    std::this_thread::yield();
  }
  in_flight_.for_each_id([](std::uint32_t, InFlight& each) {
    if (each.memory) leave_to_transport(std::move(each.memory));
  });
  if (core_.transport_broken) return true;
  if (is_busy()) return false;
  core_.transport->retire();
  return true;
}

}  // namespace penstock::engine
