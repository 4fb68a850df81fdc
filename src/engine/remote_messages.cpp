#include "engine/remote_messages.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

namespace penstock::engine {
namespace {

constexpr std::chrono::microseconds kUnasked{500};  // between looks for what nobody waits for
constexpr std::uint32_t kLook = 16;                 // polls between looks for packets while messages are awaited
constexpr std::uint64_t kPacketBytes = 2048;        // short enough that every MPI sends it without asking
constexpr std::uint64_t kPayloadBytes = kPacketBytes - sizeof(Header);
static_assert(kPayloadBytes >= kNoticeBytes);
constexpr std::uint64_t kLongBytes = 64 << 10;
// Some MPIs send all long messages that they have in turns, so that none arrives before all do; a pipeline needs them
// one after the other, and the link busy.
constexpr std::uint32_t kLeastWindow = 3;
// What a rank had sent before it left has come when its peers have looked so often, unless nobody receives it.
constexpr std::uint32_t kLeastChecks = 3;
constexpr std::uint32_t kMostChecks = 50;
constexpr std::uint32_t kFruitless = 64;  // polls after which the receiver may be waiting for a later one

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

}  // namespace

RemoteMessages::RemoteMessages(Core& core)
    : core_(core), tags_(core.node.max_tag, core.options.operation_slots), window_(kLeastWindow) {
  for (int peer = 0; peer < core.node.team.size(); ++peer)
    if (!core.is_near(peer)) remote_.push_back(peer);
}

void RemoteMessages::set_limits(Pair& of) const {
  of.may_post_before = of.counts.may_post_before() * tags_.operations_per_epoch();
}

void RemoteMessages::begin(Operation& operation) {
  State& state = states_[operation];
  state.leaves_node = operation.call.compiled->leaves_node();
  state.is_withdrawn = false;
  state.receives_posted = state.forgotten_by_peers = state.checks_since_left = 0;
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

int RemoteMessages::tag_of(const Operation& operation, StepId step) const {
  return tags_.tag(operation.sequence, operation.call.signature, operation.call.compiled->wire_tag(step));
}

// Until both ranks have told of the epoch whose tags it uses again.
bool RemoteMessages::is_blocked(const Operation& operation, const Step& what) {
  if (has_left(what.peer) && (what.kind == StepKind::send || is_without(operation, what.peer))) return false;
  const int peer = what.peer;
  const Pair& with = pair(peer);
  if (operation.sequence < with.may_post_before) return false;
  const std::uint64_t last_use = tags_.epoch(operation.sequence) - 2;
  if (last_use < closed_epochs_ && last_use >= with.counts.told_before()) tell_counts(peer, last_use);
  return true;
}

bool RemoteMessages::has_room(const Step& what) {
  return what.kind == StepKind::recv || what.from.size_bytes < kLongBytes || pair(what.peer).long_sends < window_;
}

void RemoteMessages::post(Operation& operation, StepId step) {
  const Step& what = operation.step(step);
  if (core_.transport_broken)
    throw Error(ErrorCode::mpi, "the messages between nodes have failed before " + core_.describe(operation),
                core_.rank);
  if (unusable_) throw Error(*unusable_);
  // It would be sent without an error, and never taken.
  if (what.kind == StepKind::send && core_.transport->has_gone(what.peer))
    throw FailureDetector::has_gone(what.peer, core_.describe(operation));
  if (is_blocked(operation, what))
    blocked_.push({&operation, step});
  else if (core_.may_call_transport() && has_room(what))
    post_now(operation, step);
  else
    waiting_.push({&operation, step});
}

void RemoteMessages::post_now(Operation& operation, StepId step) {
  const Step& what = operation.step(step);
  StepStatus& status = states_[operation].status[step];
  const bool sends = what.kind == StepKind::send;
  if (!sends && is_without(operation, what.peer))
    throw FailureDetector::has_gone(what.peer, core_.describe(operation));
  const std::uint64_t bytes = sends ? what.from.size_bytes : what.to.size_bytes;
  const bool is_long = bytes >= kLongBytes;
  const std::uint32_t token = add({.kind = sends ? Kind::send : Kind::receive,
                                   .peer = what.peer,
                                   .step = step,
                                   .operation = &operation,
                                   .sequence = operation.sequence,
                                   .posted_ns = is_long ? now_ns() : 0});
  const int tag = tag_of(operation, step);
  bool is_complete = false;
  try {
    if (sends)
      is_complete = core_.transport->isend(operation.source(what.from), what.peer, tag, token);
    else
      core_.transport->irecv(operation.target(what.to), what.peer, tag, token);
  } catch (...) {
    remove(token);
    throw;
  }
  if (sends)
    pair(what.peer).counts.note_sent(tags_.epoch(operation.sequence));
  else
    ++states_[operation].receives_posted;
  if (is_complete) {
    remove(token);
    status = StepStatus::done;
    return core_.complete(operation, step);
  }
  status = StepStatus::posted;
  core_.hold(operation);
  if (!is_long) return;
  ++long_in_flight_;
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

std::uint32_t RemoteMessages::add(InFlight entry) {
  ++in_flight_count_;
  return in_flight_.add(std::move(entry));
}

RemoteMessages::InFlight RemoteMessages::remove(std::uint32_t token) {
  --in_flight_count_;
  InFlight entry = std::move(*in_flight_.find(token));
  in_flight_.remove(token);
  return entry;
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

// Looking at the transport is a system call for most, and takes the core from the ranks of the node that have messages
// to wait for. What others may send unasked, news of failures and questions, can wait for a moment.
bool RemoteMessages::is_its_turn() {
  if (expects_messages()) return true;
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < kUnasked) return false;
  looked_ = now;
  return true;
}

bool RemoteMessages::progress(bool look_for_packets) {
  complete_.clear();
  core_.transport->poll(complete_);
  bool moved = !complete_.empty();
  for (const Transport::Completion& completion : complete_) finish(completion);
  if (!ending_.empty()) moved |= end_failed();
  close_epochs();
  if (!hearing_.empty()) moved |= clear_heard();
  if (!settlements_.empty()) moved |= settle();
  if (!waiting_.empty() || are_fewer_blocked_) moved |= post_waiting();
  if (!outbox_.empty()) moved |= flush();
  if (look_for_packets || !settlements_.empty() || ++polls_ % kLook == 0) moved |= take_packet();
  if (moved || waiting_.empty()) {
    fruitless_ = 0;
    if (waiting_.empty()) window_ = kLeastWindow;
  } else if (++fruitless_ % kFruitless == 0) {
    ++window_;
  }
  return moved;
}

void RemoteMessages::finish(const Transport::Completion& completion) {
  InFlight done = remove(completion.token);
  if (done.posted_ns != 0) finish_long(done.posted_ns);
  switch (done.kind) {
    case Kind::send: return finish_send(done);
    case Kind::receive: return finish_receive(done, completion);
    case Kind::sink:
      pair(done.peer).counts.note_received(tags_.epoch(done.sequence));
      return settlements_.at(done.sequence).has_sunk();
    case Kind::excess:
      pair(done.peer).counts.note_received(tags_.epoch(done.sequence));
      --pair(done.peer).excess;
      return;
    case Kind::packet_out:
      if (spare_.size() < 64) spare_.push_back(std::move(done.memory));
      if (done.operation != nullptr) core_.release(*done.operation);
      return;
    case Kind::packet_in: {
      is_taking_ = false;
      Header header;
      std::memcpy(&header, done.memory.get(), sizeof header);
      // Another one is what a communicator before this one left.
      if (!completion.too_long && header.communicator == core_.node.communicator)
        on_packet(header, {done.memory.get() + sizeof header, header.payload_bytes});
      spare_.push_back(std::move(done.memory));
    }
  }
}

void RemoteMessages::finish_send(const InFlight& done) {
  if (done.posted_ns != 0) --pair(done.peer).long_sends;
  if (done.operation == nullptr) return;
  states_[*done.operation].status[done.step] = StepStatus::done;
  if (!done.operation->has_failed()) core_.complete(*done.operation, done.step);
  core_.release(*done.operation);
}

void RemoteMessages::finish_receive(const InFlight& done, const Transport::Completion& completion) {
  Operation& operation = *done.operation;
  State& state = states_[operation];
  --state.receives_posted;
  state.status[done.step] = completion.withdrawn ? StepStatus::none : StepStatus::done;
  if (!completion.withdrawn) pair(done.peer).counts.note_received(tags_.epoch(done.sequence));
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

void RemoteMessages::finish_long(std::uint64_t posted_ns) {
  --long_in_flight_;
  // Only a message that was posted while others were on their way shows how long one takes: another one may have waited
  // for its sender.
  const std::uint64_t now = now_ns();
  if (posted_ns < last_done_ns_) service_ns_ = (3 * service_ns_ + (now - last_done_ns_)) / 4;
  last_done_ns_ = now;
}

void RemoteMessages::send(int peer, const Header& header, ConstBytes payload, Operation* owner) {
  if (core_.transport_broken || has_left(peer)) return;
  Packet packet{.memory = {}, .bytes = sizeof header + payload.size(), .peer = peer, .owner = owner};
  if (spare_.empty()) {
    packet.memory.reset(new std::byte[kPacketBytes]);
  } else {
    packet.memory = std::move(spare_.back());
    spare_.pop_back();
  }
  Header of_this = header;
  of_this.communicator = core_.node.communicator;
  std::memcpy(packet.memory.get(), &of_this, sizeof of_this);
  if (!payload.empty()) std::memcpy(packet.memory.get() + sizeof of_this, payload.data(), payload.size());
  if (owner != nullptr) core_.hold(*owner);
  outbox_.push(std::move(packet));
}

bool RemoteMessages::flush() {
  while (!outbox_.empty()) {
    Packet packet = outbox_.pop();
    std::byte* const bytes = packet.memory.get();
    const std::uint32_t token = add(
        {.kind = Kind::packet_out, .peer = packet.peer, .operation = packet.owner, .memory = std::move(packet.memory)});
    if (core_.transport->isend({bytes, packet.bytes}, packet.peer, TagSplit::kControlTag, token))
      finish({.token = token});
  }
  return true;
}

bool RemoteMessages::take_packet() {
  if (is_taking_) return false;
  if (spare_.empty()) spare_.emplace_back(new std::byte[kPacketBytes]);
  std::byte* const bytes = spare_.back().get();
  const std::uint32_t token = add({.kind = Kind::packet_in});
  if (!core_.transport->take({bytes, kPacketBytes}, TagSplit::kControlTag, token)) {
    remove(token);
    return false;
  }
  in_flight_.find(token)->memory = std::move(spare_.back());
  spare_.pop_back();
  is_taking_ = true;
  return true;
}

void RemoteMessages::on_packet(const Header& header, ConstBytes payload) {
  switch (header.kind) {
    case MessageKind::sent: return on_list(header, payload);
    case MessageKind::counts: return hear_counts(header);
    case MessageKind::left: return on_left(header);
    case MessageKind::recount: return recount(static_cast<int>(header.source), header.sequence);
    case MessageKind::probe: return on_probe(header, payload);
    default: core_.arrive(header, payload);
  }
}

bool RemoteMessages::is_over(std::uint64_t sequence) const {
  if (sequence < core_.operations.base()) return true;
  const Operation* const operation = core_.operations.find(sequence);
  return operation != nullptr && operation->is_finished();
}

// The peer waits for this rank. If their plans do not fit, none of their messages may ever meet.
void RemoteMessages::on_probe(const Header& header, ConstBytes payload) {
  const int peer = static_cast<int>(header.source);
  if (is_over(header.sequence)) {
    const OperationTable::Past& past = core_.operations.past(header.sequence);
    if (past.sequence != header.sequence) return send_list(peer, header.sequence, ListKind::forgotten, {});
    if (!past.failed && past.signature == header.signature) return tell_plan(peer, header.sequence);
  } else if (const Operation* const running = core_.operations.find(header.sequence);
             running != nullptr && running->is_running() && !running->has_failed() &&
             running->call.signature == header.signature) {
    return tell_plan(peer, header.sequence);
  }
  core_.arrive(header, payload);
}

void RemoteMessages::tell_plan(int peer, std::uint64_t sequence) {
  send_list(peer, sequence, ListKind::sends, planned(sequence, peer, StepKind::send));
  send_list(peer, sequence, ListKind::receives, planned(sequence, peer, StepKind::recv));
}

void RemoteMessages::cancel(Operation& operation) {
  if (core_.transport_broken) return;
  for (Fifo<Waiting>* const queue : {&waiting_, &blocked_})
    queue->remove_if([&](const Waiting& each) { return each.operation == &operation; });
  settlements_.try_emplace(operation.sequence);
  core_.hold(operation);
  ending_.push_back(&operation);
}

void RemoteMessages::withdraw(Operation& operation) {
  std::vector<std::uint32_t> receives;
  in_flight_.for_each_id([&](std::uint32_t token, const InFlight& each) {
    if (each.kind == Kind::receive && each.operation == &operation) receives.push_back(token);
  });
  for (const std::uint32_t token : receives) core_.transport->cancel(token);
  states_[operation].is_withdrawn = true;
}

bool RemoteMessages::end_failed() {
  bool moved = false;
  for (Operation* const operation : std::exchange(ending_, {})) {
    Settlement::Received received;
    std::map<int, std::vector<SentMessage>> sent;
    if (operation->is_running() && states_[*operation].leaves_node) {
      State& state = states_[*operation];
      if (!state.is_withdrawn) withdraw(*operation);
      if (state.receives_posted > 0) {
        ending_.push_back(operation);
        continue;
      }
      for (StepId id = 0; id < state.status.size(); ++id) {
        const Step& step = operation->step(id);
        if (step.kind == StepKind::recv && state.status[id] == StepStatus::done)
          received.emplace(step.peer, tag_of(*operation, id));
        else if (step.kind == StepKind::send && state.status[id] != StepStatus::none)
          sent[step.peer].push_back({.tag = tag_of(*operation, id), .bytes = step.from.size_bytes});
      }
    }
    settlements_[operation->sequence].end(std::move(received), present());
    for (const int peer : remote_) send_list(peer, operation->sequence, ListKind::sent, sent[peer]);
    moved = true;
    core_.release(*operation);
  }
  return moved;
}

bool RemoteMessages::settle() {
  bool moved = false;
  for (auto at = settlements_.begin(); at != settlements_.end();) {
    Settlement& settlement = at->second;
    const auto may_receive = [&](int peer) { return at->first < pair(peer).may_post_before; };
    for (const Settlement::Missing& missing : settlement.take_missing(may_receive)) {
      sink(Kind::sink, missing.source, at->first, missing.message);
      moved = true;
    }
    at = settlement.is_settled() ? settlements_.erase(at) : std::next(at);
  }
  return moved;
}

void RemoteMessages::sink(Kind kind, int peer, std::uint64_t sequence, const SentMessage& message) {
  std::unique_ptr<std::byte[]> memory(new std::byte[message.bytes]);
  std::byte* const bytes = memory.get();
  const std::uint32_t token = add({.kind = kind, .peer = peer, .sequence = sequence, .memory = std::move(memory)});
  core_.transport->irecv({bytes, message.bytes}, peer, message.tag, token);
}

std::set<int> RemoteMessages::present() const {
  std::set<int> ranks(remote_.begin(), remote_.end());
  for (const auto& [peer, left] : left_) ranks.erase(peer);
  return ranks;
}

void RemoteMessages::leave() {
  if (core_.transport_broken || std::exchange(is_leaving_, true)) return;
  for (const int peer : remote_) {
    const auto with = pairs_.find(peer);
    Header header;
    header.sequence = core_.operations.next();
    header.bytes = with == pairs_.end() ? 0 : with->second.counts.sent();
    header.source = static_cast<std::uint32_t>(core_.rank);
    header.kind = MessageKind::left;
    send(peer, header, {}, nullptr);
    flush();
  }
}

void RemoteMessages::on_left(const Header& header) {
  const int peer = static_cast<int>(header.source);
  left_[peer] = {.sequence = header.sequence, .sent = header.bytes};
  for (auto& [sequence, settlement] : settlements_) settlement.stop_hearing(peer);
  are_fewer_blocked_ = !blocked_.empty();
}

int RemoteMessages::find_left(Operation& operation, const std::vector<int>& peers) {
  if (left_.empty()) return -1;
  std::uint32_t& checks = states_[operation].checks_since_left;
  const auto lacks = [&](int peer) {
    if (!has_left(peer)) return false;
    if (is_without(operation, peer)) return true;
    return checks >= (pair(peer).counts.received() < left_.at(peer).sent ? kMostChecks : kLeastChecks);
  };
  if (std::ranges::any_of(peers, [&](int peer) { return has_left(peer); })) ++checks;
  const auto found = std::ranges::find_if(peers, lacks);
  return found == peers.end() ? -1 : *found;
}

void RemoteMessages::drop_gone() {
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

void RemoteMessages::send_list(int peer, std::uint64_t sequence, ListKind kind,
                               const std::vector<SentMessage>& messages) {
  constexpr std::size_t kMost = kPayloadBytes / sizeof(SentMessage);
  std::size_t begin = 0;
  do {
    const ConstBytes part = std::as_bytes(std::span(messages).subspan(begin, std::min(kMost, messages.size() - begin)));
    Header header;
    header.sequence = sequence;
    header.source = static_cast<std::uint32_t>(core_.rank);
    header.kind = MessageKind::sent;
    header.tag = static_cast<std::uint32_t>(kind);
    header.bytes = messages.size();
    header.address = begin;
    header.payload_bytes = static_cast<std::uint32_t>(part.size());
    send(peer, header, part, nullptr);
    begin += kMost;
  } while (begin < messages.size());
}

std::vector<SentMessage> RemoteMessages::planned(std::uint64_t sequence, int peer, StepKind kind) const {
  std::shared_ptr<const RemoteTraffic> traffic;
  std::uint64_t signature = 0;
  if (is_over(sequence)) {
    const OperationTable::Past& past = core_.operations.past(sequence);
    traffic = past.traffic;
    signature = past.signature;
  } else {
    const Operation& running = *core_.operations.find(sequence);
    traffic = running.call.compiled->traffic();
    signature = running.call.signature;
  }
  std::vector<SentMessage> messages;
  if (traffic == nullptr) return messages;
  for (const RemoteMessage& each : *traffic)
    if (each.peer == peer && each.kind == kind)
      messages.push_back({.tag = tags_.tag(sequence, signature, each.wire_tag), .bytes = each.bytes});
  return messages;
}

// The asker's epoch is not closed, so nothing was sent to it since in later ones but the next.
void RemoteMessages::forget(int peer, std::uint64_t sequence) {
  const bool may_have_sent = pair(peer).counts.may_have_sent_in(tags_.epoch(sequence));
  send_list(peer, sequence, may_have_sent ? ListKind::forgotten : ListKind::sent, {});
}

void RemoteMessages::on_list(const Header& header, ConstBytes payload) {
  const int peer = static_cast<int>(header.source);
  std::vector<SentMessage>& list = lists_[peer];
  const std::size_t before = list.size();
  list.resize(before + payload.size() / sizeof(SentMessage));
  if (!payload.empty()) std::memcpy(list.data() + before, payload.data(), payload.size());
  if (list.size() < header.bytes) return;
  std::vector<SentMessage> messages = std::exchange(list, {});
  const auto kind = static_cast<ListKind>(header.tag);
  switch (kind) {
    case ListKind::sent: return on_all_sent(header.sequence, peer, std::move(messages));
    case ListKind::recounted: return on_recounted(peer, header.sequence, messages);
    case ListKind::forgotten: return on_forgotten(peer, header.sequence);
    default: break;
  }
  if (is_over(header.sequence)) return;
  if (Operation* const running = core_.operations.find(header.sequence);
      running != nullptr && running->is_running() && !running->has_failed())
    compare(*running, peer, kind, messages);
}

void RemoteMessages::on_forgotten(int peer, std::uint64_t sequence) {
  if (settlements_.contains(sequence))
    return give_up_communicator(peer, "operation " + std::to_string(sequence) + " failed on rank " +
                                          std::to_string(core_.rank) + " when rank " + std::to_string(peer) +
                                          " was too far ahead to know what it had sent for it");
  if (is_over(sequence)) return;
  Operation* const running = core_.operations.find(sequence);
  if (running == nullptr || !running->is_running() || running->has_failed()) return;
  std::vector<int> peers;
  waits_for(*running, peers);
  if (std::find(peers.begin(), peers.end(), peer) == peers.end()) return;
  // What it had sent before it told so has come by the next time.
  if (++states_[*running].forgotten_by_peers < 3) return;
  core_.fail_mismatch(*running, peer, "rank " + std::to_string(peer) + " completed it long ago");
}

void RemoteMessages::on_all_sent(std::uint64_t sequence, int peer, std::vector<SentMessage> sent) {
  if (is_over(sequence)) {
    if (core_.operations.past(sequence).sequence != sequence) return forget(peer, sequence);
    has_failed_elsewhere(sequence);
    if (!settlements_.contains(sequence)) return;  // settled
  }
  settlements_[sequence].hear(peer, std::move(sent));
}

void RemoteMessages::has_failed_elsewhere(std::uint64_t sequence) {
  if (core_.transport_broken || !is_over(sequence) || !core_.operations.note_failed_elsewhere(sequence)) return;
  Settlement::Received received;
  if (const auto besides = excess_.find(sequence); besides != excess_.end()) received = besides->second;
  for (const int peer : remote_) {
    send_list(peer, sequence, ListKind::sent, planned(sequence, peer, StepKind::send));
    for (const SentMessage& each : planned(sequence, peer, StepKind::recv)) received.emplace(peer, each.tag);
  }
  settlements_[sequence].end(std::move(received), present());
}

// Ranks whose counts alone differ have the same signature.
void RemoteMessages::compare(Operation& operation, int peer, ListKind kind, const std::vector<SentMessage>& there) {
  const bool peer_sends = kind == ListKind::sends;
  const std::vector<SentMessage> here = planned(operation.sequence, peer, peer_sends ? StepKind::recv : StepKind::send);
  const auto find = [](const std::vector<SentMessage>& list, std::int32_t tag) -> const SentMessage* {
    const auto found = std::find_if(list.begin(), list.end(), [&](const SentMessage& each) { return each.tag == tag; });
    return found == list.end() ? nullptr : &*found;
  };
  const auto bytes = [](const SentMessage& message) { return std::to_string(message.bytes) + " bytes"; };
  const std::string peer_name = "rank " + std::to_string(peer);
  const std::string own_name = "rank " + std::to_string(core_.rank);
  const std::string& sender = peer_sends ? peer_name : own_name;
  const std::string& receiver = peer_sends ? own_name : peer_name;
  const std::vector<SentMessage>& sent = peer_sends ? there : here;
  const std::vector<SentMessage>& expected = peer_sends ? here : there;
  for (const SentMessage& each : expected) {
    const SentMessage* const message = find(sent, each.tag);
    if (message == nullptr)
      return core_.fail_mismatch(
          operation, peer,
          sender + " takes part without sending the " + bytes(each) + " that " + receiver + " expected from it");
    if (message->bytes != each.bytes)
      return core_.fail_mismatch(
          operation, peer, sender + " sent " + bytes(*message) + " where " + receiver + " expected " + bytes(each));
  }
  for (const SentMessage& each : sent)
    if (find(expected, each.tag) == nullptr)
      return core_.fail_mismatch(operation, peer,
                                 "the plan of " + receiver + " has no step for a message of " + bytes(each) +
                                     " under tag " + std::to_string(tags_.plan_tag(operation.sequence, operation.call.signature, each.tag)));
}

void RemoteMessages::waits_for(const Operation& operation, std::vector<int>& peers) const {
  in_flight_.for_each([&](const InFlight& each) {
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

bool RemoteMessages::close() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  // Answers packets that have come, also if this rank has nothing left to do.
  const auto drain = [&] {
    while (!core_.transport_broken && (progress(true) || is_busy()) && std::chrono::steady_clock::now() < deadline) {
      drop_gone();
      std::this_thread::yield();
    }
  };
  drain();
  leave();
  drain();
  // The transport may still use it.
  in_flight_.for_each_id([](std::uint32_t, InFlight& each) { static_cast<void>(each.memory.release()); });
  if (core_.transport_broken) return true;
  if (is_busy()) return false;
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(core_.node.team.size()));
  std::uint64_t received = 0;
  for (const auto& [peer, each] : pairs_) {
    sent[static_cast<std::size_t>(peer)] = each.counts.sent();
    received += each.counts.received();
  }
  core_.transport->retire(std::move(sent), received);
  return true;
}

}  // namespace penstock::engine
