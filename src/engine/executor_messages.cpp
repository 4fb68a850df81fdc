#include <algorithm>
#include <utility>

#include "engine/executor.hpp"
#include "penstock/trace.hpp"
#include "plan/copy.hpp"
#include "plan/order.hpp"

namespace penstock::engine {
namespace {

StepKind taker_of(MessageKind kind) {
  switch (kind) {
    case MessageKind::expose: return StepKind::await;
    case MessageKind::loan: return StepKind::borrow;
    default: return StepKind::recv;
  }
}

}  // namespace

Header Executor::header_for(const Operation& operation, MessageKind kind, std::uint32_t tag) const {
  Header header;
  header.sequence = operation.sequence;
  header.signature = operation.signature;
  header.source = static_cast<std::uint32_t>(rank_);
  header.tag = tag;
  header.kind = kind;
  return header;
}

// On a busy link a question travels behind the data that is queued there, and while it does nothing else follows. So
// long messages to other nodes are announced before they are ready, and are sent at once when they are. Not all when
// the operation begins: each costs a call of the transport, and the first data would wait for hundreds of them.
void Executor::announce_sends(Operation& operation) {
  constexpr std::uint32_t kMostAhead = 32;  // more than a link carries while a question waits there
  const std::vector<Step>& steps = operation.plan->steps;
  for (StepId& step = operation.announce_from; step < steps.size() && operation.announced_ahead < kMostAhead; ++step) {
    const Step& what = steps[step];
    if (what.kind != StepKind::send || what.from.size_bytes <= remote_eager_bytes() || is_local(what.peer)) continue;
    if (operation.announced.empty()) operation.announced.assign(steps.size(), CompiledPlan::kNone);
    if (operation.announced[step] != CompiledPlan::kNone) continue;  // it was ready earlier
    Header header = header_for(operation, MessageKind::rts, what.tag);
    header.bytes = what.from.size_bytes;
    header.sender_transfer = operation.announced[step] = sends_.add({.operation = &operation,
                                                                     .step = step,
                                                                     .data = source(operation, what.from),
                                                                     .peer = what.peer,
                                                                     .ready = false,
                                                                     .ahead = true});
    send_control(what.peer, header, &operation);
    ++operation.announced_ahead;
  }
}

void Executor::post_send(Operation& operation, StepId step) {
  const Step& what = operation.plan->steps[step];
  if (!operation.announced.empty() && operation.announced[step] != CompiledPlan::kNone) {
    const std::uint32_t id = operation.announced[step];
    SendTransfer& transfer = *sends_.find(id);
    transfer.ready = true;
    if (transfer.tag >= 0) remote_->send_data(&operation, id, transfer.data, transfer.peer, transfer.tag);
    return;
  }
  const ConstBytes data = source(operation, what.from);
  Header header = header_for(operation, MessageKind::eager, what.tag);
  header.bytes = data.size();
  if (what.peer == rank_) {
    arrive(header, data);
    if (!operation.failed) complete(operation, step);
    return;
  }
  const bool near = is_local(what.peer);
  const std::uint64_t eager_limit =
      near ? std::min(node_.eager_bytes, node_.segment->layout().payload_bytes) : remote_eager_bytes();
  const bool lends = what.kind == StepKind::lend;
  if (data.size() <= eager_limit && !lends) {
    header.payload_bytes = static_cast<std::uint32_t>(data.size());
    if (near) {
      send_local(what.peer, {header, data, nullptr, &operation, step});
    } else {
      remote_->send(what.peer, header, data, &operation);
      complete(operation, step);
    }
    return;
  }
  header.kind = lends ? MessageKind::loan : MessageKind::rts;
  header.address = reinterpret_cast<std::uint64_t>(data.data());
  header.sender_transfer = sends_.add({.operation = &operation, .step = step, .data = data, .peer = what.peer});
  if (!operation.announced.empty()) operation.announced[step] = header.sender_transfer;
  send_control(what.peer, header, &operation);
}

void Executor::send_control(int peer, const Header& header, Operation* owner) {
  if (is_local(peer))
    send_local(peer, {header, {}, nullptr, nullptr, 0, owner});
  else
    remote_->send(peer, header, {}, owner);
}

void Executor::send_local(int peer, Outgoing message) {
  if (gone_[local(peer)]) {
    if (message.owned != nullptr) buffers_.give_back(message.owned, message.payload.size());
    if (message.operation != nullptr) complete(*message.operation, message.step);
    return;
  }
  Fifo<Outgoing>& backlog = backlog_[local(peer)];
  Cell* cell = backlog.empty() ? cells_->take(local(peer)) : nullptr;
  if (cell == nullptr) {
    // The caller may leave the library once its operation is over, and then nobody sends what still waits.
    if (message.owner != nullptr) ++message.owner->remote_pending;
    backlog.push(std::move(message));
    ++backlog_count_;
    return;
  }
  cell->header = message.header;
  plan::copy_bytes(cell->payload(), message.payload.data(), message.payload.size());
  cells_->send();
  if (message.owned != nullptr) buffers_.give_back(message.owned, message.payload.size());
  if (message.operation != nullptr) complete(*message.operation, message.step);
}

bool Executor::pump() {
  bool moved = false;
  for (std::size_t peer = 0; peer < backlog_.size() && backlog_count_ > 0; ++peer) {
    Fifo<Outgoing>& backlog = backlog_[peer];
    while (!backlog.empty()) {
      Cell* cell = cells_->take(static_cast<std::uint32_t>(peer));
      if (cell == nullptr) break;
      const Outgoing message = backlog.pop();
      --backlog_count_;
      cell->header = message.header;
      plan::copy_bytes(cell->payload(), message.payload.data(), message.payload.size());
      cells_->send();
      if (message.owned != nullptr) buffers_.give_back(message.owned, message.payload.size());
      if (message.operation != nullptr) complete(*message.operation, message.step);
      if (message.owner != nullptr) on_released(message.owner);
      moved = true;
    }
  }
  for (std::size_t i = streams_.size(); i-- > 0;) {
    const std::uint32_t id = streams_[i];
    SendTransfer& transfer = *sends_.find(id);
    const std::uint32_t peer = local(transfer.peer);
    while (transfer.sent_bytes < transfer.data.size()) {
      if (!backlog_[peer].empty()) break;
      Cell* cell = cells_->take(peer);
      if (cell == nullptr) break;
      const ConstBytes piece = transfer.data.subspan(
          transfer.sent_bytes,
          std::min<std::uint64_t>(node_.segment->layout().payload_bytes, transfer.data.size() - transfer.sent_bytes));
      Header header = header_for(*transfer.operation, MessageKind::data);
      header.receiver_transfer = transfer.receiver_transfer;
      header.address = transfer.sent_bytes;
      header.payload_bytes = static_cast<std::uint32_t>(piece.size());
      cell->header = header;
      plan::copy_bytes(cell->payload(), piece.data(), piece.size());
      cells_->send();
      transfer.sent_bytes += piece.size();
      moved = true;
    }
    if (transfer.sent_bytes < transfer.data.size()) continue;
    Operation& operation = *transfer.operation;
    const StepId step = transfer.step;
    sends_.remove(id);
    streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(i));
    complete(operation, step);
  }
  drain_ready();
  return moved;
}

bool Executor::poll_cells() {
  constexpr int kAtOnce = 64;  // then other work gets its turn
  int received = 0;
  for (; received < kAtOnce; ++received) {
    Cell* cell = cells_->receive();
    if (cell == nullptr) break;
    const Header header = cell->header;
    arrive(header, {cell->payload(), header.payload_bytes});
    // A sender that streams may sleep for want of cells. Without a fence this can miss it; its naps are short.
    if (header.kind == MessageKind::data) node_.segment->slot(local(static_cast<int>(header.source))).bell.ring();
    drain_ready();
  }
  return received > 0;
}

void Executor::arrive(const Header& header, ConstBytes payload) {
  switch (header.kind) {
    case MessageKind::cts: return on_cts(header);
    case MessageKind::data: return on_data(header, payload);
    case MessageKind::fin: return on_fin(header);
    case MessageKind::notice: return on_notice(header, payload);
    case MessageKind::completed: return on_completed(header);
    default: break;
  }
  if (header.sequence < base_sequence_) return late(header);
  Operation& target = operation(header.sequence);
  if (target.finished.load(std::memory_order_relaxed)) return late(header);
  if (target.failed) return;
  if (target.running) return match(target, header, payload, nullptr);
  StoredMessage* message = store(header, payload);
  (target.early_first == nullptr ? target.early_first : target.early_last->next) = message;
  target.early_last = message;
}

void Executor::match(Operation& operation, const Header& header, ConstBytes payload, StoredMessage* stored) {
  StepId step = CompiledPlan::kNone;
  if (header.signature != operation.signature) {
    fail_mismatch(operation, header, "they called different operations, or with different arguments");
  } else if (header.kind != MessageKind::probe) {
    step = operation.compiled->receiver(taker_of(header.kind), static_cast<int>(header.source), header.tag);
    while (step != CompiledPlan::kNone && (operation.flags[step] & Operation::matched))
      step = operation.compiled->next_receiver(step);
    if (step == CompiledPlan::kNone)
      fail_mismatch(operation, header,
                    "the plan of rank " + std::to_string(rank_) + " has no step for a message of " +
                        std::to_string(header.bytes) + " bytes under tag " + std::to_string(header.tag));
  }
  if (step == CompiledPlan::kNone) {
    if (stored != nullptr) forget(stored);
    return;
  }
  operation.flags[step] |= Operation::matched;
  if (!(operation.flags[step] & Operation::posted)) {
    operation.arrived[step] = stored != nullptr ? stored : store(header, payload);
    return;
  }
  deliver(operation, step, header, payload);
  if (stored != nullptr) forget(stored);
}

void Executor::deliver(Operation& operation, StepId step, const Header& header, ConstBytes payload) {
  const Step& what = operation.plan->steps[step];
  if (header.kind == MessageKind::expose) {
    if (what.peer != rank_ && !operation.peer_shared_offset.empty()) {
      // The same for all that this peer exposes. Once it is known, steps on other threads read it without the lock.
      std::uint64_t& offset = operation.peer_shared_offset[local(what.peer)];
      if (offset != header.address) offset = header.address;
    }
    return complete(operation, step);
  }
  const std::uint64_t expected_bytes = plan::taken_bytes(what);
  if (header.bytes != expected_bytes)
    return fail_mismatch(operation, header,
                         "rank " + std::to_string(what.peer) + " sent " + std::to_string(header.bytes) +
                             " bytes where rank " + std::to_string(rank_) + " expected " +
                             std::to_string(expected_bytes) + " bytes");
  if (header.kind == MessageKind::rts || header.kind == MessageKind::loan) return receive_long(operation, step, header);
  const trace::Span span("recv", "progress", payload.size());
  plan::copy_bytes(target(operation, what.to).data(), payload.data(), payload.size());
  complete(operation, step);
}

void Executor::receive_long(Operation& operation, StepId step, const Header& rts) {
  const Step& what = operation.plan->steps[step];
  const bool near = is_local(what.peer);
  if (near && node_.single_copy) {
    tasks_[index_of(what.lane)].push({&operation, step, true, rts});
    return;
  }
  const Bytes to = target(operation, what.to);
  const std::uint32_t id = receives_.add({.operation = &operation, .step = step, .to = to, .peer = what.peer});
  if (!near) return remote_->receive_data(&operation, id, to, rts);
  Header cts = header_for(operation, MessageKind::cts);
  cts.sender_transfer = rts.sender_transfer;
  cts.receiver_transfer = id;
  send_control(what.peer, cts, nullptr);
}

void Executor::on_cts(const Header& header) {
  SendTransfer* transfer = sends_.find(header.sender_transfer);
  const int peer = static_cast<int>(header.source);
  if (transfer != nullptr && transfer->operation->sequence != header.sequence) transfer = nullptr;
  if (!is_local(peer)) {
    const int tag = static_cast<int>(header.address);
    if (transfer == nullptr)
      remote_->send_data(nullptr, 0, {}, peer, tag);
    else if (transfer->ready)
      remote_->send_data(transfer->operation, header.sender_transfer, transfer->data, peer, tag);
    else
      transfer->tag = tag;
    return;
  }
  if (transfer == nullptr || transfer->streaming) return;
  transfer->streaming = true;
  transfer->receiver_transfer = header.receiver_transfer;
  streams_.push_back(header.sender_transfer);
}

void Executor::on_data(const Header& header, ConstBytes payload) {
  ReceiveTransfer* transfer = receives_.find(header.receiver_transfer);
  if (transfer == nullptr || transfer->operation->sequence != header.sequence) return;
  plan::copy_bytes(transfer->to.data() + header.address, payload.data(), payload.size());
  transfer->received_bytes += payload.size();
  if (transfer->received_bytes < transfer->to.size()) return;
  Operation& operation = *transfer->operation;
  const StepId step = transfer->step;
  receives_.remove(header.receiver_transfer);
  complete(operation, step);
}

void Executor::on_fin(const Header& header) {
  const SendTransfer* transfer = sends_.find(header.sender_transfer);
  if (transfer == nullptr || transfer->operation->sequence != header.sequence) return;
  Operation& operation = *transfer->operation;
  const StepId step = transfer->step;
  sends_.remove(header.sender_transfer);
  complete(operation, step);
}

void Executor::on_data_sent(std::uint32_t sender_transfer) {
  const SendTransfer* transfer = sends_.find(sender_transfer);
  if (transfer == nullptr) return;
  Operation& operation = *transfer->operation;
  const StepId step = transfer->step;
  if (transfer->ahead) {
    --operation.announced_ahead;
    announce_sends(operation);
  }
  sends_.remove(sender_transfer);
  complete(operation, step);
}

void Executor::on_data_received(std::uint32_t receiver_transfer, std::uint64_t bytes) {
  const ReceiveTransfer* transfer = receives_.find(receiver_transfer);
  // Shorter: the sender's operation has failed, and its notice is on the way.
  if (transfer == nullptr || bytes != transfer->to.size()) return;
  Operation& operation = *transfer->operation;
  const StepId step = transfer->step;
  receives_.remove(receiver_transfer);
  complete(operation, step);
}

void Executor::on_released(Operation* owner) {
  --owner->remote_pending;
  finish_if_over(*owner);
}

StoredMessage* Executor::store(const Header& header, ConstBytes payload) {
  if (idle_messages_.empty()) {
    stored_messages_.push_back(std::make_unique<StoredMessage>());
    idle_messages_.push_back(stored_messages_.back().get());
  }
  StoredMessage* message = idle_messages_.back();
  idle_messages_.pop_back();
  message->header = header;
  message->next = nullptr;
  message->payload = buffers_.take(payload.size());
  message->payload_bytes = payload.size();
  plan::copy_bytes(message->payload, payload.data(), payload.size());
  return message;
}

void Executor::forget(StoredMessage* message) {
  buffers_.give_back(message->payload, message->payload_bytes);
  message->payload = nullptr;
  idle_messages_.push_back(message);
}

}  // namespace penstock::engine
