#include "comm/recent_redistributions.hpp"

#include <utility>

#include "comm/planned_redistribution.hpp"

namespace penstock::comm {
namespace {

bool are_equal(const RedistributionOptions& a, const RedistributionOptions& b) {
  return a.dtype == b.dtype && a.input_dtype() == b.input_dtype() && a.op == b.op &&
         a.segment_bytes == b.segment_bytes && a.source_begin == b.source_begin && a.target_begin == b.target_begin &&
         a.shape == b.shape;
}

}  // namespace

std::shared_ptr<PlannedRedistribution> RecentRedistributions::find(const Layout& source, const Layout& target,
                                                                   const RedistributionOptions& options) const {
  for (auto each = planned_.rbegin(); each != planned_.rend(); ++each) {
    const LayoutPair& pair = (*each)->pairs()[0];
    if (are_equal((*each)->options(), options) && pair.source == source && pair.target == target) return *each;
  }
  return nullptr;
}

void RecentRedistributions::add(std::shared_ptr<PlannedRedistribution> planned) {
  if (planned_.size() == kMost) planned_.pop_front();
  planned_.push_back(std::move(planned));
}

}  // namespace penstock::comm
