#include "preload/verify.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "penstock/mpi.hpp"
#include "preload/own_calls.hpp"
#include "preload/types.hpp"

namespace penstock::preload {
namespace {

/// A part of the receive buffer.
struct Received {
  void* items = nullptr;
  std::uint64_t count = 0;
  bool is_result = true;  ///< otherwise only changed, as in place by reduce_scatter
  Datatype type{};
};

/// The rank that sends each block.
std::vector<int> senders(const Communicator& on, const Call& call) {
  std::vector<int> ranks;
  if (is_neighborhood(call.kind)) {
    for (const Neighbor& each : on.penstock->graph()->sources(on.rank)) ranks.push_back(each.rank);
  } else {
    ranks.resize(static_cast<std::size_t>(on.ranks));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  return ranks;
}

/// The parts of a receive buffer with a datatype per rank.
std::vector<Received> typed_parts(const Side& side, std::span<const int> ranks) {
  std::vector<Received> parts;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank] == Neighbor::kNone || side.count_of(rank) == 0) continue;
    const std::uintptr_t at =
        reinterpret_cast<std::uintptr_t>(side.buffer) + static_cast<std::uintptr_t>(side.displacement_of(rank));
    parts.push_back({reinterpret_cast<void*>(at), static_cast<std::uint64_t>(side.count_of(rank)), true,
                     make_datatype(side.types[rank])});
  }
  return parts;
}

std::vector<Received> untyped_parts(const Communicator& on, const Call& call, const Datatype& type) {
  const Side& side = call.receive;
  const auto at = [&](std::int64_t extents) {
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(side.buffer) +
                                   static_cast<std::uintptr_t>(extents * type.extent_bytes()));
  };
  const auto ranks = static_cast<std::size_t>(on.ranks);
  const auto count = static_cast<std::uint64_t>(side.count);
  const bool is_root = on.rank == call.root;
  const bool in_place = call.send.buffer == MPI_IN_PLACE;
  switch (call.kind) {
    case CollectiveKind::barrier: return {};
    case CollectiveKind::bcast: return {{at(0), count, !is_root}};
    case CollectiveKind::reduce: return is_root ? std::vector<Received>{{at(0), count}} : std::vector<Received>{};
    case CollectiveKind::exscan: return {{at(0), count, on.rank > 0}};
    case CollectiveKind::allreduce:
    case CollectiveKind::scan: return {{at(0), count}};
    case CollectiveKind::scatter:
    case CollectiveKind::scatterv:
      return side.buffer == MPI_IN_PLACE ? std::vector<Received>{} : std::vector<Received>{{at(0), count}};
    case CollectiveKind::reduce_scatter_block: {
      std::vector<Received> parts{{at(0), count}};
      if (in_place) parts.push_back({at(side.count), count * (ranks - 1), false});
      return parts;
    }
    case CollectiveKind::reduce_scatter: {
      std::uint64_t all = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) all += static_cast<std::uint64_t>(side.count_of(rank));
      const std::int64_t own = side.count_of(static_cast<std::size_t>(on.rank));
      std::vector<Received> parts{{at(0), static_cast<std::uint64_t>(own)}};
      if (in_place) parts.push_back({at(own), all - static_cast<std::uint64_t>(own), false});
      return parts;
    }
    default: break;
  }
  if ((call.kind == CollectiveKind::gather || call.kind == CollectiveKind::gatherv) && !is_root) return {};
  const std::vector<int> from = senders(on, call);
  if (side.counts == nullptr) return {{at(0), count * from.size()}};
  std::vector<Received> parts;
  for (std::size_t rank = 0; rank < from.size(); ++rank)
    if (from[rank] != Neighbor::kNone && side.count_of(rank) > 0)
      parts.push_back({at(side.displacement_of(rank)), static_cast<std::uint64_t>(side.count_of(rank))});
  return parts;
}

/// What the call may change on this rank, in the order of memory or of the ranks.
std::vector<Received> received_by(const Communicator& on, const Call& call, const Datatype& type) {
  if (call.receive.types != nullptr) return typed_parts(call.receive, senders(on, call));
  std::vector<Received> parts = untyped_parts(on, call, type);
  for (Received& part : parts) part.type = type;
  return parts;
}

std::vector<std::byte> packed(const std::vector<Received>& parts, bool results_alone) {
  std::vector<std::byte> all;
  for (const Received& part : parts) {
    if (part.count == 0 || (results_alone && !part.is_result)) continue;
    const std::size_t begin = all.size();
    all.resize(begin + part.count * part.type.size_bytes());
    part.type.pack(part.items, part.count, Bytes(all).subspan(begin));
  }
  return all;
}

void unpack(const std::vector<std::byte>& from, const std::vector<Received>& parts, bool results_alone) {
  std::size_t next = 0;
  for (const Received& part : parts) {
    if (part.count == 0 || (results_alone && !part.is_result)) continue;
    const std::size_t bytes = part.count * part.type.size_bytes();
    part.type.unpack(ConstBytes(from).subspan(next, bytes), part.items, part.count);
    next += bytes;
  }
}

/// The largest magnitude of the numbers. Complex numbers are two.
template <typename Real>
long double largest(const std::byte* from, std::size_t bytes) {
  long double result = 0;
  for (std::size_t i = 0; i + sizeof(Real) <= bytes; i += sizeof(Real)) {
    Real value{};
    std::memcpy(&value, from + i, sizeof value);
    result = std::max(result, std::fabs(static_cast<long double>(value)));
  }
  return result;
}

/// The first number in which the results differ by more than the order of the combination explains; npos if none does.
template <typename Real>
std::size_t first_difference(const std::vector<std::byte>& a, const std::vector<std::byte>& b, long double absolute,
                             long double relative, std::size_t numbers_per_element) {
  const std::size_t step = sizeof(Real) * numbers_per_element;
  for (std::size_t i = 0; i + step <= a.size(); i += step) {
    const long double size = largest<Real>(a.data() + i, step);
    for (std::size_t k = 0; k < numbers_per_element; ++k) {
      Real x{};
      Real y{};
      std::memcpy(&x, a.data() + i + k * sizeof(Real), sizeof x);
      std::memcpy(&y, b.data() + i + k * sizeof(Real), sizeof y);
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      const long double difference = std::fabs(static_cast<long double>(x) - static_cast<long double>(y));
      if (!(difference <= absolute + relative * size)) return i / step;
    }
  }
  return std::string::npos;
}

std::size_t first_byte_difference(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return at == a.end() && a.size() == b.size() ? std::string::npos : static_cast<std::size_t>(at - a.begin());
}

template <typename Real>
std::size_t compare_reals(const Communicator& on, const std::vector<std::byte>& input, ReduceOp op, bool is_complex,
                          const std::vector<std::byte>& expected, const std::vector<std::byte>& actual) {
  // A sum of n numbers up to m, in any order, is off by at most n * n * m units in the last place.
  double most = static_cast<double>(largest<Real>(input.data(), input.size()));
  PMPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_DOUBLE, MPI_MAX, on.handle);
  const auto unit = static_cast<long double>(std::numeric_limits<Real>::epsilon());
  const auto ranks = static_cast<long double>(on.ranks);
  const bool is_sum = op == ReduceOp::sum;
  return first_difference<Real>(expected, actual, is_sum ? ranks * ranks * unit * most : 0,
                                is_sum ? 0 : 4 * ranks * unit, is_complex ? 2 : 1);
}

/// The contribution of this rank to a reduction.
std::vector<std::byte> contribution(const Communicator& on, const Call& call, const Datatype& type,
                                    const std::vector<std::byte>& before) {
  if (call.send.buffer == MPI_IN_PLACE) return before;
  std::uint64_t count = static_cast<std::uint64_t>(call.receive.count);
  if (call.kind == CollectiveKind::reduce_scatter_block) count *= static_cast<std::uint64_t>(on.ranks);
  if (call.kind == CollectiveKind::reduce_scatter)
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(on.ranks); ++rank)
      count += static_cast<std::uint64_t>(call.receive.count_of(rank));
  std::vector<std::byte> all(count * type.size_bytes());
  type.pack(call.send.buffer, count, all);
  return all;
}

std::size_t compare(const Communicator& on, const Call& call, const Datatype& type,
                    const std::vector<std::byte>& before, const std::vector<std::byte>& expected,
                    const std::vector<std::byte>& actual) {
  const NamedType* named = computes(call.kind) ? named_type(call.receive.type) : nullptr;
  const ReduceOp* op = named != nullptr ? named_op(call.op) : nullptr;
  if (op == nullptr || (*op != ReduceOp::sum && *op != ReduceOp::prod)) return first_byte_difference(expected, actual);
  const auto reals = [&]<typename Real>(Real, bool is_complex) {
    return compare_reals<Real>(on, contribution(on, call, type, before), *op, is_complex, expected, actual);
  };
  switch (named->dtype) {
    case DType::float32: return reals(float{}, false);
    case DType::float64: return reals(double{}, false);
    case DType::longdouble: return reals(static_cast<long double>(0), false);
    case DType::complex64: return reals(float{}, true);
    case DType::complex128: return reals(double{}, true);
    case DType::clongdouble: return reals(static_cast<long double>(0), true);
    default: return first_byte_difference(expected, actual);
  }
}

}  // namespace

int verify(Communicator& on, const Call& call, Tally& tally, const std::function<int()>& native,
           const std::function<void()>& served) {
  Datatype type;
  std::vector<Received> parts;
  std::vector<std::byte> before;
  const bool has_types = call.receive.types != nullptr;
  const bool receives = call.kind != CollectiveKind::barrier && (has_types || call.receive.type != MPI_DATATYPE_NULL);
  if (receives) {
    const OwnCall own;
    if (!has_types) type = make_datatype(call.receive.type);
    parts = received_by(on, call, type);
    before = packed(parts, false);
  }
  const int result = native();
  const std::vector<std::byte> expected = packed(parts, true);
  unpack(before, parts, false);
  served();
  const std::vector<std::byte> actual = packed(parts, true);
  const std::size_t at = compare(on, call, type, before, expected, actual);
  ++tally.verified;
  if (at == std::string::npos) return result;
  ++tally.differed;
  if (tally.differed == 1)
    std::fprintf(
        stderr,
        "penstock: rank %d of %d: the result of %s differs from MPI's, first in element or byte %zu of %zu bytes; "
        "the program goes on with MPI's\n",
        on.rank, on.ranks, std::string(name(call.kind)).c_str(), at, expected.size());
  unpack(expected, parts, true);
  return result;
}

}  // namespace penstock::preload
