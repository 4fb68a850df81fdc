#include "comm/state.hpp"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <utility>

#include "penstock/error.hpp"
#include "penstock/options.hpp"
#include "plan/fold.hpp"

namespace penstock::comm {
namespace {

// A program that never repeats a size must not fill memory with plans.
constexpr std::size_t kMaxCachedPlans = 1024;

Arithmetic arithmetic_of(const Collective& what, std::shared_ptr<const UserOp> user) {
  const bool by_value = what.reproducible && (user || plan::depends_on_order(what.dtype));
  return {.dtype = what.dtype, .op = what.op, .by_value = by_value, .user = std::move(user)};
}

}  // namespace

std::shared_ptr<const State::Planned> State::plan(const Collective& asked) {
  Recent& recent = recent_[static_cast<std::size_t>(asked.kind)];
  {
    const std::lock_guard lock(mutex_);
    if (recent.planned != nullptr && recent.asked == asked) {
      ++recent.planned->runs;
      return recent.planned;
    }
  }
  const Collective what = normalized(with_used(asked), team().rank);
  std::unique_lock lock(mutex_);
  auto found = plans_.find(what);
  if (found == plans_.end()) {
    lock.unlock();
    auto planned = std::make_shared<Planned>(make_planned(what));
    lock.lock();
    if (plans_.size() >= kMaxCachedPlans) plans_.clear();
    found = plans_.emplace(what, std::move(planned)).first;
  }
  ++found->second->runs;
  recent = {asked, found->second};
  return found->second;
}

Guard::Guard(std::string operation, ConstBytes sent)
    : operation_(std::move(operation)), sent_(sent), before_(store::checksum(sent)) {}

void Guard::check() {
  const ConstBytes sent = std::exchange(sent_, {});
  if (sent.empty() || store::checksum(sent) == before_) return;
  throw Error(ErrorCode::invalid_argument,
              operation_ +
                  ": the send buffer was changed before the operation had completed, so other ranks may have "
                  "got either; leave it alone until wait() has returned or test() was true");
}

std::shared_ptr<Agreement> State::agree_on(std::vector<std::uint64_t> card) {
  return facts_.debug ? std::make_shared<Agreement>(*engine_, std::move(card)) : nullptr;
}

void State::fail_next(const std::string& message) noexcept {
  try {
    std::erase_if(unwatched_, [](const auto& agreement) { return agreement->done(); });
    if (auto agreement = agree_on(card_of_failure(team().size()))) unwatched_.push_back(std::move(agreement));
  } catch (const std::exception&) {
    // Out of memory: the other ranks find this one different.
  }
  engine_->fail_next(message);
}

bool Started::test() {
  if (agreement != nullptr && !agreement->test()) return false;
  if (!run->done()) {
    bool is_complete = false;
    try {
      is_complete = run->test();
    } catch (const Error&) {
      if (agreement != nullptr) agreement->wait();  // the cards say more than the operation's own failure
      throw;
    }
    if (!is_complete) return false;
  }
  wait();
  return true;
}

void Started::wait() {
  try {
    run->wait();
  } catch (const Error&) {
    if (agreement != nullptr) agreement->wait();
    throw;
  }
  if (agreement != nullptr) agreement->wait();
  guard.check();
}

Started State::start(std::shared_ptr<const Plan> plan, const engine::Bindings& bindings, const Arithmetic& arithmetic,
                     std::uint64_t signature) {
  Started started;
  started.agreement = agree_on(card_of_plan(signature, team().size()));
  started.run = engine_->start(std::move(plan), bindings, arithmetic, signature);
  return started;
}

void State::use(CollectiveKind kind, const std::string& algorithm, std::uint64_t segment_bytes) {
  const auto forget_recent = [&] {
    const std::lock_guard lock(mutex_);
    recent_[static_cast<std::size_t>(kind)] = {};
  };
  if (algorithm.empty()) {
    used_.erase(kind);
    return forget_recent();
  }
  std::string known(Native::kName);
  bool is_known = algorithm == Native::kName;
  for (const Algorithm& row : algorithms()) {
    if (row.kind != kind) continue;
    known += ", " + std::string(row.name);
    is_known = is_known || algorithm == row.name;
  }
  if (!is_known)
    throw Error(ErrorCode::invalid_argument,
                std::string(name(kind)) + ": there is no algorithm '" + algorithm + "'; expected one of " + known);
  used_[kind] = {algorithm, segment_bytes};
  forget_recent();
}

Collective State::with_used(const Collective& asked) const {
  Collective what = asked;
  const auto used = used_.find(what.kind);
  if (used == used_.end() || !what.algorithm.empty()) return what;
  what.algorithm = used->second.algorithm;
  if (what.segment_bytes == 0) what.segment_bytes = used->second.segment_bytes;
  return what;
}

State::Prepared State::prepare(const Collective& given, ConstBytes input, Bytes output, const UserOp* user) {
  if (user != nullptr && (given.element_bytes != user->element_bytes || given.commutative != user->commutative)) {
    Collective by_user = given;
    by_user.element_bytes = user->element_bytes;
    by_user.commutative = user->commutative;
    return prepare(by_user, input, output, user);
  }
  Prepared prepared;
  try {
    if (computes(given.kind) && (given.element_bytes != 0) != (user != nullptr && user->combine))
      throw Error(ErrorCode::invalid_argument,
                  std::string(name(given.kind)) + ": elements of " + std::to_string(given.element_bytes) +
                      " bytes need a user operation that combines them, and it needs such");
    prepared.planned = plan(given);
    prepared.bindings = comm::bind(given, *prepared.planned->plan, input, output);
  } catch (const std::exception& error) {
    // MPI cannot be told; this rank's next call of the operation is the one that the others wait for.
    if (prepared.planned != nullptr && prepared.planned->native_reason != nullptr) throw;
    // This rank alone may know; the others must not wait for it.
    fail_next(error.what());
    throw;
  }
  return prepared;
}

void State::run(const Collective& given, ConstBytes input, Bytes output, std::shared_ptr<const UserOp> user) {
  const Prepared prepared = prepare(given, input, output, user.get());
  const Planned& planned = *prepared.planned;
  if (planned.native_reason != nullptr)
    native_->run(planned.what, prepared.bindings.input, prepared.bindings.output);
  else if (options().debug > 0 || facts_.debug)
    start(prepared, std::move(user)).wait();
  else
    engine_->run(planned.plan, prepared.bindings, arithmetic_of(planned.what, std::move(user)), planned.signature);
}

Started State::start(const Collective& given, ConstBytes input, Bytes output, std::shared_ptr<const UserOp> user) {
  const Prepared prepared = prepare(given, input, output, user.get());
  if (prepared.planned->native_reason != nullptr)
    return {native_->start(prepared.planned->what, prepared.bindings.input, prepared.bindings.output)};
  return start(prepared, std::move(user));
}

Started State::start(const Prepared& prepared, std::shared_ptr<const UserOp> user) {
  const Collective& what = prepared.planned->what;
  const engine::Bindings& bindings = prepared.bindings;
  std::shared_ptr<Agreement> agreement = agree_on(card_of(what, team().size()));
  Started started{engine_->start(prepared.planned->plan, bindings, arithmetic_of(what, std::move(user)),
                                 prepared.planned->signature)};
  started.agreement = std::move(agreement);
  if (options().debug > 0) {
    const bool sends_output = what.kind == CollectiveKind::bcast && what.root == team().rank;
    const ConstBytes sent = sends_output ? ConstBytes(bindings.output) : bindings.input;
    if (!sent.empty()) started.guard = Guard(std::string(name(what.kind)), sent);
  }
  return started;
}

json::Object State::facts_of(const Planned& planned) const {
  const Collective& what = planned.what;
  const Plan& plan = *planned.plan;
  const bool is_native = planned.native_reason != nullptr;
  const Choice choice = this->choice(planned);
  std::uint64_t sent_bytes = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t messages = 0;
  for (const Step& step : plan.steps) {
    if (step.kind == StepKind::read) read_bytes += step.from.size_bytes;
    if (step.kind != StepKind::send) continue;
    sent_bytes += step.from.size_bytes;
    ++messages;
  }
  json::Object result;
  result.string("operation", name(what.kind));
  result.string("algorithm", plan.algorithm);
  result.string("reason", choice.reason);
  result.number("split", plan.application_levels);
  if (choice.segment_bytes != 0 && !is_native) result.number("segment_bytes", choice.segment_bytes);
  result.number("progress_cores", team().progress_cores);
  result.string("cost", is_native ? "MPI's own" : choice.algorithm->cost);
  result.number("count", what.count);
  result.string("dtype", name(what.dtype));
  if (computes(what.kind)) result.string("op", name(what.op));
  if (what.reproducible) result.string("reproducible", "on");
  if (is_rooted(what.kind)) result.number("root", what.root);
  result.number("ranks", plan.size);
  result.number("rank", plan.rank);
  result.number("steps", plan.steps.size());
  result.number("tasks", plan.tasks.size());
  result.number("messages", messages);
  result.number("sent_bytes", sent_bytes);
  result.number("read_bytes", read_bytes);
  result.number("scratch_bytes", plan.scratch_bytes);
  result.number("shared_bytes", plan.shared_bytes);
  return result;
}

std::string State::explain(const Collective& asked) {
  const Collective what = normalized(with_used(asked), team().rank);
  // A plan of its own, so that the report counts only what ran.
  return facts_of(make_planned(what)).finish();
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
  const std::lock_guard lock(mutex_);
  for (const auto& [what, planned] : plans_) {
    const Plan& plan = *planned->plan;
    text += "ran " + std::to_string(planned->runs) + " times: " + plan.algorithm + ", " + std::to_string(what.count) +
            " x " + std::string(name(what.dtype));
    if (plan.tree_levels > 0) text += ", split " + std::to_string(plan.application_levels);
    text += ": " + choice(*planned).reason + '\n';
  }
  return text;
}

State::~State() {
  try {
    if (options().report.empty()) return;
    std::string plans;
    for (const auto& [what, planned] : plans_)
      plans += (plans.empty() ? "" : ", ") + facts_of(*planned).number("runs", planned->runs).finish();
    const std::string line = json::Object()
                                 .number("rank", team().rank)
                                 .number("ranks", team().size())
                                 .string("engine", engine_->report())
                                 .string("progress_threads", facts_.progress_reason)
                                 .string("tuning", facts_.tuning)
                                 .raw("plans", "[" + plans + "]")
                                 .finish() +
                             '\n';
    const std::string path = options().report + "." + std::to_string(::getpid()) + ".jsonl";
    std::ofstream file(path, std::ios::app);
    file << line << std::flush;
    if (!file) std::fprintf(stderr, "penstock: cannot write the report %s\n", path.c_str());
  } catch (const std::exception&) {
    // Out of memory at the end: the report is lost, the program is not.
  }
}

}  // namespace penstock::comm
