#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/executor.hpp"
#include "plan/order.hpp"

namespace penstock::engine {

std::string Executor::describe(const Operation& operation) const {
  std::string text = "operation " + std::to_string(operation.sequence);
  if (operation.plan) text += " (" + operation.plan->algorithm + ")";
  return text;
}

void Executor::fail_next(const std::string& message) noexcept try {
  if (Progress::in_forked_child()) return;
  {
    const std::lock_guard lock(mutex_);
    caller_ = Caller::application;
    Operation& failing = operation(next_sequence_++);
    ++unfinished_;
    failing.started = true;
    fail(failing, Error(ErrorCode::invalid_argument, message, rank_), true);
    finish_if_over(failing);  // also where a peer's failure had come before
    update_active();
  }
  progress(Caller::application);
  if (active.load()) Progress::of_process().attention(*this);
} catch (const std::exception&) {
  // Out of memory while failing: the peers' check finds this rank gone or different.
}

void Executor::fail(Operation& operation, const Error& error, bool announce_it, int partner) {
  if (operation.failed || operation.finished.load(std::memory_order_relaxed)) return;
  operation.failed = true;
  operation.error = error;

  const auto is_its = [&](const auto& entry) { return entry.operation == &operation; };
  ready_.remove_if(is_its);
  for (Fifo<Task>& tasks : tasks_) tasks.remove_if(is_its);
  std::erase_if(held_shares_, is_its);
  operation.open_sets = 0;
  held_.remove_if([&](const Operation* held) { return held == &operation; });
  for (Fifo<Outgoing>& backlog : backlog_) {
    const std::size_t before = backlog.size();
    backlog.remove_if([&](Outgoing& message) {
      if (message.owner == &operation) {
        message.owner = nullptr;
        --operation.remote_pending;
      }
      return is_its(message);
    });
    backlog_count_ -= before - backlog.size();
  }
  std::erase_if(streams_, [&](std::uint32_t id) { return is_its(*sends_.find(id)); });
  sends_.remove_if([&](const SendTransfer& transfer) {
    if (!is_its(transfer)) return false;
    // Its receiver waits for an answer.
    if (!transfer.ready && transfer.tag >= 0) remote_->send_data(nullptr, 0, {}, transfer.peer, transfer.tag);
    return true;
  });
  receives_.remove_if(is_its);
  for (StoredMessage*& message : operation.arrived)
    if (message != nullptr) forget(std::exchange(message, nullptr));
  operation.arrived.clear();
  for (StoredMessage* message = std::exchange(operation.early_first, nullptr); message != nullptr;)
    forget(std::exchange(message, message->next));
  operation.early_last = nullptr;
  if (remote_) remote_->abandon(&operation);

  if (node_.segment != nullptr) {
    RankSlot& slot = node_.segment->slot(node_.segment->local_rank());
    const std::uint32_t count = slot.failure_count.load(std::memory_order_relaxed);
    slot.failed_sequence[count % RankSlot::kFailuresKept].store(operation.sequence, std::memory_order_relaxed);
    slot.failure_count.store(count + 1, std::memory_order_seq_cst);
  }
  try {
    if (announce_it) announce(operation.sequence, *operation.error, partner);
  } catch (const std::bad_alloc&) {
    // The peers find out when they look for this rank's messages.
  }
  finish_if_over(operation);
}

bool Executor::peer_has_failed(int peer, std::uint64_t sequence) const {
  const RankSlot& slot = node_.segment->slot(local(peer));
  const std::uint32_t count = slot.failure_count.load(std::memory_order_seq_cst);
  for (std::uint32_t i = 0; i < std::min<std::uint32_t>(count, RankSlot::kFailuresKept); ++i)
    if (slot.failed_sequence[(count - 1 - i) % RankSlot::kFailuresKept].load(std::memory_order_relaxed) == sequence)
      return true;
  return false;
}

void Executor::fail_mismatch(Operation& operation, const Header& header, const std::string& what) {
  const int peer = static_cast<int>(header.source);
  fail(operation,
       Error(ErrorCode::mismatch,
             "ranks " + std::to_string(rank_) + " and " + std::to_string(peer) + " do not fit together in " +
                 describe(operation) + ": " + what +
                 "; every rank must make the same calls in the same order with matching counts, types and roots",
             rank_),
       true, peer);
}

void Executor::fail_all(const Error& error) noexcept {
  const auto next = [&](auto&& wanted) -> Operation* {
    for (std::size_t i = 0; i < window_.size(); ++i)
      if (window_[i] != nullptr && window_[i]->started && !window_[i]->finished.load(std::memory_order_relaxed) &&
          wanted(*window_[i]))
        return window_[i];
    return nullptr;
  };
  // Finishing moves the window, so each search begins anew.
  while (Operation* operation = next([](const Operation& candidate) { return !candidate.failed; }))
    fail(*operation, error, true);
  if (!transport_broken_) return;
  while (Operation* operation = next([](const Operation& candidate) { return candidate.remote_pending > 0; })) {
    operation->remote_pending = 0;
    finish_if_over(*operation);
  }
}

void Executor::announce(std::uint64_t sequence, const Error& error, int partner) {
  for (int peer = 0; peer < node_.team.size(); ++peer)
    if (peer != rank_) send_notice(peer, sequence, error, partner);
}

void Executor::send_notice(int peer, std::uint64_t sequence, const Error& error, int partner) {
  const std::size_t bytes = std::min<std::size_t>(error.message().size(), kNoticeTextBytes);
  Header header;
  header.sequence = sequence;
  header.source = static_cast<std::uint32_t>(rank_);
  header.kind = MessageKind::notice;
  header.bytes = static_cast<std::uint64_t>(static_cast<std::int64_t>(error.code()));
  header.tag = partner < 0 ? kNobody : static_cast<std::uint32_t>(partner);
  header.payload_bytes = static_cast<std::uint32_t>(bytes);
  const ConstBytes text(reinterpret_cast<const std::byte*>(error.message().data()), bytes);
  if (!is_local(peer)) {
    if (!transport_broken_) remote_->send(peer, header, text, nullptr);
    return;
  }
  std::byte* owned = buffers_.take(bytes);
  if (bytes > 0) std::memcpy(owned, text.data(), bytes);
  send_local(peer, {header, {owned, bytes}, owned, nullptr, 0});
}

void Executor::on_notice(const Header& header, ConstBytes payload) {
  if (header.sequence < base_sequence_) return;
  Operation& failing = operation(header.sequence);
  const std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
  const int origin = static_cast<int>(header.source);
  if (header.tag == static_cast<std::uint32_t>(rank_))
    fail(failing, Error(static_cast<ErrorCode>(static_cast<std::int64_t>(header.bytes)), text, origin), false);
  else
    fail(failing,
         Error(ErrorCode::peer_failed, "rank " + std::to_string(origin) + " failed in this operation: " + text, origin),
         false);
}

// A message for an operation that is over here. If it was completed without that message, its sender waits in vain.
void Executor::late(const Header& header) {
  const History& past = history_[header.sequence % history_.size()];
  if (past.sequence == header.sequence && past.failed) return;
  const int peer = static_cast<int>(header.source);
  if (header.kind == MessageKind::probe && (past.sequence != header.sequence || past.signature == header.signature)) {
    Header answer;
    answer.sequence = header.sequence;
    answer.signature = header.signature;
    answer.source = static_cast<std::uint32_t>(rank_);
    answer.kind = MessageKind::completed;
    return send_control(peer, answer, nullptr);
  }
  send_notice(peer, header.sequence,
              Error(ErrorCode::mismatch,
                    "ranks " + std::to_string(rank_) + " and " + std::to_string(peer) +
                        " do not fit together in operation " + std::to_string(header.sequence) + ": rank " +
                        std::to_string(rank_) + " completed it without the message that rank " + std::to_string(peer) +
                        " sent; every rank must make the same calls in the same order with matching counts, types and "
                        "roots",
                    rank_),
              peer);
}

// Ranks whose counts alone differ have the same signature. What the peer sent came before this.
void Executor::on_completed(const Header& header) {
  if (header.sequence < base_sequence_) return;
  Operation& waiting = operation(header.sequence);
  if (!waiting.running || waiting.failed || waiting.finished.load(std::memory_order_relaxed)) return;
  const int peer = static_cast<int>(header.source);
  for (StepId step = 0; step < waiting.plan->steps.size(); ++step) {
    const Step& what = waiting.plan->steps[step];
    if (!plan::takes(what.kind) || what.peer != peer) continue;
    if (waiting.flags[step] & Operation::matched) continue;
    // What goes by flags is in no order with messages.
    if (waiting.by_flags && flags_->has_shown(local(peer), waiting.sequence)) continue;
    return fail_mismatch(waiting, header,
                         "rank " + std::to_string(peer) + " completed it without sending the " +
                             std::to_string(plan::taken_bytes(what)) + " bytes that rank " + std::to_string(rank_) +
                             " expected from it");
  }
}

void Executor::check_peers() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    give_up_the_dead();
    for (std::uint64_t sequence = base_sequence_; sequence < next_sequence_; ++sequence) {
      if (sequence < base_sequence_) continue;
      Operation* waiting = window_[static_cast<std::size_t>(sequence - base_sequence_)];
      if (waiting != nullptr && waiting->running && !waiting->failed &&
          !waiting->finished.load(std::memory_order_relaxed))
        check_peers_of(*waiting);
    }
  } catch (const std::exception&) {
    // Nothing is lost: the next check tries again.
  }
  update_active();
}

void Executor::give_up(std::uint32_t local_rank) {
  gone_[local_rank] = true;
  Fifo<Outgoing>& backlog = backlog_[local_rank];
  while (!backlog.empty()) {
    const Outgoing message = backlog.pop();
    --backlog_count_;
    if (message.owned != nullptr) buffers_.give_back(message.owned, message.payload.size());
    if (message.operation != nullptr) complete(*message.operation, message.step);
    if (message.owner != nullptr) on_released(message.owner);
  }
  drain_ready();
}

/// The ranks that have to do something before the operation can go on here, each once.
std::vector<int> Executor::missing_peers(Operation& operation) {
  std::vector<int> peers;
  for (StepId step = 0; step < operation.plan->steps.size(); ++step) {
    const std::uint8_t flags = operation.flags[step];
    const Step& what = operation.plan->steps[step];
    if (what.kind != StepKind::share && (flags & Operation::posted) && !(flags & Operation::matched))
      peers.push_back(what.peer);
  }
  add_missing_sharers(operation, peers);
  const auto add = [&](const auto& transfer) {
    if (transfer.operation == &operation) peers.push_back(transfer.peer);
  };
  sends_.for_each(add);
  receives_.for_each(add);
  for (std::size_t i = 0; i < backlog_.size(); ++i)
    for (std::size_t k = 0; k < backlog_[i].size(); ++k)
      if (backlog_[i][k].operation == &operation) peers.push_back(node_.ranks[i]);
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

// Asks the peers that are missing: is the process there, and has it called the same operation?
void Executor::check_peers_of(Operation& operation) {
  // The first check, then 2, 4, 8 ... checks later: a late rank must not be buried in probes.
  watch_silence(operation);
  const bool probe = ((operation.probes_sent + 1) & operation.probes_sent) == 0;
  ++operation.probes_sent;
  const auto over = [&] { return operation.failed || operation.finished.load(std::memory_order_relaxed); };
  for (const int peer : missing_peers(operation)) {
    if (peer == rank_) continue;
    if (!is_local(peer) || node_.segment->is_alive(local(peer))) {
      if (probe) send_control(peer, header_for(operation, MessageKind::probe), nullptr);
      continue;
    }
    // What it sent before it went counts: it may have completed the operation.
    while (poll_cells() || poll_flags()) {
    }
    if (over()) return;
    const std::vector<int> missing = missing_peers(operation);
    const bool needed = std::binary_search(missing.begin(), missing.end(), peer);
    give_up(local(peer));
    if (over()) return;
    if (!needed) continue;
    fail(operation,
         Error(ErrorCode::peer_failed,
               "rank " + std::to_string(peer) + " has gone in " + describe(operation) +
                   ": its process ended, or it gave up the communicator",
               peer),
         true);
    return;
  }
}

}  // namespace penstock::engine
