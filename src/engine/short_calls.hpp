// Calls that take the fast path for a few short messages between nodes (ShortExchange), and how they go on without it.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/routes.hpp"

namespace penstock::engine {

/// The core and its mechanisms, with that fast path. The engine's lock protects it.
class ShortCalls : public Routes {
 protected:
  using Routes::Routes;
  ~ShortCalls() = default;

  /// Whether the next call may take the fast path, if its plan is short: nothing else is going on.
  bool can_run_short(const Plan& plan, const Bindings& bindings, const Arithmetic& arithmetic);
  /// nullptr if the plan is not short.
  const CompiledPlan* find_short_plan(PlanCache& plans, std::uint32_t plan_tags,
                                      const std::shared_ptr<const Plan>& plan) const;
  /// Whether it has completed. If not, start_rest() and then RemoteMessages::go_on() go on.
  bool run_short(Operation& next, const CompiledPlan& compiled, const std::shared_ptr<const Plan>& plan,
                 const Bindings& bindings, const Arithmetic& arithmetic, std::uint64_t signature, int& polls);
  void start_rest(Operation& started, const std::shared_ptr<const Plan>& plan);
};

}  // namespace penstock::engine
