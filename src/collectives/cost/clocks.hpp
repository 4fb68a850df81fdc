// The resources of the model (Machine) for the costs of algorithms, which go through an operation in the order of the
// steps, not in the order of time. A queue keeps its idle times, so that work may come in any order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cost_model/prices.hpp"

namespace penstock::collectives::cost {

template <class Time>
Time latest(const std::vector<Time>& times) {
  Time latest{};
  for (const Time& each : times) latest = std::max(latest, each);
  return latest;
}

/// What serves one piece of work at a time: a core, the injection of a process, or a link of a node.
template <class Time>
class Server {
 public:
  /// When work ends that is ready at `ready`: in the first idle time that is long enough.
  Time take(const Time& ready, const Time& work) {
    busy_ = busy_ + work;
    if (!(ready < free_)) {
      if (free_ < ready) {
        if (idle_.capacity() == 0) idle_.reserve(kFirstIdle);
        idle_.push_back({free_, ready});
      }
      return free_ = ready + work;
    }
    std::size_t first = idle_.size();
    while (first > 0 && ready < idle_[first - 1].second) --first;
    for (std::size_t i = first; i < idle_.size(); ++i) {
      const Time begin = std::max(idle_[i].first, ready);
      const Time end = begin + work;
      if (idle_[i].second < end) continue;
      const Time rest = idle_[i].second;
      idle_[i].second = begin;
      if (end < rest) idle_.insert(idle_.begin() + static_cast<std::ptrdiff_t>(i) + 1, {end, rest});
      return end;
    }
    return free_ = free_ + work;
  }
  const Time& free() const { return free_; }
  const Time& busy() const { return busy_; }
  /// Between its first work and its last.
  Time idle() const {
    Time idle{};
    for (const auto& [begin, end] : idle_)
      if (Time{} < begin) idle = idle + (end - begin);
    return idle;
  }

 private:
  static constexpr std::size_t kFirstIdle = 4;

  Time free_{};
  Time busy_{};  // in all
  std::vector<std::pair<Time, Time>> idle_;
};

/// The processes and links of a team. As in simulated_seconds(), a message has two ends: when the sender's buffer is
/// free, and when the receiver has it.
template <class Time>
class Clocks {
 public:
  struct Ends {
    Time sent{};
    Time received{};
  };

  /// `nodes`: the ranks of each node.
  Clocks(const Team& team, const Machine& machine, const std::vector<std::vector<int>>& nodes)
      : prices_{machine}, team_(team), server_of_rank_(static_cast<std::size_t>(team.size()), kNone) {
    out_.resize(nodes.size());
    in_.resize(nodes.size());
    const auto cores = static_cast<std::size_t>(std::max(1, machine.node.cores));
    if (std::ranges::all_of(nodes, [&](const std::vector<int>& node) { return node.size() <= cores; })) return;
    core_of_rank_.resize(server_of_rank_.size());
    for (std::vector<int> node : nodes) {
      std::ranges::sort(node);
      for (std::size_t i = 0; i < node.size(); ++i) core_of_rank_[static_cast<std::size_t>(node[i])] = node[i % cores];
    }
  }

  const cost_model::Prices<Time>& prices() const { return prices_; }

  Time work(int rank, const Time& ready, const Time& work) { return core(rank).take(ready, work); }
  Time combine(int rank, const Time& ready, std::uint64_t bytes) { return work(rank, ready, prices_.combine(bytes)); }

  /// A message inside a node whose send is ready at `ready`, and whose receive is posted at `posted`.
  Ends inside(int from, int to, std::uint64_t bytes, const Time& ready, const Time& posted) {
    if (prices_.is_read(bytes, team_.single_copy)) return read(to, bytes, std::max(ready, posted));
    const Time copy = prices_.copy(bytes, is_far(from, to));
    const Time end = work(from, ready, copy);
    return {end, receive_inside(from, to, bytes, std::max(posted, is_long(bytes) ? end - copy : end))};
  }

  /// The two ends of a message inside a node, for a peer that is not followed. When it is copied in, as `sent`:
  Time copy_in(int from, int to, std::uint64_t bytes, const Time& ready) {
    if (prices_.is_read(bytes, team_.single_copy)) return ready;
    const Time copy = prices_.copy(bytes, is_far(from, to));
    const Time end = work(from, ready, copy);
    return is_long(bytes) ? end - copy : end;
  }
  /// ... and when it is received, if it was copied in at `ready`.
  Time copy_out(int from, int to, std::uint64_t bytes, const Time& ready) {
    return prices_.is_read(bytes, team_.single_copy) ? read(to, bytes, ready).received
                                                     : receive_inside(from, to, bytes, ready);
  }

  /// The way of a message between nodes from the core of its sender to the link of the other node.
  struct Way {
    Time sent;        // when the sender's buffer is free
    Time first_byte;  // when it reaches the link
    Time last_byte;
  };
  /// `handed`: when the sender's core is done with it.
  Way leave(int from, std::uint64_t bytes, const Time& handed, const Time& posted) {
    const Time latency = prices_.latency();
    const bool is_eager = prices_.is_eager(bytes);
    const Time leaves = is_eager ? handed : std::max(handed + latency, posted) + latency;
    const Time injection = prices_.on_process(bytes);
    Time left = of_rank(from).injection.take(leaves, injection);
    const Time link = prices_.on_link(bytes);
    const Time out = out_[node_of(from)].take(left - injection, link);
    left = std::max(left, out);
    return {is_eager ? handed : left, out - link + latency, left + latency};
  }
  /// ... and through that link.
  Time enter(int to, std::uint64_t bytes, const Time& ready) {
    return in_[node_of(to)].take(ready, prices_.on_link(bytes));
  }

  /// A shared task on the core of these ranks that is free first.
  Time task(const std::vector<int>& node, const Time& ready, std::uint64_t bytes, std::size_t sources,
            std::size_t targets) {
    int best = node[0];
    for (const int rank : node) {
      const Time free = core(rank).free();
      if (free < core(best).free()) best = rank;
    }
    return work(best, ready, prices_.task(bytes, sources, targets));
  }

 private:
  static constexpr std::int32_t kNone = -1;
  struct OfRank {
    Server<Time> core{};
    Server<Time> injection{};
  };

  std::size_t node_of(int rank) const {
    return static_cast<std::size_t>(team_.node_of_rank[static_cast<std::size_t>(rank)]);
  }
  bool is_long(std::uint64_t bytes) const { return bytes > prices_.machine.node.message_bytes; }
  bool is_far(int a, int b) const {
    return !team_.domain_of_rank.empty() &&
           team_.domain_of_rank[static_cast<std::size_t>(a)] != team_.domain_of_rank[static_cast<std::size_t>(b)];
  }
  Server<Time>& core(int rank) {
    return of_rank(core_of_rank_.empty() ? rank : core_of_rank_[static_cast<std::size_t>(rank)]).core;
  }
  // Most ranks of a large team are never followed.
  OfRank& of_rank(int rank) {
    std::int32_t& server = server_of_rank_[static_cast<std::size_t>(rank)];
    if (server == kNone) {
      server = static_cast<std::int32_t>(servers_.size());
      servers_.emplace_back();
    }
    return servers_[static_cast<std::size_t>(server)];
  }
  Ends read(int to, std::uint64_t bytes, const Time& ready) {
    const Time end = work(to, ready, prices_.flag() + prices_.remote_read(bytes));
    return {end, end};
  }
  Time receive_inside(int from, int to, std::uint64_t bytes, const Time& ready) {
    return work(to, ready, prices_.flag() + prices_.copy(bytes, is_far(from, to)));
  }

  cost_model::Prices<Time> prices_;
  const Team& team_;
  std::vector<std::int32_t> core_of_rank_;    // the rank whose core it uses; empty: its own
  std::vector<std::int32_t> server_of_rank_;  // into servers_
  std::vector<OfRank> servers_;
  std::vector<Server<Time>> out_;  // by node
  std::vector<Server<Time>> in_;
};

}  // namespace penstock::collectives::cost
