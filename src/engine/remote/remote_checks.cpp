#include "engine/remote/remote_checks.hpp"

#include <algorithm>
#include <string>

namespace penstock::engine {
namespace {

// Checks or answers after which what a rank had sent before it left, or before it answered, has come.
constexpr std::uint32_t kChecks = 3;

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

int RemoteChecks::find_left(const Operation& operation, const std::vector<int>& peers) {
  const auto found = std::ranges::find_if(peers, [&](int peer) { return ranks_.has_left(peer); });
  return found != peers.end() && ++states_.current(operation).checks_since_left >= kChecks ? *found : -1;
}

// In one slot there are messages of one operation only, as soon as this rank may post some (MessageCounts).
void RemoteChecks::look_for_foreign(Operation& operation) {
  if (!operation.is_running() || !operation.call.compiled->leaves_node() || !core_.may_call_transport()) return;
  // As with probes: after 1, 2, 4, … checks.
  if (const std::uint32_t check = ++states_.current(operation).checks; (check & (check - 1)) != 0) return;
  // Also ranks with which the plan has no messages: another call has others.
  for (const int peer : ranks_.all()) {
    if (!epochs_.may_post(peer, operation.sequence)) continue;
    const int tag = core_.transport->first_unmatched(peer);
    if (!plans_.tags.is_of(operation.sequence, tag)) continue;
    const std::vector<SentMessage> expected = plans_.planned(operation.sequence, peer, StepKind::recv);
    if (std::ranges::find(expected, tag, &SentMessage::tag) != expected.end()) continue;
    return core_.fail_mismatch(
        operation, peer,
        rank_text(peer) + " has sent a message for which the plan of " + rank_text(core_.rank) + " has no step");
  }
}

bool RemoteChecks::answer_probe(const Header& header) {
  const int peer = static_cast<int>(header.source);
  const std::uint64_t sequence = header.sequence;
  if (core_.operations.is_over(sequence)) {
    const OperationTable::Past& past = core_.operations.past(sequence);
    if (past.sequence != sequence) {
      packets_.send_list(peer, sequence, ListKind::forgotten, {});
      return true;
    }
    if (past.failed || past.signature != header.signature) return false;
  } else if (const Operation* const running = core_.operations.find_running(sequence);
             running == nullptr || running->call.signature != header.signature) {
    return false;
  }
  packets_.send_list(peer, sequence, ListKind::sends, plans_.planned(sequence, peer, StepKind::send));
  packets_.send_list(peer, sequence, ListKind::receives, plans_.planned(sequence, peer, StepKind::recv));
  return true;
}

// Ranks whose counts alone differ have the same signature.
void RemoteChecks::compare(Operation& operation, int peer, ListKind kind, const std::vector<SentMessage>& there) {
  const bool peer_sends = kind == ListKind::sends;
  const std::vector<SentMessage> here =
      plans_.planned(operation.sequence, peer, peer_sends ? StepKind::recv : StepKind::send);
  const auto bytes = [](const SentMessage& message) { return std::to_string(message.bytes) + " bytes"; };
  const std::string sender = rank_text(peer_sends ? peer : core_.rank);
  const std::string receiver = rank_text(peer_sends ? core_.rank : peer);
  const std::vector<SentMessage>& sent = peer_sends ? there : here;
  const std::vector<SentMessage>& expected = peer_sends ? here : there;
  for (const SentMessage& each : expected) {
    const auto found = std::ranges::find(sent, each.tag, &SentMessage::tag);
    if (found == sent.end())
      return core_.fail_mismatch(
          operation, peer,
          sender + " takes part without sending the " + bytes(each) + " that " + receiver + " expected from it");
    if (found->bytes != each.bytes)
      return core_.fail_mismatch(operation, peer,
                                 sender + " sent " + bytes(*found) + " where " + receiver + " expected " + bytes(each));
  }
  for (const SentMessage& each : sent)
    if (std::ranges::find(expected, each.tag, &SentMessage::tag) == expected.end())
      return core_.fail_mismatch(
          operation, peer,
          "the plan of " + receiver + " has no step for a message of " + bytes(each) + " under tag " +
              std::to_string(plans_.tags.plan_tag(operation.sequence, operation.call.signature, each.tag)));
}

void RemoteChecks::on_forgotten(Operation& operation, int peer) {
  if (++states_.current(operation).forgotten_by_peers < kChecks) return;
  core_.fail_mismatch(operation, peer, rank_text(peer) + " completed it long ago");
}

}  // namespace penstock::engine
