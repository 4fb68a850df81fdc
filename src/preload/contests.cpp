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
  static_assert(sizeof(Times) == 2 * sizeof(double));
  Collective sum;
  sum.kind = CollectiveKind::allreduce;
  sum.count = 2 * times.size();
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
  for (std::size_t i = 0; i < due.size(); ++i) due[i]->trial().judge(sums[i]);
}

Contest* Contests::of(const Call& call, const Members& members) {
  const std::optional<std::uint64_t> bytes = agreed_bytes(call, members);
  return bytes && is_exact(call, members.ranks) ? &all_.of(call.kind, *bytes) : nullptr;
}

double Contests::gain_ticks(CollectiveKind kind, int ranks) const noexcept {
  double sum = 0;
  all_.for_each(kind, [&](const Contest& contest) { sum += contest.gain_ticks(ranks); });
  return sum;
}

}  // namespace penstock::preload
