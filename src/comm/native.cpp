// Decides which operations MPI's own collectives run.
#include <string>
#include <utility>

#include "collectives/parts/arguments.hpp"
#include "comm/check.hpp"
#include "comm/planner.hpp"
#include "penstock/error.hpp"
#include "plan/sequence.hpp"

namespace penstock::comm {
namespace {

/// A plan without steps that has the sizes of the buffers.
Plan sizes_alone(const Team& team, const Collective& collective) {
  plan::Sequence nothing(std::string(name(collective.kind)) + "/" + std::string(Native::kName), team);
  return collectives::finish(std::move(nothing), team, collective);
}

Collective unnamed(Collective collective) {
  if (collective.algorithm == Native::kName) collective.algorithm.clear();
  return collective;
}

}  // namespace

std::shared_ptr<const std::string> Planner::native_reason(const Collective& collective) const {
  const bool is_named = collective.algorithm == Native::kName;
  if (!is_named && (!facts_.native || facts_.team.tuning == nullptr || !collective.algorithm.empty())) return nullptr;
  const bool serves = native_ != nullptr && native_->serves(collective);
  if (is_named && !serves)
    throw Error(ErrorCode::invalid_argument,
                std::string(name(collective.kind)) +
                    ": MPI's own collective was asked for (algorithm 'native'), but MPI cannot run this call: it takes "
                    "predefined types and operations that MPI has, lengths below 2^31 elements of all ranks together, "
                    "and neither neighbourhoods nor reproducible reductions");
  // MPI does not report whose arguments differ and which rank failed, so at debug level 1 Penstock's algorithms run.
  if (facts_.debug) return nullptr;
  if (is_named) return std::make_shared<const std::string>("asked for by name");
  const bool asks_for_ours =
      collective.segment_bytes != 0 || collective.split != Collective::kAutomatic || collective.radix != 2;
  if (!serves || asks_for_ours || has_counts(collective.kind)) return nullptr;
  const std::optional<Tuning::Found> found = facts_.team.tuning->find(facts_.team, collective, true);
  if (!found || found->algorithm != Native::kName) return nullptr;
  return std::make_shared<const std::string>(found->reason);
}

Planned Planner::make_planned(const Collective& collective) const {
  std::shared_ptr<const std::string> reason = native_reason(collective);
  const Collective ours = unnamed(collective);
  if (reason == nullptr)
    return {collective, std::make_shared<const Plan>(plan_collective(facts_.team, ours)), signature(collective)};
  static_cast<void>(choose(facts_.team, ours));  // checks the arguments
  return {collective, std::make_shared<const Plan>(sizes_alone(facts_.team, collective)), signature(collective), 0,
          std::move(reason)};
}

Choice Planner::choice(const Planned& planned) const {
  const Collective& collective = planned.collective;
  Choice choice = choose(facts_.team, unnamed(collective));
  if (planned.native_reason != nullptr)
    choice.reason = *planned.native_reason;
  else if (collective.algorithm == Native::kName)
    choice.reason += "; not MPI's own, because of the debug level";
  return choice;
}

}  // namespace penstock::comm
