#include "engine/failure_detector.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "base/ranks_text.hpp"
#include "engine/core.hpp"

namespace penstock::engine {
FailureDetector::FailureDetector(Core& core) : core_(core), gone_(core.node.ranks.size(), false) {}

void FailureDetector::find_new() {
  for (std::uint32_t local_rank = 0; local_rank < gone_.size(); ++local_rank) {
    if (gone_[local_rank] || core_.node.segment->is_alive(local_rank)) continue;
    gone_[local_rank] = has_gone_ranks_ = true;
  }
}

void FailureDetector::note_death(int rank, std::uint64_t sequence) {
  if (dead_.rank < 0 || sequence < dead_.from_sequence) dead_ = {rank, sequence};
}

int FailureDetector::find_dead() const {
  if (core_.may_call_transport())
    for (int rank = 0; rank < core_.node.team.size(); ++rank)
      if (!core_.is_local(rank) && core_.transport->has_gone(rank)) return rank;
  for (std::uint32_t local_rank = 0; local_rank < gone_.size(); ++local_rank)
    if (gone_[local_rank] || !core_.node.segment->is_alive(local_rank)) return core_.node.ranks[local_rank];
  return -1;
}

int FailureDetector::find_gone_in(const Operation& operation) const {
  if (dead_.rank >= 0 && operation.sequence >= dead_.from_sequence) return dead_.rank;
  if (!has_gone_ranks_) return -1;
  for (std::uint32_t local_rank = 0; local_rank < gone_.size(); ++local_rank)
    if (gone_[local_rank] &&
        core_.slot(local_rank).completed_before.load(std::memory_order_acquire) <= operation.sequence)
      return core_.node.ranks[local_rank];
  return -1;
}

PeerGone FailureDetector::gone_error(int peer, const std::string& where) {
  return {
      "rank " + std::to_string(peer) + " has gone in " + where + ": its process ended, or it freed the communicator",
      peer};
}

void FailureDetector::throw_unreachable(const Operation& operation, int peer, int system_error) const {
  // A process that ends loses its memory before the kernel closes its files.
  if (system_error == ESRCH || !core_.node.segment->is_alive(core_.local(peer)))
    throw gone_error(peer, core_.describe(operation));
  throw Error(ErrorCode::io,
              "rank " + std::to_string(core_.rank) + " could not reach the memory of rank " + std::to_string(peer) +
                  "; PENSTOCK_SINGLE_COPY=off avoids that",
              core_.rank, std::generic_category().message(system_error), system_error);
}

void FailureDetector::check(Operation& operation, const std::vector<int>& peers) {
  // Probes at the first check, then after 2, 4, 8, … checks, so that a late rank does not get too many.
  std::uint32_t& probes_sent = watched_.current(operation).probes_sent;
  const bool probe = ((probes_sent + 1) & probes_sent) == 0;
  ++probes_sent;
  for (const int peer : peers) {
    if (peer == core_.rank) continue;
    if (core_.is_local(peer) ? gone_[core_.local(peer)] : core_.may_call_transport() && core_.transport->has_gone(peer))
      return core_.fail(operation, gone_error(peer, core_.describe(operation)));
    if (probe) core_.send(peer, core_.header_for(operation, MessageKind::probe), {}, nullptr);
  }
}

// A waiting thread calls it periodically.
void FailureDetector::watch_stall(Operation& operation, std::vector<int> peers, std::vector<int> absent,
                                  std::uint64_t mark) {
  Watched& watched = watched_.current(operation);
  const auto now = std::chrono::steady_clock::now();
  if (mark != watched.mark || operation.executing > 0) {
    watched.mark = mark;
    watched.still_since = now;
    return;
  }
  const auto still = std::chrono::duration_cast<std::chrono::milliseconds>(now - watched.still_since);
  std::erase(peers, core_.rank);
  std::erase(absent, core_.rank);
  const bool is_over = timeout_.count() > 0 && still >= timeout_;
  const bool is_stalled =
      core_.options.stall_timeout_ms > 0 && !watched.is_told && still.count() >= core_.options.stall_timeout_ms;
  if (peers.empty() || (!is_over && !is_stalled)) return;
  const std::string seconds =
      std::to_string(still.count() / 1000) + "." + std::to_string(still.count() / 100 % 10) + " s";
  const std::string whom = base::ranks_text(absent.empty() ? peers : absent) +
                           (absent.empty() ? ", from which more has to come" : ", from which nothing has come");
  if (is_over)
    return core_.fail(operation, Error(ErrorCode::timed_out,
                                       core_.describe(operation) + " timed out: rank " + std::to_string(core_.rank) +
                                           " has heard nothing for " + seconds + " and waits for " + whom,
                                       core_.rank));
  watched.is_told = true;
  ++stalls_;
  // Many operations may wait for one silent rank. Another line tells nothing new while an older one of them waits.
  std::erase_if(told_, [&](const Told& each) { return core_.operations.is_over(each.sequence); });
  if (std::ranges::find(told_, whom, &Told::whom) != told_.end()) return;
  told_.push_back({operation.sequence, whom});
  last_stall_ = "rank " + std::to_string(core_.rank) + " has heard nothing for " + seconds + " in " +
                core_.describe(operation) + ": it waits for " + whom +
                "; it keeps waiting (PENSTOCK_STALL_TIMEOUT_MS=0 turns this warning off)";
  std::fprintf(stderr, "penstock: %s\n", last_stall_.c_str());
}

std::string FailureDetector::report() const {
  return stalls_ == 0
             ? ""
             : "stall warning: in " + std::to_string(stalls_) + " operations; last line: " + last_stall_ + "\n";
}

}  // namespace penstock::engine
