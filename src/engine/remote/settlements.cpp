#include "engine/remote/settlements.hpp"

#include <string>
#include <utility>

namespace penstock::engine {

void Settlements::end(std::uint64_t sequence, Settlement::Received received, Sent sent) {
  settlements_[sequence].end(std::move(received), ranks_.present());
  for (const int peer : ranks_.all()) packets_.send_list(peer, sequence, ListKind::sent, sent[peer]);
}

void Settlements::has_failed_elsewhere(std::uint64_t sequence) {
  if (core_.transport_broken || !core_.operations.is_over(sequence) ||
      !core_.operations.note_failed_elsewhere(sequence))
    return;
  Settlement::Received received = epochs_.excess(sequence);
  Sent sent;
  for (const int peer : ranks_.all()) {
    sent[peer] = plans_.planned(sequence, peer, StepKind::send);
    for (const SentMessage& each : plans_.planned(sequence, peer, StepKind::recv)) received.emplace(peer, each.tag);
  }
  end(sequence, std::move(received), std::move(sent));
}

void Settlements::end_those_not_begun() {
  for (const auto& [sequence, settlement] : settlements_)
    if (sequence >= core_.operations.next() && !settlement.has_ended()) end(sequence, epochs_.excess(sequence), {});
}

void Settlements::hear(std::uint64_t sequence, int peer, std::vector<SentMessage> sent) {
  if (core_.operations.is_over(sequence)) {
    // The peer's epoch is not closed, so nothing was sent to it since in later ones but the next.
    if (core_.operations.past(sequence).sequence != sequence)
      return packets_.send_list(peer, sequence,
                                epochs_.may_have_sent(peer, sequence) ? ListKind::forgotten : ListKind::sent, {});
    has_failed_elsewhere(sequence);
    if (!contains(sequence)) return;  // settled
  } else if (settled_.contains(sequence)) {
    return;
  }
  settlements_[sequence].hear(peer, std::move(sent));
}

void Settlements::on_forgotten(std::uint64_t sequence, int peer) {
  if (contains(sequence))
    epochs_.give_up_communicator(peer, "operation " + std::to_string(sequence) + " failed on rank " +
                                           std::to_string(core_.rank) + " when rank " + std::to_string(peer) +
                                           " was too far ahead to know what it had sent for it");
}

// A send may keep a failed operation from being over for long after that.
void Settlements::note_settled(std::uint64_t sequence) {
  if (core_.operations.is_over(sequence)) return;
  std::erase_if(settled_, [&](std::uint64_t each) { return core_.operations.is_over(each); });
  settled_.insert(sequence);
}

bool Settlements::settle() {
  bool moved = false;
  for (auto at = settlements_.begin(); at != settlements_.end();) {
    Settlement& settlement = at->second;
    const auto may_receive = [&](int peer) { return epochs_.may_post(peer, at->first); };
    for (const Settlement::Missing& missing : settlement.take_missing(may_receive)) {
      in_flight_.receive_nowhere(InFlight::Kind::sink, missing.source, at->first, missing.message);
      moved = true;
    }
    if (!settlement.is_settled()) {
      ++at;
      continue;
    }
    note_settled(at->first);
    at = settlements_.erase(at);
  }
  return moved;
}

}  // namespace penstock::engine
