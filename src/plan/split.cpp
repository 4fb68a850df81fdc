#include "plan/split.hpp"

#include <algorithm>

namespace penstock::plan {

void split_tree(Plan& plan, int application_levels) {
  const int kept = plan.tree_levels - std::clamp<int>(application_levels, 0, plan.tree_levels);
  plan.application_levels = static_cast<std::uint16_t>(plan.tree_levels - kept);
  const auto place = [&](auto& work) {
    const bool is_in_tree = work.level > 0 && plan.tree_levels > 0;
    work.lane = is_in_tree && work.level > kept ? Lane::application : Lane::progress;
  };
  for (Step& step : plan.steps) place(step);
  for (SharedTask& task : plan.tasks) place(task);
}

}  // namespace penstock::plan
