// Failed operations between nodes: what is on its way for them is received, and plans that do not fit are found.
#include <algorithm>
#include <string>

#include "engine/remote/remote_messages.hpp"

namespace penstock::engine {

// The peer waits for this rank. If their plans do not fit, none of their messages may ever meet.
void RemoteMessages::on_probe(const Header& header, ConstBytes payload) {
  const int peer = static_cast<int>(header.source);
  if (plans_.is_over(header.sequence)) {
    const OperationTable::Past& past = core_.operations.past(header.sequence);
    if (past.sequence != header.sequence) return packets_.send_list(peer, header.sequence, ListKind::forgotten, {});
    if (!past.failed && past.signature == header.signature) return tell_plan(peer, header.sequence);
  } else if (const Operation* const running = plans_.find_running(header.sequence);
             running != nullptr && running->call.signature == header.signature) {
    return tell_plan(peer, header.sequence);
  }
  core_.arrive(header, payload);
}

void RemoteMessages::tell_plan(int peer, std::uint64_t sequence) {
  packets_.send_list(peer, sequence, ListKind::sends, plans_.planned(sequence, peer, StepKind::send));
  packets_.send_list(peer, sequence, ListKind::receives, plans_.planned(sequence, peer, StepKind::recv));
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
  in_flight_.withdraw_if(
      [&](const InFlight::Entry& each) { return each.kind == Kind::receive && each.operation == &operation; });
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
          received.emplace(step.peer, plans_.tag_of(*operation, id));
        else if (step.kind == StepKind::send && state.status[id] != StepStatus::none)
          sent[step.peer].push_back({.tag = plans_.tag_of(*operation, id), .bytes = step.from.size_bytes});
      }
    }
    settlements_[operation->sequence].end(std::move(received), ranks_.present());
    for (const int peer : ranks_.all()) packets_.send_list(peer, operation->sequence, ListKind::sent, sent[peer]);
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
      in_flight_.receive_nowhere(Kind::sink, missing.source, at->first, missing.message);
      moved = true;
    }
    at = settlement.is_settled() ? settlements_.erase(at) : std::next(at);
  }
  return moved;
}

// The asker's epoch is not closed, so nothing was sent to it since in later ones but the next.
void RemoteMessages::forget(int peer, std::uint64_t sequence) {
  const bool may_have_sent = pair(peer).counts.may_have_sent_in(plans_.tags.epoch(sequence));
  packets_.send_list(peer, sequence, may_have_sent ? ListKind::forgotten : ListKind::sent, {});
}

void RemoteMessages::on_list(const Header& header, ConstBytes payload) {
  const int peer = static_cast<int>(header.source);
  std::optional<std::vector<SentMessage>> list = packets_.collect(header, payload);
  if (!list) return;
  switch (header.list.kind) {
    case ListKind::sent: return on_all_sent(header.sequence, peer, std::move(*list));
    case ListKind::recounted: return on_recounted(peer, plans_.tags.epoch(header.sequence), *list);
    case ListKind::forgotten: return on_forgotten(peer, header.sequence);
    default: break;
  }
  if (Operation* const running = plans_.find_running(header.sequence)) compare(*running, peer, header.list.kind, *list);
}

// In one slot there are messages of one operation only, as soon as this rank may post some (MessageCounts).
void RemoteMessages::look_for_foreign(Operation& operation) {
  State& state = states_[operation];
  if (!state.leaves_node || !core_.may_call_transport() || core_.transport_broken) return;
  // As with probes: after 1, 2, 4, … checks.
  if (const std::uint32_t check = ++state.checks; (check & (check - 1)) != 0) return;
  // Also ranks with which the plan has no messages: another call has others.
  for (const int peer : ranks_.all()) {
    if (operation.sequence >= pair(peer).may_post_before) continue;
    const int tag = core_.transport->first_unmatched(peer);
    if (!plans_.tags.is_of(operation.sequence, tag)) continue;
    const std::vector<SentMessage> expected = plans_.planned(operation.sequence, peer, StepKind::recv);
    if (std::ranges::find(expected, tag, &SentMessage::tag) != expected.end()) continue;
    return core_.fail_mismatch(operation, peer,
                               "rank " + std::to_string(peer) + " has sent a message for which the plan of rank " +
                                   std::to_string(core_.rank) + " has no step");
  }
}

void RemoteMessages::on_forgotten(int peer, std::uint64_t sequence) {
  if (settlements_.contains(sequence))
    return give_up_communicator(peer, "operation " + std::to_string(sequence) + " failed on rank " +
                                          std::to_string(core_.rank) + " when rank " + std::to_string(peer) +
                                          " was too far ahead to know what it had sent for it");
  Operation* const running = plans_.find_running(sequence);
  if (running == nullptr) return;
  std::vector<int> peers;
  waits_for(*running, peers);
  if (std::find(peers.begin(), peers.end(), peer) == peers.end()) return;
  // What it had sent before it told so has come by the next time.
  if (++states_[*running].forgotten_by_peers < 3) return;
  core_.fail_mismatch(*running, peer, "rank " + std::to_string(peer) + " completed it long ago");
}

void RemoteMessages::on_all_sent(std::uint64_t sequence, int peer, std::vector<SentMessage> sent) {
  if (plans_.is_over(sequence)) {
    if (core_.operations.past(sequence).sequence != sequence) return forget(peer, sequence);
    has_failed_elsewhere(sequence);
    if (!settlements_.contains(sequence)) return;  // settled
  }
  settlements_[sequence].hear(peer, std::move(sent));
}

void RemoteMessages::has_failed_elsewhere(std::uint64_t sequence) {
  if (core_.transport_broken || !plans_.is_over(sequence) || !core_.operations.note_failed_elsewhere(sequence)) return;
  Settlement::Received received;
  if (const auto besides = excess_.find(sequence); besides != excess_.end()) received = besides->second;
  for (const int peer : ranks_.all()) {
    packets_.send_list(peer, sequence, ListKind::sent, plans_.planned(sequence, peer, StepKind::send));
    for (const SentMessage& each : plans_.planned(sequence, peer, StepKind::recv)) received.emplace(peer, each.tag);
  }
  settlements_[sequence].end(std::move(received), ranks_.present());
}

// Ranks whose counts alone differ have the same signature.
void RemoteMessages::compare(Operation& operation, int peer, ListKind kind, const std::vector<SentMessage>& there) {
  const bool peer_sends = kind == ListKind::sends;
  const std::vector<SentMessage> here =
      plans_.planned(operation.sequence, peer, peer_sends ? StepKind::recv : StepKind::send);
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
      return core_.fail_mismatch(
          operation, peer,
          "the plan of " + receiver + " has no step for a message of " + bytes(each) + " under tag " +
              std::to_string(plans_.tags.plan_tag(operation.sequence, operation.call.signature, each.tag)));
}

}  // namespace penstock::engine
