// Reproducible reductions: one rank gets all contributions to an element, sorts and combines them
// (kernels/reduce_sorted.hpp).
// Each rank combines a part of the elements, in pieces: piece k arrives while piece k - 1 is sorted and the sums of
// piece k - 2 are sent. Partial sums would depend on the placement, so none are formed: the contributions of all ranks
// travel between nodes, while other algorithms send one sum per node. Cost: m * (n - 1) / n bytes sent and as many for
// the results; 2 * m / pieces bytes of memory. Valid for every team and size.
#include <algorithm>

#include "collectives/parts/blocks.hpp"
#include "collectives/parts/group.hpp"
#include "collectives/parts/stage.hpp"

namespace penstock::collectives {
namespace {

constexpr std::uint64_t kMostPieces = 16;
constexpr std::uint64_t kMostMessages = 128;  // in one direction: bounds the length of the plan

/// Scratch memory for the contributions of all ranks to one piece of the result; a few pieces take turns.
class SortedPieces {
 public:
  SortedPieces(Sequence& sequence, const Team& team, std::uint64_t largest_bytes);

  /// Receives the contributions of all ranks to this rank's piece, and combines them into `target`. `own` is this
  /// rank's contribution to it. `give(peer)` is its contribution to the piece of `peer`, or empty.
  template <class Give>
  void run(std::uint32_t number, Region own, Region target, const Give& give) {
    const int size = ring_.size();
    for (int round = 1; round < size; ++round) {
      const int next = ring_[(ring_.self + round) % size];
      sequence_.send(give(next), next, number);
    }
    receive(number, own, target);
  }

 private:
  static constexpr std::uint32_t kInFlight = 2;

  void receive(std::uint32_t number, Region own, Region target);

  Sequence& sequence_;
  Group ring_;
  int rank_;
  std::uint64_t stride_bytes_;
  Region memory_;
};

SortedPieces::SortedPieces(Sequence& sequence, const Team& team, std::uint64_t largest_bytes)
    : sequence_(sequence),
      ring_(by_node(team, 0)),
      rank_(team.rank),
      stride_bytes_(static_cast<std::uint64_t>(team.size()) * largest_bytes),
      memory_(sequence.scratch(kInFlight * stride_bytes_)) {}

void SortedPieces::receive(std::uint32_t number, Region own, Region target) {
  const int size = ring_.size();
  const std::uint64_t begin = memory_.offset_bytes + number % kInFlight * stride_bytes_;
  const auto place = [&](int rank) {
    return Region{begin + static_cast<std::uint64_t>(rank) * own.size_bytes, own.size_bytes, Buffer::scratch};
  };
  sequence_.copy(own, place(rank_));
  for (int round = 1; round < size; ++round) {
    const int previous = ring_[(ring_.self + size - round) % size];
    sequence_.recv(place(previous), previous, number);
  }
  sequence_.reduce_sorted({begin, static_cast<std::uint64_t>(size) * own.size_bytes, Buffer::scratch}, target);
}

}  // namespace

Plan reduce_sorted_whole(const std::string& algorithm, const Team& team, const Collective& collective) {
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  const auto size = static_cast<std::uint64_t>(team.size());
  const std::uint64_t element_bytes = collective.item_bytes();
  const std::uint64_t part_bytes = block_bytes(collective) / size;
  const std::uint64_t pieces =
      pieces_of(part_bytes, collective.segment_bytes, std::min<std::uint64_t>(kMostMessages / size, kMostPieces));
  const auto piece_of = [&](Region whole, int rank, std::uint64_t piece) {
    return part_of(whole, collective.count, element_bytes, size * pieces,
                   static_cast<std::uint64_t>(rank) * pieces + piece);
  };
  Sequence sequence(algorithm, team);
  if (size == 1) {
    sequence.copy(own, target);
    return finish(std::move(sequence), team, collective);
  }
  const std::uint64_t largest_bytes = piece_of(own, 0, 0).size_bytes;
  SortedPieces sorted(sequence, team, largest_bytes);
  const bool is_for_all = collective.kind == CollectiveKind::allreduce;
  const bool keeps = is_for_all || team.rank == collective.root;
  const Region sums = keeps ? target : sequence.scratch(2 * largest_bytes);
  const Group ring = by_node(team, 0);
  auto tag = static_cast<std::uint32_t>(pieces);
  const auto spread = [&](std::uint64_t piece, Region sum) {
    if (is_for_all) {
      for (int round = 0; round + 1 < ring.size(); ++round, ++tag) {
        const int gives = ring[(ring.self + ring.size() - round) % ring.size()];
        const int takes = ring[(ring.self + ring.size() - round - 1) % ring.size()];
        sequence.send(piece_of(target, gives, piece), ring[(ring.self + 1) % ring.size()], tag);
        sequence.recv(piece_of(target, takes, piece), ring[(ring.self + ring.size() - 1) % ring.size()], tag);
      }
    } else if (keeps) {
      for (int rank = 0; rank < team.size(); ++rank)
        if (rank != team.rank) sequence.recv(piece_of(target, rank, piece), rank, tag);
      ++tag;
    } else {
      sequence.send(sum, collective.root, tag++);
    }
  };
  for (std::uint64_t piece = 0; piece < pieces; ++piece) {
    const Region mine = piece_of(own, team.rank, piece);
    const Region sum = keeps ? piece_of(target, team.rank, piece)
                             : Region{sums.offset_bytes + piece % 2 * largest_bytes, mine.size_bytes, Buffer::scratch};
    sequence.at(0, static_cast<std::uint32_t>(piece));
    sorted.run(static_cast<std::uint32_t>(piece), mine, sum, [&](int peer) { return piece_of(own, peer, piece); });
    spread(piece, sum);
  }
  return finish(std::move(sequence), team, collective);
}

Plan reduce_sorted_at_once(const std::string& algorithm, const Team& team, const Collective& collective) {
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  Sequence sequence(algorithm, team);
  if (team.size() == 1) {
    sequence.copy(own, target);
  } else if (collective.kind == CollectiveKind::reduce && team.rank != collective.root) {
    sequence.send(own, collective.root, 0);
  } else {
    SortedPieces sorted(sequence, team, own.size_bytes);
    sorted.run(0, own, target, [&](int) { return collective.kind == CollectiveKind::allreduce ? own : Region{}; });
  }
  return finish(std::move(sequence), team, collective);
}

Plan reduce_parts_sorted(const std::string& algorithm, const Team& team, const Collective& collective) {
  const Region own = contribution(team, collective);
  const Region target = result(team, collective);
  Sequence sequence(algorithm, team);
  const Region mine = part_of_rank(own, collective, team.rank);
  if (team.size() == 1) {
    sequence.copy(mine, target);
    return finish(std::move(sequence), team, collective);
  }
  // In place, the result overlaps parts that have not been sent.
  const Region sum = collective.in_place ? sequence.scratch(target.size_bytes) : target;
  SortedPieces sorted(sequence, team, mine.size_bytes);
  sorted.run(0, mine, sum, [&](int peer) { return part_of_rank(own, collective, peer); });
  sequence.copy(sum, target);
  return finish(std::move(sequence), team, collective);
}

}  // namespace penstock::collectives
