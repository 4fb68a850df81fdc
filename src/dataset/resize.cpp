#include "dataset/resize.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace penstock::dataset {

namespace {

// AVX2 without FMA: twice as fast, and the same values as everywhere else. The sanitizers cannot look behind the
// resolvers of such functions.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PENSTOCK_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define PENSTOCK_VECTOR_CLONES
#endif

PENSTOCK_VECTOR_CLONES void weigh_one(const std::uint8_t* row, float weight, float* line, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) line[i] = weight * static_cast<float>(row[i]);
}

PENSTOCK_VECTOR_CLONES void add_one(const std::uint8_t* row, float weight, float* line, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) line[i] += weight * static_cast<float>(row[i]);
}

// Two rows at a time halve the traffic to the line.
PENSTOCK_VECTOR_CLONES void add_two(const std::uint8_t* row, std::size_t row_elems, float weight, float next_weight,
                                    float* line, std::size_t count) {
  const std::uint8_t* next = row + row_elems;
  for (std::size_t i = 0; i < count; ++i)
    line[i] += weight * static_cast<float>(row[i]) + next_weight * static_cast<float>(next[i]);
}

// One pixel in one register; the fourth lane is never looked at.
typedef float Pixel __attribute__((vector_size(16)));
typedef std::int32_t IntegerPixel __attribute__((vector_size(16)));

Pixel load(const float* from) {
  Pixel pixel;
  std::memcpy(&pixel, from, sizeof pixel);
  return pixel;
}

/// Rounds to the nearest, ties to even.
std::uint16_t half_bits(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7e00);   // not a number
  if (bits >= 0x47800000) return static_cast<std::uint16_t>(sign | 0x7c00);  // 65536 and above
  if (bits < 0x38800000) {
    // Below the smallest normal number, adding this constant moves the wanted bits to the end and rounds them.
    constexpr float kShift = 0.5F;
    float magnitude = 0;
    std::memcpy(&magnitude, &bits, sizeof magnitude);
    magnitude += kShift;
    std::uint32_t sum = 0, shift = 0;
    std::memcpy(&sum, &magnitude, sizeof sum);
    std::memcpy(&shift, &kShift, sizeof shift);
    return static_cast<std::uint16_t>(sign | (sum - shift));
  }
  bits += 0xc8000fff + (bits >> 13 & 1);  // the exponent's bias from 127 to 15, and half of the last bit
  return static_cast<std::uint16_t>(sign | bits >> 13);
}

// Weights are positive and add up to 1, so nothing has to be clamped.
struct InterleavedBytes {
  std::uint8_t* to;
  void last(const Pixel& pixel) {
    const IntegerPixel rounded = __builtin_convertvector(pixel + 0.5F, IntegerPixel);
    for (int c = 0; c < 3; ++c) to[c] = static_cast<std::uint8_t>(rounded[c]);
    to += 3;
  }
  void operator()(const Pixel& pixel) {
#if defined(__SSE2__)
    // All four lanes in one store: the pixel that follows overwrites the fourth.
    const __m128i rounded = _mm_cvttps_epi32((__m128)(pixel + 0.5F));
    const __m128i words = _mm_packs_epi32(rounded, rounded);
    const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    std::memcpy(to, &bytes, sizeof bytes);
    to += 3;
#else
    last(pixel);
#endif
  }
};

struct InterleavedFloats {
  float* to;
  Pixel scale, offset;
  void operator()(const Pixel& pixel) {
    const Pixel scaled = pixel * scale + offset;
    for (int c = 0; c < 3; ++c) to[c] = scaled[c];
    to += 3;
  }
  void last(const Pixel& pixel) { (*this)(pixel); }
};

void put(float value, std::uint8_t& to) { to = static_cast<std::uint8_t>(value + 0.5F); }
void put(float value, float& to) { to = value; }
void put(float value, Float16& to) { to.bits = half_bits(value); }

template <class Out>
struct Anywhere {
  Out* to;
  std::ptrdiff_t column, channel;
  Pixel scale, offset;
  void operator()(const Pixel& pixel) {
    const Pixel scaled = pixel * scale + offset;
    for (int c = 0; c < 3; ++c) put(scaled[c], to[c * channel]);
    to += column;
  }
  void last(const Pixel& pixel) { (*this)(pixel); }
};

/// Weighted sums of `Count` pixels of a line each, so that the compiler unrolls them. 0: of `count` pixels.
template <std::size_t Count, class Put>
void weigh_columns(const float* line, const std::size_t* firsts, const float* weights, std::size_t to_count,
                   std::size_t count, Put put_pixel) {
  const std::size_t taps = Count == 0 ? count : Count;
  const auto sum = [&](std::size_t i) {
    const float* samples = line + firsts[i];
    const float* own = weights + i * taps;
    Pixel total = load(samples) * own[0];
    for (std::size_t j = 1; j < taps; ++j) total += load(samples + 3 * j) * own[j];
    return total;
  };
  for (std::size_t i = 0; i + 1 < to_count; ++i) put_pixel(sum(i));
  put_pixel.last(sum(to_count - 1));
}

constexpr std::size_t kMostUnrolled = 8;

template <class Put, std::size_t... Counts>
void weigh_columns_of(std::index_sequence<Counts...>, const float* line, const std::size_t* firsts,
                      const float* weights, std::size_t to_count, std::size_t count, Put put_pixel) {
  if (count > kMostUnrolled) return weigh_columns<0>(line, firsts, weights, to_count, count, put_pixel);
  ((count == Counts + 1 ? weigh_columns<Counts + 1>(line, firsts, weights, to_count, count, put_pixel) : void()), ...);
}

}  // namespace

bool Resizer::Axis::prepare(double new_first, double new_extent, int from_count, int to_count) {
  if (first == new_first && extent == new_extent && to == to_count && from == from_count) return false;
  first = new_first;
  extent = new_extent;
  to = to_count;
  from = from_count;
  taps.clear();
  weights.clear();
  const double scale = extent / to;
  const double support = std::max(scale, 1.0);
  const int lowest = std::clamp(static_cast<int>(std::floor(first)), 0, from_count - 1);
  const int highest = std::clamp(static_cast<int>(std::ceil(first + extent)), lowest + 1, from_count);
  for (int i = 0; i < to; ++i) {
    const double centre = first + (i + 0.5) * scale;
    const auto weight = [&](int k) { return std::max(0.0, 1.0 - std::abs((k + 0.5 - centre) / support)); };
    int begin = std::clamp(static_cast<int>(centre - support + 0.5), lowest, highest - 1);
    int end = std::clamp(static_cast<int>(centre + support + 0.5), begin + 1, highest);
    while (begin + 1 < end && weight(begin) == 0) ++begin;
    while (begin + 1 < end && weight(end - 1) == 0) --end;
    taps.push_back({static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin), weights.size()});
    double sum = 0;
    for (int k = begin; k < end; ++k) sum += weight(k);
    for (int k = begin; k < end; ++k) weights.push_back(static_cast<float>(sum > 0 ? weight(k) / sum : 1.0));
  }
  return true;
}

// Branches on the number of inputs of each column would be mispredicted: it changes all the time.
void Resizer::EvenAxis::prepare(const Axis& axis) {
  const std::size_t lowest = axis.taps.front().first;
  const std::size_t end = axis.taps.back().first + axis.taps.back().count;
  count = 0;
  for (const Axis::Taps& taps : axis.taps) count = std::max(count, taps.count);
  firsts.clear();
  weights.assign(count * axis.taps.size(), 0);
  for (std::size_t i = 0; i < axis.taps.size(); ++i) {
    const Axis::Taps& taps = axis.taps[i];
    const std::size_t first = std::min(taps.first, end - count);
    firsts.push_back(3 * (first - lowest));
    std::copy_n(axis.weights.data() + taps.weights, taps.count, weights.data() + i * count + (taps.first - first));
  }
}

// Rows first: whole lines are summed up with full vectors, and only as many lines as are kept go through the columns.
template <class Out>
void Resizer::run(const std::uint8_t* from, Size from_size, Box box, Out* to, Size to_size, const Strides& strides,
                  const Values& values) {
  rows_.prepare(box.top, box.height, from_size.height, to_size.height);
  if (columns_.prepare(box.left, box.width, from_size.width, to_size.width)) even_columns_.prepare(columns_);
  const auto row_elems = static_cast<std::size_t>(from_size.width) * 3;
  const std::size_t first_elem = columns_.taps.front().first * 3;
  const std::size_t line_elems = (columns_.taps.back().first + columns_.taps.back().count) * 3 - first_elem;
  line_.resize(line_elems + 1);  // the last load takes a fourth lane
  float* line = line_.data();
  const Pixel scale{values.scale[0], values.scale[1], values.scale[2], 0};
  const Pixel offset{values.offset[0], values.offset[1], values.offset[2], 0};
  const bool interleaved = strides == Strides::interleaved(to_size);
  to += strides.first;
  for (const Axis::Taps& row : rows_.taps) {
    const std::uint8_t* pixels = from + row.first * row_elems + first_elem;
    const float* weights = rows_.weights.data() + row.weights;
    weigh_one(pixels, weights[0], line, line_elems);
    std::size_t k = 1;
    for (; k + 1 < row.count; k += 2)
      add_two(pixels + k * row_elems, row_elems, weights[k], weights[k + 1], line, line_elems);
    if (k < row.count) add_one(pixels + k * row_elems, weights[k], line, line_elems);
    const auto write = [&](auto put_pixel) {
      weigh_columns_of(std::make_index_sequence<kMostUnrolled>(), line, even_columns_.firsts.data(),
                       even_columns_.weights.data(), even_columns_.firsts.size(), even_columns_.count, put_pixel);
    };
    if constexpr (std::is_same_v<Out, std::uint8_t>) {
      if (interleaved)
        write(InterleavedBytes{to});
      else
        write(Anywhere<Out>{to, strides.column, strides.channel, scale, offset});
    } else if constexpr (std::is_same_v<Out, float>) {
      if (interleaved)
        write(InterleavedFloats{to, scale, offset});
      else
        write(Anywhere<Out>{to, strides.column, strides.channel, scale, offset});
    } else {
      write(Anywhere<Out>{to, strides.column, strides.channel, scale, offset});
    }
    to += strides.row;
  }
}

template void Resizer::run(const std::uint8_t*, Size, Box, std::uint8_t*, Size, const Strides&, const Values&);
template void Resizer::run(const std::uint8_t*, Size, Box, Float16*, Size, const Strides&, const Values&);
template void Resizer::run(const std::uint8_t*, Size, Box, float*, Size, const Strides&, const Values&);

}  // namespace penstock::dataset
