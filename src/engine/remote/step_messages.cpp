#include "engine/remote/step_messages.hpp"

namespace penstock::engine {

void StepMessages::begin(Operation& operation) {
  State& state = states_[operation];
  if (state.leaves_node) return;
  const bool leaves_node = operation.call.compiled->leaves_node();
  state.is_withdrawn = false;
  state.receives_posted = 0;
  state.status.assign(leaves_node ? operation.plan().steps.size() : 0, Status::none);
  state.leaves_node = leaves_node;
  if (leaves_node) ++running_;
}

// Until both ranks have told of the epoch whose tags it uses again.
bool StepMessages::is_blocked(const Operation& operation, const Step& what) {
  if (epochs_.may_post(what.peer, operation.sequence)) return false;
  if (what.kind == StepKind::send && ranks_.has_left(what.peer)) return false;  // it posts no receive that could match
  epochs_.want_to_post(what.peer, operation.sequence);
  return true;
}

// A transport may copy a long message before its send returns, in the time of the computation that is to hide it.
bool StepMessages::is_left_to_threads(const Step& what) const {
  return core_.leaves_to_threads && what.kind == StepKind::send && SendWindow::counts(what.from.size_bytes);
}

void StepMessages::post(Operation& operation, StepId step) {
  const Step& what = operation.step(step);
  if (core_.transport_broken)
    throw Error(ErrorCode::mpi, "the messages between nodes have failed before " + core_.describe(operation),
                core_.rank);
  if (epochs_.unusable()) throw Error(*epochs_.unusable());
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

void StepMessages::post_now(Operation& operation, StepId step) {
  const Step& what = operation.step(step);
  const bool sends = what.kind == StepKind::send;
  const std::uint64_t bytes = sends ? what.from.size_bytes : what.to.size_bytes;
  const LongMessages::Posted posted = LongMessages::about_to_post(bytes);
  if (sends && posted.is_long()) long_.expect(what.peer);
  if (!post_unheld(operation, step, posted)) return core_.complete(operation, step);
  core_.hold(operation);
  if (posted.is_long()) long_.posted(what.peer, bytes, sends);
}

std::optional<Transport::Token> StepMessages::post_unheld(Operation& operation, StepId step,
                                                          LongMessages::Posted posted) {
  const Step& what = operation.step(step);
  State& state = states_[operation];
  const bool sends = what.kind == StepKind::send;
  const std::uint32_t token = in_flight_.next();
  epochs_.expect(what.peer);
  const int tag = plans_.tag_of(operation, step);
  bool is_complete = false;
  if (sends)
    is_complete = core_.transport->isend(operation.source(what.from), what.peer, tag, token);
  else
    core_.transport->irecv(operation.target(what.to), what.peer, tag, token);
  if (sends)
    epochs_.note_sent(what.peer, operation.sequence);
  else
    ++state.receives_posted;
  if (is_complete) {
    state.status[step] = Status::done;
    return std::nullopt;
  }
  in_flight_.add({.kind = sends ? InFlight::Kind::send : InFlight::Kind::receive,
                  .peer = what.peer,
                  .step = step,
                  .operation = &operation,
                  .sequence = operation.sequence,
                  .posted = posted});
  state.status[step] = Status::posted;
  return token;
}

bool StepMessages::post_waiting() {
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

void StepMessages::finish_send(const InFlight::Entry& done, std::uint64_t bytes) {
  if (done.posted.is_long()) long_.done(done.peer, done.posted, bytes, true);
  if (done.operation == nullptr) return;
  states_[*done.operation].status[done.step] = Status::done;
  core_.release_after(*done.operation, [&] {
    if (!done.operation->has_failed()) core_.complete(*done.operation, done.step);
  });
}

void StepMessages::finish_receive(const InFlight::Entry& done, const Transport::Completion& completion) {
  if (done.posted.is_long()) long_.done(done.peer, done.posted, completion.bytes, false);
  Operation& operation = *done.operation;
  State& state = states_[operation];
  --state.receives_posted;
  state.status[done.step] = completion.withdrawn ? Status::none : Status::done;
  if (!completion.withdrawn) epochs_.note_received(done.peer, done.sequence);
  const std::uint64_t expected_bytes = operation.step(done.step).to.size_bytes;
  core_.release_after(operation, [&] {
    if (operation.has_failed()) return;
    if (!completion.too_long && completion.bytes == expected_bytes) return core_.complete(operation, done.step);
    const bool is_known = !completion.too_long || (completion.bytes != expected_bytes && completion.bytes != 0);
    const std::optional<std::uint64_t> sent_bytes = is_known ? std::optional(completion.bytes) : std::nullopt;
    core_.fail_mismatch(operation, done.peer, core_.other_length(done.peer, sent_bytes, expected_bytes));
  });
}

void StepMessages::cancel(Operation& operation) {
  for (Fifo<Waiting>* const queue : {&waiting_, &blocked_})
    queue->remove_if([&](const Waiting& each) { return each.operation == &operation; });
  core_.hold(operation);
  ending_.push_back(&operation);
}

bool StepMessages::end_failed() {
  bool moved = false;
  for (Operation* const operation : std::exchange(ending_, {})) {
    Settlement::Received received;
    Settlements::Sent sent;
    State& state = states_[*operation];
    if (operation->is_running() && state.leaves_node) {
      if (!std::exchange(state.is_withdrawn, true))
        in_flight_.withdraw_if([&](const InFlight::Entry& each) {
          return each.kind == InFlight::Kind::receive && each.operation == operation;
        });
      if (state.receives_posted > 0) {
        ending_.push_back(operation);
        continue;
      }
      for (StepId id = 0; id < state.status.size(); ++id) {
        const Step& step = operation->step(id);
        if (step.kind == StepKind::recv && state.status[id] == Status::done)
          received.emplace(step.peer, plans_.tag_of(*operation, id));
        else if (step.kind == StepKind::send && state.status[id] != Status::none)
          sent[step.peer].push_back({.tag = plans_.tag_of(*operation, id), .bytes = step.from.size_bytes});
      }
    }
    settlements_.end(operation->sequence, std::move(received), std::move(sent));
    moved = true;
    core_.release(*operation);
  }
  return moved;
}

void StepMessages::leave_failed_sends() {
  std::vector<Operation*> freed;
  in_flight_.for_each([&](InFlight::Entry& each) {
    if (each.kind == InFlight::Kind::send && each.operation != nullptr && each.operation->has_failed() &&
        (ranks_.has_left(each.peer) || core_.transport->has_gone(each.peer)))
      freed.push_back(std::exchange(each.operation, nullptr));
  });
  for (Operation* const operation : freed) core_.release(*operation);
}

void StepMessages::waits_for(const Operation& operation, std::vector<int>& peers) const {
  in_flight_.for_each([&](const InFlight::Entry& each) {
    if (each.operation == &operation && (each.kind == InFlight::Kind::send || each.kind == InFlight::Kind::receive))
      peers.push_back(each.peer);
  });
  for (const Fifo<Waiting>* const queue : {&waiting_, &blocked_})
    for (std::size_t i = 0; i < queue->size(); ++i)
      if ((*queue)[i].operation == &operation) peers.push_back(operation.step((*queue)[i].step).peer);
}

bool StepMessages::has_heard(const Operation& operation, int peer) const {
  const std::vector<Status>& status = states_[operation].status;
  for (StepId step = 0; step < status.size() && operation.is_running(); ++step)
    if (status[step] == Status::done && operation.step(step).kind == StepKind::recv &&
        operation.step(step).peer == peer)
      return true;
  return false;
}

}  // namespace penstock::engine
