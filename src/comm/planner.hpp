// Which plan a call of a collective gets.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/json.hpp"
#include "comm/facts.hpp"
#include "comm/native.hpp"
#include "comm/plan_cache.hpp"
#include "penstock/collective.hpp"

namespace penstock::comm {

class Planner {
 public:
  /// Both outlive it. `native` is nullptr where MPI's own collectives are not at hand.
  Planner(const Facts& facts, const Native* native) : facts_(facts), native_(native), plans_(facts.plan_cache_bytes) {}

  /// See Comm::use.
  void use(CollectiveKind kind, const std::string& algorithm, std::uint64_t segment_bytes);
  std::shared_ptr<const Planned> plan(const Collective& asked);
  PlanCache& plans() { return plans_; }

  std::string explain(const Collective& asked) const;
  /// What ran, how often and why: a line for each plan, and the members of a JSON array.
  std::string ran_text();
  std::string ran_json();

 private:
  struct Used {
    std::string algorithm;
    std::uint64_t segment_bytes = 0;
  };

  /// With the algorithm that is to be used where none is named.
  Collective with_used(const Collective& asked) const;
  Planned make_planned(const Collective& normalized_what) const;
  /// Why MPI's own collective is to serve it; nullptr where one of ours is. The same on all ranks. Throws
  /// Error(invalid_argument) where it is asked for by name and cannot.
  std::shared_ptr<const std::string> native_reason(const Collective& normalized_what) const;
  Choice choice(const Planned& planned) const;
  /// What is known of a plan, as the members of a JSON object.
  json::Object facts_of(const Planned& planned) const;

  const Facts& facts_;
  const Native* native_;
  std::map<CollectiveKind, Used> used_;
  PlanCache plans_;
};

}  // namespace penstock::comm
