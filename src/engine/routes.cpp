#include "engine/routes.hpp"

#include <algorithm>
#include <utility>

#include "kernels/copy.hpp"
#include "penstock/trace.hpp"
#include "plan/order.hpp"

namespace penstock::engine {

Routes::Routes(std::shared_ptr<Transport> by, const EngineOptions& given, Node on)
    : Core(std::move(by), given, std::move(on)) {
  if (node.segment != nullptr) {
    add<CellMessages>();
    add<FlagExchange>();
    add<PeerReads>();
    if (node.team.single_copy) add<SharedTasks>();
  }
  if (has_remote) add<RemoteMessages>();
  add<SharedBuffers>();
  add<Computations>();
  add<Inbox>();
}

bool Routes::admit(Operation& operation) {
  if (has<SharedTasks>()) the<SharedTasks>().reserve(operation);
  return operation.plan().by_flags ? the<FlagExchange>().admit(operation) : the<SharedBuffers>().admit(operation);
}

bool Routes::poll() {
  bool moved = false;
  for_each([&](auto& mechanism) { moved |= mechanism.poll(); });
  return moved;
}

void Routes::issue(Operation& operation, StepId step) {
  const Step& what = operation.step(step);
  const bool by_flags = operation.plan().by_flags;
  switch (what.kind) {
    case StepKind::send: return send_step(operation, step);
    case StepKind::signal:
      if (by_flags) return the<FlagExchange>().post(operation, step);
      return send_step(operation, step);
    case StepKind::wait:
      if (by_flags) return the<FlagExchange>().post(operation, step);
      return the<Inbox>().post(operation, step);
    case StepKind::recv:
      if (!is_near(what.peer)) return the<RemoteMessages>().post(operation, step);
      return the<Inbox>().post(operation, step);
    case StepKind::publish_tasks: return the<SharedTasks>().post(operation, step);
    case StepKind::compute:
      if (what.source == StepSource::peer_private) return the<Inbox>().post(operation, step);
      if (by_flags && the<FlagExchange>().is_published(operation, step)) return complete(operation, step);
      the<Computations>().post(operation, step, source_of(operation, what));
  }
}

void Routes::send_step(Operation& operation, StepId step) {
  const Step& what = operation.step(step);
  if (what.kind != StepKind::signal && what.peer != rank)
    return is_local(what.peer) ? the<CellMessages>().post(operation, step)
                               : the<RemoteMessages>().post(operation, step);
  Header header = header_for(operation, MessageKind::eager, what.tag);
  ConstBytes data;
  if (what.kind == StepKind::signal) {
    header.kind = MessageKind::signal;
    header.shared = {.offset_bytes = shared_offset(operation)};
  } else {
    data = operation.source(what.from);
    header.message = {.bytes = data.size(), .address = 0, .transfer = 0};
  }
  if (what.peer == rank)
    arrive(header, data);
  else
    send(what.peer, header, {}, &operation);
  if (!operation.has_failed()) complete(operation, step);
}

ConstBytes Routes::source_of(const Operation& operation, const Step& step) {
  if (step.source == StepSource::local) return operation.source(step.from);
  if (step.peer == rank) return {operation.shared + step.from.offset_bytes, step.from.size_bytes};
  return operation.plan().by_flags ? the<FlagExchange>().of_peer(operation, step)
                                   : the<SharedBuffers>().of_peer(operation, step);
}

void Routes::arrive(const Header& header, ConstBytes payload) {
  switch (header.kind) {
    case MessageKind::notice:
    case MessageKind::refusal: return notices.on_notice(header, payload);
    case MessageKind::completed: return on_completed(header);
    case MessageKind::promised: return on_promised(header);
    default: the<Inbox>().arrive(header, payload);
  }
}

void Routes::deliver(Operation& operation, StepId step, const Header& header, ConstBytes payload) {
  const Step& what = operation.step(step);
  if (header.kind == MessageKind::signal) {
    if (what.peer != rank) the<SharedBuffers>().set_peer(operation, what.peer, header.shared.offset_bytes);
    return complete(operation, step);
  }
  const std::uint64_t expected_bytes = plan::consumed_bytes(what);
  if (header.message.bytes != expected_bytes)
    return fail_mismatch(operation, what.peer, other_length(what.peer, header.message.bytes, expected_bytes));
  if (header.kind == MessageKind::eager) {
    const trace::Span span("recv", "progress", payload.size());
    if (what.kind == StepKind::compute)
      the<Computations>().compute(operation, step, payload);
    else
      kernels::copy_bytes(operation.target(what.to).data(), payload.data(), payload.size());
    return complete(operation, step);
  }
  return node.single_copy ? the<PeerReads>().post(operation, step, header)
                          : the<CellMessages>().receive_pieces(operation, step, header);
}

void Routes::send(int peer, const Header& header, ConstBytes payload, Operation* owner) {
  return is_local(peer) ? the<CellMessages>().send(peer, header, payload, owner)
                        : the<RemoteMessages>().send(peer, header, payload, owner);
}

// Ranks whose counts differ have the same signature, so a missing message is found here.
void Routes::on_completed(const Header& header) {
  Operation* const waiting = operations.find_running(header.sequence);
  if (waiting == nullptr) return;
  const int peer = static_cast<int>(header.source);
  fail_missing(*waiting, peer, "completed it",
               waiting->plan().by_flags ? the<FlagExchange>().find_missing(*waiting, peer)
                                        : the<Inbox>().find_missing(*waiting, peer));
}

// As on_completed(), for ranks that wait for each other: none completes the operation.
void Routes::on_promised(const Header& header) {
  Operation* const waiting = operations.find_running(header.sequence);
  if (waiting == nullptr || waiting->plan().by_flags) return;
  const int peer = static_cast<int>(header.source);
  fail_missing(*waiting, peer, "takes part", the<Inbox>().find_unpromised(*waiting, peer, header.count.messages));
}

void Routes::fail_missing(Operation& waiting, int peer, const std::string& did, StepId missing) {
  if (missing == CompiledPlan::kNone) return;
  fail_mismatch(waiting, peer,
                "rank " + std::to_string(peer) + " " + did + " without sending the " +
                    std::to_string(plan::consumed_bytes(waiting.step(missing))) + " bytes that rank " +
                    std::to_string(rank) + " expected from it");
}

// Receives what dead ranks sent before they died: they may have completed an operation.
void Routes::receive_from_gone_ranks() {
  detector.find_new();
  if (detector.has_gone_ranks()) {
    do {
      while (the<CellMessages>().receive() || the<FlagExchange>().receive()) {
      }
    } while (the<CellMessages>().mend());
    the<CellMessages>().send_waiting();  // which drops what is for dead ranks
  }
  while (has_remote && the<RemoteMessages>().receive()) drain();
}

// A notice may wait for a cell for as long as other ranks do not receive; see FailuresForAll.
void Routes::fail_what_peers_have_failed() {
  if (!node.segment) return;
  std::vector<std::pair<std::uint64_t, int>> found;
  operations.for_each_unfinished([&](const Operation& each) {
    if (each.has_failed()) return;
    const auto has_failed_it = [&](int peer) {
      return peer != rank && FailuresForAll::has(slot(local(peer)), each.sequence);
    };
    const auto peer = std::ranges::find_if(node.ranks, has_failed_it);
    if (peer != node.ranks.end()) found.emplace_back(each.sequence, *peer);
  });
  if (found.empty()) return;
  // The notice, which says why, may have come: it is among the messages that are there now.
  constexpr std::size_t kMostOfARank = 2;  // calls that receive all cells of one rank
  for (std::size_t left = kMostOfARank * node.ranks.size(); left > 0 && the<CellMessages>().receive(); --left) {
  }
  for (const auto& [sequence, peer] : found) {
    Operation* const failing = operations.find(sequence);
    if (failing == nullptr || detector.find_gone_in(*failing) >= 0) continue;
    fail(*failing,
         Error(ErrorCode::peer_failed,
               "rank " + std::to_string(peer) + " failed in " + describe(*failing) +
                   "; its message that says why waits until ranks that are late receive others",
               peer),
         false);
  }
}

void Routes::check(Operation& operation) {
  if (const int gone = detector.find_gone_in(operation); gone >= 0)
    return fail(operation, FailureDetector::gone_error(gone, describe(operation)));
  std::vector<int> peers;
  std::uint64_t mark = operation.steps_left;
  for_each([&](auto& mechanism) {
    mechanism.waits_for(operation, peers);
    mark += mechanism.moved_bytes(operation);
  });
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  std::vector<int> absent = peers;
  std::erase_if(absent,
                [&](int peer) { return any([&](const auto& each) { return each.has_heard(operation, peer); }); });
  detector.watch_stall(operation, peers, std::move(absent), mark);
  if (operation.has_failed()) return;
  if (const int left = has_remote ? the<RemoteMessages>().checks().find_left(operation, peers) : -1; left >= 0)
    return fail(operation, FailureDetector::gone_error(left, describe(operation)));
  if (has_remote) the<RemoteMessages>().checks().look_for_foreign(operation);
  if (!operation.has_failed()) detector.check(operation, peers);
}

}  // namespace penstock::engine
