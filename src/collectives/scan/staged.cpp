// scan and exscan: a pipeline over the ranks in their order. Each rank gets the sum of those before it through staging
// buffers, combines it with its own contribution, and passes the result on. Cost: m bytes out of shared memory and m
// into it per rank, n - 1 + segments - 1 rounds of one segment. Valid on one node.
#include <utility>

#include "collectives/parts/staging.hpp"

namespace penstock::collectives {
namespace {

class StagedPrefix {
 public:
  StagedPrefix(const std::string& algorithm, const Team& team, const Collective& collective)
      : team_(team),
        collective_(collective),
        segments_(team, collective, 1, 1),
        stream_(segments_, 0, 0, 0),
        sequence_(algorithm, team),
        own_(contribution(team, collective)),
        target_(result(team, collective)),
        next_(team.rank + 1) {
    if (segments_.count() > 0 && has_next()) sequence_.shared(StagedSegments::kInFlight * segments_.buffer_bytes());
    if (team.rank > 0) spare_ = sequence_.scratch(kInFlight * segments_.buffer_bytes());
  }

  Plan plan() && {
    for (std::uint32_t s = 0; s < segments_.count(); ++s) {
      sequence_.at(0, s);
      collective_.kind == CollectiveKind::scan ? scan(s) : exscan(s);
    }
    return finish(std::move(sequence_), team_, collective_);
  }

 private:
  static constexpr std::uint32_t kInFlight = 2;

  bool has_next() const { return next_ < team_.size(); }
  Region spare(std::uint32_t segment, Region like) const {
    return {spare_.offset_bytes + segment % kInFlight * segments_.buffer_bytes(), like.size_bytes, Buffer::scratch};
  }
  void get(std::uint32_t segment, Region to) { stream_.get(sequence_, segment, team_.rank - 1, to); }
  void put(std::uint32_t segment, Region from) {
    if (has_next()) stream_.put(sequence_, segment, from, {&next_, 1});
  }

  void scan(std::uint32_t segment) {
    const Region mine = segments_.of(own_, segment);
    const Region into = segments_.of(target_, segment);
    if (team_.rank > 0 && collective_.commutative && mine.buffer == Buffer::input) {
      get(segment, into);
      sequence_.reduce(mine, into);
    } else {
      sequence_.copy(mine, into);
      if (team_.rank > 0) {
        get(segment, spare(segment, into));
        sequence_.reduce(spare(segment, into), into);
      }
    }
    put(segment, into);
  }

  void exscan(std::uint32_t segment) {
    const Region mine = segments_.of(own_, segment);
    if (team_.rank == 0) return put(segment, mine);
    const Region into = segments_.of(target_, segment);
    const Region sum = spare(segment, mine);
    if (has_next()) sequence_.copy(mine, sum);
    get(segment, into);
    if (!has_next()) return;
    sequence_.reduce(into, sum);
    put(segment, sum);
  }

  const Team& team_;
  const Collective& collective_;
  StagedSegments segments_;
  StagingStream stream_;
  Sequence sequence_;
  Region own_;
  Region target_;
  Region spare_;
  int next_;
};

}  // namespace

Plan prefix_staged(const std::string& algorithm, const Team& team, const Collective& collective) {
  return StagedPrefix(algorithm, team, collective).plan();
}

}  // namespace penstock::collectives
