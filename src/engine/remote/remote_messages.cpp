#include "engine/remote/remote_messages.hpp"

#include <algorithm>
#include <string>

namespace penstock::engine {
namespace {

constexpr std::chrono::microseconds kUnasked{500};  // between polls while no message is expected
constexpr std::uint32_t kLook = 16;                 // polls between looks for packets while messages are expected

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

}  // namespace

RemoteMessages::RemoteMessages(Core& core)
    : core_(core), plans_(core), ranks_(core), in_flight_(core), packets_(core, in_flight_, ranks_) {
  Header left = core.header(0, MessageKind::left);
  left.communicator = core.node.communicator;
  core.transport->set_farewell(std::as_bytes(std::span(&left, 1)), TagSplit::kControlTag);
}

void RemoteMessages::set_limits(Pair& of) const { of.may_post_before = first_of(of.counts.may_post_before()); }

void RemoteMessages::begin(Operation& operation) {
  State& state = states_[operation];
  state.leaves_node = operation.call.compiled->leaves_node();
  state.is_withdrawn = false;
  state.receives_posted = state.forgotten_by_peers = state.checks = state.checks_since_left = 0;
  state.status.clear();
  if (!state.leaves_node) return;
  state.status.resize(operation.plan().steps.size(), StepStatus::none);
  ++leaving_;
}

void RemoteMessages::end(Operation& operation) {
  if (std::exchange(states_[operation].leaves_node, false)) --leaving_;
  if (settlements_.empty() || operation.has_failed()) return;
  // It has failed elsewhere meanwhile.
  if (settlements_.contains(operation.sequence)) has_failed_elsewhere(operation.sequence);
}

// Until both ranks have told of the epoch whose tags it uses again.
bool RemoteMessages::is_blocked(const Operation& operation, const Step& what) {
  if (what.kind == StepKind::send && ranks_.has_left(what.peer)) return false;  // it posts no receive that could match
  const int peer = what.peer;
  const Pair& with = pair(peer);
  if (operation.sequence < with.may_post_before) return false;
  const std::uint64_t last_use = plans_.tags.epoch(operation.sequence) - 2;
  if (last_use < closed_epochs_ && last_use >= with.counts.told_before()) tell_counts(peer, last_use);
  return true;
}

bool RemoteMessages::has_room(const Step& what) {
  return what.kind == StepKind::recv || !SendWindow::counts(what.from.size_bytes) ||
         pair(what.peer).long_sends < window_.messages();
}

// A transport may copy a long message before its send returns, in the time of the computation that is to hide it.
bool RemoteMessages::is_left_to_threads(const Step& what) const {
  return core_.leaves_to_threads && what.kind == StepKind::send && SendWindow::counts(what.from.size_bytes);
}

void RemoteMessages::post(Operation& operation, StepId step) {
  const Step& what = operation.step(step);
  if (core_.transport_broken)
    throw Error(ErrorCode::mpi, "the messages between nodes have failed before " + core_.describe(operation),
                core_.rank);
  if (unusable_) throw Error(*unusable_);
  // A send to an ended process reports no error, and no rank receives it.
  if (what.kind == StepKind::send && core_.transport->has_gone(what.peer))
    throw FailureDetector::gone_error(what.peer, core_.describe(operation));
  if (is_blocked(operation, what))
    blocked_.push({&operation, step});
  else if (core_.may_call_transport() && !is_left_to_threads(what) && has_room(what))
    post_now(operation, step);
  else
    waiting_.push({&operation, step});
}

void RemoteMessages::post_now(Operation& operation, StepId step) {
  const Step& what = operation.step(step);
  StepStatus& status = states_[operation].status[step];
  const bool sends = what.kind == StepKind::send;
  const std::uint64_t bytes = sends ? what.from.size_bytes : what.to.size_bytes;
  const bool is_long = SendWindow::counts(bytes);
  const std::uint32_t token = in_flight_.add({.kind = sends ? Kind::send : Kind::receive,
                                              .peer = what.peer,
                                              .step = step,
                                              .operation = &operation,
                                              .sequence = operation.sequence,
                                              .posted_ns = is_long ? now_ns() : 0,
                                              .long_bytes = is_long ? bytes : 0});
  const int tag = plans_.tag_of(operation, step);
  bool is_complete = false;
  try {
    if (sends)
      is_complete = core_.transport->isend(operation.source(what.from), what.peer, tag, token);
    else
      core_.transport->irecv(operation.target(what.to), what.peer, tag, token);
  } catch (...) {
    in_flight_.drop(token);
    throw;
  }
  if (sends)
    pair(what.peer).counts.note_sent(plans_.tags.epoch(operation.sequence));
  else
    ++states_[operation].receives_posted;
  if (is_complete) {
    in_flight_.drop(token);
    status = StepStatus::done;
    return core_.complete(operation, step);
  }
  status = StepStatus::posted;
  core_.hold(operation);
  if (!is_long) return;
  ++long_in_flight_;
  transfer_time_.posted(now_ns(), bytes);
  if (sends) ++pair(what.peer).long_sends;
}

bool RemoteMessages::post_waiting() {
  if (std::exchange(are_fewer_blocked_, false))
    while (!blocked_.empty()) waiting_.push(blocked_.pop());
  bool moved = false;
  for (std::size_t left = waiting_.size(); left > 0; --left) {
    const Waiting next = waiting_.pop();
    const Step& what = next.operation->step(next.step);
    if (is_blocked(*next.operation, what)) {
      blocked_.push(next);
    } else if (!has_room(what)) {
      waiting_.push(next);
    } else {
      moved = true;
      try {
        post_now(*next.operation, next.step);
      } catch (const Error& error) {
        core_.fail(*next.operation, error);
        return true;  // which has changed the queue
      }
    }
  }
  return moved;
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
  const std::uint64_t polled_ns = long_in_flight_ > 0 || !waiting_.empty() ? now_ns() : 0;
  window_.poll(polled_ns, long_in_flight_ > 0);
  core_.transport->poll(complete_);
  if (long_in_flight_ > 0) window_.polled(now_ns() - polled_ns);
  bool moved = !complete_.empty();
  for (const Transport::Completion& completion : complete_) finish(completion);
  if (!ending_.empty()) moved |= end_failed();
  close_epochs();
  if (!hearing_.empty()) moved |= clear_heard();
  if (!settlements_.empty()) moved |= settle();
  if (!waiting_.empty() || are_fewer_blocked_) moved |= post_waiting();
  if (packets_.has_unsent()) {
    packets_.flush();
    moved = true;
  }
  if (look_for_packets || !settlements_.empty() || ++polls_ % kLook == 0) moved |= packets_.take();
  if (moved || waiting_.empty())
    window_.moved(!waiting_.empty());
  else
    window_.stuck(polled_ns);
  return moved;
}

void RemoteMessages::finish(const Transport::Completion& completion) {
  InFlight::Entry done = in_flight_.remove(completion.token);
  if (done.posted_ns != 0) finish_long(done, completion.bytes);
  switch (done.kind) {
    case Kind::send: return finish_send(done);
    case Kind::receive: return finish_receive(done, completion);
    case Kind::sink:
      pair(done.peer).counts.note_received(plans_.tags.epoch(done.sequence));
      return settlements_.at(done.sequence).has_sunk();
    case Kind::excess:
      pair(done.peer).counts.note_received(plans_.tags.epoch(done.sequence));
      --pair(done.peer).excess;
      return;
    case Kind::packet_out: return packets_.has_sent(done);
    case Kind::packet_in:
      return packets_.has_taken(done, completion.too_long,
                                [&](const Header& header, ConstBytes payload) { on_packet(header, payload); });
  }
}

void RemoteMessages::finish_send(const InFlight::Entry& done) {
  if (done.posted_ns != 0) --pair(done.peer).long_sends;
  if (done.operation == nullptr) return;
  states_[*done.operation].status[done.step] = StepStatus::done;
  if (!done.operation->has_failed()) core_.complete(*done.operation, done.step);
  core_.release(*done.operation);
}

void RemoteMessages::finish_receive(const InFlight::Entry& done, const Transport::Completion& completion) {
  Operation& operation = *done.operation;
  State& state = states_[operation];
  --state.receives_posted;
  state.status[done.step] = completion.withdrawn ? StepStatus::none : StepStatus::done;
  if (!completion.withdrawn) pair(done.peer).counts.note_received(plans_.tags.epoch(done.sequence));
  const std::uint64_t expected_bytes = operation.step(done.step).to.size_bytes;
  const auto bytes = [](std::uint64_t count) { return std::to_string(count) + " bytes"; };
  if (operation.has_failed()) {
  } else if (!completion.too_long && completion.bytes == expected_bytes) {
    core_.complete(operation, done.step);
  } else {
    const bool is_known = completion.bytes != expected_bytes && completion.bytes != 0;
    core_.fail_mismatch(operation, done.peer,
                        "rank " + std::to_string(done.peer) + " sent " +
                            (is_known || !completion.too_long ? bytes(completion.bytes) : "more") + " where rank " +
                            std::to_string(core_.rank) + " expected " + bytes(expected_bytes));
  }
  core_.release(operation);
}

void RemoteMessages::finish_long(const InFlight::Entry& done, std::uint64_t bytes) {
  --long_in_flight_;
  transfer_time_.done(now_ns(), done.posted_ns, done.long_bytes);
  window_.done(done.posted_ns, bytes);
}

void RemoteMessages::on_packet(const Header& header, ConstBytes payload) {
  switch (header.kind) {
    case MessageKind::sent: return on_list(header, payload);
    case MessageKind::counts: return hear_counts(header);
    case MessageKind::left: return on_left(static_cast<int>(header.source));
    case MessageKind::recount: return recount(static_cast<int>(header.source), plans_.tags.epoch(header.sequence));
    case MessageKind::probe: return on_probe(header, payload);
    default: core_.arrive(header, payload);
  }
}

void RemoteMessages::waits_for(const Operation& operation, std::vector<int>& peers) const {
  in_flight_.for_each([&](const InFlight::Entry& each) {
    if (each.operation == &operation && (each.kind == Kind::send || each.kind == Kind::receive))
      peers.push_back(each.peer);
  });
  for (const Fifo<Waiting>* const queue : {&waiting_, &blocked_})
    for (std::size_t i = 0; i < queue->size(); ++i)
      if ((*queue)[i].operation == &operation) peers.push_back(operation.step((*queue)[i].step).peer);
}

bool RemoteMessages::has_heard(const Operation& operation, int peer) const {
  const std::vector<StepStatus>& status = states_[operation].status;
  for (StepId step = 0; step < status.size() && operation.is_running(); ++step)
    if (status[step] == StepStatus::done && operation.step(step).kind == StepKind::recv &&
        operation.step(step).peer == peer)
      return true;
  return false;
}

}  // namespace penstock::engine
