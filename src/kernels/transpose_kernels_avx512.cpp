// For processors with AVX-512: squares whose sides are whole cache lines, so each line is read and written once. Plain
// moves only: with arithmetic the gain is not visible. Must not include headers with inline functions: the linker could
// use their AVX-512 code on other processors.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx512f,avx512dq")
#include <immintrin.h>

#include "kernels/transpose_kernels.hpp"

namespace penstock::kernels {

extern const TransposeKernel kTransposeAvx512[kMoves][kLineStores];

namespace {

constexpr std::size_t kLine = 64, kLane = 16;

// As _mm512_unpacklo_epi32() and similar intrinsics, for which GCC 12 warns about uninitialized values.
typedef int Ints __attribute__((vector_size(64)));
__m512i low_4(__m512i a, __m512i b) {
  return (__m512i)__builtin_shufflevector((Ints)a, (Ints)b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
}
__m512i high_4(__m512i a, __m512i b) {
  return (__m512i)__builtin_shufflevector((Ints)a, (Ints)b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
__m512i low_8(__m512i a, __m512i b) { return __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14); }
__m512i high_8(__m512i a, __m512i b) { return __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15); }

enum class Store : unsigned char { plain, streamed, masked };

template <std::size_t kBytes>
struct Square {
  static constexpr std::size_t kSide = kLine / kBytes;
  static constexpr std::size_t kInLane = kLane / kBytes;

  /// Stores the elements of `stored`, a bit for four bytes.
  template <Store kStore>
  static void run(const std::byte* const (&rows)[kSide], std::byte* to, std::ptrdiff_t line, __mmask16 stored = 0) {
    for (std::size_t quarter = 0; quarter < 4; ++quarter) {
      // Lane k of vector i is of row i + k * kInLane, so that after a transposition within the lanes all are in order.
      // Lanes that come from memory leave the unit that shuffles free.
      __m512i lanes[kInLane];
      for (std::size_t i = 0; i < kInLane; ++i) {
        const auto lane = [&](std::size_t k) {
          return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i + k * kInLane] + quarter * kLane));
        };
        lanes[i] = _mm512_castsi128_si512(lane(0));
        lanes[i] = _mm512_inserti64x2(lanes[i], lane(1), 1);
        lanes[i] = _mm512_inserti64x2(lanes[i], lane(2), 2);
        lanes[i] = _mm512_inserti64x2(lanes[i], lane(3), 3);
      }
      within_lanes(lanes);
      for (std::size_t i = 0; i < kInLane; ++i, to += line) {
        if constexpr (kStore == Store::streamed)
          _mm512_stream_si512(reinterpret_cast<__m512i*>(to), lanes[i]);
        else if constexpr (kStore == Store::masked)
          _mm512_mask_storeu_epi32(to, stored, lanes[i]);
        else
          _mm512_storeu_si512(to, lanes[i]);
      }
    }
  }

 private:
  static void within_lanes(__m512i (&v)[kInLane]) {
    if constexpr (kBytes == 4) {
      const __m512i a = low_4(v[0], v[1]), b = high_4(v[0], v[1]), c = low_4(v[2], v[3]), d = high_4(v[2], v[3]);
      v[0] = low_8(a, c);
      v[1] = high_8(a, c);
      v[2] = low_8(b, d);
      v[3] = high_8(b, d);
    } else if constexpr (kBytes == 8) {
      const __m512i a = v[0];
      v[0] = low_8(a, v[1]);
      v[1] = high_8(a, v[1]);
    }
  }
};

template <std::size_t kBytes, Store kStore>
void run(const std::byte* from, std::byte* to, const TransposeShape& shape, const Factors& /*factors*/) {
  constexpr std::size_t kSide = Square<kBytes>::kSide;
  const std::byte* rows[kSide];
  for (std::size_t outer = 0; outer < shape.outer; outer += kSide) {
    const std::byte* source = from + outer * kBytes;
    std::byte* target = to + static_cast<std::ptrdiff_t>(outer) * shape.to_outer_bytes;
    for (std::size_t inner = 0; inner < shape.inner; inner += kSide) {
      for (std::size_t i = 0; i < kSide; ++i, source += shape.from_inner_bytes) rows[i] = source;
      Square<kBytes>::template run<kStore>(rows, target, shape.to_outer_bytes);
      target += kLine;
    }
  }
}

template <std::size_t kBytes>
void run_incomplete(const std::byte* from, std::byte* to, const TransposeShape& shape, const Factors& /*factors*/) {
  constexpr std::size_t kSide = Square<kBytes>::kSide;
  const auto stored = static_cast<__mmask16>((1u << (shape.inner * kBytes / 4)) - 1);
  const std::byte* rows[kSide];
  for (std::size_t outer = 0; outer < shape.outer; outer += kSide) {
    // Rows that are not there repeat the first one, and are not stored.
    for (std::size_t i = 0; i < kSide; ++i)
      rows[i] = from + outer * kBytes + (i < shape.inner ? static_cast<std::ptrdiff_t>(i) * shape.from_inner_bytes : 0);
    Square<kBytes>::template run<Store::masked>(rows, to + static_cast<std::ptrdiff_t>(outer) * shape.to_outer_bytes,
                                                shape.to_outer_bytes, stored);
  }
}

template <std::size_t kBytes, Store kStore>
constexpr TransposeKernel kernel() {
  return {run<kBytes, kStore>, Square<kBytes>::kSide, Square<kBytes>::kSide, run_incomplete<kBytes>};
}

}  // namespace

#define PENSTOCK_LINE_STORES(bytes)                                     \
  {                                                                     \
    kernel<bytes, Store::plain>(), kernel<bytes, Store::streamed>(), {} \
  }
// In the order of LineWork; a move never reads its target.
const TransposeKernel kTransposeAvx512[kMoves][kLineStores] = {
    PENSTOCK_LINE_STORES(4),
    PENSTOCK_LINE_STORES(8),
    PENSTOCK_LINE_STORES(16),
};
#undef PENSTOCK_LINE_STORES

}  // namespace penstock::kernels
#endif
