#include "engine/remote/epochs.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "base/ranks_text.hpp"

namespace penstock::engine {

void Epochs::close() {
  const std::uint64_t closed = plans_.tags.epoch(core_.operations.base());
  if (closed == closed_ || !core_.may_call_transport()) return;
  closed_ = closed;
  has_news_ = true;
  for (const auto& [peer, with] : pairs_) {
    const MessageCounts& counts = with.counts;
    const std::uint64_t first = counts.told_before();
    for (std::uint64_t epoch = first; epoch < std::min(closed, first + 2); ++epoch)
      if (counts.has_news(epoch)) tell(peer, epoch);
    if (const std::uint64_t asked = counts.asked_before(); asked > 0 && asked <= closed) tell(peer, asked - 1);
  }
  packets_.flush();
  while (!excess_.empty() && core_.operations.past(excess_.begin()->first).sequence != excess_.begin()->first)
    excess_.erase(excess_.begin());
}

Epochs::Pair& Epochs::find_pair(int peer) {
  const auto [found, is_new] = pairs_.try_emplace(peer);
  if (is_new) set_limit(found->second);
  recent_[static_cast<unsigned>(peer) % recent_.size()] = {peer, &found->second};
  return found->second;
}

void Epochs::want_to_post(int peer, std::uint64_t sequence) {
  const std::uint64_t last_use = plans_.tags.epoch(sequence) - 2;
  if (last_use < closed_ && last_use >= pair(peer).counts.told_before()) tell(peer, last_use);
}

void Epochs::tell(int peer, std::uint64_t epoch) {
  const MessageCounts::Told told = pair(peer).counts.tell(epoch);
  set_limit(pair(peer));
  has_news_ = true;
  Header header = core_.header(first_of(told.epoch), MessageKind::counts);
  header.count = {.messages = told.sent};
  packets_.send(peer, header);
}

void Epochs::hear(const Header& header) {
  const int peer = static_cast<int>(header.source);
  if (!pair(peer).counts.has_heard()) hearing_.push_back(peer);
  MessageCounts& counts = pair(peer).counts;
  const std::uint64_t epoch = plans_.tags.epoch(header.sequence);
  counts.hear({epoch, header.count.messages});
  if (epoch < counts.told_before()) return;
  if (epoch < closed_)
    tell(peer, epoch);
  else
    counts.ask(epoch);
}

bool Epochs::clear(std::optional<std::uint64_t> unsettled) {
  bool moved = false;
  const std::vector<int> peers = hearing_;
  for (const int peer : peers) moved |= clear(peer, unsettled);
  std::erase_if(hearing_, [&](int peer) { return !pair(peer).counts.has_heard(); });
  return moved;
}

bool Epochs::clear(int peer, std::optional<std::uint64_t> unsettled) {
  Pair& with = pair(peer);
  bool moved = false;
  while (with.counts.has_heard() && with.counts.heard().epoch < closed_) {
    const MessageCounts::Told told = with.counts.heard();
    const std::uint64_t received = with.counts.received_of_heard();
    if (received == told.sent) {
      with.counts.clear_heard();
      with.recount = Pair::Recount::none;
      set_limit(with);
      has_news_ = true;
      moved = true;
      continue;
    }
    if (with.recount == Pair::Recount::none) {
      with.recount = Pair::Recount::asked;
      packets_.send(peer, core_.header(first_of(told.epoch), MessageKind::recount));
      moved = true;
    }
    // What has failed is being settled.
    const bool is_settling = unsettled && plans_.tags.epoch(*unsettled) <= told.epoch;
    if (with.recount == Pair::Recount::answered && with.excess == 0 && !is_settling)
      give_up_communicator(peer, "rank " + std::to_string(peer) + " has sent " + std::to_string(told.sent) +
                                     " messages up to operation " + std::to_string(first_of(told.epoch + 1) - 1) +
                                     ", of which rank " + std::to_string(core_.rank) + " has received " +
                                     std::to_string(received));
    break;
  }
  return moved;
}

// It was sent more than it received in this epoch, or in epochs before that it was not told of.
void Epochs::on_recount(int peer, std::uint64_t epoch) {
  std::vector<SentMessage> sent;
  const std::uint64_t begin = first_of(epoch);
  for (std::uint64_t sequence = begin; sequence < begin + plans_.tags.operations_per_epoch(); ++sequence) {
    const OperationTable::Past& past = core_.operations.past(sequence);
    if (past.sequence != sequence) return packets_.send_list(peer, begin, ListKind::recounted, {});
    if (past.failed || past.failed_elsewhere) continue;
    for (const SentMessage& each : plans_.planned(sequence, peer, StepKind::send)) sent.push_back(each);
  }
  packets_.send_list(peer, begin, ListKind::recounted, sent);
}

void Epochs::on_recounted(int peer, std::uint64_t epoch, const std::vector<SentMessage>& sent) {
  Pair& with = pair(peer);
  if (with.recount != Pair::Recount::asked || !with.counts.has_heard() || with.counts.heard().epoch != epoch) return;
  with.recount = Pair::Recount::answered;
  std::map<std::uint64_t, std::multiset<std::int32_t>> received;
  for (const SentMessage& each : sent) {
    const std::uint64_t sequence = plans_.tags.sequence(epoch, each.tag);
    const OperationTable::Past& past = core_.operations.past(sequence);
    if (past.sequence != sequence || past.failed || past.failed_elsewhere) continue;
    const auto [of_this, is_new] = received.try_emplace(sequence);
    if (is_new)
      for (const SentMessage& taken : plans_.planned(sequence, peer, StepKind::recv)) of_this->second.insert(taken.tag);
    if (const auto found = of_this->second.find(each.tag); found != of_this->second.end()) {
      of_this->second.erase(found);
      continue;
    }
    excess_[sequence].emplace(peer, each.tag);
    ++with.excess;
    in_flight_.receive_nowhere(InFlight::Kind::excess, peer, sequence, each);
  }
}

void Epochs::has_received_excess(int peer, std::uint64_t sequence) {
  note_received(peer, sequence);
  --pair(peer).excess;
}

void Epochs::give_up_communicator(int peer, const std::string& why) {
  if (unusable_) return;
  unusable_ =
      Error(ErrorCode::mismatch,
            base::ranks_text(std::array{core_.rank, peer}) + " cannot use this communicator any more: " + why +
                "; an earlier collective call of these ranks did not fit: every rank must make the same calls in "
                "the same order with matching counts, types and roots",
            core_.rank);
  core_.fail_all(*unusable_);
}

}  // namespace penstock::engine
