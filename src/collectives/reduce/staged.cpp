// reduce, allreduce, reduce_scatter and reduce_scatter_block: each rank combines one part of every segment. It gets
// that part of the other contributions through staging buffers, and publishes the sum in staging buffers, unless it is
// for itself alone. Cost: m(n-1)/n bytes, each copied twice, per rank, and as many for sums. Valid on one node.
#include <algorithm>
#include <functional>
#include <utility>

#include "collectives/parts/staging.hpp"

namespace penstock::collectives {
namespace {

class StagedReduction {
 public:
  StagedReduction(const Team& team, const Collective& collective, std::string algorithm)
      : team_(team),
        collective_(collective),
        scatters_(is_reduce_scatter(collective.kind)),
        segments_(team, collective, static_cast<std::uint32_t>(team.size()),
                  static_cast<std::uint32_t>(team.size()) - (scatters_ ? 1 : 0)),
        sequence_(std::move(algorithm), team),
        staged_sums_(sequence_, team, collective, segments_.buffer_bytes()),
        peers_(others(team, team.rank)),
        own_(contribution(team, collective)),
        result_(result(team, collective)),
        target_(result_),
        is_for_all_(collective.kind == CollectiveKind::allreduce) {
    const auto buffers = static_cast<std::uint64_t>(team.size()) - (scatters_ ? 1 : 0);
    if (segments_.count() > 0) sequence_.shared(buffers * StagedSegments::kInFlight * segments_.buffer_bytes());
    // In place, the sums of a segment overlap the same segment of the first block, which has been published. If blocks
    // differ in length, they overlap other segments too.
    const std::vector<std::uint64_t>& counts = collective.receive.counts;
    const bool differ = scatters_ && std::ranges::adjacent_find(counts, std::not_equal_to<>()) != counts.end();
    if (differ && collective.in_place) target_ = sequence_.scratch(result_.size_bytes);
  }

  Plan plan() && {
    // One segment ahead, so that a rank has work while it waits for sums.
    for (std::uint32_t s = 0; s < segments_.count() + 2; ++s) {
      if (s < segments_.count()) publish(s);
      if (s >= 1 && s - 1 < segments_.count()) combine(s - 1);
      if (s >= 2 && !scatters_) collect(s - 2);
    }
    sequence_.copy(target_, result_);
    return finish(std::move(sequence_), team_, collective_);
  }

 private:
  Region part(Region whole, std::uint32_t segment, int rank) const {
    return segments_.part(whole, segment, static_cast<std::uint32_t>(rank));
  }
  /// The stream of contributions from `writer` to `reader`. Streams of a writer are ordered by reader.
  StagingStream contributions(int writer, int reader) const {
    return {segments_, static_cast<std::uint32_t>(reader), 0,
            static_cast<std::uint64_t>(reader - (reader > writer ? 1 : 0))};
  }
  StagingStream sums(int writer) const {
    return {segments_, static_cast<std::uint32_t>(writer), 1, static_cast<std::uint64_t>(team_.size() - 1)};
  }
  bool keeps_result() const { return is_for_all_ || scatters_ || team_.rank == collective_.root; }
  /// Where the sums of this rank's part of a segment are to be.
  Region target(std::uint32_t segment) const {
    if (!keeps_result()) return {};
    return scatters_ ? segments_.of(target_, segment) : part(target_, segment, team_.rank);
  }

  void publish(std::uint32_t segment) {
    for (const int peer : peers_)
      contributions(team_.rank, peer).put(sequence_.at(0, segment), segment, part(own_, segment, peer), {&peer, 1});
  }

  void combine(std::uint32_t segment) {
    const Region own = part(own_, segment, team_.rank);
    if (own.size_bytes == 0) return;
    const Region sum = staged_sums_.combine(own, target(segment), [&](int rank, Region to) {
      contributions(rank, team_.rank).get(sequence_, segment, rank, to);
    });
    if (is_for_all_)
      sums(team_.rank).put(sequence_, segment, sum, peers_);
    else if (!keeps_result())
      sums(team_.rank).put(sequence_, segment, sum, {&collective_.root, 1});
    if (keeps_result()) sequence_.copy(sum, target(segment));
  }

  void collect(std::uint32_t segment) {
    if (!keeps_result()) return;
    for (const int peer : peers_) sums(peer).get(sequence_.at(0, segment), segment, peer, part(result_, segment, peer));
  }

  const Team& team_;
  const Collective& collective_;
  bool scatters_;
  StagedSegments segments_;
  Sequence sequence_;
  StagedSums staged_sums_;
  std::vector<int> peers_;
  Region own_;
  Region result_;
  Region target_;
  bool is_for_all_;
};

}  // namespace

Plan reduce_through_staging(const std::string& algorithm, const Team& team, const Collective& collective) {
  return StagedReduction(team, collective, algorithm).plan();
}

}  // namespace penstock::collectives
