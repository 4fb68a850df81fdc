#include "engine/cell_messages.hpp"

#include "kernels/copy.hpp"

namespace penstock::engine {

void CellMessages::post(Operation& operation, StepId step) {
  const Step& what = operation.step(step);
  const ConstBytes data = operation.source(what.from);
  Header header = core_.header_for(operation, MessageKind::eager, what.tag);
  header.message = {.bytes = data.size(), .address = 0, .transfer = 0};
  if (data.size() <= core_.node.eager_bytes && data.size() <= cells_.most_payload_bytes(data.size())) {
    const std::uint32_t peer = core_.local(what.peer);
    if (core_.detector.is_gone(peer) || (backlog_[peer].empty() && fill_cell(peer, header, data, can_wait(header))))
      return core_.complete(operation, step);
    return add_to_backlog(peer, {header, data, nullptr, &operation, step});
  }
  header.kind = MessageKind::rts;
  header.message.address = reinterpret_cast<std::uint64_t>(data.data());
  header.message.transfer = sends_.add({.operation = &operation, .step = step, .data = data});
  send(what.peer, header, {}, &operation);
}

void CellMessages::send(int peer, const Header& header, ConstBytes payload, Operation* owner) {
  const std::uint32_t local_rank = core_.local(peer);
  if (core_.detector.is_gone(local_rank) ||
      (backlog_[local_rank].empty() && fill_cell(local_rank, header, payload, can_wait(header))))
    return;
  std::byte* const copy = core_.buffers.take(payload.size());
  kernels::copy_bytes(copy, payload.data(), payload.size());
  // The operation must not finish before the message has left: its caller may leave the library, and nothing would send
  // it.
  if (owner != nullptr) core_.hold(*owner);
  add_to_backlog(local_rank, {header, {copy, payload.size()}, copy, owner});
}

/// Whether the oldest operation can be completed without the message. A rank that has completed that operation may not
/// receive for long, and whatever it gets keeps its cell. If there are more such ranks than cells, those that still
/// wait in the operation would get nothing. All that they need of it finds the reserve, since they receive. A notice is
/// not needed: see FailuresForAll.
bool CellMessages::can_wait(const Header& header) const {
  return header.sequence > core_.operations.base() || header.kind == MessageKind::probe ||
         header.kind == MessageKind::completed || header.kind == MessageKind::promised ||
         header.kind == MessageKind::notice;
}

bool CellMessages::all_can_wait(const Fifo<Outgoing>& backlog) const {
  for (std::size_t i = 0; i < backlog.size(); ++i)
    if (!can_wait(backlog[i].header)) return false;
  return true;
}

bool CellMessages::fill_cell(std::uint32_t local_rank, const Header& header, ConstBytes payload, bool leaves_reserve) {
  Cell* const cell = cells_.take(local_rank, payload.size(), leaves_reserve);
  if (cell == nullptr) return false;
  cell->header = header;
  cell->header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  kernels::copy_bytes(cell->payload(), payload.data(), payload.size());
  cells_.send();
  return true;
}

void CellMessages::add_to_backlog(std::uint32_t local_rank, const Outgoing& message) {
  backlog_[local_rank].push(message);
  ++backlog_count_;
}

void CellMessages::has_left(const Outgoing& message) {
  --backlog_count_;
  core_.buffers.give_back(message.copy, message.payload.size());
  if (message.operation == nullptr) return;
  if (message.step != CompiledPlan::kNone)
    core_.complete(*message.operation, message.step);
  else
    core_.release(*message.operation);
}

bool CellMessages::send_waiting() {
  bool moved = false;
  for (std::uint32_t peer = 0; peer < backlog_.size() && backlog_count_ > 0; ++peer) {
    Fifo<Outgoing>& backlog = backlog_[peer];
    const bool is_gone = core_.detector.is_gone(peer);
    while (!backlog.empty() &&
           (is_gone || fill_cell(peer, backlog.front().header, backlog.front().payload, all_can_wait(backlog)))) {
      has_left(backlog.pop());
      moved = true;
    }
  }
  for (std::size_t i = streams_.size(); i-- > 0;) {
    const std::uint32_t id = streams_[i];
    Send& transfer = *sends_.find(id);
    moved |= stream(transfer);
    if (transfer.sent_bytes < transfer.data.size()) continue;
    streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(i));
    end_transfer(sends_, id);
  }
  core_.drain();
  return moved;
}

bool CellMessages::stream(Send& transfer) {
  const std::uint32_t peer = core_.local(peer_of(*transfer.operation, transfer.step));
  Header header = core_.header_for(*transfer.operation, MessageKind::data);
  bool moved = false;
  while (transfer.sent_bytes < transfer.data.size() && backlog_[peer].empty()) {
    header.transfer = {.sender = 0, .receiver = transfer.receiver_transfer, .offset_bytes = transfer.sent_bytes};
    const ConstBytes rest = transfer.data.subspan(transfer.sent_bytes);
    const ConstBytes piece = rest.first(cells_.most_payload_bytes(rest.size()));
    if (!fill_cell(peer, header, piece, can_wait(header))) break;
    transfer.sent_bytes += piece.size();
    moved = true;
  }
  return moved;
}

bool CellMessages::receive() {
  constexpr int kAtOnce = 64;  // per call, so that other work gets its turn
  int received = 0;
  for (; received < kAtOnce; ++received) {
    Cell* const cell = cells_.receive();
    if (cell == nullptr) break;
    try {
      take(cell->header, {cell->payload(), cell->header.payload_bytes});
    } catch (...) {
      // The operations in flight fail. One that this rank has not begun needs its message.
      cells_.put_back();
      throw;
    }
    core_.drain();
  }
  return received > 0;
}

void CellMessages::take(const Header header, ConstBytes payload) {
  switch (header.kind) {
    case MessageKind::cts: return on_cts(header);
    case MessageKind::data: return on_data(header, payload);
    case MessageKind::fin: return on_fin(header);
    default: core_.arrive(header, payload);
  }
}

void CellMessages::receive_pieces(Operation& operation, StepId step, const Header& rts) {
  Header cts = core_.header_for(operation, MessageKind::cts);
  cts.transfer = {.sender = rts.message.transfer,
                  .receiver = receives_.add(
                      {.operation = &operation, .step = step, .to = operation.target(operation.step(step).to)}),
                  .offset_bytes = 0};
  send(peer_of(operation, step), cts, {}, nullptr);
}

void CellMessages::on_cts(const Header& header) {
  Send* const transfer = sends_.find(header.transfer.sender);
  if (transfer == nullptr || transfer->operation->sequence != header.sequence || transfer->streaming) return;
  transfer->streaming = true;
  transfer->receiver_transfer = header.transfer.receiver;
  streams_.push_back(header.transfer.sender);
}

void CellMessages::on_data(const Header& header, ConstBytes payload) {
  // A sender that streams may sleep because it has no free cell. Without a fence this can miss it, but its sleeps are
  // short.
  core_.slot(core_.local(static_cast<int>(header.source))).bell.ring();
  Receive* const transfer = receives_.find(header.transfer.receiver);
  if (transfer == nullptr || transfer->operation->sequence != header.sequence) return;
  kernels::copy_bytes(transfer->to.data() + header.transfer.offset_bytes, payload.data(), payload.size());
  transfer->received_bytes += payload.size();
  if (transfer->received_bytes == transfer->to.size()) end_transfer(receives_, header.transfer.receiver);
}

void CellMessages::on_fin(const Header& header) {
  const Send* const transfer = sends_.find(header.transfer.sender);
  if (transfer != nullptr && transfer->operation->sequence == header.sequence)
    end_transfer(sends_, header.transfer.sender);
}

template <typename Transfer>
void CellMessages::end_transfer(SlotTable<Transfer>& table, std::uint32_t id) {
  Operation& operation = *table.find(id)->operation;
  const StepId step = table.find(id)->step;
  table.remove(id);
  core_.complete(operation, step);
}

void CellMessages::cancel(Operation& operation) {
  const auto is_its = [&](const auto& entry) { return entry.operation == &operation; };
  for (Fifo<Outgoing>& backlog : backlog_)
    backlog.remove_if([&](Outgoing& message) {
      if (!is_its(message)) return false;
      if (message.step != CompiledPlan::kNone) {
        --backlog_count_;
        return true;
      }
      message.operation = nullptr;
      --operation.in_flight;
      return false;
    });
  std::erase_if(streams_, [&](std::uint32_t id) { return is_its(*sends_.find(id)); });
  sends_.remove_if(is_its);
  receives_.remove_if(is_its);
}

void CellMessages::waits_for(const Operation& operation, std::vector<int>& peers) const {
  const auto add = [&](const auto& transfer) {
    if (transfer.operation == &operation) peers.push_back(peer_of(operation, transfer.step));
  };
  sends_.for_each(add);
  receives_.for_each(add);
  for (std::size_t i = 0; i < backlog_.size(); ++i)
    for (std::size_t k = 0; k < backlog_[i].size(); ++k)
      if (backlog_[i][k].operation == &operation) peers.push_back(core_.node.ranks[i]);
}

std::uint64_t CellMessages::moved_bytes(const Operation& operation) const {
  std::uint64_t bytes = 0;
  sends_.for_each([&](const Send& each) { bytes += each.operation == &operation ? each.sent_bytes : 0; });
  receives_.for_each([&](const Receive& each) { bytes += each.operation == &operation ? each.received_bytes : 0; });
  return bytes;
}

}  // namespace penstock::engine
