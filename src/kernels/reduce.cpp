#include <array>
#include <cassert>

#include "kernels/arithmetic.hpp"
#include "kernels/half_vectors.hpp"
#include "kernels/reduce_ops.hpp"
#include "kernels/vectors.hpp"

namespace penstock::kernels {
namespace {

using Kernel = void (*)(const std::byte* from, std::byte* to, std::size_t count);

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// Inlined into one function per vector width, so that the compiler vectorizes it for each.
template <class T, class Op>
[[gnu::always_inline]] inline void combine_each(const std::byte* __restrict from, std::byte* __restrict to,
                                                std::size_t count) {
  using As = Arithmetical<T>;
  for (std::size_t i = 0; i < count; ++i) {
    const auto a = As::widen(load<T>(from + i * sizeof(T)));
    const auto b = As::widen(load<T>(to + i * sizeof(T)));
    store(to + i * sizeof(T), As::narrow(Op{}(a, b)));
  }
}

// Conversions are separate loops: their instructions convert more elements at once than the arithmetic combines.
template <Vectors kWidth, class T, class Op>
[[gnu::always_inline]] inline void combine(const std::byte* __restrict from, std::byte* __restrict to,
                                           std::size_t count) {
  std::size_t done = 0;
  if constexpr (kIsHalf<T> && kWidth != Vectors::plain) {
    alignas(64) std::array<float, kHalvesAtOnce> a;
    alignas(64) std::array<float, kHalvesAtOnce> b;
    for (; done + kHalvesAtOnce <= count; done += kHalvesAtOnce) {
      HalfVectors<kWidth, T>::widen(from + done * sizeof(T), a.data());
      HalfVectors<kWidth, T>::widen(to + done * sizeof(T), b.data());
      for (std::size_t i = 0; i < kHalvesAtOnce; ++i) a[i] = Op{}(a[i], b[i]);
      HalfVectors<kWidth, T>::narrow(a.data(), to + done * sizeof(T));
    }
  }
  combine_each<T, Op>(from + done * sizeof(T), to + done * sizeof(T), count - done);
}

template <class T, class Op>
void combine_plain(const std::byte* __restrict from, std::byte* __restrict to, std::size_t count) {
  combine<Vectors::plain, T, Op>(from, to, count);
}
#ifdef PENSTOCK_X86_VECTORS
template <class T, class Op>
PENSTOCK_FOR_AVX2 void combine_avx2(const std::byte* __restrict from, std::byte* __restrict to, std::size_t count) {
  combine<Vectors::avx2, T, Op>(from, to, count);
}
template <class T, class Op>
PENSTOCK_FOR_AVX512 void combine_avx512(const std::byte* __restrict from, std::byte* __restrict to, std::size_t count) {
  combine<Vectors::avx512, T, Op>(from, to, count);
}
#endif

template <class T>
struct Gains : std::true_type {};  // by wider vectors
template <>
struct Gains<long double> : std::false_type {};
template <>
struct Gains<std::complex<long double>> : std::false_type {};
template <class V, class P>
struct Gains<Located<V, P>> : std::false_type {};

// GCC 12 makes one instruction, which rounds once, of the products and sums of complex products where AVX-512 has one,
// whatever -ffp-contract says.
template <class T, class Op>
struct IsFused : std::false_type {};
template <class T>
struct IsFused<std::complex<T>, ops::prod> : std::true_type {};

template <class T, class Op>
constexpr std::array<Kernel, kVectors> kernel() {
  using Computed = typename Arithmetical<T>::Computed;
  if constexpr (!std::is_invocable_v<Op, Computed, Computed>) return {};
#ifdef PENSTOCK_X86_VECTORS
  else if constexpr (Gains<T>::value)
    return {&combine_plain<T, Op>, &combine_avx2<T, Op>,
            IsFused<T, Op>::value ? &combine_avx2<T, Op> : &combine_avx512<T, Op>};
#endif
  else
    return {&combine_plain<T, Op>, &combine_plain<T, Op>, &combine_plain<T, Op>};
}

template <class T>
constexpr auto kernels() {
  return std::array{
#define PENSTOCK_REDUCE_OP(name) kernel<T, ops::name>(),
#include "penstock/reduce_ops.def"
#undef PENSTOCK_REDUCE_OP
  };
}

constexpr std::array kKernels = {
#define PENSTOCK_DTYPE(name, type, size, numpy) kernels<type>(),
#define PENSTOCK_OTHER_DTYPE PENSTOCK_DTYPE
#include "penstock/dtypes.def"
#undef PENSTOCK_OTHER_DTYPE
#undef PENSTOCK_DTYPE
};

}  // namespace

bool has(Vectors vectors) {
#ifdef PENSTOCK_X86_VECTORS
  if (vectors == Vectors::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  if (vectors == Vectors::avx512)
    return has(Vectors::avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
  return vectors == Vectors::plain;
}

Vectors widest_vectors() {
  static const Vectors widest = has(Vectors::avx512) ? Vectors::avx512
                                : has(Vectors::avx2) ? Vectors::avx2
                                                     : Vectors::plain;
  return widest;
}

void reduce(const Arithmetic& arithmetic, ConstBytes from, Bytes to) { reduce(widest_vectors(), arithmetic, from, to); }

void reduce(Vectors vectors, const Arithmetic& arithmetic, ConstBytes from, Bytes to) {
  if (arithmetic.user) {
    assert(from.size() == to.size() && from.size() % arithmetic.user->element_bytes == 0);
    if (!to.empty()) arithmetic.user->combine(from, to);
    return;
  }
  const Kernel run = kKernels[static_cast<std::size_t>(arithmetic.dtype)][static_cast<std::size_t>(arithmetic.op)]
                             [static_cast<std::size_t>(vectors)];
  const std::size_t element_bytes = size_bytes(arithmetic.dtype);
  assert(run && "this operation is not defined for this dtype");
  assert(from.size() == to.size() && from.size() % element_bytes == 0);
  run(from.data(), to.data(), from.size() / element_bytes);
}

}  // namespace penstock::kernels
