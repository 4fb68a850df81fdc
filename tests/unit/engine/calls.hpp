// The two ways of calling an operation. A blocking call may take a fast path, and a test that is about it must know.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "engine/compiled_plan.hpp"
#include "engine/executor.hpp"
#include "penstock/error.hpp"

namespace penstock::engine {

enum class CalledBy : std::uint8_t {
  start,  ///< start() and wait()
  run,    ///< run()
};

/// Blocking calls that may take the fast path between nodes, and those that have. They need not if something else is
/// going on, such as a failure.
struct ShortCallCounts {
  std::atomic<std::uint64_t> possible{0};
  std::atomic<std::uint64_t> taken{0};
};

inline bool may_run_short(const Engine& engine, const Plan& plan, const Bindings& bindings,
                          const Arithmetic& arithmetic) {
  const Team& team = engine.team();
  const std::int32_t own_node = team.node_of_rank[static_cast<std::size_t>(team.rank)];
  if (std::ranges::count(team.node_of_rank, own_node) > 1 || arithmetic.user ||
      bindings.input.size() < plan.input_bytes || bindings.output.size() < plan.output_bytes)
    return false;
  try {
    return !CompiledPlan(plan, team, engine.shared_limit_bytes()).short_exchange().empty();
  } catch (const Error&) {
    return false;
  }
}

/// run(), counted. None if the operation succeeds.
inline std::optional<Error> failure_of_run(Engine& engine, const std::shared_ptr<const Plan>& plan,
                                           const Bindings& bindings, const Arithmetic& arithmetic,
                                           std::uint64_t signature, ShortCallCounts& counts) {
  auto& executor = static_cast<Executor&>(engine);
  const bool is_possible = may_run_short(engine, *plan, bindings, arithmetic);
  const std::uint64_t before = executor.short_calls();
  std::optional<Error> failure;
  try {
    engine.run(plan, bindings, arithmetic, signature);
  } catch (const Error& error) {
    failure = error;
  }
  const std::uint64_t taken = executor.short_calls() - before;
  EXPECT_LE(taken, is_possible ? 1u : 0u) << plan->algorithm;
  counts.possible += is_possible ? 1 : 0;
  counts.taken += taken;
  return failure;
}

inline std::optional<Error> failure_of_run(Engine& engine, const std::shared_ptr<const Plan>& plan,
                                           const Bindings& bindings, const Arithmetic& arithmetic = {},
                                           std::uint64_t signature = 7) {
  ShortCallCounts counts;
  return failure_of_run(engine, plan, bindings, arithmetic, signature, counts);
}

}  // namespace penstock::engine
