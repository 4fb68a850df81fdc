// Vectorized conversions between float and the 16-bit floating types. The same bits as half.hpp.
#pragma once

#include <cstddef>

#include "kernels/element.hpp"
#include "kernels/half.hpp"
#include "kernels/vectors.hpp"

#ifdef PENSTOCK_X86_VECTORS
#include <immintrin.h>
#endif

namespace penstock::kernels {

inline constexpr std::size_t kHalvesAtOnce = 64;

template <Vectors kWidth, class T>
struct HalfVectors;

#ifdef PENSTOCK_X86_VECTORS

template <>
struct HalfVectors<Vectors::avx2, Float16> {
  PENSTOCK_FOR_AVX2 static void widen(const std::byte* from, float* to) {
    for (std::size_t i = 0; i < kHalvesAtOnce; i += 8)
      _mm256_store_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i))));
  }
  PENSTOCK_FOR_AVX2 static void narrow(const float* from, std::byte* to) {
    for (std::size_t i = 0; i < kHalvesAtOnce; i += 8)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i),
                       _mm256_cvtps_ph(_mm256_load_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
};

template <>
struct HalfVectors<Vectors::avx512, Float16> {
  // GCC 12 warns about undefined lanes in the intrinsics without a mask.
  static constexpr __mmask16 kAll = 0xffff;

  PENSTOCK_FOR_AVX512 static void widen(const std::byte* from, float* to) {
    for (std::size_t i = 0; i < kHalvesAtOnce; i += 16)
      _mm512_store_ps(to + i,
                      _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 2 * i))));
  }
  PENSTOCK_FOR_AVX512 static void narrow(const float* from, std::byte* to) {
    for (std::size_t i = 0; i < kHalvesAtOnce; i += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * i),
                          _mm512_maskz_cvtps_ph(kAll, _mm512_load_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
};

template <>
struct HalfVectors<Vectors::avx2, BFloat16> {
  PENSTOCK_FOR_AVX2 static void widen(const std::byte* from, float* to) {
    for (std::size_t i = 0; i < kHalvesAtOnce; i += 8) {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + i), _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
    }
  }
  PENSTOCK_FOR_AVX2 static __m256i rounded(const float* from) {
    const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i number = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    return _mm256_srli_epi32(_mm256_blendv_epi8(number, quiet, is_nan), 16);
  }
  PENSTOCK_FOR_AVX2 static void narrow(const float* from, std::byte* to) {
    for (std::size_t i = 0; i < kHalvesAtOnce; i += 16) {
      // Packing works on each 128-bit half separately.
      const __m256i packed = _mm256_packus_epi32(rounded(from + i), rounded(from + i + 8));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * i), _mm256_permute4x64_epi64(packed, 0xd8));
    }
  }
};

template <>
struct HalfVectors<Vectors::avx512, BFloat16> {
  PENSTOCK_FOR_AVX512 static void widen(const std::byte* from, float* to) {
    for (std::size_t i = 0; i < kHalvesAtOnce; i += 16) {
      const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 2 * i));
      _mm512_store_si512(to + i, _mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, halves), 16));
    }
  }
  PENSTOCK_FOR_AVX512 static void narrow(const float* from, std::byte* to) {
    for (std::size_t i = 0; i < kHalvesAtOnce; i += 16) {
      const __m512i bits = _mm512_load_si512(from + i);
      const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
      const __mmask16 is_nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000));
      const __m512i odd = _mm512_and_si512(_mm512_maskz_srli_epi32(0xffff, bits, 16), _mm512_set1_epi32(1));
      const __m512i number = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
      const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
      const __m512i rounded = _mm512_maskz_srli_epi32(0xffff, _mm512_mask_mov_epi32(number, is_nan, quiet), 16);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * i), _mm512_maskz_cvtepi32_epi16(0xffff, rounded));
    }
  }
};

#endif

}  // namespace penstock::kernels
