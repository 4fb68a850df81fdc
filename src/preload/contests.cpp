#include "preload/contests.hpp"

#include <optional>
#include <span>
#include <utility>

#include "preload/own_calls.hpp"
#include "preload/types.hpp"

namespace penstock::preload {

bool is_exact(const Call& call, int ranks) {
  if (!computes(call.kind) || ranks == 2) return true;
  const ReduceOp* op = named_op(call.op);
  if (op == nullptr) return false;
  if (*op != ReduceOp::sum && *op != ReduceOp::prod) return true;
  const NamedType* type = named_type(call.receive.type);
  return type != nullptr && type->has_dtype && defined_for(ReduceOp::band, type->dtype);
}

void combine_over_ranks(Comm& comm, ReduceOp op, std::span<std::byte> doubles) {
  Collective combination;
  combination.kind = CollectiveKind::allreduce;
  combination.count = doubles.size() / sizeof(double);
  combination.dtype = DType::float64;
  combination.op = op;
  combination.in_place = true;
  const OwnCall own;
  comm.run(combination, {}, doubles);
}

void Contests::share(Comm& comm, const Members& members) {
  memory_ = std::make_unique<SharedMemory>(comm, members.rank, members.ranks);
  if (memory_->data() != nullptr) shared_times_.emplace(memory_->data(), members.rank, members.ranks);
}

void Contests::end_round(Contest& contest, const Call& call) {
  due_.push_back(&contest);
  if (!shared_times_ || synchronises(call)) return;  // the next call settles it
  if (!contest.slot && slots_ < shared_times_->slots()) contest.slot = slots_++;
  if (contest.slot) shared_times_->publish(*contest.slot, contest.trial());
}

void Contests::ask(Contest& contest) {
  if (shared_times_->ask(*contest.slot, contest.trial())) std::erase(due_, &contest);
}

void Contests::settle(Comm& comm) {
  const std::vector<Contest*> due = std::exchange(due_, {});
  if (due.empty()) return;
  std::vector<Times> sums;
  sums.reserve(due.size());
  for (Contest* const each : due) sums.push_back(each->trial().times());
  static_assert(sizeof(Times) == 4 * sizeof(double));
  combine_over_ranks(comm, ReduceOp::sum, std::as_writable_bytes(std::span(sums)));
  const int ranks = comm.team().size();
  for (std::size_t i = 0; i < due.size(); ++i) due[i]->trial().judge(with_mean_bytes(sums[i], ranks));
}

Contest* Contests::of(const Call& call, const Members& members) {
  if (!is_exact(call, members.ranks) || (is_neighborhood(call.kind) && members.graph == nullptr)) return nullptr;
  if (const std::optional<std::uint64_t> bytes = agreed_bytes(call, members)) {
    Contest& contest = all_.of(call.kind, *bytes);
    if (!std::exchange(contest.has_expectation, true)) {
      const Contest* const shorter = all_.shorter(call.kind, *bytes);
      if (shorter != nullptr && shorter->trial().penstock_leads()) contest.trial().expect_penstock();
    }
    return &contest;
  }
  auto& contest = of_any_length_[static_cast<std::size_t>(call.kind)];
  if (contest == nullptr) contest = std::make_unique<Contest>(std::nullopt);
  return contest.get();
}

double Contests::gain_ticks(CollectiveKind kind, int ranks) const noexcept {
  double sum = 0;
  all_.for_each(kind, [&](const Contest& contest) { sum += contest.trial().gain(); });
  if (const auto& contest = of_any_length_[static_cast<std::size_t>(kind)]) sum += contest->trial().gain();
  return sum / ranks;
}

}  // namespace penstock::preload
