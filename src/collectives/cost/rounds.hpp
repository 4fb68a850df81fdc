// Sums by messages that ranks of each node lead, each a part: along trees inside the nodes, in rounds between them. All
// nodes do the same, so one node is followed; and rounds follow each other, so steps are not sorted by time, as in the
// simulation: those of a round take their turns in the order of the parts.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "collectives/cost/clocks.hpp"
#include "collectives/cost/leader_parts.hpp"
#include "cost_model/prices.hpp"

namespace penstock::collectives::cost {

inline constexpr int kFewSums = 4;  // in a round: with more, some wait for the order in which they are combined

/// Of the nodes that are no power of two, the last ones to end: those that hand their data to a neighbour, or those
/// without such a neighbour.
enum class Last : std::uint8_t { in_pairs, others };

template <class Time>
class Rounds : public LeaderParts {
 public:
  Rounds(const Call& call, const Shape& shape) : LeaderParts(call, shape), prices_{call.machine} {}

  /// Whether messages come in the order in which they are looked at. Segments overtake each other, and so do messages
  /// of several leaders that wait for their receiver, or that come from nodes ahead of others.
  bool is_exact() const {
    const bool is_whole = among_ == Among::doubling || among_ == Among::multiplying;
    const bool has_parts = slots_ > 1 || !is_whole;
    if (among_ == Among::multiplying && !are_multiplied_in_turn()) return false;
    if (streams_ > 1 || batches_ > 1 || (has_parts && smallest_bytes_ < kFewElements * item_bytes_)) return false;
    const bool are_sent_at_once =
        prices_.is_eager(part_bytes_) && (ranks_ == 1 || !prices_.is_read(part_bytes_, single_copy_));
    return slots_ == 1 || (are_sent_at_once && !has_pairs());
  }
  /// The same for data of which in_turns() is `count`.
  Rounds first(std::size_t count) const {
    Rounds less = *this;
    less.keep_first(count);
    return less;
  }

  /// When all of a chunk is complete.
  Time time(Last last) {
    core_.assign(static_cast<std::size_t>(by_groups_ ? slots_ : ranks_), {});
    injection_.assign(static_cast<std::size_t>(slots_), {});
    out_ = in_ = {};
    sums_.assign(static_cast<std::size_t>(batches_ * slots_ * ranks_), Time{});
    if (goes_up_) by_groups_ ? up_alike() : up();
    exchange(last);
    if (goes_down_) by_groups_ ? down_alike() : down();
    Time end = latest(sums_);
    for (const Server<Time>& core : core_) end = std::max(end, core.free());
    return end;
  }
  struct Busiest {
    Time busy{};
    Time idle{};  // between its first work and its last
    bool is_core = false;
  };
  /// What a chunk kept busy longest, after time().
  Busiest busiest() const {
    Busiest busiest{};
    const auto look = [&](const Server<Time>& server, bool is_core) {
      if (busiest.busy < server.busy()) busiest = {server.busy(), server.idle(), is_core};
    };
    look(out_, false);
    look(in_, false);
    for (const Server<Time>& core : core_) look(core, true);
    return busiest;
  }

 private:
  /// No node sends once more, no messages of several leaders meet, and no sum of many waits for an earlier one.
  bool are_multiplied_in_turn() const {
    std::int64_t product = 1;
    for (const int radix : radices_) product *= radix;
    const bool are_short = radices_.back() <= kFewSums || !(prices_.overhead() < prices_.combine(part_bytes_));
    return product == nodes_ && slots_ == 1 && are_short;
  }
  /// What a core copies, and what it receives, if all do the same.
  Time alike(const Level& at, const Time& received) const {
    return levels_above_ > 0 ? copied_in(at.is_far) + at.messages * received
                             : at.messages * (copied_in(at.is_far) + received);
  }
  Time offer(Server<Time>& from, const Time& ready, bool far) const {
    if (prices_.is_read(batch_bytes_, single_copy_)) return ready;
    const Time copy = prices_.copy(batch_bytes_, far);
    const Time end = from.take(ready, copy);
    return batch_bytes_ > prices_.machine.node.message_bytes ? end - copy : end;
  }
  Time copied_in(bool far) const {
    return prices_.is_read(batch_bytes_, single_copy_) ? Time{} : prices_.copy(batch_bytes_, far);
  }

  void up_alike() {
    Server<Time> own;
    std::vector<Time> sums(static_cast<std::size_t>(batches_));
    Server<Time> last;
    std::vector<Time> last_sums;
    const Time combine = prices_.combine(batch_bytes_);
    for (int number = 0; number < levels(); ++number) {
      if (number == levels_of_last()) {
        last = own;
        last_sums = sums;
      }
      const Level at = level(number);
      const Time receive = receive_inside(at.is_far);
      if (at.messages > 0) {
        for (Time& each : sums) each = own.take(each, alike(at, receive + combine));
        continue;
      }
      Server<Time> child = at.is_top ? last : own;
      offered_ = at.is_top ? last_sums : sums;
      for (Time& each : offered_) each = offer(child, each, at.is_far);
      for (std::size_t i = 0; i < sums.size(); ++i)
        sums[i] = own.take(std::max(own.take(offered_[i], receive), sums[i]), combine);
    }
    std::ranges::fill(core_, own);
    for (int batch = 0; batch < batches_; ++batch)
      for (int slot = 0; slot < slots_; ++slot) sum(slot, batch, 0) = sums[static_cast<std::size_t>(batch)];
  }

  void down_alike() {
    std::vector<Time> sums(static_cast<std::size_t>(batches_));
    for (int batch = 0; batch < batches_; ++batch)
      for (int slot = 0; slot < slots_; ++slot)
        sums[static_cast<std::size_t>(batch)] = std::max(sums[static_cast<std::size_t>(batch)], sum(slot, batch, 0));
    Server<Time> own =
        *std::max_element(core_.begin(), core_.end(), [](const auto& a, const auto& b) { return a.free() < b.free(); });
    for (int number = levels(); number-- > 0;) {
      const Level at = level(number);
      const Time receive = receive_inside(at.is_far);
      if (at.messages > 0) {
        for (Time& each : sums) each = own.take(each, alike(at, receive));
        continue;
      }
      Server<Time> parent = own;
      offered_ = sums;
      for (Time& each : offered_) each = offer(parent, each, at.is_far);
      if (at.is_top && levels_of_last() < number) {
        own = parent;
        continue;
      }
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = own.take(offered_[i], receive);
    }
    core_.push_back(own);
    sums_ = sums;
  }

  void up() {
    const bool is_read = prices_.is_read(batch_bytes_, single_copy_);
    const Time receive = receive_inside();
    const Time combine = prices_.combine(batch_bytes_);
    for (int distance = 1; distance < ranks_; distance *= 2) {
      offered_.clear();
      for (int batch = 0; batch < batches_; ++batch)
        for (int slot = 0; slot < slots_; ++slot)
          for (int place = distance; place < ranks_; place += 2 * distance)
            offered_.push_back(is_read ? sum(slot, batch, place) : copy_in(slot, batch, place));
      std::size_t at = 0;
      for (int batch = 0; batch < batches_; ++batch)
        for (int slot = 0; slot < slots_; ++slot)
          for (int place = 0; place + distance < ranks_; place += 2 * distance) {
            Server<Time>& own = core(slot, place);
            Time& to = sum(slot, batch, place);
            to = own.take(std::max(own.take(offered_[at++], receive), to), combine);
          }
    }
  }

  void down() {
    const bool is_read = prices_.is_read(batch_bytes_, single_copy_);
    const Time receive = receive_inside();
    for (int distance = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks_))) / 2; distance > 0;
         distance /= 2) {
      offered_.clear();
      for (int batch = 0; batch < batches_; ++batch)
        for (int slot = 0; slot < slots_; ++slot)
          for (int place = 0; place + distance < ranks_; place += 2 * distance)
            offered_.push_back(is_read ? sum(slot, batch, place) : copy_in(slot, batch, place));
      std::size_t at = 0;
      for (int batch = 0; batch < batches_; ++batch)
        for (int slot = 0; slot < slots_; ++slot)
          for (int place = distance; place < ranks_; place += 2 * distance)
            sum(slot, batch, place) = core(slot, place).take(offered_[at++], receive);
    }
  }

  void exchange(Last last) {
    const bool is_doubling = among_ == Among::doubling || among_ == Among::multiplying;
    ready_.assign(static_cast<std::size_t>(slots_) * streams_, Time{});
    for (std::size_t stream = 0; stream < streams_; ++stream)
      for (int slot = 0; slot < slots_; ++slot)
        for (int batch = 0; batch < batches_; ++batch)
          if (!is_doubling || static_cast<std::size_t>(batch) * streams_ <= stream * static_cast<std::size_t>(batches_))
            ready(slot, stream) = std::max(ready(slot, stream), sum(slot, batch, 0));
    const std::uint64_t whole = part_bytes_ / streams_;
    const bool has_pairs = this->has_pairs();
    const bool meets_others = 2 * extras_.extra <= extras_.full;
    rounds_.clear();
    const auto parts = static_cast<std::uint64_t>(among_ == Among::ring ? nodes_ : extras_.full);
    const std::uint64_t part = whole / parts;
    switch (among_) {
      case Among::doubling:
        for (int half = extras_.full / 2; half > 0; half /= 2) rounds_.push_back({whole, true});
        break;
      case Among::multiplying: multiply(whole); break;
      case Among::halving:
        for (std::uint64_t many = parts / 2; many > 0; many /= 2) rounds_.push_back({many * part, true});
        for (std::uint64_t many = 1; many < parts && !is_to_one_; many *= 2) rounds_.push_back({many * part, false});
        break;
      case Among::ring:
        for (int i = 1; i < nodes_; ++i) rounds_.push_back({part, true});
        for (int i = 1; i < nodes_; ++i) rounds_.push_back({part, false});
    }
    if (has_pairs) absorb(whole, rounds_.empty() ? 0 : rounds_[0].bytes, meets_others && last == Last::in_pairs);
    std::size_t late = rounds_.size();
    if (has_pairs && is_doubling && last == Last::in_pairs) late = static_cast<std::size_t>(log2_ceil(extras_.extra));
    if (among_ == Among::doubling && streams_ > 1)
      in_turn();
    else
      all_at_once(late);
    if (is_to_one_ && among_ == Among::halving) gather(whole, parts);
    if (has_pairs && last == Last::in_pairs)
      for (std::size_t stream = 0; stream < streams_; ++stream)
        for (int slot = 0; slot < slots_; ++slot)
          ready(slot, stream) = arrive(slot, ready(slot, stream), Time{}, whole) + prices_.overhead();
    for (int batch = 0; batch < batches_; ++batch)
      for (int slot = 0; slot < slots_; ++slot)
        for (std::size_t stream = 0; stream < streams_; ++stream)
          if (!is_doubling || stream * static_cast<std::size_t>(batches_) <= static_cast<std::size_t>(batch) * streams_)
            sum(slot, batch, 0) = std::max(sum(slot, batch, 0), ready(slot, stream));
  }

  struct Round {
    std::uint64_t bytes;
    bool combines;
  };

  /// Several messages in each round.
  void multiply(std::uint64_t bytes) {
    for (const auto& [messages, levels, has_more] : rounds_of_parts(nodes_, radices_)) {
      offered_.clear();
      for (int slot = 0; has_more && slot < slots_; ++slot) in_.take(in_.free(), on_link(bytes));
      for (std::size_t stream = 0; stream < streams_; ++stream)
        for (int slot = 0; slot < slots_; ++slot)
          for (int message = 0; message < messages; ++message)
            offered_.push_back(arrive(slot, ready(slot, stream), Time{}, bytes));
      std::size_t at = 0;
      for (std::size_t stream = 0; stream < streams_; ++stream)
        for (int slot = 0; slot < slots_; ++slot) {
          Time end{};
          Time last{};
          for (int message = 0; message < messages; ++message, ++at) {
            last = std::max(last, offered_[at]);
            end = receive(slot, offered_[at], {bytes, true});
          }
          const Time at_last = static_cast<double>(levels) * prices_.combine(bytes);
          ready(slot, stream) = std::max(end, last + prices_.overhead() + at_last);
        }
    }
  }

  /// Messages of nodes that are ahead have arrived before the rounds from `late` on.
  void all_at_once(std::size_t late) {
    if (rounds_.empty()) return;
    offered_.clear();
    for (std::size_t stream = 0; stream < streams_; ++stream)
      for (int slot = 0; slot < slots_; ++slot) {
        const Time arrived = arrive(slot, ready(slot, stream), Time{}, rounds_[0].bytes);
        offered_.push_back(late > 0 ? arrived : ready(slot, stream));
      }
    for (std::size_t round = 0; round < rounds_.size(); ++round)
      for (std::size_t stream = 0; stream < streams_; ++stream)
        for (int slot = 0; slot < slots_; ++slot) {
          Time& arrived = offered_[stream * static_cast<std::size_t>(slots_) + static_cast<std::size_t>(slot)];
          const Time now = ready(slot, stream) = receive(slot, arrived, rounds_[round]);
          if (round + 1 == rounds_.size()) continue;
          arrived = arrive(slot, now, Time{}, rounds_[round + 1].bytes);
          if (round + 1 >= late) arrived = now;
        }
  }

  /// The sums of the leaders to one of them: from all whose sums it needs at once, the longest one being a half.
  void gather(std::uint64_t whole, std::uint64_t parts) {
    const Time hop = prices_.latency() + 2.0 * prices_.overhead();
    Time way = prices_.is_eager(whole / 2) ? Time{} : 2.0 * prices_.latency();
    Time on_link{};
    for (std::uint64_t many = 1; many < parts; many *= 2) {
      on_link = on_link + prices_.on_link(whole / parts * many);
      way = way + hop;
    }
    for (std::size_t stream = 0; stream < streams_; ++stream) {
      Time& here = ready(0, stream);
      here = std::max(in_.take(here, on_link), injection_[0].take(here, prices_.on_process(whole / 2))) + way;
    }
  }

  /// Doubling in segments. A leader has memory for two messages, in the order of the segments.
  void in_turn() {
    const std::size_t rounds = rounds_.size();
    const std::uint64_t bytes = part_bytes_ / streams_;
    const bool is_eager = prices_.is_eager(bytes);
    const auto slots = static_cast<std::size_t>(slots_);
    offered_.assign(slots * streams_, Time{});
    freed_.assign(2 * slots, Time{});
    const auto send = [&](int slot, std::size_t stream, const Time& posted) {
      offered_[stream * slots + static_cast<std::size_t>(slot)] = arrive(slot, ready(slot, stream), posted, bytes);
    };
    for (std::size_t stream = 0; stream < (is_eager ? streams_ : 1); ++stream)
      for (int slot = 0; slot < slots_; ++slot) send(slot, stream, Time{});
    for (std::size_t number = 0; number < rounds * streams_; ++number)
      for (int slot = 0; slot < slots_; ++slot) {
        const std::size_t stream = number / rounds;
        Time& posted = freed_[2 * static_cast<std::size_t>(slot) + number % 2];
        const bool is_last = (number + 1) % rounds == 0;
        if (is_last && !is_eager && stream + 1 < streams_)
          send(slot, stream + 1, freed_[2 * static_cast<std::size_t>(slot) + (number + 1) % 2]);
        const Time arrived = std::max(offered_[stream * slots + static_cast<std::size_t>(slot)], posted);
        ready(slot, stream) = posted = receive(slot, arrived, {bytes, true});
        if (!is_last) send(slot, stream, freed_[2 * static_cast<std::size_t>(slot) + (number + 1) % 2]);
      }
  }

  /// Each leader receives what the one of a neighbour hands to it. Nodes without such a neighbour send first.
  void absorb(std::uint64_t bytes, std::uint64_t next_bytes, bool meets_others) {
    absorbed_.clear();
    const std::vector<Server<Time>> cores = core_;
    for (std::size_t stream = 0; stream < streams_; ++stream)
      for (int slot = 0; slot < slots_; ++slot) {
        absorbed_.push_back(arrive(slot, ready(slot, stream), Time{}, bytes));
        if (meets_others) in_.take(in_.free(), on_link(next_bytes));
      }
    // These were the other node's.
    core_ = cores;
    injection_.assign(injection_.size(), {});
    out_ = {};
    if (meets_others) in_ = {};
    std::size_t at = 0;
    for (std::size_t stream = 0; stream < streams_; ++stream)
      for (int slot = 0; slot < slots_; ++slot) ready(slot, stream) = receive(slot, absorbed_[at++], {bytes, true});
  }

  /// When a message of the leader of a slot has arrived at a leader that waits for it from `posted` on.
  Time arrive(int slot, const Time& ready, const Time& posted, std::uint64_t bytes) {
    const Time latency = prices_.latency();
    const Time on_process = prices_.on_process(bytes);
    const Time passes = on_link(bytes);
    Time leaves = core(slot, 0).take(ready, prices_.overhead());
    if (!prices_.is_eager(bytes)) leaves = std::max(leaves + latency, posted) + latency;
    Time left = injection_[static_cast<std::size_t>(slot)].take(leaves, on_process);
    const Time out = out_.take(left - on_process, passes);
    left = std::max(left, out);
    return std::max(in_.take(out - passes + latency, passes), left + latency);
  }
  Time receive(int slot, const Time& arrived, Round round) {
    Server<Time>& own = core(slot, 0);
    const Time received = own.take(arrived, prices_.overhead());
    return round.combines ? own.take(received, prices_.combine(round.bytes)) : received;
  }

  /// Of the messages of a group.
  Time on_link(std::uint64_t bytes) const { return weight_ * prices_.on_link(bytes); }

  Time copy_in(int slot, int batch, int place) {
    const Time copy = prices_.copy(batch_bytes_);
    const Time end = core(slot, place).take(sum(slot, batch, place), copy);
    return batch_bytes_ > prices_.machine.node.message_bytes ? end - copy : end;
  }
  Time receive_inside(bool far = false) const {
    const bool is_read = prices_.is_read(batch_bytes_, single_copy_);
    return prices_.flag() + (is_read ? prices_.remote_read(batch_bytes_) : prices_.copy(batch_bytes_, far));
  }

  int rank_at(int slot, int place) const {
    return by_groups_ ? slot : slot + place < ranks_ ? slot + place : slot + place - ranks_;
  }
  Server<Time>& core(int slot, int place) { return core_[static_cast<std::size_t>(rank_at(slot, place))]; }
  Time& sum(int slot, int batch, int place) {
    return sums_[static_cast<std::size_t>((batch * slots_ + slot) * ranks_ + place)];
  }
  Time& ready(int slot, std::size_t stream) {
    return ready_[stream * static_cast<std::size_t>(slots_) + static_cast<std::size_t>(slot)];
  }

  cost_model::Prices<Time> prices_;
  std::vector<Round> rounds_;
  std::vector<Server<Time>> core_;       // by rank, or group of slots
  std::vector<Server<Time>> injection_;  // by slot
  Server<Time> out_;
  Server<Time> in_;
  std::vector<Time> sums_;   // by batch, slot and place in its tree
  std::vector<Time> ready_;  // by stream and slot
  std::vector<Time> offered_;
  std::vector<Time> absorbed_;
  std::vector<Time> freed_;
};

}  // namespace penstock::collectives::cost
