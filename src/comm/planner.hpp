// Decides which plan a call of a collective gets.
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

/// The planner of one communicator; its State owns it. One thread at a time, except plans().
class Planner {
 public:
  /// Both arguments must outlive it. `native` is nullptr if MPI's own collectives are not available.
  Planner(const Facts& facts, const Native* native) : facts_(facts), native_(native), plans_(facts.plan_cache_bytes) {}

  /// See Comm::use.
  /// Adds the communicator's neighbours if the call gives none.
  Collective with_graph(const Collective& asked) const;
  void use(CollectiveKind kind, const std::string& algorithm, std::uint64_t segment_bytes);
  std::shared_ptr<const Planned> plan(const Collective& asked);
  PlanCache& plans() { return plans_; }

  std::string explain(const Collective& asked) const;
  /// The plans that ran, how often and why: as lines of text, and as members of a JSON array.
  std::string ran_text();
  std::string ran_json();

 private:
  struct Used {
    std::string algorithm;
    std::uint64_t segment_bytes = 0;
  };

  /// Adds the algorithm of Comm::use if the call names none.
  Collective with_used(const Collective& asked) const;
  Planned make_planned(const Collective& normalized) const;
  /// Why MPI's own collective runs it; nullptr if an algorithm of Penstock does. Equal on all ranks. Throws
  /// Error(invalid_argument) if the call names "native" and MPI cannot run it.
  std::shared_ptr<const std::string> native_reason(const Collective& normalized) const;
  Choice choice(const Planned& planned) const;
  /// Describes a plan as the members of a JSON object.
  json::Object facts_of(const Planned& planned) const;

  const Facts& facts_;
  const Native* native_;
  std::map<CollectiveKind, Used> used_;
  PlanCache plans_;
};

}  // namespace penstock::comm
