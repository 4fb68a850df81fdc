#include "plan/split.hpp"

#include <algorithm>

namespace penstock::plan {

void split_tree(Plan& plan, int application_levels) {
  const int kept = plan.tree_levels - std::clamp<int>(application_levels, 0, plan.tree_levels);
  for (Step& step : plan.steps) {
    const bool is_in_tree = step.level > 0 && plan.tree_levels > 0;
    step.lane = is_in_tree && step.level > kept ? Lane::application : Lane::progress;
  }
}

}  // namespace penstock::plan
