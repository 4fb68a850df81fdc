#include "engine/remote_messages.hpp"

#include <algorithm>

namespace penstock::engine {
namespace {

constexpr std::chrono::microseconds kUnasked{500};  // between polls while no message is expected

}  // namespace

RemoteMessages::RemoteMessages(Core& core)
    : core_(core),
      link_(*core.transport, static_cast<RemoteEvents&>(*this),
            std::max<std::uint64_t>(4 * core.node.eager_bytes, kNoticeBytes), core.node.communicator) {}

void RemoteMessages::begin(Operation& operation) {
  State& state = states_[operation];
  state.leaves_node = operation.call.compiled->leaves_node();
  if (state.leaves_node) ++leaving_;
  state.announced.clear();
  state.announce_from = 0;
  state.window_used = 0;
  announce_ahead(operation);
}

// Starts handshakes before the steps are ready, so that the data leaves at once when they are. On a busy link an rts
// queues behind the data, and the link idles until the cts returns. A window bounds the early handshakes: each costs a
// transport call, and the first data would wait for hundreds of them.
void RemoteMessages::announce_ahead(Operation& operation) {
  constexpr std::uint32_t kWindow = 32;  // announcements: more than a link carries during one handshake
  State& state = states_[operation];
  const std::vector<Step>& steps = operation.plan().steps;
  for (StepId& step = state.announce_from; step < steps.size() && state.window_used < kWindow; ++step) {
    const Step& what = steps[step];
    if (what.kind != StepKind::send || what.from.size_bytes <= eager_bytes() || core_.is_near(what.peer)) continue;
    if (state.announced.empty()) state.announced.assign(steps.size(), CompiledPlan::kNone);
    if (state.announced[step] != CompiledPlan::kNone) continue;  // its step was ready earlier
    state.announced[step] = announce(operation, step, {.ready = false, .ahead = true});
    ++state.window_used;
  }
}

std::uint32_t RemoteMessages::announce(Operation& operation, StepId step, const Send& transfer) {
  const Step& what = operation.step(step);
  Send added = transfer;
  added.operation = &operation;
  added.step = step;
  added.data = operation.source(what.from);
  Header header = core_.header_for(operation, MessageKind::rts, what.tag);
  header.bytes = added.data.size();
  header.sender_transfer = sends_.add(added);
  send(what.peer, header, {}, &operation);
  return header.sender_transfer;
}

void RemoteMessages::post(Operation& operation, StepId step) {
  const Step& what = operation.step(step);
  State& state = states_[operation];
  if (!state.announced.empty() && state.announced[step] != CompiledPlan::kNone) {
    const std::uint32_t id = state.announced[step];
    Send& transfer = *sends_.find(id);
    transfer.ready = true;
    if (transfer.tag >= 0) link_.send_data(&operation, id, transfer.data, what.peer, transfer.tag);
    return;
  }
  // A send to an ended process reports no error, and no rank receives it.
  if (core_.transport->has_gone(what.peer)) throw FailureDetector::has_gone(what.peer, core_.describe(operation));
  const ConstBytes data = operation.source(what.from);
  if (data.size() > eager_bytes()) {
    const std::uint32_t id = announce(operation, step, {});
    if (!state.announced.empty()) state.announced[step] = id;
    return;
  }
  Header header = core_.header_for(operation, MessageKind::eager, what.tag);
  header.bytes = data.size();
  header.payload_bytes = static_cast<std::uint32_t>(data.size());
  send(what.peer, header, data, &operation);
  core_.complete(operation, step);
}

void RemoteMessages::receive_long(Operation& operation, StepId step, const Header& rts) {
  const Bytes to = operation.target(operation.step(step).to);
  const std::uint32_t id = receives_.add({.operation = &operation, .step = step, .bytes = to.size()});
  link_.receive_data(&operation, id, to, rts);
}

bool RemoteMessages::poll() {
  if (!core_.may_call_transport() || !is_its_turn()) return false;
  const bool moved = link_.progress();
  core_.drain();
  return moved;
}

// Most transports poll by a system call, which takes time from ranks on the same core that expect messages. If this
// rank expects none, only notices of failures and early messages can arrive; they can wait for kUnasked.
bool RemoteMessages::is_its_turn() {
  if (expects_messages()) return true;
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < kUnasked) return false;
  looked_ = now;
  return true;
}

void RemoteMessages::on_cts(const Header& header) {
  Send* transfer = sends_.find(header.sender_transfer);
  const int peer = static_cast<int>(header.source);
  const int tag = static_cast<int>(header.address);
  if (transfer == nullptr || transfer->operation->sequence != header.sequence)
    link_.send_data(nullptr, 0, {}, peer, tag);
  else if (transfer->ready)
    link_.send_data(transfer->operation, header.sender_transfer, transfer->data, peer, tag);
  else
    transfer->tag = tag;
}

void RemoteMessages::on_data_sent(std::uint32_t sender_transfer) {
  const Send* const found = sends_.find(sender_transfer);
  if (found == nullptr) return;
  const Send transfer = *found;
  if (transfer.ahead) {
    --states_[*transfer.operation].window_used;
    announce_ahead(*transfer.operation);
  }
  sends_.remove(sender_transfer);
  core_.complete(*transfer.operation, transfer.step);
}

void RemoteMessages::on_data_received(std::uint32_t receiver_transfer, std::uint64_t bytes) {
  const Receive* const found = receives_.find(receiver_transfer);
  // Shorter: the sender's operation has failed, and its notice is on the way.
  if (found == nullptr || bytes != found->bytes) return;
  const Receive transfer = *found;
  receives_.remove(receiver_transfer);
  core_.complete(*transfer.operation, transfer.step);
}

void RemoteMessages::cancel(Operation& operation) {
  const auto is_its = [&](const auto& transfer) { return transfer.operation == &operation; };
  sends_.remove_if([&](const Send& transfer) {
    if (!is_its(transfer)) return false;
    // Its receiver has sent the cts and waits for an answer.
    if (!transfer.ready && transfer.tag >= 0)
      link_.send_data(nullptr, 0, {}, operation.step(transfer.step).peer, transfer.tag);
    return true;
  });
  receives_.remove_if(is_its);
  link_.abandon(&operation);
}

void RemoteMessages::waits_for(const Operation& operation, std::vector<int>& peers) const {
  const auto add = [&](const auto& transfer) {
    if (transfer.operation == &operation) peers.push_back(operation.step(transfer.step).peer);
  };
  sends_.for_each(add);
  receives_.for_each(add);
}

}  // namespace penstock::engine
