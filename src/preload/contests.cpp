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

void sum_over_ranks(Comm& comm, std::vector<Times>& times) {
  constexpr std::size_t kNumbers = 4;
  static_assert(sizeof(Times) == kNumbers * sizeof(double));
  Collective sum;
  sum.kind = CollectiveKind::allreduce;
  sum.count = kNumbers * times.size();
  sum.dtype = DType::float64;
  sum.in_place = true;
  const OwnCall own;
  comm.run(sum, {}, std::as_writable_bytes(std::span(times)));
}

void Contests::settle(Comm& comm) {
  const std::vector<Contest*> due = std::exchange(due_, {});
  if (due.empty()) return;
  std::vector<Times> sums;
  sums.reserve(due.size());
  for (Contest* const each : due) sums.push_back(each->trial().times());
  sum_over_ranks(comm, sums);
  const double ranks = comm.team().size();
  for (std::size_t i = 0; i < due.size(); ++i) {
    sums[i].penstock_bytes /= ranks;
    sums[i].mpi_bytes /= ranks;
    due[i]->trial().judge(sums[i]);
  }
}

Contest* Contests::of(const Call& call, const Members& members) {
  if (!is_exact(call, members.ranks) || (is_neighborhood(call.kind) && members.graph == nullptr)) return nullptr;
  if (const std::optional<std::uint64_t> bytes = agreed_bytes(call, members)) return &all_.of(call.kind, *bytes);
  auto& contest = of_any_length_[static_cast<std::size_t>(call.kind)];
  if (contest == nullptr) contest = std::make_unique<Contest>(std::nullopt);
  return contest.get();
}

double Contests::gain_ticks(CollectiveKind kind, int ranks) const noexcept {
  double sum = 0;
  all_.for_each(kind, [&](const Contest& contest) { sum += contest.gain_ticks(ranks); });
  if (const auto& contest = of_any_length_[static_cast<std::size_t>(kind)]) sum += contest->gain_ticks(ranks);
  return sum;
}

}  // namespace penstock::preload
