#include "collectives/parts/exchange.hpp"

#include <algorithm>

namespace penstock::collectives {
namespace {

/// Two alternating buffers, so that the next message can arrive while the current one is added.
class Landing {
 public:
  Landing(Sequence& sequence, std::uint64_t bytes) {
    for (Region& region : regions_) region = sequence.scratch(bytes);
  }
  Region next(std::uint64_t bytes) { return {regions_[turn_++ % 2].offset_bytes, bytes, Buffer::scratch}; }

 private:
  Region regions_[2];
  unsigned turn_ = 0;
};

/// Recursive halving and doubling over a buffer that is cut into ExtraRanks::full parts.
class Halving {
 public:
  Halving(Sequence& sequence, const Group& group, const Exchange& exchange)
      : sequence_(sequence), group_(group), given_(exchange), extras_(group.size()), tag_(exchange.first_tag + 2) {
    const std::uint64_t bytes = given_.elements * given_.element_bytes;
    segments_ = pieces_of(bytes / 2, given_.segment_bytes, kMaxExchangeSegments);
  }

  bool leaves() const { return extras_.leaves(group_.self); }

  /// Ranks that leave only receive the result afterwards.
  void combine() {
    if (given_.prepare) given_.prepare(given_.own, Sequence::kNone);
    const int self = group_.self;
    if (leaves()) {
      sequence_.send(given_.own, group_[self + 1], given_.first_tag);
      return;
    }
    Region value = given_.own;
    if (extras_.full == 1) {
      sequence_.copy(value, given_.target);
      return;
    }
    if (extras_.absorbs(self)) {
      Accumulator sum(value, given_.target);
      sum.add(sequence_, group_[self - 1], given_.first_tag,
              value == given_.target ? sequence_.scratch(value.size_bytes) : Region{});
      value = sum.value();
    }
    Landing landing(sequence_, piece(value, 0, extras_.full / 2, 0).size_bytes + given_.element_bytes);
    const int own = own_part();
    for (int half = extras_.full / 2; half > 0; half /= 2) {
      const int peer = rank_of_part(own ^ half);
      const int keep = own & ~(half - 1);  // the parts [keep, keep + half)
      const int give = keep ^ half;
      for (std::uint64_t s = 0; s < segments_; ++s, ++tag_) {
        sequence_.at(0, static_cast<std::uint32_t>(s));
        sequence_.send(piece(value, give, half, s), peer, tag_);
        const Region into = piece(given_.target, keep, half, s);
        Accumulator sum(piece(value, keep, half, s), into);
        sum.add(sequence_, peer, tag_, landing.next(into.size_bytes));
      }
      value = given_.target;
    }
  }

  /// Recursive doubling: all kept ranks get the whole result.
  void collect() {
    if (leaves()) return;
    for (int half = 1; half < extras_.full; half *= 2) {
      const int peer = rank_of_part(own_part() ^ half);
      const int own = own_part() & ~(half - 1);
      for (std::uint64_t s = 0; s < segments_; ++s, ++tag_) {
        sequence_.send(piece(given_.target, own, half, s), peer, tag_);
        sequence_.recv(piece(given_.target, own ^ half, half, s), peer, tag_);
      }
    }
  }

  /// The rank with kept_index 0 gets the whole result.
  void collect_at_first() {
    if (leaves()) return;
    const int own = own_part();
    for (int half = 1; half < extras_.full; half *= 2) {
      const int peer = rank_of_part(own ^ half);
      const bool gives = (own & half) != 0;
      for (std::uint64_t s = 0; s < segments_; ++s, ++tag_)
        if (gives)
          sequence_.send(piece(given_.target, own, half, s), peer, tag_);
        else
          sequence_.recv(piece(given_.target, own ^ half, half, s), peer, tag_);
      if (gives) return;
    }
  }

  /// Ranks that left get the result from their neighbour; with `only_first` only the first rank of the group.
  void return_to_extras(bool only_first) {
    const int self = group_.self;
    const std::uint32_t tag = given_.first_tag + 1;
    if (leaves() && (!only_first || self == 0)) sequence_.recv(given_.target, group_[self + 1], tag);
    if (extras_.absorbs(self) && (!only_first || self == 1)) sequence_.send(given_.target, group_[self - 1], tag);
  }

 private:
  // The longest halves go to the nearest partners, which share a node or a switch: the bits of a part's index are those
  // of the position in reverse order.
  int reversed(int index) const {
    int reversed = 0;
    for (int bit = 1; bit < extras_.full; bit *= 2, index /= 2) reversed = 2 * reversed + index % 2;
    return reversed;
  }
  int own_part() const { return reversed(extras_.kept_index(group_.self)); }
  int rank_of_part(int part) const { return group_[extras_.position(reversed(part))]; }
  Region piece(Region whole, int first, int count, std::uint64_t segment) const {
    const auto parts = static_cast<std::uint64_t>(extras_.full);
    const auto part = [&](int index) {
      return part_of(whole, given_.elements, given_.element_bytes, parts, static_cast<std::uint64_t>(index));
    };
    const Region begin = part(first);
    const Region last = part(first + count - 1);
    const Region range{begin.offset_bytes, last.offset_bytes + last.size_bytes - begin.offset_bytes, whole.buffer};
    return part_of(range, range.size_bytes / given_.element_bytes, given_.element_bytes, segments_, segment);
  }

  Sequence& sequence_;
  const Group& group_;
  const Exchange& given_;
  ExtraRanks extras_;
  std::uint64_t segments_ = 1;
  std::uint32_t tag_;
};

}  // namespace

Exchange whole_exchange(const Team& team, const Collective& collective) {
  return {.own = contribution(team, collective),
          .target = result(team, collective),
          .elements = collective.count,
          .element_bytes = collective.item_bytes(),
          .segment_bytes = collective.segment_bytes,
          .radix = collective.radix};
}

void ring_allreduce(Sequence& sequence, const Group& ring, const Exchange& given) {
  const int size = ring.size();
  if (size == 1) {
    if (given.prepare) given.prepare(given.own, Sequence::kNone);
    sequence.copy(given.own, given.target);
    return;
  }
  const int next = ring[(ring.self + 1) % size];
  const int previous = ring[(ring.self + size - 1) % size];
  const auto parts = static_cast<std::uint64_t>(size);
  const std::uint64_t part_bytes = given.elements * given.element_bytes / parts;
  const std::uint64_t segments = pieces_of(part_bytes, given.segment_bytes, kMaxExchangePieces / parts);

  // Segment s of the part of the rank `steps` places behind this one in the ring.
  const auto piece = [&](Region whole, int steps, std::uint64_t s) {
    const auto index = static_cast<std::uint64_t>((ring.self + 2 * size - steps) % size);
    const Region part = part_of(whole, given.elements, given.element_bytes, parts, index);
    return part_of(part, part.size_bytes / given.element_bytes, given.element_bytes, segments, s);
  };

  const Region own = given.own;
  const Region target = given.target;
  const std::uint64_t largest_bytes = (given.elements / parts / segments + 2) * given.element_bytes;
  Landing landing(sequence, own == target ? largest_bytes : 0);
  std::uint32_t tag = given.first_tag;
  StepId sent = Sequence::kNone;
  const auto prepared = [&](Region region) {
    if (given.prepare) given.prepare(region, sent);
    return region;
  };
  for (int round = 0; round < size - 1; ++round)
    for (std::uint64_t s = 0; s < segments; ++s, ++tag) {
      sequence.at(0, static_cast<std::uint32_t>(s));
      sent = sequence.send(round == 0 ? prepared(piece(own, 0, s)) : piece(target, round, s), next, tag);
      const Region into = piece(target, round + 1, s);
      Accumulator sum(prepared(piece(own, round + 1, s)), into);
      sum.add(sequence, previous, tag, landing.next(into.size_bytes));
    }
  for (int round = 0; round < size - 1; ++round)
    for (std::uint64_t s = 0; s < segments; ++s, ++tag) {
      sequence.at(0, static_cast<std::uint32_t>(s));
      sequence.send(piece(target, round - 1, s), next, tag);
      sequence.recv(piece(target, round, s), previous, tag);
    }
}

void halving_allreduce(Sequence& sequence, const Group& group, const Exchange& exchange) {
  Halving halving(sequence, group, exchange);
  halving.combine();
  halving.collect();
  halving.return_to_extras(false);
}

void halving_reduce(Sequence& sequence, const Group& group, const Exchange& exchange) {
  Halving halving(sequence, group, exchange);
  halving.combine();
  halving.collect_at_first();
  halving.return_to_extras(true);
}

void doubling_allreduce(Sequence& sequence, const Group& group, const Exchange& given) {
  if (given.prepare) given.prepare(given.own, Sequence::kNone);
  const ExtraRanks extras(group.size());
  const int self = group.self;
  const auto rounds = static_cast<std::uint64_t>(std::max(1, log2_ceil(extras.full)));
  const std::uint64_t segments = pieces_of(given.elements * given.element_bytes, given.segment_bytes,
                                           std::max(kMaxExchangeSegments, kMaxExchangePieces / rounds));
  const auto piece = [&](Region whole, std::uint64_t s) {
    return part_of(whole, given.elements, given.element_bytes, segments, s);
  };
  Landing landing(sequence, group.size() > 1 && !extras.leaves(self) ? piece(given.target, 0).size_bytes : 0);
  const auto tags = static_cast<std::uint32_t>(2 + log2_ceil(extras.full));  // of a segment
  for (std::uint64_t s = 0; s < segments; ++s) {
    std::uint32_t tag = given.first_tag + static_cast<std::uint32_t>(s) * tags;
    const std::uint32_t tag_back = tag + 1;
    const Region target = piece(given.target, s);
    Accumulator sum(piece(given.own, s), target);
    sequence.at(0, static_cast<std::uint32_t>(s));
    if (extras.leaves(self)) {
      sequence.send(sum.value(), group[self + 1], tag);
      sequence.recv(target, group[self + 1], tag_back);
      continue;
    }
    if (extras.absorbs(self)) sum.add(sequence, group[self - 1], tag, landing.next(target.size_bytes));
    const int kept_index = extras.kept_index(self);
    tag += 2;
    for (int distance = 1; distance < extras.full; distance *= 2, ++tag) {
      const int peer = group[extras.position(kept_index ^ distance)];
      sequence.send(sum.value(), peer, tag);
      sum.add(sequence, peer, tag, landing.next(target.size_bytes));
    }
    sequence.copy(sum.value(), target);
    if (extras.absorbs(self)) sequence.send(target, group[self - 1], tag_back);
  }
}

void scatter_allgather(Sequence& sequence, const Group& group, const Exchange& given) {
  const int size = group.size();
  const auto parts = static_cast<std::uint64_t>(size);
  const std::uint64_t part_bytes = given.elements * given.element_bytes / parts;
  const std::uint64_t segments = pieces_of(part_bytes, given.segment_bytes, kMaxExchangePieces / parts);
  const auto piece = [&](int part, std::uint64_t s) {
    return part_of(given.target, given.elements, given.element_bytes, parts * segments,
                   static_cast<std::uint64_t>((part + size) % size) * segments + s);
  };
  const Tree tree = binomial(group);
  // One tag per piece and direction: a rank gets a piece at most once from the tree and at most once from the ring.
  const auto tag = [&](int part, std::uint64_t s) {
    return given.first_tag +
           static_cast<std::uint32_t>(static_cast<std::uint64_t>((part + size) % size) * segments + s);
  };
  for (int part = group.self; tree.parent >= 0 && part < group.self + tree.count; ++part)
    for (std::uint64_t s = 0; s < segments; ++s) sequence.recv(piece(part, s), tree.parent, tag(part, s));
  for (const Tree::Edge& child : tree.children)
    for (int part = child.first; part < child.first + child.count; ++part)
      for (std::uint64_t s = 0; s < segments; ++s) sequence.send(piece(part, s), child.rank, tag(part, s));
  const int next = group[(group.self + 1) % size];
  const int previous = group[(group.self + size - 1) % size];
  const auto around = static_cast<std::uint32_t>(parts * segments);
  for (int round = 0; round < size - 1; ++round)
    for (std::uint64_t s = 0; s < segments; ++s) {
      // The first rank of the group has all data, so it receives nothing.
      if ((group.self + 1) % size != 0)
        sequence.send(piece(group.self - round, s), next, around + tag(group.self - round, s));
      if (group.self != 0)
        sequence.recv(piece(group.self - round - 1, s), previous, around + tag(group.self - round - 1, s));
    }
}

void scatter_doubling(Sequence& sequence, const Group& group, const Exchange& given) {
  const int size = group.size();
  const Tree tree = binomial(group);
  std::uint32_t tag = given.first_tag;
  // The parts [first, first + count), which end at the last part.
  const auto move = [&](int first, int count, const auto& step) {
    const auto part = [&](int index) {
      return part_of(given.target, given.elements, given.element_bytes, static_cast<std::uint64_t>(size),
                     static_cast<std::uint64_t>(index));
    };
    const Region last = part(first + count - 1);
    const Region begin = part(first);
    const Region whole{begin.offset_bytes, last.offset_bytes + last.size_bytes - begin.offset_bytes, begin.buffer};
    const std::uint64_t segments = pieces_of(whole.size_bytes, given.segment_bytes, kMaxExchangeSegments);
    for (std::uint64_t s = 0; s < segments; ++s)
      step(part_of(whole, whole.size_bytes / given.element_bytes, given.element_bytes, segments, s), tag++);
  };
  const auto move_around = [&](int first, int count, const auto& step) {
    const int before_end = std::min(count, size - first);
    move(first, before_end, step);
    if (before_end < count) move(0, count - before_end, step);
  };
  const auto send_to = [&](int rank) {
    return [&sequence, rank](Region region, std::uint32_t with) { sequence.send(region, rank, with); };
  };
  // One round after the other: some have the data of later rounds early, which would share the links with data that
  // others wait for.
  StepId received = Sequence::kNone;
  const auto recv_from = [&](int rank) {
    return [&sequence, &received, rank, after = received](Region region, std::uint32_t with) {
      sequence.in_order_after(after);
      received = sequence.recv(region, rank, with);
      sequence.in_order_after(Sequence::kNone);
    };
  };
  if (tree.parent >= 0) move(group.self, tree.count, recv_from(tree.parent));
  for (const Tree::Edge& child : tree.children) {
    tag = given.first_tag;  // of each pair of ranks
    move(child.first, child.count, send_to(child.rank));
  }
  // What a rank has from the scatter.
  const auto scattered = [&](int index) { return index == 0 ? size : std::min(size - index, index & -index); };
  std::uint32_t round_tag = given.first_tag + 2 * kMaxExchangeSegments;
  for (int distance = 1; distance < size; distance *= 2, round_tag += 2 * kMaxExchangeSegments) {
    const int count = std::min(distance, size - distance);
    const int to = (group.self + size - distance) % size;
    const int from = (group.self + distance) % size;
    tag = round_tag;
    if (distance + count > scattered(to)) move_around(group.self, count, send_to(group[to]));
    tag = round_tag;
    if (distance + count > scattered(group.self)) move_around(from, count, recv_from(group[from]));
  }
}

}  // namespace penstock::collectives
