// The arguments of a collective: what one rank can check by itself.
#include <array>
#include <bit>
#include <functional>
#include <string>

#include "comm/state.hpp"
#include "penstock/error.hpp"

namespace penstock::comm {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

void check_size(const Collective& what, const char* buffer, std::uint64_t given_bytes, std::uint64_t expected_bytes) {
  if (given_bytes == expected_bytes) return;
  refuse(std::string(name(what.kind)) + ": the " + buffer + " buffer has " + std::to_string(given_bytes) +
         " bytes; expected " + std::to_string(expected_bytes) + " for " + std::to_string(what.count) + " x " +
         std::string(name(what.dtype)) + " per rank");
}

std::uint64_t mix(std::uint64_t mixed, std::uint64_t word) {
  mixed = std::rotl(mixed ^ word, 29) * 0xff51afd7ed558ccdu;
  return mixed ^ mixed >> 32;
}

}  // namespace

Collective normalized(const Collective& asked, int rank) {
  Collective what = asked;
  if (!is_rooted(what.kind)) what.root = 0;
  if (what.kind == CollectiveKind::barrier || what.kind == CollectiveKind::bcast) what.in_place = false;
  if (is_rooted(what.kind) && what.root != rank) what.in_place = false;
  if (what.kind == CollectiveKind::barrier) what.count = 0;
  if (computes(what.kind)) return what;
  what.op = ReduceOp::sum;
  std::uint64_t block_bytes = 0;
  // Too large a size keeps its type: choose() refuses it and says so.
  if (!__builtin_mul_overflow(what.count, static_cast<std::uint64_t>(size_bytes(what.dtype)), &block_bytes)) {
    what.dtype = DType::uint8;
    what.count = block_bytes;
  }
  return what;
}

std::uint64_t signature(const Collective& what) {
  // In-place is the root's own affair in rooted operations.
  const bool in_place = what.in_place && !is_rooted(what.kind);
  const std::array<std::uint64_t, 8> words{static_cast<std::uint64_t>(what.kind) << 1 | (in_place ? 1u : 0u),
                                           what.count,
                                           static_cast<std::uint64_t>(what.dtype),
                                           static_cast<std::uint64_t>(what.op),
                                           static_cast<std::uint64_t>(what.root),
                                           what.segment_bytes,
                                           static_cast<std::uint64_t>(what.split),
                                           static_cast<std::uint64_t>(what.radix)};
  std::uint64_t mixed = 0x9e3779b97f4a7c15u;
  for (const std::uint64_t word : words) mixed = mix(mixed, word);
  for (const char letter : what.algorithm) mixed = mix(mixed, static_cast<unsigned char>(letter));
  return mixed;
}

engine::Bindings bind(const Collective& what, const Plan& plan, ConstBytes input, Bytes output) {
  // A plan asks for nothing where MPI says that a buffer is not significant; whatever was passed there is ignored.
  engine::Bindings bindings;
  if (plan.input_bytes != 0) {
    check_size(what, "send", input.size(), plan.input_bytes);
    bindings.input = input;
  }
  if (plan.output_bytes != 0) {
    check_size(what, "receive", output.size(), plan.output_bytes);
    bindings.output = output;
  }
  if (plan.input_bytes == 0 || plan.output_bytes == 0) return bindings;
  const std::less<const std::byte*> before;
  if (before(input.data(), output.data() + output.size()) && before(output.data(), input.data() + input.size()))
    refuse(std::string(name(what.kind)) +
           ": the send and the receive buffer overlap; use in-place (MPI_IN_PLACE) where they are to be one");
  return bindings;
}

}  // namespace penstock::comm
