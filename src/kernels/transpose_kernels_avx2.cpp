// For processors with AVX2. Must not include headers with inline functions: the linker could use their AVX2 code on
// other processors.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2")
#include <immintrin.h>

#include "kernels/transpose_kernels.hpp"

namespace penstock::kernels {

extern const TransposeKernel kTransposeAvx2[kLineWorks][kLineStores];

namespace {

using Vector = __m256i;

Vector load(const std::byte* at) { return _mm256_loadu_si256(reinterpret_cast<const Vector*>(at)); }

Vector of(__m256d vector) { return _mm256_castpd_si256(vector); }
Vector of(__m256 vector) { return _mm256_castps_si256(vector); }
__m256d doubles(Vector vector) { return _mm256_castsi256_pd(vector); }
__m256 floats(Vector vector) { return _mm256_castsi256_ps(vector); }

// Vectors of either precision, so that the arithmetic is written once. The operations and their order are those of the
// scalar code, without fused operations: the result must not depend on the processor.
struct Double {
  using V = __m256d;
  static V from(Vector vector) { return doubles(vector); }
  static V all(double value) { return _mm256_set1_pd(value); }
  static V times(V a, V b) { return _mm256_mul_pd(a, b); }
  static V plus(V a, V b) { return _mm256_add_pd(a, b); }
  static V plus_minus(V a, V b) { return _mm256_addsub_pd(a, b); }
  static V swapped(V a) { return _mm256_permute_pd(a, 0x5); }
  static V pairs(double even, double odd) { return _mm256_setr_pd(even, odd, even, odd); }
};
struct Float {
  using V = __m256;
  static V from(Vector vector) { return floats(vector); }
  static V all(double value) { return _mm256_set1_ps(static_cast<float>(value)); }
  static V times(V a, V b) { return _mm256_mul_ps(a, b); }
  static V plus(V a, V b) { return _mm256_add_ps(a, b); }
  static V plus_minus(V a, V b) { return _mm256_addsub_ps(a, b); }
  static V swapped(V a) { return _mm256_permute_ps(a, 0xb1); }
  static V pairs(double even, double odd) {
    const auto e = static_cast<float>(even);
    const auto o = static_cast<float>(odd);
    return _mm256_setr_ps(e, o, e, o, e, o, e, o);
  }
};

struct Move {
  explicit Move(const Factors& /*factors*/) {}
  Vector source(Vector value) const { return value; }
  Vector target(Vector value) const { return value; }
  static Vector sum(Vector a, Vector /*b*/) { return a; }
};

/// Real factors; for complex elements, the sign of the imaginary parts first.
template <class Real, bool kIsComplex>
struct Scale {
  typename Real::V alpha, beta, signs;
  explicit Scale(const Factors& factors)
      : alpha(Real::all(factors.alpha_real)),
        beta(Real::all(factors.beta_real)),
        signs(Real::pairs(1, kIsComplex ? factors.sign : 1)) {}
  Vector source(Vector value) const {
    typename Real::V given = Real::from(value);
    if constexpr (kIsComplex) given = Real::times(given, signs);
    return of(Real::times(alpha, given));
  }
  Vector target(Vector value) const { return of(Real::times(beta, Real::from(value))); }
  static Vector sum(Vector a, Vector b) { return of(Real::plus(Real::from(a), Real::from(b))); }
};

template <class Real>
struct Multiply {
  typename Real::V alpha_real, alpha_imag, beta_real, beta_imag, signs;
  explicit Multiply(const Factors& factors)
      : alpha_real(Real::all(factors.alpha_real)),
        alpha_imag(Real::all(factors.alpha_imag)),
        beta_real(Real::all(factors.beta_real)),
        beta_imag(Real::all(factors.beta_imag)),
        signs(Real::pairs(1, factors.sign)) {}
  static typename Real::V product(typename Real::V real, typename Real::V imag, typename Real::V value) {
    return Real::plus_minus(Real::times(real, value), Real::times(imag, Real::swapped(value)));
  }
  Vector source(Vector value) const {
    return of(product(alpha_real, alpha_imag, Real::times(Real::from(value), signs)));
  }
  Vector target(Vector value) const { return of(product(beta_real, beta_imag, Real::from(value))); }
  static Vector sum(Vector a, Vector b) { return of(Real::plus(Real::from(a), Real::from(b))); }
};

template <LineStore kStore, class Work>
void put(std::byte* at, Vector value, const Work& work) {
  auto* const target = reinterpret_cast<Vector*>(at);
  const Vector result = work.source(value);
  if constexpr (kStore == LineStore::reads_target)
    _mm256_storeu_si256(target, Work::sum(result, work.target(_mm256_loadu_si256(target))));
  else
    _mm256_storeu_si256(target, result);
}

// A square of each element size: `kOuter` lines of the target from `kInner` rows of the source.
template <std::size_t kBytes>
struct Square;

template <>
struct Square<8> {
  static constexpr std::size_t kOuter = 4, kInner = 8;
  template <LineStore kStore, class Work>
  static void run(const std::byte* from, std::ptrdiff_t row, std::byte* to, std::ptrdiff_t line, const Work& work) {
    Vector out[2][4];
    for (int half = 0; half < 2; ++half, from += 4 * row) {
      const __m256d a = doubles(load(from)), b = doubles(load(from + row));
      const __m256d c = doubles(load(from + 2 * row)), d = doubles(load(from + 3 * row));
      const __m256d ab0 = _mm256_unpacklo_pd(a, b), ab1 = _mm256_unpackhi_pd(a, b);
      const __m256d cd0 = _mm256_unpacklo_pd(c, d), cd1 = _mm256_unpackhi_pd(c, d);
      out[half][0] = of(_mm256_permute2f128_pd(ab0, cd0, 0x20));
      out[half][1] = of(_mm256_permute2f128_pd(ab1, cd1, 0x20));
      out[half][2] = of(_mm256_permute2f128_pd(ab0, cd0, 0x31));
      out[half][3] = of(_mm256_permute2f128_pd(ab1, cd1, 0x31));
    }
    for (int i = 0; i < 4; ++i, to += line) {
      put<kStore>(to, out[0][i], work);
      put<kStore>(to + 32, out[1][i], work);
    }
  }
};

template <>
struct Square<4> {
  static constexpr std::size_t kOuter = 8, kInner = 16;
  template <LineStore kStore, class Work>
  static void run(const std::byte* from, std::ptrdiff_t row, std::byte* to, std::ptrdiff_t line, const Work& work) {
    Vector out[2][8];
    for (auto& half : out) {
      __m256 rows[8], pairs[8];
      for (auto& each : rows) {
        each = floats(load(from));
        from += row;
      }
      for (int i = 0; i < 4; ++i) {
        pairs[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
        pairs[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
      }
      for (int i = 0; i < 2; ++i) {  // rows is what four rows have at columns i*4 ... afterwards
        rows[4 * i] = _mm256_shuffle_ps(pairs[4 * i], pairs[4 * i + 2], 0x44);
        rows[4 * i + 1] = _mm256_shuffle_ps(pairs[4 * i], pairs[4 * i + 2], 0xee);
        rows[4 * i + 2] = _mm256_shuffle_ps(pairs[4 * i + 1], pairs[4 * i + 3], 0x44);
        rows[4 * i + 3] = _mm256_shuffle_ps(pairs[4 * i + 1], pairs[4 * i + 3], 0xee);
      }
      for (int i = 0; i < 4; ++i) {
        half[i] = of(_mm256_permute2f128_ps(rows[i], rows[i + 4], 0x20));
        half[i + 4] = of(_mm256_permute2f128_ps(rows[i], rows[i + 4], 0x31));
      }
    }
    for (int i = 0; i < 8; ++i, to += line) {
      put<kStore>(to, out[0][i], work);
      put<kStore>(to + 32, out[1][i], work);
    }
  }
};

template <>
struct Square<16> {
  static constexpr std::size_t kOuter = 2, kInner = 4;
  template <LineStore kStore, class Work>
  static void run(const std::byte* from, std::ptrdiff_t row, std::byte* to, std::ptrdiff_t line, const Work& work) {
    const Vector a = load(from), b = load(from + row), c = load(from + 2 * row), d = load(from + 3 * row);
    put<kStore>(to, _mm256_permute2x128_si256(a, b, 0x20), work);
    put<kStore>(to + 32, _mm256_permute2x128_si256(c, d, 0x20), work);
    put<kStore>(to + line, _mm256_permute2x128_si256(a, b, 0x31), work);
    put<kStore>(to + line + 32, _mm256_permute2x128_si256(c, d, 0x31), work);
  }
};

// Two consecutive squares use a cache line of the source, since rows that are a power of two apart evict each other
// from the first-level cache.
template <std::size_t kBytes, LineStore kStore, class Work>
void run(const std::byte* from, std::byte* to, const TransposeShape& shape, const Factors& factors) {
  using S = Square<kBytes>;
  constexpr std::ptrdiff_t kHalfLine = 32;
  static_assert(S::kOuter * kBytes == kHalfLine && S::kInner * kBytes == 2 * kHalfLine);
  const Work work(factors);
  const std::ptrdiff_t half_to = static_cast<std::ptrdiff_t>(S::kOuter) * shape.to_outer_bytes;
  for (std::size_t outer = 0; outer < shape.outer; outer += 2 * S::kOuter) {
    const bool has_both = outer + S::kOuter < shape.outer;
    const std::byte* source = from;
    std::byte* target = to;
    for (std::size_t inner = 0; inner < shape.inner; inner += S::kInner) {
      S::template run<kStore>(source, shape.from_inner_bytes, target, shape.to_outer_bytes, work);
      if (has_both)
        S::template run<kStore>(source + kHalfLine, shape.from_inner_bytes, target + half_to, shape.to_outer_bytes,
                                work);
      source += static_cast<std::ptrdiff_t>(S::kInner) * shape.from_inner_bytes;
      target += 2 * kHalfLine;
    }
    from += 2 * kHalfLine;
    to += 2 * half_to;
  }
}

// Writes several consecutive cache lines of a row at once, which memory accepts faster than scattered lines.
template <std::size_t kBytes, class Work>
void stream(const std::byte* from, std::byte* to, const TransposeShape& shape, const Factors& factors) {
  using S = Square<kBytes>;
  constexpr std::size_t kRows = 2 * S::kOuter, kMostLines = 8;
  alignas(64) std::byte rows[kRows][kMostLines * 64];
  for (std::size_t outer = 0; outer < shape.outer; outer += kRows) {
    const std::size_t outers = outer + kRows <= shape.outer ? kRows : shape.outer - outer;
    for (std::size_t inner = 0; inner < shape.inner; inner += kMostLines * S::kInner) {
      const std::size_t left = shape.inner - inner;
      const std::size_t inners = left < kMostLines * S::kInner ? left : kMostLines * S::kInner;
      run<kBytes, LineStore::plain, Work>(
          from + static_cast<std::ptrdiff_t>(inner) * shape.from_inner_bytes + outer * kBytes, rows[0],
          {outers, inners, shape.from_inner_bytes, static_cast<std::ptrdiff_t>(sizeof rows[0])}, factors);
      for (std::size_t i = 0; i < outers; ++i) {
        std::byte* const target = to + static_cast<std::ptrdiff_t>(outer + i) * shape.to_outer_bytes + inner * kBytes;
        for (std::size_t at = 0; at < inners * kBytes; at += 32)
          _mm256_stream_si256(reinterpret_cast<Vector*>(target + at), load(rows[i] + at));
      }
    }
  }
}

template <std::size_t kBytes, LineStore kStore, class Work>
constexpr TransposeKernel kernel() {
  if constexpr (kStore == LineStore::streamed)
    return {stream<kBytes, Work>, Square<kBytes>::kOuter, Square<kBytes>::kInner};
  else
    return {run<kBytes, kStore, Work>, Square<kBytes>::kOuter, Square<kBytes>::kInner};
}

}  // namespace

#define PENSTOCK_LINE_STORES(bytes, ...)                                                               \
  {                                                                                                    \
    kernel<bytes, LineStore::plain, __VA_ARGS__>(), kernel<bytes, LineStore::streamed, __VA_ARGS__>(), \
        kernel<bytes, LineStore::reads_target, __VA_ARGS__>()                                          \
  }
// In the order of LineWork.
const TransposeKernel kTransposeAvx2[kLineWorks][kLineStores] = {
    PENSTOCK_LINE_STORES(4, Move),
    PENSTOCK_LINE_STORES(8, Move),
    PENSTOCK_LINE_STORES(16, Move),
    PENSTOCK_LINE_STORES(4, Scale<Float, false>),
    PENSTOCK_LINE_STORES(8, Scale<Double, false>),
    PENSTOCK_LINE_STORES(8, Scale<Float, true>),
    PENSTOCK_LINE_STORES(16, Scale<Double, true>),
    PENSTOCK_LINE_STORES(8, Multiply<Float>),
    PENSTOCK_LINE_STORES(16, Multiply<Double>),
};
#undef PENSTOCK_LINE_STORES

}  // namespace penstock::kernels
#endif
