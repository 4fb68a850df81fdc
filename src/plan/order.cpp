#include "plan/order.hpp"

#include <algorithm>

namespace penstock::plan {

Order::Order(const Plan& plan) : Order(plan.steps.size()) {
  for (StepId step = 0; step < plan.steps.size(); ++step)
    for (const StepId earlier : dependencies(plan, step)) add(earlier, step);
}

void Order::add(std::size_t earlier, std::size_t later) {
  std::uint64_t* row = &before_[later * words_];
  for (std::size_t i = 0; i < words_; ++i) row[i] |= before_[earlier * words_ + i];
  row[earlier / 64] |= std::uint64_t{1} << (earlier % 64);
}

Events::Events(std::span<const Plan> plans) {
  std::size_t steps = 0;
  for (const Plan& plan : plans) {
    first_step_.push_back(steps);
    steps += plan.steps.size();
  }
  ends_.resize(2 * steps);
  for (std::size_t rank = 0; rank < plans.size(); ++rank)
    for (StepId step = 0; step < plans[rank].steps.size(); ++step) {
      add(start(rank, step), end(rank, step));
      for (const StepId earlier : dependencies(plans[rank], step)) add(end(rank, earlier), start(rank, step));
    }
}

void Events::add(Event before, Event after) {
  edges_.push_back({before, after, ends_[before].first_out, ends_[after].first_in});
  ends_[before].first_out = ends_[after].first_in = edges_.size() - 1;
}

std::pair<std::size_t, StepId> Events::step_of(Event event) const {
  const std::size_t step = event / 2;
  // The last rank whose first step is at or before it: a rank without steps has the same first step as the next rank.
  const auto next = std::upper_bound(first_step_.begin(), first_step_.end(), step);
  const auto rank = static_cast<std::size_t>(next - first_step_.begin()) - 1;
  return {rank, static_cast<StepId>(step - first_step_[rank])};
}

std::vector<std::pair<std::size_t, StepId>> Events::find_cycle() const {
  std::vector<std::size_t> waits(ends_.size());
  for (const Edge& edge : edges_) ++waits[edge.after];
  std::vector<Event> ready;
  for (Event event = 0; event < waits.size(); ++event)
    if (waits[event] == 0) ready.push_back(event);
  std::size_t done = 0;
  for (; !ready.empty(); ++done) {
    const Event event = ready.back();
    ready.pop_back();
    for_each_neighbour(event, true, [&](Event next) {
      if (--waits[next] == 0) ready.push_back(next);
    });
  }
  if (done == ends_.size()) return {};

  // Every remaining event waits for another remaining one, so following these edges reaches a cycle.
  std::vector<Event> waits_for(waits.size(), waits.size());
  for (const Edge& edge : edges_)
    if (waits[edge.before] > 0) waits_for[edge.after] = edge.before;
  Event at = 0;
  while (waits[at] == 0) ++at;
  std::vector<bool> seen(waits.size());
  for (; !seen[at]; at = waits_for[at]) seen[at] = true;
  std::vector<std::pair<std::size_t, StepId>> cycle;
  const Event begin = at;
  do {
    if (cycle.empty() || cycle.back() != step_of(at)) cycle.push_back(step_of(at));
    at = waits_for[at];
  } while (at != begin);
  return cycle;
}

std::vector<bool> Events::reachable(Event from, bool forward) const {
  std::vector<bool> seen(ends_.size());
  std::vector<Event> open{from};
  seen[from] = true;
  while (!open.empty()) {
    const Event event = open.back();
    open.pop_back();
    for_each_neighbour(event, forward, [&](Event next) {
      if (!seen[next]) {
        seen[next] = true;
        open.push_back(next);
      }
    });
  }
  return seen;
}

}  // namespace penstock::plan
