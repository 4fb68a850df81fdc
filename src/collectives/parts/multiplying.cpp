// Recursive multiplying among any number of ranks. The group is divided into parts, and these again, until each is one
// rank. From the shortest parts on, the ranks of a part have its sum, and those of a few neighbouring parts exchange
// theirs at once. Each rank needs one message from each other part, whose ranks all have the same sum; so parts may
// differ by one rank, which receives from a rank that sends once more.
#include <algorithm>
#include <span>
#include <vector>

#include "collectives/parts/exchange.hpp"

namespace penstock::collectives {

std::vector<PartsRound> rounds_of(const Group& group, std::span<const int> radices) {
  std::vector<PartsRound> rounds;
  int begin = 0;
  int size = group.size();
  for (const int radix : radices) {
    PartsRound round{.parts = std::min(radix, size)};
    const auto first = [&](int part) { return begin + size / round.parts * part + std::min(size % round.parts, part); };
    while (first(round.own + 1) <= group.self) ++round.own;
    const auto length = [&](int part) { return first(part + 1) - first(part); };
    const int place = group.self - first(round.own);
    for (int steps = 1; steps < round.parts; ++steps) {
      const int before = (round.own + round.parts - steps) % round.parts;
      const int from = place < length(before) ? place : round.own % length(before);
      round.sources.push_back({before, first(before) + from});
      const int after = (round.own + steps) % round.parts;
      const int own_length = length(round.own);
      if (place < length(after)) round.targets.push_back({after, first(after) + place});
      if (length(after) > own_length && place == after % own_length)
        round.targets.push_back({after, first(after) + own_length});
    }
    begin = first(round.own);
    size = length(round.own);
    rounds.push_back(std::move(round));
  }
  return rounds;
}

namespace {

/// Where the parts [begin, end) are cut in two.
int middle(int begin, int end) { return begin + (end - begin + 1) / 2; }

/// Of the parts that the own sum is first combined with, the first one, into which combine() has combined them.
int first_of_sibling(int begin, int end, int own) {
  while (true) {
    const int cut = middle(begin, end);
    const int others = own < cut ? cut : begin;
    (own < cut ? end : begin) = cut;
    if (end - begin == 1) return others;
  }
}

struct OwnSum {
  Region own;
  Region target;
};

/// Combines the sums of all parts along a binary tree: the same one on all ranks, for the same bits. What has come is
/// combined while the rest is on its way.
Region combine(Sequence& sequence, std::span<const Region> sums, const OwnSum& into) {
  if (sums.size() == 1) return sums[0];
  const auto cut = static_cast<std::size_t>(middle(0, static_cast<int>(sums.size())));
  const Region first = combine(sequence, sums.first(cut), into);
  const Region second = combine(sequence, sums.subspan(cut), into);
  const bool keeps_second = second == into.target || (first == into.own && first != into.target);
  sequence.reduce(keeps_second ? first : second, keeps_second ? second : first);
  return keeps_second ? second : first;
}

}  // namespace

std::uint64_t most_multiplying_segments(std::span<const int> radices) {
  std::uint64_t messages = 1;
  for (const int radix : radices) messages += static_cast<std::uint64_t>(radix - 1);
  return std::max<std::uint64_t>(1, kMaxExchangePieces / messages);
}

void multiplying_allreduce(Sequence& sequence, const Group& group, const Exchange& given) {
  if (given.prepare) given.prepare(given.own, Sequence::kNone);
  const std::vector<int> radices = radices_of(group.size(), given.radix);
  const std::vector<PartsRound> rounds = rounds_of(group, radices);
  const std::uint64_t segments =
      pieces_of(given.elements * given.element_bytes, given.segment_bytes, most_multiplying_segments(radices));
  const auto piece = [&](Region whole, std::uint64_t s) {
    return part_of(whole, given.elements, given.element_bytes, segments, s);
  };
  // Of two rounds, so that messages of the next one can arrive while these are combined.
  const auto most_peers = static_cast<std::uint64_t>(radices.empty() ? 0 : radices.back() - 1);
  const std::uint64_t slot_bytes = piece(given.target, 0).size_bytes;
  const Region landing = sequence.scratch(2 * most_peers * slot_bytes);
  std::uint64_t turn = 0;
  std::uint32_t tag = given.first_tag;
  for (std::uint64_t s = 0; s < segments; ++s) {
    const Region target = piece(given.target, s);
    Region value = piece(given.own, s);
    sequence.at(0, static_cast<std::uint32_t>(s));
    for (std::size_t i = rounds.size(); i-- > 0; ++tag) {
      const PartsRound& round = rounds[i];
      if (round.parts == 1) continue;
      for (const PartsRound::Peer& to : round.targets) sequence.send(value, group[to.index], tag);
      std::vector<Region> sums(static_cast<std::size_t>(round.parts), value);
      const int into_target = value == target ? -1 : first_of_sibling(0, round.parts, round.own);
      std::uint64_t slot = turn++ % 2 * most_peers;
      for (const PartsRound::Peer& from : round.sources) {
        Region& into = sums[static_cast<std::size_t>(from.part)];
        into = from.part == into_target
                   ? target
                   : Region{landing.offset_bytes + slot++ * slot_bytes, target.size_bytes, Buffer::scratch};
        sequence.recv(into, group[from.index], tag);
      }
      combine(sequence, sums, {.own = value, .target = target});
      value = target;
    }
    sequence.copy(value, target);
  }
}

}  // namespace penstock::collectives
