#include "engine/compiled_plan.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/hash.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/error.hpp"
#include "plan/memory.hpp"
#include "plan/order.hpp"
#include "plan/region.hpp"
#include "plan/rules.hpp"

namespace penstock::engine {
namespace {

/// The end of what a step puts into the shared buffer.
std::uint64_t end_of_published(const Step& step) {
  if (step.kind == StepKind::signal && plan::tells_length(step)) return step.to.offset_bytes + kToldLengthBytes;
  if (!plan::touches(step).writes || step.to.buffer != Buffer::shared) return 0;
  return step.to.offset_bytes + step.to.size_bytes;
}

std::uint64_t key_of(bool is_signal, int peer, std::uint32_t tag) {
  return (static_cast<std::uint64_t>(peer) << 32) | (is_signal ? 1u << 24 : 0u) | tag;
}

}  // namespace

CompiledPlan::CompiledPlan(const Plan& plan, const Team& team, std::uint64_t shared_limit_bytes,
                           std::uint32_t wire_tags) {
  check(plan, team, shared_limit_bytes);
  tasks_ = CompiledTasks(plan, team);
  const std::size_t steps = plan.steps.size();
  const Edges edges = set_wire_tags(plan, team, wire_tags);
  dependents_ = plan::Lists<StepId>(steps, [&](const auto& visit) {
    for (StepId id = 0; id < steps; ++id)
      for (const StepId earlier : plan::dependencies(plan, id)) visit(earlier, id);
    for (const auto& [first, second] : edges) visit(first, second);
  });
  dependency_counts_.resize(steps);
  for (StepId id = 0; id < steps; ++id) {
    dependency_counts_[id] = plan.steps[id].dependency_count;
    const Step& step = plan.steps[id];
    published_bytes_ = std::max(published_bytes_, end_of_published(step));
    reads_peers_ |= plan::touches(step).reads_remote;
    has_messages_ |= step.kind == StepKind::send || plan::takes_message(step);
    takes_from_node_ |= plan::consumes(step) && team.same_node(team.rank, step.peer);
  }
  for (const auto& [first, second] : edges) ++dependency_counts_[second];
  for (StepId id = 0; id < steps; ++id)
    if (dependency_counts_[id] == 0) roots_.push_back(id);
  index_receivers(plan);
  set_short_exchange(plan, team, edges);
}

CompiledPlan::Edges CompiledPlan::set_wire_tags(const Plan& plan, const Team& team, std::uint32_t wire_tags) {
  std::vector<StepId> remote;
  for (std::size_t i = 0; i < plan.steps.size(); ++i)
    if (const Step& step = plan.steps[i];
        (step.kind == StepKind::send || step.kind == StepKind::recv) && !team.same_node(team.rank, step.peer))
      remote.push_back(static_cast<StepId>(i));
  if (remote.empty()) return {};
  leaves_node_ = true;
  wire_tags_.resize(plan.steps.size());
  Edges edges;
  // Both ranks number the messages of one to the other in the order of their tags in the plan, if there are too many.
  std::map<std::pair<std::int32_t, StepKind>, std::vector<StepId>> by_pair;
  for (const StepId id : remote) {
    wire_tags_[id] = plan.steps[id].tag;
    by_pair[{plan.steps[id].peer, plan.steps[id].kind}].push_back(id);
  }
  for (auto& [pair, ids] : by_pair) {
    const auto is_less = [&](StepId a, StepId b) { return plan.steps[a].tag < plan.steps[b].tag; };
    if (plan.steps[*std::ranges::max_element(ids, is_less)].tag < wire_tags) continue;
    std::ranges::stable_sort(ids, is_less);
    for (std::size_t number = 0; number < ids.size(); ++number) {
      wire_tags_[ids[number]] = static_cast<std::uint32_t>(number % wire_tags);
      if (number < wire_tags) continue;
      const StepId before = ids[number - wire_tags];
      if (before > ids[number])
        reject_plan(plan, "it needs more than the " + std::to_string(wire_tags) +
                              " tags that this MPI has for messages between two ranks; use another algorithm");
      edges.emplace_back(before, ids[number]);
    }
  }
  RemoteTraffic traffic;
  for (const StepId id : remote) {
    const Step& step = plan.steps[id];
    traffic.push_back({step.peer, wire_tags_[id],
                       step.kind == StepKind::send ? step.from.size_bytes : step.to.size_bytes, step.kind});
  }
  traffic_ = std::make_shared<const RemoteTraffic>(std::move(traffic));
  return edges;
}

void CompiledPlan::set_short_exchange(const Plan& plan, const Team& team, const Edges& edges) {
  constexpr std::size_t kMostSteps = 32;  // bits
  const auto is_short = [&](const Step& step) {
    const bool is_message = step.kind == StepKind::send || step.kind == StepKind::recv;
    const bool is_computation = step.kind == StepKind::compute && step.source == StepSource::local;
    return std::max(step.from.size_bytes, step.to.size_bytes) <= Machine::Network{}.eager_bytes &&
           (is_computation || (is_message && !team.same_node(team.rank, step.peer)));
  };
  if (!leaves_node_ || plan.steps.size() > kMostSteps || plan.shared_bytes > 0 ||
      !std::ranges::all_of(plan.steps, is_short))
    return;
  short_exchange_.resize(plan.steps.size());
  for (StepId id = 0; id < plan.steps.size(); ++id)
    for (const StepId earlier : plan::dependencies(plan, id)) short_exchange_[id] |= 1U << earlier;
  for (const auto& [first, second] : edges) short_exchange_[second] |= 1U << first;
}

void CompiledPlan::check(const Plan& plan, const Team& team, std::uint64_t shared_limit_bytes) const {
  if (plan.rank != team.rank || plan.size != team.size())
    reject_plan(plan, "it is for rank " + std::to_string(plan.rank) + " of " + std::to_string(plan.size) +
                          ", and this is rank " + std::to_string(team.rank) + " of " + std::to_string(team.size()));
  if (plan.shared_bytes > shared_limit_bytes)
    reject_plan(plan, "it needs " + std::to_string(plan.shared_bytes) +
                          " bytes of shared memory per rank, and there are " + std::to_string(shared_limit_bytes) +
                          "; raise PENSTOCK_SHARED_BYTES or use another algorithm");
  for (StepId id = 0; id < plan.steps.size(); ++id) {
    const Step& step = plan.steps[id];
    const auto reject = [&](const std::string& why) { reject_plan(plan, "step " + std::to_string(id) + " " + why); };
    if (const std::string broken = plan::violated_step_rule(plan, id); !broken.empty()) reject(broken);
    const plan::Touches touches = plan::touches(step);
    if (!touches.has_peer) continue;
    // The engine knows no more of the size of a peer's buffer.
    if (touches.reads_remote && !plan::is_inside(step.from, shared_limit_bytes))
      reject("reads outside of a peer's shared buffer");
    if (step.kind == StepKind::compute && plan::takes_message(step) && (!team.single_copy || step.peer == team.rank))
      reject("needs the memory of rank " + std::to_string(step.peer) +
             ", and the ranks cannot read each other's; plan with the engine's team");
    if (step.kind != StepKind::send && step.kind != StepKind::recv &&
        (!team.same_node(team.rank, step.peer) || shared_limit_bytes == 0))
      reject("needs shared memory with rank " + std::to_string(step.peer) +
             ", and there is none; plan with the engine's team");
  }
  if (const std::string broken = plan::violated_flag_rule(plan); !broken.empty())
    reject_plan(plan, "it has by_flags, but " + broken);
}

void CompiledPlan::index_receivers(const Plan& plan) {
  std::size_t count = 0;
  for (const Step& step : plan.steps) count += plan::consumes(step);
  if (count == 0) return;
  receivers_.assign(std::bit_ceil(count * 2), Entry{0, kNone});
  const std::size_t mask = receivers_.size() - 1;
  for (std::size_t i = plan.steps.size(); i-- > 0;) {
    const Step& step = plan.steps[i];
    if (!plan::consumes(step)) continue;
    const std::uint64_t key = key_of(step.kind == StepKind::wait, step.peer, step.tag);
    std::size_t at = base::mix(base::kSeed, key) & mask;
    while (receivers_[at].step != kNone && receivers_[at].key != key) at = (at + 1) & mask;
    if (receivers_[at].step != kNone) {
      if (next_receiver_.empty()) next_receiver_.assign(plan.steps.size(), kNone);
      next_receiver_[i] = receivers_[at].step;
    }
    receivers_[at] = {key, static_cast<StepId>(i)};
  }
}

StepId CompiledPlan::receiver(bool is_signal, int peer, std::uint32_t tag) const {
  if (receivers_.empty()) return kNone;
  const std::uint64_t key = key_of(is_signal, peer, tag);
  const std::size_t mask = receivers_.size() - 1;
  for (std::size_t at = base::mix(base::kSeed, key) & mask; receivers_[at].step != kNone; at = (at + 1) & mask)
    if (receivers_[at].key == key) return receivers_[at].step;
  return kNone;
}

const CompiledPlan* PlanCache::get(const std::shared_ptr<const Plan>& plan, const Team& team,
                                   std::uint64_t shared_limit_bytes, std::uint32_t wire_tags) {
  const auto found = entries_.find(plan.get());
  // An expired entry belongs to a freed plan, whose address this plan may have now.
  if (found != entries_.end() && !found->second.plan.expired()) return found->second.compiled.get();
  auto compiled = std::make_unique<const CompiledPlan>(*plan, team, shared_limit_bytes, wire_tags);
  if (size_bytes_ >= sweep_at_bytes_) sweep();
  Entry& entry = entries_[plan.get()];
  size_bytes_ -= entry.size_bytes;
  entry = {plan, std::move(compiled), plan::memory_bytes(*plan)};
  size_bytes_ += entry.size_bytes;
  return entry.compiled.get();
}

void PlanCache::sweep() {
  std::erase_if(entries_, [&](const auto& each) {
    if (!each.second.plan.expired()) return false;
    size_bytes_ -= each.second.size_bytes;
    return true;
  });
  sweep_at_bytes_ = std::max(kLeastSweptBytes, 2 * size_bytes_);
}

}  // namespace penstock::engine
