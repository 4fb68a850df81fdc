#include "engine/remote/remote_messages.hpp"

#include <algorithm>
#include <exception>
#include <span>
#include <thread>

namespace penstock::engine {
namespace {

constexpr std::chrono::microseconds kUnasked{500};  // between polls while no message is expected
constexpr std::uint32_t kLook = 64;                 // polls between looks for packets while only messages are expected
constexpr std::chrono::milliseconds kAskAgain{500};

}  // namespace

RemoteMessages::RemoteMessages(Core& core)
    : core_(core),
      plans_(core),
      ranks_(core),
      in_flight_(core),
      packets_(core, in_flight_, ranks_),
      epochs_(core, plans_, packets_, in_flight_),
      settlements_(core, ranks_, plans_, packets_, epochs_, in_flight_),
      steps_(core, ranks_, plans_, in_flight_, epochs_, settlements_),
      short_exchange_(core, in_flight_, steps_),
      checks_(core, ranks_, plans_, packets_, epochs_) {
  Header left = core.header(0, MessageKind::left);
  left.communicator = core.node.communicator;
  core.transport->set_farewell(std::as_bytes(std::span(&left, 1)), TagSplit::kControlTag);
}

void RemoteMessages::end(Operation& operation) {
  steps_.end(operation);
  // It may have failed elsewhere meanwhile.
  if (!operation.has_failed() && settlements_.contains(operation.sequence))
    settlements_.has_failed_elsewhere(operation.sequence);
}

bool RemoteMessages::poll() {
  if (!core_.may_call_transport() || !is_its_turn()) return false;
  const bool moved = progress(!expects_messages());
  core_.drain();
  return moved;
}

bool RemoteMessages::receive() {
  if (!core_.may_call_transport()) return false;
  drop_gone();
  return progress(true);
}

// Most transports poll by a system call, which takes time from ranks on the same core that expect messages. If this
// rank expects none, only notices of failures and probes can arrive; they can wait for kUnasked.
bool RemoteMessages::is_its_turn() {
  if (expects_messages()) return true;
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < kUnasked) return false;
  looked_ = now;
  return true;
}

bool RemoteMessages::progress(bool look_for_packets) {
  complete_.clear();
  steps_.before_poll();
  core_.transport->poll(complete_);
  steps_.after_poll();
  bool moved = !complete_.empty();
  finish_all();
  if (steps_.is_busy()) moved |= steps_.end_failed();
  epochs_.close();
  if (epochs_.has_heard()) moved |= epochs_.clear(settlements_.first());
  if (!settlements_.empty()) moved |= settlements_.settle();
  if (epochs_.take_news()) steps_.retry_blocked();
  if (steps_.is_busy()) moved |= steps_.post_waiting();
  if (packets_.has_unsent()) {
    packets_.flush();
    moved = true;
  }
  const bool waits_for_packets = !settlements_.empty() || steps_.is_any_blocked();
  if (look_for_packets || waits_for_packets || ++polls_ % kLook == 0) moved |= packets_.take();
  steps_.after_round(moved);
  return moved;
}

void RemoteMessages::go_on() {
  if (short_exchange_.has_poll_thrown()) std::rethrow_exception(short_exchange_.thrown());
  complete_.assign(short_exchange_.left_over().begin(), short_exchange_.left_over().end());
  finish_all();
  core_.drain();
  progress(true);
  core_.drain();
}

// Nobody finds what is complete again, so each is finished, also after one that throws.
void RemoteMessages::finish_all() {
  std::exception_ptr thrown;
  for (const Transport::Completion& completion : complete_) {
    try {
      finish(completion);
    } catch (...) {
      thrown = std::current_exception();
    }
  }
  if (thrown) std::rethrow_exception(thrown);
}

void RemoteMessages::finish(const Transport::Completion& completion) {
  InFlight::Entry done = in_flight_.remove(completion.token);
  switch (done.kind) {
    case InFlight::Kind::send: return steps_.finish_send(done, completion.bytes);
    case InFlight::Kind::receive: return steps_.finish_receive(done, completion);
    case InFlight::Kind::sink:
      epochs_.note_received(done.peer, done.sequence);
      return settlements_.has_sunk(done.sequence);
    case InFlight::Kind::excess: return epochs_.has_received_excess(done.peer, done.sequence);
    case InFlight::Kind::packet_out: return packets_.has_sent(done);
    case InFlight::Kind::packet_in:
      return packets_.has_taken(done, completion.too_long,
                                [&](const Header& header, ConstBytes payload) { on_packet(header, payload); });
  }
}

void RemoteMessages::on_packet(const Header& header, ConstBytes payload) {
  const int peer = static_cast<int>(header.source);
  switch (header.kind) {
    case MessageKind::sent: return on_list(header, payload);
    case MessageKind::counts: return epochs_.hear(header);
    case MessageKind::left: return on_left(peer);
    case MessageKind::recount: return epochs_.on_recount(peer, plans_.tags.epoch(header.sequence));
    case MessageKind::probe:
      if (checks_.answer_probe(header)) return;
      [[fallthrough]];
    default: core_.arrive(header, payload);
  }
}

void RemoteMessages::on_list(const Header& header, ConstBytes payload) {
  std::optional<std::vector<SentMessage>> list = packets_.collect(header, payload);
  if (!list) return;
  const int peer = static_cast<int>(header.source);
  const ListKind kind = header.list.kind;
  if (kind == ListKind::sent) return settlements_.hear(header.sequence, peer, std::move(*list));
  if (kind == ListKind::recounted) return epochs_.on_recounted(peer, plans_.tags.epoch(header.sequence), *list);
  if (kind == ListKind::forgotten) settlements_.on_forgotten(header.sequence, peer);
  Operation* const running = core_.operations.find_running(header.sequence);
  if (running == nullptr) return;
  if (kind != ListKind::forgotten) return checks_.compare(*running, peer, kind, *list);
  std::vector<int> peers;
  steps_.waits_for(*running, peers);
  if (std::ranges::find(peers, peer) != peers.end()) checks_.on_forgotten(*running, peer);
}

void RemoteMessages::on_left(int peer) {
  ranks_.note_left(peer);
  settlements_.stop_hearing(peer);
  steps_.retry_blocked();
}

// A send of a failed operation holds it up until its peer has received the message, or has left. The failure detector
// does not look at failed operations, so a probe asks here.
void RemoteMessages::ask_for_failed() {
  const auto now = std::chrono::steady_clock::now();
  if (now - asked_ < kAskAgain) return;
  asked_ = now;
  in_flight_.for_each([&](const InFlight::Entry& each) {
    if (each.kind != InFlight::Kind::send || each.operation == nullptr || !each.operation->has_failed()) return;
    packets_.send(each.peer, core_.header_for(*each.operation, MessageKind::probe));
  });
}

void RemoteMessages::drop_gone() {
  ask_for_failed();
  const auto has_gone = [&](int peer) { return core_.transport->has_gone(peer); };
  for (const int peer : ranks_.all()) {
    if (!has_gone(peer)) continue;
    settlements_.give_up(peer);
    epochs_.stop_hearing(peer);
  }
  in_flight_.withdraw_if([&](const InFlight::Entry& each) {
    return (each.kind == InFlight::Kind::sink || each.kind == InFlight::Kind::excess) && has_gone(each.peer);
  });
  steps_.leave_failed_sends();
}

bool RemoteMessages::close() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  // Answers packets that have come, also if this rank has nothing left to do.
  while (!core_.transport_broken && (progress(true) || is_busy()) && std::chrono::steady_clock::now() < deadline) {
    settlements_.end_those_not_begun();
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
