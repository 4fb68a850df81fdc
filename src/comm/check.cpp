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

/// Whether the operation has displacements for this buffer, which may then be longer than its blocks.
bool has_places(CollectiveKind kind, bool is_send) {
  if (kind == CollectiveKind::reduce_scatter) return false;
  return is_send ? has_send_counts(kind) : has_receive_counts(kind);
}

/// The part of the given span that `plan` needs.
template <class Span>
Span fitting(const Collective& collective, bool is_send, Span given, std::uint64_t needed_bytes) {
  if (given.size() == needed_bytes) return given;
  const bool may_be_longer = has_places(collective.kind, is_send);
  if (may_be_longer && given.size() > needed_bytes) return given.first(needed_bytes);
  const std::string of =
      has_counts(collective.kind)
          ? (may_be_longer ? " or more, for the counts and displacements" : " for the counts")
          : " for " + std::to_string(collective.count) + " x " + std::string(name(collective.dtype)) + " per rank";
  refuse(std::string(name(collective.kind)) + ": the " + (is_send ? "send" : "receive") + " buffer has " +
         std::to_string(given.size()) + " bytes; expected " + std::to_string(needed_bytes) + of);
}

/// Returns false and changes nothing if the number of bytes is too large.
bool count_in_bytes(Collective& collective) {
  const auto element_bytes = static_cast<std::uint64_t>(size_bytes(collective.dtype));
  Collective in_bytes = collective;
  std::vector<std::uint64_t>* const lists[] = {&in_bytes.send.counts, &in_bytes.send.displacements,
                                               &in_bytes.receive.counts, &in_bytes.receive.displacements};
  if (__builtin_mul_overflow(collective.count, element_bytes, &in_bytes.count)) return false;
  for (std::vector<std::uint64_t>* list : lists)
    for (std::uint64_t& value : *list)
      if (__builtin_mul_overflow(value, element_bytes, &value)) return false;
  in_bytes.dtype = DType::uint8;
  collective = std::move(in_bytes);
  return true;
}

}  // namespace

Collective normalized(const Collective& asked, int rank) {
  Collective collective = asked;
  if (!is_rooted(collective.kind)) collective.root = 0;
  if (!is_neighborhood(collective.kind)) collective.graph = nullptr;
  if (collective.kind == CollectiveKind::barrier || collective.kind == CollectiveKind::bcast)
    collective.in_place = false;
  const bool is_far = is_rooted(collective.kind) && collective.root != rank;
  if (is_far) collective.in_place = false;
  if (collective.kind == CollectiveKind::barrier) collective.count = 0;
  if (!has_send_counts(collective.kind) || is_far) collective.send = {};
  if (!has_receive_counts(collective.kind) || is_far) collective.receive = {};
  if (collective.in_place && has_receive_counts(collective.kind)) collective.send = {};
  if (collective.kind == CollectiveKind::reduce_scatter) collective.receive.displacements.clear();
  const bool all_know =
      collective.kind == CollectiveKind::allgatherv || collective.kind == CollectiveKind::reduce_scatter;
  if (all_know && !collective.receive.counts.empty()) collective.count = 0;
  if (computes(collective.kind)) {
    if (collective.element_bytes != 0) {
      collective.dtype = DType::uint8;
      collective.op = ReduceOp::sum;
    } else {
      collective.commutative = true;
    }
    return collective;
  }
  collective.op = ReduceOp::sum;
  collective.element_bytes = 0;
  collective.commutative = true;
  collective.reproducible = false;
  count_in_bytes(collective);  // choose() refuses sizes that are too large
  return collective;
}

std::uint64_t signature(const Collective& collective) {
  // All fields, so that one which is added does not compile before it is handled here.
  const auto& [kind, count, dtype, op, element_bytes, commutative, reproducible, root, in_place, send, receive,
               algorithm, segment_bytes, split, radix, graph] = collective;
  // Counts that only this rank knows are checked by the sizes of the messages.
  const bool knows_alone = knows_counts_alone(kind);
  const std::array<std::uint64_t, 10> words{
      static_cast<std::uint64_t>(kind) << 1 | (in_place && !is_in_place_alone(kind) ? 1u : 0u),
      knows_alone ? 0 : count,
      static_cast<std::uint64_t>(dtype),
      static_cast<std::uint64_t>(op),
      static_cast<std::uint64_t>(root),
      segment_bytes,
      static_cast<std::uint64_t>(split),
      static_cast<std::uint64_t>(radix),
      element_bytes << 2 | (commutative ? 1u : 0u) | (reproducible ? 2u : 0u),
      graph == nullptr ? 0 : graph->hash()};
  std::uint64_t mixed = base::mix(base::kSeed, algorithm);
  for (const std::uint64_t word : words) mixed = base::mix(mixed, word);
  if (!knows_alone)
    for (const std::uint64_t each : receive.counts) mixed = base::mix(mixed, each);
  return mixed;
}

std::uint64_t local_hash(const Collective& collective) {
  std::uint64_t mixed = base::mix(signature(collective), collective.count << 1 | (collective.in_place ? 1u : 0u));
  for (const Blocks* blocks : {&collective.send, &collective.receive}) {
    for (const std::uint64_t count : blocks->counts) mixed = base::mix(mixed, count);
    for (const std::uint64_t displacement : blocks->displacements) mixed = base::mix(mixed, displacement);
  }
  return mixed;
}

engine::Bindings bind(const Collective& collective, const Plan& plan, ConstBytes input, Bytes output) {
  // If MPI says that a buffer is not significant, the plan needs 0 bytes of it, and the given span is ignored.
  engine::Bindings bindings;
  if (plan.input_bytes != 0) bindings.input = fitting(collective, true, input, plan.input_bytes);
  if (plan.output_bytes != 0) bindings.output = fitting(collective, false, output, plan.output_bytes);
  if (plan.input_bytes == 0 || plan.output_bytes == 0) return bindings;
  if (base::overlap(bindings.input, bindings.output))
    refuse(std::string(name(collective.kind)) +
           ": the send and the receive buffer overlap; use in-place (MPI_IN_PLACE) if they are the same buffer");
  return bindings;
}

}  // namespace penstock::comm
