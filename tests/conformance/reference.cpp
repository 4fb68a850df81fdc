#include "conformance/reference.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <type_traits>
#include <utility>

#include "kernels/half.hpp"

namespace penstock::conformance {
namespace {

constexpr std::int64_t kNoNumber = std::numeric_limits<std::int64_t>::min();

template <class T>
struct IsComplex : std::false_type {};
template <class T>
struct IsComplex<std::complex<T>> : std::true_type {};

template <class T>
struct IsLocated : std::false_type {};
template <class V, class P>
struct IsLocated<Located<V, P>> : std::true_type {};

template <class T>
T to_element(Number value) {
  if constexpr (IsLocated<T>::value)
    return {static_cast<decltype(T::value)>(value.real), static_cast<decltype(T::place)>(value.imag)};
  else if constexpr (std::is_same_v<T, Bool8>)
    return {static_cast<std::uint8_t>(value.real)};
  else if constexpr (IsComplex<T>::value)
    return {static_cast<typename T::value_type>(value.real), static_cast<typename T::value_type>(value.imag)};
  else if constexpr (std::is_same_v<T, Float16>)
    return kernels::to_float16(static_cast<float>(value.real));
  else if constexpr (std::is_same_v<T, BFloat16>)
    return kernels::to_bfloat16(static_cast<float>(value.real));
  else
    return static_cast<T>(value.real);
}

std::int64_t whole(double value) {
  return std::abs(value) < 0x1p52 && value == std::trunc(value) ? static_cast<std::int64_t>(value) : kNoNumber;
}

template <class T>
Number to_number(T value) {
  if constexpr (IsLocated<T>::value)
    return {whole(static_cast<double>(value.value)), whole(static_cast<double>(value.place))};
  else if constexpr (std::is_same_v<T, Bool8>)
    return {value.value, 0};
  else if constexpr (IsComplex<T>::value)
    return {whole(static_cast<double>(value.real())), whole(static_cast<double>(value.imag()))};
  else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return {whole(static_cast<double>(kernels::to_float(value))), 0};
  else if constexpr (std::is_floating_point_v<T>)
    return {whole(static_cast<double>(value)), 0};
  else
    return {static_cast<std::int64_t>(value), 0};
}

Number combine(ReduceOp op, Number a, Number b) {
  switch (op) {
    case ReduceOp::sum: return {a.real + b.real, a.imag + b.imag};
    case ReduceOp::prod: return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
    case ReduceOp::min: return {std::min(a.real, b.real), 0};
    case ReduceOp::max: return {std::max(a.real, b.real), 0};
    case ReduceOp::band: return {a.real & b.real, 0};
    case ReduceOp::bor: return {a.real | b.real, 0};
    case ReduceOp::bxor: return {a.real ^ b.real, 0};
    case ReduceOp::land: return {a.real && b.real, 0};
    case ReduceOp::lor: return {a.real || b.real, 0};
    case ReduceOp::lxor: return {!a.real != !b.real, 0};
    case ReduceOp::minloc: return std::pair(a.real, a.imag) < std::pair(b.real, b.imag) ? a : b;
    case ReduceOp::maxloc: return std::pair(-a.real, a.imag) < std::pair(-b.real, b.imag) ? a : b;
  }
  return {};
}

// The period of contribution(), in elements (8 of `mixed` times 7 of places). Results of it have the same period.
constexpr std::uint64_t kPeriod = 56;

template <class Value>
std::vector<std::byte> encode_periodic(const Collective& collective, std::uint64_t first, std::uint64_t count,
                                       Value value) {
  std::vector<Number> values(std::min(count, kPeriod));
  for (std::uint64_t i = 0; i < values.size(); ++i) values[i] = value(first + i);
  const std::vector<std::byte> period = encode(collective.dtype, values);
  std::vector<std::byte> all(count * size_bytes(collective.dtype));
  for (std::size_t at = 0; at < all.size(); at += period.size())
    std::memcpy(&all[at], period.data(), std::min(period.size(), all.size() - at));
  return all;
}

std::vector<std::byte> block(const Collective& collective, int rank, std::uint64_t first, std::uint64_t count) {
  return encode_periodic(collective, first, count,
                         [&](std::uint64_t index) { return contribution(collective, rank, index); });
}

std::vector<std::byte> block(const Collective& collective, int rank) {
  return block(collective, rank, 0, collective.count);
}

// The number of elements that `from` has for `to`.
std::uint64_t count_between(const Collective& collective, int from, int to) {
  switch (collective.kind) {
    case CollectiveKind::gatherv:
    case CollectiveKind::allgatherv: to = 3; break;
    case CollectiveKind::scatterv:
    case CollectiveKind::reduce_scatter: from = 3; break;
    case CollectiveKind::alltoallv:
    case CollectiveKind::alltoallw:
      if (collective.in_place && from > to) std::swap(from, to);  // a pair exchanges blocks of one size
      break;
    default: return collective.count;
  }
  return collective.count / 2 * static_cast<std::uint64_t>((from * 7 + to * 5 + 1) % 4);
}

// The same for an edge. All blocks of neighbor_allgatherv's senders are equal.
std::uint64_t count_of_edge(const Collective& collective, int from, int to, const Neighbor& edge) {
  if (!has_counts(collective.kind)) return collective.count;
  const bool gathers = collective.kind == CollectiveKind::neighbor_allgatherv;
  const std::uint64_t mixed = gathers ? static_cast<std::uint64_t>(from * 7 + 1)
                                      : static_cast<std::uint64_t>(from * 7 + to * 5 + 1) + edge.edge * 3;
  return collective.count / 2 * (mixed % 4);
}

// The index of the first element of a rank's block for `to` among the rank's contributions.
std::uint64_t first_for(int to) { return static_cast<std::uint64_t>(to) * 1000; }

// Places the blocks from the last rank to the first, with gaps.
void scatter_blocks(Blocks& blocks) {
  blocks.displacements.resize(blocks.counts.size());
  std::uint64_t next = 2;
  for (std::size_t rank = blocks.counts.size(); rank-- > 0;) {
    blocks.displacements[rank] = next;
    next += blocks.counts[rank] + rank % 3;
  }
}

std::uint64_t extent(const Blocks& blocks) {
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < blocks.counts.size(); ++i)
    if (blocks.counts[i] > 0) end = std::max(end, blocks.displacements[i] + blocks.counts[i]);
  return end;
}

void put(std::vector<std::byte>& buffer, std::uint64_t at_elems, DType dtype, const std::vector<std::byte>& data) {
  if (!data.empty()) std::memcpy(&buffer[at_elems * size_bytes(dtype)], data.data(), data.size());
}

std::vector<std::byte> all_blocks(const Collective& collective, int size) {
  std::vector<std::byte> all;
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<std::byte> one = block(collective, rank);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

std::vector<std::byte> reduced(const Collective& collective, int size, std::uint64_t first, std::uint64_t count) {
  return encode_periodic(collective, first, count, [&](std::uint64_t index) {
    Number value = contribution(collective, 0, index);
    for (int rank = 1; rank < size; ++rank)
      value = combine(collective.op, value, contribution(collective, rank, index));
    return value;
  });
}

std::vector<std::byte> reduced(const Collective& collective, int size) {
  return reduced(collective, size, 0, collective.count);
}

std::uint64_t sum(const std::vector<std::uint64_t>& counts, std::size_t end) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(end), std::uint64_t{0});
}

bool gathers_from_neighbors(CollectiveKind kind) {
  return kind == CollectiveKind::neighbor_allgather || kind == CollectiveKind::neighbor_allgatherv;
}

Collective neighbor_request(const Collective& collective, int rank, int size) {
  Collective own = collective;
  own.graph = graph_of(size);
  own.in_place = false;
  if (!has_counts(collective.kind)) return own;
  own.count = gathers_from_neighbors(collective.kind) ? count_of_edge(collective, rank, 0, {}) : 0;
  for (const Neighbor& to : own.graph->destinations(rank))
    if (has_send_counts(collective.kind))
      own.send.counts.push_back(to.rank == Neighbor::kNone ? 4 : count_of_edge(collective, rank, to.rank, to));
  for (const Neighbor& from : own.graph->sources(rank))
    own.receive.counts.push_back(from.rank == Neighbor::kNone ? 4 : count_of_edge(collective, from.rank, rank, from));
  scatter_blocks(own.send);
  scatter_blocks(own.receive);
  return own;
}

std::uint64_t place_of(const Blocks& blocks, const Collective& collective, std::size_t index) {
  return blocks.displacements.empty() ? index * collective.count : blocks.displacements[index];
}

std::vector<std::byte> garbage(std::size_t size_bytes) { return std::vector<std::byte>(size_bytes, std::byte{0x9d}); }

}  // namespace

std::vector<std::byte> encode(DType dtype, const std::vector<Number>& values) {
  std::vector<std::byte> bytes(values.size() * size_bytes(dtype));
  const auto write = [&]<class T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T element = to_element<T>(values[i]);
      std::memcpy(&bytes[i * sizeof(T)], &element, sizeof(T));
    }
  };
  switch (dtype) {
#define PENSTOCK_DTYPE(name, type, size, numpy) \
  case DType::name:                             \
    write(std::type_identity_t<type>{});        \
    break;
#define PENSTOCK_OTHER_DTYPE PENSTOCK_DTYPE
#include "penstock/dtypes.def"
#undef PENSTOCK_OTHER_DTYPE
#undef PENSTOCK_DTYPE
  }
  return bytes;
}

std::vector<Number> decode(DType dtype, ConstBytes bytes) {
  std::vector<Number> values(bytes.size() / size_bytes(dtype));
  const auto read = [&]<class T>(T element) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::memcpy(&element, &bytes[i * sizeof(T)], sizeof(T));
      values[i] = to_number(element);
    }
  };
  switch (dtype) {
#define PENSTOCK_DTYPE(name, type, size, numpy) \
  case DType::name:                             \
    read(std::type_identity_t<type>{});         \
    break;
#define PENSTOCK_OTHER_DTYPE PENSTOCK_DTYPE
#include "penstock/dtypes.def"
#undef PENSTOCK_OTHER_DTYPE
#undef PENSTOCK_DTYPE
  }
  return values;
}

Number contribution(const Collective& collective, int rank, std::uint64_t index) {
  const auto mixed = static_cast<std::int64_t>((static_cast<std::uint64_t>(rank) * 5 + index * 3 + 1) % 8);
  const bool can_be_negative = collective.dtype <= DType::int64 ||
                               collective.dtype > DType::uint64;  // the order of dtypes.def: i1..i8, u1..u8, floats
  if (collective.dtype == DType::bool8) return {mixed % 2, 0};
  if (collective.op == ReduceOp::prod) {
    // At most every fourth factor is a 2, so the product of 17 ranks fits float16.
    const std::int64_t factor = mixed % 4 == 0 ? 2 : 1;
    const bool is_imaginary = is_complex(collective.dtype) && mixed % 2 == 1;
    const std::int64_t sign = can_be_negative && mixed >= 5 ? -1 : 1;
    return is_imaginary ? Number{0, sign * factor} : Number{sign * factor, 0};
  }
  const std::int64_t offset = can_be_negative ? 3 : 0;
  if (!is_number(collective.dtype))
    return {mixed / 2 - offset, static_cast<std::int64_t>((static_cast<std::uint64_t>(rank) * 3 + index) % 7)};
  const std::int64_t imag = is_complex(collective.dtype) ? 5 - mixed : 0;
  if (collective.op != ReduceOp::sum) return {mixed - offset, imag};
  // All ranks have the same sign: if the sum of some of them were zero, losing it would not change the result. The sum
  // of 17 fits one byte. In longer integers all values of a period differ, so that a wrong one is noticed.
  const std::int64_t sign = can_be_negative && index % 2 == 1 ? -1 : 1;
  if (collective.dtype == DType::int32 || collective.dtype == DType::int64)
    return {sign * static_cast<std::int64_t>(1 + static_cast<std::uint64_t>(rank) * kPeriod + index % kPeriod), 0};
  return {sign * (1 + mixed), imag};
}

std::shared_ptr<const Graph> graph_of(int size) {
  if (size == 6) return std::make_shared<const Graph>(Graph::cartesian(std::vector{3, 2}, {false, true}));
  if (size == 8) return std::make_shared<const Graph>(Graph::cartesian(std::vector{2, 2, 2}, {true, false, true}));
  std::mt19937 random(static_cast<unsigned>(size));
  const auto below = [&](int end) { return static_cast<std::int32_t>(random() % static_cast<unsigned>(end)); };
  const auto ranks = static_cast<std::size_t>(size);
  std::vector<std::vector<std::int32_t>> sources(ranks);
  std::vector<std::vector<std::int32_t>> destinations(ranks);
  for (std::int32_t from = 0; from < size; ++from)
    for (int edge = below(5); edge >= 0 && from != size / 2; --edge) {  // one rank sends nothing
      const std::int32_t to = below(size);
      const int edges = below(4) == 0 ? 2 : 1;
      for (int i = 0; i < edges; ++i) {
        destinations[static_cast<std::size_t>(from)].push_back(to);
        sources[static_cast<std::size_t>(to)].push_back(from);
      }
    }
  for (auto* lists : {&sources, &destinations})
    for (std::vector<std::int32_t>& list : *lists) {
      if (below(3) == 0) list.push_back(Neighbor::kNone);
      std::shuffle(list.begin(), list.end(), random);
    }
  return std::make_shared<const Graph>(sources, destinations);
}

Collective request_of(const Collective& collective, int rank, int size) {
  if (is_neighborhood(collective.kind)) return neighbor_request(collective, rank, size);
  Collective own = collective;
  if (!has_counts(collective.kind)) return own;
  const bool is_root = rank == collective.root;
  const bool gathers = collective.kind == CollectiveKind::gatherv || collective.kind == CollectiveKind::allgatherv;
  const bool sends = has_send_counts(collective.kind);
  own.count = gathers || collective.kind == CollectiveKind::scatterv
                  ? count_between(collective, gathers ? rank : collective.root, gathers ? collective.root : rank)
                  : 0;
  for (int peer = 0; peer < size; ++peer) {
    if (sends) own.send.counts.push_back(count_between(collective, rank, peer));
    if (has_receive_counts(collective.kind)) own.receive.counts.push_back(count_between(collective, peer, rank));
  }
  if (collective.kind == CollectiveKind::reduce_scatter)
    for (int peer = 0; peer < size; ++peer)
      own.receive.counts[static_cast<std::size_t>(peer)] = count_between(collective, 0, peer);
  else
    scatter_blocks(own.receive);
  scatter_blocks(own.send);
  if (is_rooted(collective.kind) && !is_root) own.send = own.receive = {};
  if (has_receive_counts(collective.kind) && collective.in_place) own.send = {};
  return own;
}

std::vector<plan::RankMemory> memory_before(const Collective& collective, int size) {
  const std::size_t block_bytes = collective.count * size_bytes(collective.dtype);
  const auto ranks = static_cast<std::size_t>(size);
  std::vector<plan::RankMemory> memory(ranks);
  for (int rank = 0; rank < size; ++rank) {
    plan::RankMemory& own = memory[static_cast<std::size_t>(rank)];
    const bool is_root = rank == collective.root;
    const bool in_place = collective.in_place && (is_root || !is_rooted(collective.kind));
    const Collective request = request_of(collective, rank, size);
    const std::uint64_t element_bytes = size_bytes(collective.dtype);
    const bool keeps_block = collective.kind == CollectiveKind::gather || collective.kind == CollectiveKind::allgather;
    switch (collective.kind) {
      case CollectiveKind::alltoall:
      case CollectiveKind::reduce_scatter_block: {
        std::vector<std::byte> mine;
        for (int to = 0; to < size; ++to) {
          const std::vector<std::byte> one = block(collective, rank, first_for(to), collective.count);
          mine.insert(mine.end(), one.begin(), one.end());
        }
        own.output =
            in_place ? mine : garbage(collective.kind == CollectiveKind::alltoall ? block_bytes * ranks : block_bytes);
        if (!in_place) own.input = std::move(mine);
        break;
      }
      case CollectiveKind::reduce_scatter: {
        std::vector<std::byte> mine = block(collective, rank, 0, sum(request.receive.counts, ranks));
        own.output = in_place ? mine : garbage(request.receive.counts[static_cast<std::size_t>(rank)] * element_bytes);
        if (!in_place) own.input = std::move(mine);
        break;
      }
      case CollectiveKind::scan:
      case CollectiveKind::exscan:
        if (in_place)
          own.output = block(collective, rank);
        else
          own.input = block(collective, rank);
        if (!in_place) own.output = garbage(rank == 0 && collective.kind == CollectiveKind::exscan ? 0 : block_bytes);
        break;
      case CollectiveKind::gatherv:
      case CollectiveKind::allgatherv: {
        const std::vector<std::byte> mine = block(collective, rank, 0, request.count);
        if (is_root || collective.kind == CollectiveKind::allgatherv)
          own.output = garbage(extent(request.receive) * element_bytes);
        if (in_place)
          put(own.output, request.receive.displacements[static_cast<std::size_t>(rank)], collective.dtype, mine);
        else
          own.input = mine;
        break;
      }
      case CollectiveKind::scatterv:
      case CollectiveKind::alltoallv:
      case CollectiveKind::alltoallw: {
        const bool exchanges = collective.kind != CollectiveKind::scatterv;
        const bool sends = !in_place && (is_root || exchanges);
        if (sends || (is_root && collective.kind == CollectiveKind::scatterv))
          own.input = garbage(extent(request.send) * element_bytes);
        if (exchanges)
          own.output = garbage(extent(request.receive) * element_bytes);
        else if (!in_place)
          own.output = garbage(request.count * element_bytes);
        const bool from_output = exchanges && in_place;
        const Blocks& blocks = from_output ? request.receive : request.send;
        for (int to = 0; to < size && !blocks.counts.empty(); ++to)
          put(from_output ? own.output : own.input, blocks.displacements[static_cast<std::size_t>(to)],
              collective.dtype, block(collective, rank, first_for(to), blocks.counts[static_cast<std::size_t>(to)]));
        break;
      }
      case CollectiveKind::neighbor_allgather:
      case CollectiveKind::neighbor_allgatherv:
      case CollectiveKind::neighbor_alltoall:
      case CollectiveKind::neighbor_alltoallv:
      case CollectiveKind::neighbor_alltoallw: {
        const auto extent_of = [&](const Blocks& blocks, std::span<const Neighbor> neighbors) {
          if (blocks.counts.empty()) return neighbors.size() * block_bytes;
          Blocks existing = blocks;
          for (std::size_t i = 0; i < neighbors.size(); ++i)
            if (neighbors[i].rank == Neighbor::kNone) existing.counts[i] = 0;
          return static_cast<std::size_t>(extent(existing) * element_bytes);
        };
        const std::span<const Neighbor> destinations = request.graph->destinations(rank);
        own.output = garbage(extent_of(request.receive, request.graph->sources(rank)));
        if (gathers_from_neighbors(collective.kind)) {
          const auto exists = [](const Neighbor& each) { return each.rank != Neighbor::kNone; };
          if (std::ranges::any_of(destinations, exists)) own.input = block(collective, rank, 0, request.count);
          break;
        }
        own.input = garbage(extent_of(request.send, destinations));
        for (std::size_t i = 0; i < destinations.size(); ++i)
          if (destinations[i].rank != Neighbor::kNone)
            put(own.input, place_of(request.send, collective, i), collective.dtype,
                block(collective, rank, first_for(static_cast<int>(i)),
                      count_of_edge(collective, rank, destinations[i].rank, destinations[i])));
        break;
      }
      case CollectiveKind::barrier: break;
      case CollectiveKind::bcast: own.output = is_root ? block(collective, rank) : garbage(block_bytes); break;
      case CollectiveKind::scatter:
        if (is_root) own.input = all_blocks(collective, size);
        own.output = garbage(in_place ? 0 : block_bytes);
        break;
      case CollectiveKind::reduce:
      case CollectiveKind::gather:
      case CollectiveKind::allreduce:
      case CollectiveKind::allgather: {
        const bool receives = is_root || !is_rooted(collective.kind);
        own.output = garbage(receives ? block_bytes * (keeps_block ? ranks : 1) : 0);
        const std::vector<std::byte> mine = block(collective, rank);
        if (!in_place)
          own.input = mine;
        else if (!mine.empty())
          std::memcpy(&own.output[keeps_block ? static_cast<std::size_t>(rank) * block_bytes : 0], mine.data(),
                      mine.size());
        break;
      }
    }
  }
  return memory;
}

std::vector<plan::RankMemory> memory_after(const Collective& collective, int size) {
  std::vector<plan::RankMemory> memory = memory_before(collective, size);
  const std::vector<std::byte> all = all_blocks(collective, size);
  const auto ranks = static_cast<std::size_t>(size);
  const std::vector<std::byte> combined =
      computes(collective.kind) ? reduced(collective, size) : std::vector<std::byte>{};
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::byte>& output = memory[static_cast<std::size_t>(rank)].output;
    if (output.empty()) continue;
    const Collective request = request_of(collective, rank, size);
    switch (collective.kind) {
      case CollectiveKind::alltoall:
        for (int from = 0; from < size; ++from)
          put(output, static_cast<std::uint64_t>(from) * collective.count, collective.dtype,
              block(collective, from, first_for(rank), collective.count));
        break;
      case CollectiveKind::reduce_scatter_block:
        put(output, 0, collective.dtype, reduced(collective, size, first_for(rank), collective.count));
        break;
      case CollectiveKind::reduce_scatter:
        put(output, 0, collective.dtype,
            reduced(collective, size, sum(request.receive.counts, static_cast<std::size_t>(rank)),
                    request.receive.counts[static_cast<std::size_t>(rank)]));
        break;
      case CollectiveKind::scan: put(output, 0, collective.dtype, reduced(collective, rank + 1)); break;
      case CollectiveKind::exscan:
        if (rank > 0) put(output, 0, collective.dtype, reduced(collective, rank));
        break;
      case CollectiveKind::gatherv:
      case CollectiveKind::allgatherv:
        for (std::size_t from = 0; from < ranks; ++from)
          put(output, request.receive.displacements[from], collective.dtype,
              block(collective, static_cast<int>(from), 0, request.receive.counts[from]));
        break;
      case CollectiveKind::scatterv: output = block(collective, collective.root, first_for(rank), request.count); break;
      case CollectiveKind::alltoallv:
      case CollectiveKind::alltoallw:
        for (std::size_t from = 0; from < ranks; ++from)
          put(output, request.receive.displacements[from], collective.dtype,
              block(collective, static_cast<int>(from), first_for(rank), request.receive.counts[from]));
        break;
      case CollectiveKind::neighbor_allgather:
      case CollectiveKind::neighbor_allgatherv:
      case CollectiveKind::neighbor_alltoall:
      case CollectiveKind::neighbor_alltoallv:
      case CollectiveKind::neighbor_alltoallw: {
        const std::span<const Neighbor> sources = request.graph->sources(rank);
        for (std::size_t i = 0; i < sources.size(); ++i) {
          if (sources[i].rank == Neighbor::kNone) continue;
          const int sent_as = static_cast<int>(request.graph->index_at_source(rank, sources[i]));
          put(output, place_of(request.receive, collective, i), collective.dtype,
              block(collective, sources[i].rank, gathers_from_neighbors(collective.kind) ? 0 : first_for(sent_as),
                    count_of_edge(collective, sources[i].rank, rank, sources[i])));
        }
        break;
      }
      case CollectiveKind::barrier: break;
      case CollectiveKind::bcast: output = block(collective, collective.root); break;
      case CollectiveKind::scatter: output = block(collective, rank); break;
      case CollectiveKind::reduce:
      case CollectiveKind::allreduce: output = combined; break;
      case CollectiveKind::gather:
      case CollectiveKind::allgather: output = all; break;
    }
  }
  return memory;
}

}  // namespace penstock::conformance
