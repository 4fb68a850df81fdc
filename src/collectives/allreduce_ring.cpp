// The buffer is cut into n parts. In n - 1 rounds each part travels around the ring and is combined on its way (reduce-
// scatter), in n - 1 more rounds the results travel around (allgather). Ranks of a node are neighbours in the ring.
// Cost: 2 * (n - 1) rounds, 2 * m * (n - 1) / n bytes sent, the least possible. Valid for every team and size (parts
// may be empty); for long messages. Parts are cut into segments, which are combined while the next ones arrive.
#include <algorithm>

#include "collectives/stage.hpp"

namespace penstock::collectives {
namespace {

constexpr std::uint64_t kSegmentBytes = 512 << 10;
constexpr std::uint64_t kMaxPieces = 128;  // parts times segments: bounds the length of the plan

}  // namespace

Plan allreduce_ring(const Team& team, const Collective& what) {
  const Group ring = by_node(team, 0);
  const int size = ring.size();
  const int next = ring[(ring.self + 1) % size];
  const int previous = ring[(ring.self + size - 1) % size];
  const auto parts = static_cast<std::uint64_t>(size);
  const std::uint64_t element_bytes = size_bytes(what.dtype);
  const std::uint64_t part_bytes = block_bytes(what) / parts;
  const std::uint64_t segment_bytes = what.segment_bytes ? what.segment_bytes : kSegmentBytes;
  const std::uint64_t segments =
      std::clamp<std::uint64_t>(part_bytes / segment_bytes, 1, std::max<std::uint64_t>(1, kMaxPieces / parts));

  // Segment s of the part that is `steps` ranks behind this one on the ring.
  const auto piece = [&](Region whole, int steps, std::uint64_t s) {
    const auto part = static_cast<std::uint64_t>((ring.self + 2 * size - steps) % size);
    return part_of(whole, what.count, element_bytes, parts * segments, part * segments + s);
  };

  const Region own = contribution(team, what);
  const Region target = result(team, what);
  Sequence sequence("allreduce/ring", team);
  if (size == 1) sequence.copy(own, target);
  Region landing[2];  // take turns
  if (size > 1 && own == target) {
    const std::uint64_t largest_bytes = (what.count / (parts * segments) + 1) * element_bytes;
    for (Region& region : landing) region = sequence.scratch(largest_bytes);
  }
  std::uint32_t tag = 0;
  for (int round = 0; round < size - 1; ++round)
    for (std::uint64_t s = 0; s < segments; ++s, ++tag) {
      sequence.at(0, static_cast<std::uint32_t>(s));
      sequence.send(piece(round == 0 ? own : target, round, s), next, tag);
      const Region into = piece(target, round + 1, s);
      Accumulator sum(piece(own, round + 1, s), into);
      sum.add(sequence, previous, tag, {landing[tag % 2].offset_bytes, into.size_bytes, Buffer::scratch});
    }
  for (int round = 0; round < size - 1; ++round)
    for (std::uint64_t s = 0; s < segments; ++s, ++tag) {
      sequence.at(0, static_cast<std::uint32_t>(s));
      sequence.send(piece(target, round - 1, s), next, tag);
      sequence.recv(piece(target, round, s), previous, tag);
    }
  return finish(std::move(sequence), team, what);
}

}  // namespace penstock::collectives
