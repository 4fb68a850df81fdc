// Which operations are left to MPI's own collectives.
#include <string>
#include <utility>

#include "collectives/parts/arguments.hpp"
#include "comm/check.hpp"
#include "comm/planner.hpp"
#include "penstock/error.hpp"
#include "plan/sequence.hpp"

namespace penstock::comm {
namespace {

/// The buffers that the operation needs, and nothing to do.
Plan sizes_alone(const Team& team, const Collective& what) {
  plan::Sequence nothing(std::string(name(what.kind)) + "/" + std::string(Native::kName), team);
  return collectives::finish(std::move(nothing), team, what);
}

Collective unnamed(Collective what) {
  if (what.algorithm == Native::kName) what.algorithm.clear();
  return what;
}

}  // namespace

std::shared_ptr<const std::string> Planner::native_reason(const Collective& what) const {
  const bool is_named = what.algorithm == Native::kName;
  if (!is_named && (!facts_.native || facts_.team.tuning == nullptr || !what.algorithm.empty())) return nullptr;
  const bool serves = native_ != nullptr && native_->serves(what);
  if (is_named && !serves)
    throw Error(ErrorCode::invalid_argument,
                std::string(name(what.kind)) +
                    ": MPI's own collective was asked for (algorithm 'native'), but it cannot serve this: it takes "
                    "predefined types and operations that MPI has, lengths below 2^31 elements of all ranks together, "
                    "and no reproducible reductions");
  // What the debug level is for, MPI would not tell: whose arguments differ, and who failed.
  if (facts_.debug) return nullptr;
  if (is_named) return std::make_shared<const std::string>("asked for by name");
  const bool asks_for_ours = what.segment_bytes != 0 || what.split != Collective::kAutomatic || what.radix != 2;
  if (!serves || asks_for_ours || has_counts(what.kind)) return nullptr;
  const std::optional<Tuning::Found> found = facts_.team.tuning->find(facts_.team, what, true);
  if (!found || found->algorithm != Native::kName) return nullptr;
  return std::make_shared<const std::string>(found->reason);
}

Planned Planner::make_planned(const Collective& what) const {
  std::shared_ptr<const std::string> reason = native_reason(what);
  const Collective ours = unnamed(what);
  if (reason == nullptr)
    return {what, std::make_shared<const Plan>(plan_collective(facts_.team, ours)), signature(what)};
  static_cast<void>(choose(facts_.team, ours));  // checks the arguments
  return {what, std::make_shared<const Plan>(sizes_alone(facts_.team, what)), signature(what), 0, std::move(reason)};
}

Choice Planner::choice(const Planned& planned) const {
  const Collective& what = planned.what;
  Choice choice = choose(facts_.team, unnamed(what));
  if (planned.native_reason != nullptr)
    choice.reason = *planned.native_reason;
  else if (what.algorithm == Native::kName)
    choice.reason += "; not MPI's own, because of the debug level";
  return choice;
}

}  // namespace penstock::comm
