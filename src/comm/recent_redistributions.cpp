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
  for (auto each = kept_.rbegin(); each != kept_.rend(); ++each) {
    const LayoutPair& pair = each->planned->pairs()[0];
    if (are_equal(each->planned->options(), options) && pair.source == source && pair.target == target)
      return each->planned;
  }
  return nullptr;
}

void RecentRedistributions::add(std::shared_ptr<PlannedRedistribution> planned, std::uint64_t agreed_bytes) {
  while (!kept_.empty() && (kept_.size() == kMost || kept_bytes_ + agreed_bytes > kMostBytes)) {
    kept_bytes_ -= kept_.front().agreed_bytes;
    kept_.pop_front();
  }
  kept_bytes_ += agreed_bytes;
  kept_.push_back({std::move(planned), agreed_bytes});
}

}  // namespace penstock::comm
