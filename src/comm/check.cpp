#include "comm/check.hpp"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "base/overlap.hpp"
#include "penstock/error.hpp"

namespace penstock::comm {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

/// Whether the operation names the places of the blocks in this buffer, so that it may be longer.
bool has_places(CollectiveKind kind, bool is_send) {
  if (kind == CollectiveKind::alltoallv) return true;
  return is_send ? kind == CollectiveKind::scatterv
                 : kind == CollectiveKind::gatherv || kind == CollectiveKind::allgatherv;
}

/// What `plan` needs of what was given.
template <class Span>
Span fitting(const Collective& what, bool is_send, Span given, std::uint64_t needed_bytes) {
  const bool may_be_longer = has_places(what.kind, is_send);
  const std::string buffer = is_send ? "send" : "receive";
  if (given.size() == needed_bytes || (may_be_longer && given.size() > needed_bytes)) return given.first(needed_bytes);
  const std::string of =
      has_counts(what.kind)
          ? (may_be_longer ? " or more, for the counts and displacements" : " for the counts")
          : " for " + std::to_string(what.count) + " x " + std::string(name(what.dtype)) + " per rank";
  refuse(std::string(name(what.kind)) + ": the " + buffer + " buffer has " + std::to_string(given.size()) +
         " bytes; expected " + std::to_string(needed_bytes) + of);
}

/// False, and nothing changed, where the bytes cannot be counted.
bool count_in_bytes(Collective& what) {
  const auto element_bytes = static_cast<std::uint64_t>(size_bytes(what.dtype));
  Collective in_bytes = what;
  std::vector<std::uint64_t>* const lists[] = {&in_bytes.send.counts, &in_bytes.send.displacements,
                                               &in_bytes.receive.counts, &in_bytes.receive.displacements};
  if (__builtin_mul_overflow(what.count, element_bytes, &in_bytes.count)) return false;
  for (std::vector<std::uint64_t>* list : lists)
    for (std::uint64_t& value : *list)
      if (__builtin_mul_overflow(value, element_bytes, &value)) return false;
  in_bytes.dtype = DType::uint8;
  what = std::move(in_bytes);
  return true;
}

}  // namespace

Collective normalized(const Collective& asked, int rank) {
  Collective what = asked;
  if (!is_rooted(what.kind)) what.root = 0;
  if (what.kind == CollectiveKind::barrier || what.kind == CollectiveKind::bcast) what.in_place = false;
  if (is_rooted(what.kind) && what.root != rank) what.in_place = false;
  if (what.kind == CollectiveKind::barrier) what.count = 0;
  const bool is_far = is_rooted(what.kind) && what.root != rank;
  if (!has_counts(what.kind) || is_far) what.send = what.receive = {};
  if (what.kind == CollectiveKind::gatherv || what.kind == CollectiveKind::allgatherv ||
      what.kind == CollectiveKind::reduce_scatter)
    what.send = {};
  if (what.kind == CollectiveKind::scatterv) what.receive = {};
  if (what.kind == CollectiveKind::alltoallv && what.in_place) what.send = {};
  if (what.kind == CollectiveKind::reduce_scatter) what.receive.displacements.clear();
  const bool all_know = what.kind == CollectiveKind::allgatherv || what.kind == CollectiveKind::reduce_scatter;
  if (all_know && !what.receive.counts.empty()) what.count = 0;
  if (computes(what.kind)) {
    if (what.element_bytes != 0) {
      what.dtype = DType::uint8;
      what.op = ReduceOp::sum;
    } else {
      what.commutative = true;
    }
    return what;
  }
  what.op = ReduceOp::sum;
  what.element_bytes = 0;
  what.commutative = true;
  what.reproducible = false;
  count_in_bytes(what);  // too large a size keeps its type: choose() refuses it and says so
  return what;
}

std::uint64_t signature(const Collective& what) {
  const bool in_place = what.in_place && !is_in_place_alone(what.kind);
  // Whether the counts that only this rank knows fit shows in the sizes of the messages.
  const bool knows_alone = what.kind == CollectiveKind::gatherv || what.kind == CollectiveKind::scatterv ||
                           what.kind == CollectiveKind::alltoallv;
  const std::array<std::uint64_t, 9> words{
      static_cast<std::uint64_t>(what.kind) << 1 | (in_place ? 1u : 0u),
      knows_alone ? 0 : what.count,
      static_cast<std::uint64_t>(what.dtype),
      static_cast<std::uint64_t>(what.op),
      static_cast<std::uint64_t>(what.root),
      what.segment_bytes,
      static_cast<std::uint64_t>(what.split),
      static_cast<std::uint64_t>(what.radix),
      what.element_bytes << 2 | (what.commutative ? 1u : 0u) | (what.reproducible ? 2u : 0u)};
  std::uint64_t mixed = base::mix(base::kSeed, what.algorithm);
  for (const std::uint64_t word : words) mixed = base::mix(mixed, word);
  if (!knows_alone)
    for (const std::uint64_t count : what.receive.counts) mixed = base::mix(mixed, count);
  return mixed;
}

std::uint64_t local_hash(const Collective& what) {
  std::uint64_t mixed = base::mix(signature(what), what.count << 1 | (what.in_place ? 1u : 0u));
  for (const Blocks* blocks : {&what.send, &what.receive}) {
    for (const std::uint64_t count : blocks->counts) mixed = base::mix(mixed, count);
    for (const std::uint64_t displacement : blocks->displacements) mixed = base::mix(mixed, displacement);
  }
  return mixed;
}

engine::Bindings bind(const Collective& what, const Plan& plan, ConstBytes input, Bytes output) {
  // A plan asks for nothing where MPI says that a buffer is not significant; whatever was passed there is ignored.
  engine::Bindings bindings;
  if (plan.input_bytes != 0) {
    bindings.input = fitting(what, true, input, plan.input_bytes);
  }
  if (plan.output_bytes != 0) {
    bindings.output = fitting(what, false, output, plan.output_bytes);
  }
  if (plan.input_bytes == 0 || plan.output_bytes == 0) return bindings;
  if (base::overlap(bindings.input, bindings.output))
    refuse(std::string(name(what.kind)) +
           ": the send and the receive buffer overlap; use in-place (MPI_IN_PLACE) where they are to be one");
  return bindings;
}

}  // namespace penstock::comm
