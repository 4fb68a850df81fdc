#include "preload/contests.hpp"

#include <bit>
#include <optional>
#include <span>
#include <utility>

#include "preload/own_calls.hpp"
#include "preload/types.hpp"

namespace penstock::preload {
namespace {

/// Whether the result has the same bits whoever serves the call, in any order of the summands. (Of equal zeros with two
/// signs, and of numbers that are none, MPI itself says nothing.)
bool is_exact(const Call& call, int ranks) {
  if (!computes(call.kind) || ranks == 2) return true;
  const ReduceOp* op = named_op(call.op);
  if (op == nullptr) return false;
  if (*op != ReduceOp::sum && *op != ReduceOp::prod) return true;
  const NamedType* type = named_type(call.receive.type);
  return type != nullptr && type->has_dtype && defined_for(ReduceOp::band, type->dtype);
}

}  // namespace

void Contest::add(Comm& comm, double time) {
  const Trial::End end = trial_.add(time);
  if (end == Trial::End::call) return;
  const OwnCall own;
  if (end == Trial::End::block) {
    if (!agreement_) return;  // the first block
    std::exchange(agreement_, {}).wait();
    return trial_.judge(sums_);
  }
  sums_ = trial_.times();
  Collective sum;
  sum.kind = CollectiveKind::allreduce;
  sum.count = 2;
  sum.dtype = DType::float64;
  sum.in_place = true;
  static_assert(sizeof(Times) == 2 * sizeof(double));
  agreement_ = comm.start(sum, {}, std::as_writable_bytes(std::span(&sums_, 1)));
}

Contest* Contests::of(const Call& call, const Members& members) {
  const std::optional<std::uint64_t> bytes = agreed_bytes(call, members);
  if (!bytes || !is_exact(call, members.ranks)) return nullptr;
  auto& of_kind = all_[static_cast<std::size_t>(call.kind)];
  if (of_kind == nullptr) of_kind = std::make_unique<OfKind>();
  auto& contest = (*of_kind)[static_cast<std::size_t>(std::bit_width(*bytes))];
  if (contest == nullptr) contest = std::make_unique<Contest>(*bytes);
  return contest.get();
}

double Contests::gain_ticks(CollectiveKind kind, int ranks) const noexcept {
  double sum = 0;
  if (const auto& of_kind = all_[static_cast<std::size_t>(kind)])
    for (const auto& contest : *of_kind)
      if (contest != nullptr) sum += contest->gain_ticks(ranks);
  return sum;
}

}  // namespace penstock::preload
