#include "penstock/redistribute.hpp"

#include <string>
#include <utility>

#include "arrays/planned_redistribution.hpp"
#include "arrays/recent_redistributions.hpp"
#include "comm/state.hpp"
#include "penstock/comm.hpp"
#include "penstock/error.hpp"

namespace penstock {
namespace {

using arrays::MemoryPlacement;
using arrays::PlannedRedistribution;
using arrays::RecentRedistributions;

/// The cached plan of an equal call, or a new plan. Making a new one is collective.
std::shared_ptr<PlannedRedistribution> planned_for(Comm& comm, const RedistributionCall& call) {
  if (call.options.relabel != RelabelPolicy::never) {
    const char* const message =
        "redistribute: relabeling was asked for, which changes the target's layout; make a Redistribution instead";
    comm.fail_next(message);
    throw Error(ErrorCode::invalid_argument, message);
  }
  auto& recent = comm.state().kept_with<RecentRedistributions>(comm.state().facts().plan_cache_bytes);
  if (auto found = recent.find(call.source, call.target, call.options)) return found;
  auto planned = PlannedRedistribution::plan(comm, {{call.source, call.target}}, call.options);
  recent.add(planned, planned->agree_on_bytes(comm));
  return planned;
}

}  // namespace

struct RedistributionBatch::State {
  State(const Comm& given_comm, std::vector<LayoutPair> pairs, const RedistributionOptions& options)
      : comm(given_comm), planned(PlannedRedistribution::plan(comm, std::move(pairs), options)) {}

  Comm comm;
  std::shared_ptr<PlannedRedistribution> planned;
};

RedistributionBatch::RedistributionBatch(const Comm& comm, std::vector<LayoutPair> pairs,
                                         const RedistributionOptions& options)
    : state_(std::make_shared<State>(comm, std::move(pairs), options)) {}

std::size_t RedistributionBatch::size() const { return state_->planned->size(); }
const std::vector<LayoutPair>& RedistributionBatch::pairs() const { return state_->planned->pairs(); }
const RedistributionOptions& RedistributionBatch::options() const { return state_->planned->options(); }
const std::vector<Relabeling>& RedistributionBatch::relabelings() const { return state_->planned->relabelings(); }
const Plan& RedistributionBatch::plan() const { return *state_->planned->local().plan(); }
std::uint64_t RedistributionBatch::local_input_bytes(std::size_t pair) const {
  return state_->planned->local().input_bytes(pair);
}
std::uint64_t RedistributionBatch::local_output_bytes(std::size_t pair) const {
  return state_->planned->local().output_bytes(pair);
}
std::uint64_t RedistributionBatch::workspace_bytes() const {
  return state_->planned->workspace_bytes(state_->comm.team());
}

Request RedistributionBatch::start(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs,
                                   std::complex<double> alpha, std::complex<double> beta, Workspace workspace) const {
  return state_->planned->start(state_->comm, inputs, outputs, {alpha, beta}, workspace);
}

void RedistributionBatch::run(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs,
                              std::complex<double> alpha, std::complex<double> beta, Workspace workspace) const {
  start(inputs, outputs, alpha, beta, workspace).wait();
}

Request RedistributionBatch::start_parts(std::span<const ConstStridedParts> inputs,
                                         std::span<const StridedParts> outputs, std::complex<double> alpha,
                                         std::complex<double> beta, Workspace workspace) const {
  return state_->planned->start_parts(state_->comm, inputs, outputs, {alpha, beta}, workspace);
}

void RedistributionBatch::fail(const std::string& message) const noexcept { state_->comm.fail_next(message); }

Request Redistribution::start(ConstBytes input, Bytes output, std::complex<double> alpha, std::complex<double> beta,
                              Workspace workspace) const {
  return batch_.start({&input, 1}, {&output, 1}, alpha, beta, workspace);
}

void Redistribution::run(ConstBytes input, Bytes output, std::complex<double> alpha, std::complex<double> beta,
                         Workspace workspace) const {
  start(input, output, alpha, beta, workspace).wait();
}

Request Redistribution::start_parts(const ConstStridedParts& input, const StridedParts& output,
                                    std::complex<double> alpha, std::complex<double> beta, Workspace workspace) const {
  return batch_.start_parts({&input, 1}, {&output, 1}, alpha, beta, workspace);
}

Request start_redistribution(const Comm& given_comm, const RedistributionCall& call, ConstBytes input, Bytes output) {
  Comm comm = given_comm;
  const auto planned = planned_for(comm, call);
  MemoryPlacement placement;
  if (call.options.source_leading_elems == 0 && call.options.target_leading_elems == 0) {
    placement = {{std::nullopt}, {std::nullopt}};
  } else {
    try {
      placement = PlannedRedistribution::placement_of(planned->pairs(), call.options, comm.rank());
    } catch (const Error& error) {
      comm.fail_next(error.what());
      throw;
    }
  }
  return planned->start(comm, {&input, 1}, {&output, 1}, {call.alpha, call.beta}, call.workspace, &placement);
}

Request start_redistribution(const Comm& given_comm, const RedistributionCall& call, const ConstStridedParts& input,
                             const StridedParts& output) {
  Comm comm = given_comm;
  return planned_for(comm, call)->start_parts(comm, {&input, 1}, {&output, 1}, {call.alpha, call.beta}, call.workspace);
}

void run_redistribution(const Comm& comm, const RedistributionCall& call, ConstBytes input, Bytes output) {
  start_redistribution(comm, call, input, output).wait();
}

}  // namespace penstock
