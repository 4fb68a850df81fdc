#include "collectives/parts/in_order.hpp"

#include <algorithm>

#include "collectives/parts/node_tasks.hpp"

namespace penstock::collectives {
namespace {

constexpr std::uint32_t kOrderedInFlight = 4;  // segments for which an inner rank has memory

}  // namespace

Tree tree_in_order(const Team& team) { return binomial(Group{everyone(team), team.rank}); }

OrderedStage::OrderedStage(Sequence& sequence, const Tree& tree, const Segments& segments, StageId stage)
    : sequence_(sequence),
      tree_(tree),
      stage_(stage),
      in_flight_(std::min(segments.count(), kOrderedInFlight)),
      slot_bytes_((segments.largest_bytes() + 63) / 64 * 64) {
  if (!tree_.children.empty()) scratch_ = sequence_.scratch(in_flight_ * slot_bytes_ * tree_.children.size());
}

Region OrderedStage::run(std::uint32_t segment, Region own) {
  Region value = own;
  for (std::size_t i = tree_.children.size(); i-- > 0;) {  // the subtree of the next ranks first
    const std::uint64_t number = segment % in_flight_ * tree_.children.size() + i;
    const Region into{scratch_.offset_bytes + number * slot_bytes_, own.size_bytes, Buffer::scratch};
    sequence_.at(0, segment).recv(into, tree_.children[i].rank, stage_.tag(segment));
    sequence_.reduce(value, into);
    value = into;
  }
  if (tree_.parent >= 0) sequence_.at(0, segment).send(value, tree_.parent, stage_.tag(segment));
  return value;
}

}  // namespace penstock::collectives
