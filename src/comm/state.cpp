#include "comm/state.hpp"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <set>
#include <utility>

#include "base/json.hpp"
#include "base/overlap.hpp"
#include "kernels/reduce_sorted.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::comm {
namespace {

Arithmetic arithmetic_of(const Collective& collective, std::shared_ptr<const UserOp> user) {
  const bool reproducible = collective.reproducible && (user || kernels::depends_on_order(collective.dtype));
  return {.dtype = collective.dtype, .op = collective.op, .reproducible = reproducible, .user = std::move(user)};
}

}  // namespace

void State::fail_next(const std::string& message) noexcept {
  agreements_.begin_failed();
  engine_->fail_next(message);
}

Started State::start(std::shared_ptr<const Plan> plan, const engine::Bindings& bindings, const Arithmetic& arithmetic,
                     std::uint64_t signature) {
  Started started;
  started.agreement = agreements_.begin([&] { return record_of_plan(signature, team().size()); });
  started.run = engine_->start(std::move(plan), bindings, arithmetic, signature);
  return started;
}

Started State::start_external(std::unique_ptr<ExternalOperation> operation, std::uint64_t signature) {
  auto barrier = std::make_shared<const Plan>(plan_collective(team(), {}));
  return {.run = native_->start_after(start(std::move(barrier), {}, {}, signature), std::move(operation))};
}

State::Prepared State::prepare(const Collective& given, ConstBytes input, Bytes output, const UserOp* user) {
  Prepared prepared;
  try {
    // Not std::optional: compilers clear all its memory, which every call would pay for.
    std::unique_ptr<Collective> changed;
    const auto change = [&]() -> Collective& {
      if (changed == nullptr) changed = std::make_unique<Collective>(given);
      return *changed;
    };
    if (user != nullptr && (given.element_bytes != user->element_bytes || given.commutative != user->commutative)) {
      change().element_bytes = user->element_bytes;
      change().commutative = user->commutative;
    }
    if (given.kind == CollectiveKind::exscan && given.in_place) {
      // Tasks access the memory of other ranks, so it must be the same buffer on ranks that are in place and on ranks
      // that are not.
      prepared.contribution = std::make_shared<const std::vector<std::byte>>(output.begin(), output.end());
      change().in_place = false;
      input = *prepared.contribution;
    }
    const Collective& collective = changed ? *changed : given;
    if (computes(collective.kind) && (collective.element_bytes != 0) != (user != nullptr && user->combine))
      throw Error(ErrorCode::invalid_argument,
                  std::string(name(collective.kind)) + ": element_bytes is " +
                      std::to_string(collective.element_bytes) +
                      (collective.element_bytes != 0 ? " without" : " with") +
                      " a user operation; give both a UserOp and the size of its elements, or neither");
    prepared.planned = planner_.plan(collective);
    prepared.bindings = comm::bind(collective, *prepared.planned->plan, input, output);
  } catch (const std::exception& error) {
    // MPI cannot be told. The other ranks wait until this rank calls the operation again.
    if (prepared.planned != nullptr && prepared.planned->native_reason != nullptr) throw;
    // Perhaps only this rank knows the error. Fail the operation, so that the others do not wait.
    fail_next(error.what());
    throw;
  }
  return prepared;
}

void State::run(const Collective& given, ConstBytes input, Bytes output, std::shared_ptr<const UserOp> user) {
  const Prepared prepared = prepare(given, input, output, user.get());
  const Planned& planned = *prepared.planned;
  if (planned.native_reason != nullptr)
    native_->run(planned.collective, prepared.bindings.input, prepared.bindings.output);
  else if (options().debug > 0 || facts_.debug)
    start(prepared, std::move(user)).wait();
  else
    engine_->run(planned.plan, prepared.bindings, arithmetic_of(planned.collective, std::move(user)),
                 planned.signature);
}

bool State::run_again(const PlainCall& call, const void* send, void* receive) {
  if (options().debug > 0 || facts_.debug) return false;
  engine::Bindings bindings;
  const Planned* const planned = planner_.plans().again(call, [&](const Plan& plan) {
    if (plan.input_bytes != 0) bindings.input = {static_cast<const std::byte*>(send), plan.input_bytes};
    if (plan.output_bytes != 0) bindings.output = {static_cast<std::byte*>(receive), plan.output_bytes};
    return (plan.input_bytes == 0 || send != nullptr) && (plan.output_bytes == 0 || receive != nullptr) &&
           !base::overlap(bindings.input, bindings.output);
  });
  if (planned == nullptr) return false;
  engine_->run(planned->plan, bindings, arithmetic_of(planned->collective, nullptr), planned->signature);
  return true;
}

Started State::start(const Collective& given, ConstBytes input, Bytes output, std::shared_ptr<const UserOp> user) {
  const Prepared prepared = prepare(given, input, output, user.get());
  if (prepared.planned->native_reason != nullptr)
    return {.contribution = prepared.contribution,
            .run = native_->start(prepared.planned->collective, prepared.bindings.input, prepared.bindings.output)};
  return start(prepared, std::move(user));
}

Started State::start(const Prepared& prepared, std::shared_ptr<const UserOp> user) {
  const Collective& collective = prepared.planned->collective;
  const engine::Bindings& bindings = prepared.bindings;
  std::shared_ptr<Agreement> agreement =
      agreements_.begin([&] { return record_of(collective, team().rank, team().size()); });
  Started started{.contribution = prepared.contribution,
                  .run = engine_->start(prepared.planned->plan, bindings, arithmetic_of(collective, std::move(user)),
                                        prepared.planned->signature)};
  started.agreement = std::move(agreement);
  if (options().debug > 0) {
    const bool sends_output = collective.kind == CollectiveKind::bcast && collective.root == team().rank;
    const ConstBytes sent = sends_output ? ConstBytes(bindings.output) : bindings.input;
    if (!sent.empty()) started.guard = Guard(std::string(name(collective.kind)), sent);
  }
  return started;
}

std::string State::report() {
  std::string text = engine_->report();
  if (!text.empty() && text.back() != '\n') text += '\n';
  text += "progress threads: " + facts_.progress_reason + '\n';
  if (!team().domain_of_rank.empty()) {
    const std::set<std::int32_t> domains(team().domain_of_rank.begin(), team().domain_of_rank.end());
    text += "levels: nodes, and " + std::to_string(domains.size()) + " domains of cache and memory in them\n";
  }
  if (!facts_.tuning.empty()) text += "tuning: " + facts_.tuning + '\n';
  return text + planner_.ran_text();
}

State::~State() {
  try {
    if (engine_ == nullptr || options().report.empty()) return;
    const std::string line = json::Object()
                                 .number("rank", team().rank)
                                 .number("ranks", team().size())
                                 .string("engine", engine_->report())
                                 .string("progress_threads", facts_.progress_reason)
                                 .string("tuning", facts_.tuning)
                                 .raw("plans", "[" + planner_.ran_json() + "]")
                                 .finish() +
                             '\n';
    const std::string path = options().report + "." + std::to_string(::getpid()) + ".jsonl";
    std::ofstream file(path, std::ios::app);
    file << line << std::flush;
    if (!file)
      std::fprintf(stderr, "penstock: cannot write the report %s; give another path in PENSTOCK_REPORT\n",
                   path.c_str());
  } catch (const std::exception&) {
    // Out of memory: the report is lost.
  }
}

}  // namespace penstock::comm
