#include "conformance/reference.hpp"

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>

#include "plan/half.hpp"

namespace penstock::conformance {
namespace {

constexpr std::int64_t kNoNumber = std::numeric_limits<std::int64_t>::min();

template <class T>
struct IsComplex : std::false_type {};
template <class T>
struct IsComplex<std::complex<T>> : std::true_type {};

template <class T>
T to_element(Number value) {
  if constexpr (IsComplex<T>::value)
    return {static_cast<typename T::value_type>(value.real), static_cast<typename T::value_type>(value.imag)};
  else if constexpr (std::is_same_v<T, Float16>)
    return plan::to_float16(static_cast<float>(value.real));
  else if constexpr (std::is_same_v<T, BFloat16>)
    return plan::to_bfloat16(static_cast<float>(value.real));
  else
    return static_cast<T>(value.real);
}

std::int64_t whole(double value) {
  return std::abs(value) < 0x1p52 && value == std::trunc(value) ? static_cast<std::int64_t>(value) : kNoNumber;
}

template <class T>
Number to_number(T value) {
  if constexpr (IsComplex<T>::value)
    return {whole(static_cast<double>(value.real())), whole(static_cast<double>(value.imag()))};
  else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return {whole(static_cast<double>(plan::to_float(value))), 0};
  else if constexpr (std::is_floating_point_v<T>)
    return {whole(static_cast<double>(value)), 0};
  else
    return {static_cast<std::int64_t>(value), 0};
}

bool is_complex(DType dtype) { return dtype == DType::complex64 || dtype == DType::complex128; }

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
  }
  return {};
}

std::vector<std::byte> block(const Collective& what, int rank) {
  std::vector<Number> values(what.count);
  for (std::uint64_t i = 0; i < what.count; ++i) values[i] = contribution(what, rank, i);
  return encode(what.dtype, values);
}

std::vector<std::byte> all_blocks(const Collective& what, int size) {
  std::vector<std::byte> all;
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<std::byte> one = block(what, rank);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

std::vector<std::byte> reduced(const Collective& what, int size) {
  std::vector<Number> values(what.count);
  for (std::uint64_t i = 0; i < what.count; ++i) {
    values[i] = contribution(what, 0, i);
    for (int rank = 1; rank < size; ++rank) values[i] = combine(what.op, values[i], contribution(what, rank, i));
  }
  return encode(what.dtype, values);
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
    write(type{});                              \
    break;
#include "penstock/dtypes.def"
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
    read(type{});                               \
    break;
#include "penstock/dtypes.def"
#undef PENSTOCK_DTYPE
  }
  return values;
}

Number contribution(const Collective& what, int rank, std::uint64_t index) {
  const auto mixed = static_cast<std::int64_t>((static_cast<std::uint64_t>(rank) * 5 + index * 3 + 1) % 8);
  const bool can_be_negative =
      what.dtype <= DType::int64 || what.dtype > DType::uint64;  // the order of dtypes.def: i1..i8, u1..u8, floats
  if (what.op == ReduceOp::prod) {
    // At most every fourth factor is a 2, so that 17 of them stay within float16.
    const std::int64_t factor = mixed % 4 == 0 ? 2 : 1;
    const bool is_imaginary = is_complex(what.dtype) && mixed % 2 == 1;
    const std::int64_t sign = can_be_negative && mixed >= 5 ? -1 : 1;
    return is_imaginary ? Number{0, sign * factor} : Number{sign * factor, 0};
  }
  const std::int64_t offset = can_be_negative ? 3 : 0;
  return {mixed - offset, is_complex(what.dtype) ? 5 - mixed : 0};
}

std::vector<plan::RankMemory> memory_before(const Collective& what, int size) {
  const std::size_t block_bytes = what.count * size_bytes(what.dtype);
  const auto ranks = static_cast<std::size_t>(size);
  std::vector<plan::RankMemory> memory(ranks);
  for (int rank = 0; rank < size; ++rank) {
    plan::RankMemory& own = memory[static_cast<std::size_t>(rank)];
    const bool is_root = rank == what.root;
    const bool in_place = what.in_place && (is_root || !is_rooted(what.kind));
    const bool keeps_block = what.kind == CollectiveKind::gather || what.kind == CollectiveKind::allgather;
    switch (what.kind) {
      case CollectiveKind::barrier: break;
      case CollectiveKind::bcast: own.output = is_root ? block(what, rank) : garbage(block_bytes); break;
      case CollectiveKind::scatter:
        if (is_root) own.input = all_blocks(what, size);
        own.output = garbage(in_place ? 0 : block_bytes);
        break;
      case CollectiveKind::reduce:
      case CollectiveKind::gather:
      case CollectiveKind::allreduce:
      case CollectiveKind::allgather: {
        const bool receives = is_root || !is_rooted(what.kind);
        own.output = garbage(receives ? block_bytes * (keeps_block ? ranks : 1) : 0);
        const std::vector<std::byte> mine = block(what, rank);
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

std::vector<plan::RankMemory> memory_after(const Collective& what, int size) {
  std::vector<plan::RankMemory> memory = memory_before(what, size);
  const std::vector<std::byte> all = all_blocks(what, size);
  const std::vector<std::byte> combined = computes(what.kind) ? reduced(what, size) : std::vector<std::byte>{};
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::byte>& output = memory[static_cast<std::size_t>(rank)].output;
    if (output.empty()) continue;  // it receives nothing
    switch (what.kind) {
      case CollectiveKind::barrier: break;
      case CollectiveKind::bcast: output = block(what, what.root); break;
      case CollectiveKind::scatter: output = block(what, rank); break;
      case CollectiveKind::reduce:
      case CollectiveKind::allreduce: output = combined; break;
      case CollectiveKind::gather:
      case CollectiveKind::allgather: output = all; break;
    }
  }
  return memory;
}

}  // namespace penstock::conformance
