#include "dataset/resize.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#define PENSTOCK_RESIZE_AVX2
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

constexpr int kWeightBits = 14;
constexpr int kLineBits = 7;
constexpr int kSumBits = kWeightBits + kLineBits;

/// Rounds the sums, so that weights add up to 1.
void add_integer_weights(const float* weights, std::size_t count, std::vector<std::int16_t>& to) {
  double sum = 0;
  long before = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += weights[i];
    const long now = i + 1 == count ? 1L << kWeightBits : std::lround(sum * (1 << kWeightBits));
    to.push_back(static_cast<std::int16_t>(now - before));
    before = now;
  }
}

struct Rows {
  const std::uint8_t* first;
  std::size_t row_elems;
  const std::int16_t* weights;
  std::size_t count;
};

void sum_rows_from(std::size_t begin, const Rows& rows, std::int16_t* line, std::size_t elems) {
  for (std::size_t i = begin; i < elems; ++i) {
    std::int32_t sum = 1 << (kWeightBits - kLineBits - 1);
    for (std::size_t k = 0; k < rows.count; ++k) sum += rows.weights[k] * rows.first[k * rows.row_elems + i];
    line[i] = static_cast<std::int16_t>(sum >> (kWeightBits - kLineBits));
  }
}

/// Four sums for each of `count` pixels; the fourth has no meaning.
void sum_columns_of_all(const std::int16_t* line, const std::size_t* firsts, const std::int32_t* weights,
                        std::size_t count, std::size_t pairs, std::int32_t* sums) {
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t c = 0; c < 3; ++c) {
      std::int32_t sum = 0;
      for (std::size_t j = 0; j < pairs; ++j) {
        const std::int32_t both = weights[(i / 2 * pairs + j) * 8 + i % 2 * 4];
        const std::int16_t* input = line + firsts[i] + 6 * j + c;
        sum += input[0] * static_cast<std::int16_t>(both & 0xffff) + input[3] * (both >> 16);
      }
      sums[4 * i + c] = sum;
    }
}

std::uint8_t rounded_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>((sum + (1 << (kSumBits - 1))) >> kSumBits);
}

void put_bytes_from(std::size_t begin, const std::int32_t* sums, std::size_t count, std::uint8_t* to) {
  for (std::size_t i = begin; i < count; ++i)
    for (std::size_t c = 0; c < 3; ++c) to[3 * i + c] = rounded_byte(sums[4 * i + c]);
}

void put_bytes_anywhere(const std::int32_t* sums, std::size_t count, std::uint8_t* to,
                        const Resizer::Strides& strides) {
  for (std::size_t i = 0; i < count; ++i, to += strides.column)
    for (std::ptrdiff_t c = 0; c < 3; ++c)
      to[c * strides.channel] = rounded_byte(sums[4 * i + static_cast<std::size_t>(c)]);
}

#ifdef PENSTOCK_RESIZE_AVX2
#define PENSTOCK_AVX2 __attribute__((target("avx2")))

/// `Pairs` of rows, so that the compiler unrolls them.
template <std::size_t Pairs>
PENSTOCK_AVX2 std::size_t sum_row_pairs_avx2(const Rows& rows, std::int16_t* line, std::size_t elems) {
  __m256i weights[Pairs];
  std::size_t places[2 * Pairs];
  for (std::size_t j = 0; j < Pairs; ++j) {
    const bool last = 2 * j + 1 == rows.count;
    const auto pair = static_cast<std::uint32_t>(static_cast<std::uint16_t>(rows.weights[2 * j])) |
                      static_cast<std::uint32_t>(last ? 0 : rows.weights[2 * j + 1]) << 16;
    weights[j] = _mm256_set1_epi32(static_cast<int>(pair));
    places[2 * j] = 2 * j * rows.row_elems;
    places[2 * j + 1] = (last ? 2 * j : 2 * j + 1) * rows.row_elems;
  }
  const __m256i half = _mm256_set1_epi32(1 << (kWeightBits - kLineBits - 1));
  const auto load = [&](std::size_t at) PENSTOCK_AVX2 {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rows.first + at)));
  };
  std::size_t i = 0;
  for (; i + 16 <= elems; i += 16) {
    __m256i low = half, high = half;
    for (std::size_t j = 0; j < Pairs; ++j) {
      const __m256i a = load(places[2 * j] + i), b = load(places[2 * j + 1] + i);
      low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), weights[j]));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), weights[j]));
    }
    const __m256i words = _mm256_packs_epi32(_mm256_srai_epi32(low, kWeightBits - kLineBits),
                                             _mm256_srai_epi32(high, kWeightBits - kLineBits));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(line + i), words);
  }
  return i;
}

/// Two pixels at a time, one in each half of a register; the line goes on for 8 elements.
template <std::size_t Pairs>
PENSTOCK_AVX2 void sum_column_pairs_avx2(const std::int16_t* line, const std::size_t* firsts,
                                         const std::int32_t* weights, std::size_t count, std::int32_t* sums) {
  // Of two inputs: both reds, both greens, both blues.
  const __m256i order = _mm256_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1, 0, 1, 6, 7, 2, 3, 8, 9,
                                         4, 5, 10, 11, -1, -1, -1, -1);
  for (std::size_t i = 0; i < count; i += 2) {
    const std::int16_t* first = line + firsts[i];
    const std::int16_t* second = i + 1 < count ? line + firsts[i + 1] : first;
    __m256i sum = _mm256_setzero_si256();
    for (std::size_t j = 0; j < Pairs; ++j) {
      const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first + 6 * j));
      const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(second + 6 * j));
      const __m256i inputs = _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1), order);
      const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + 8 * j));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(inputs, both));
    }
    weights += 8 * Pairs;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + 4 * i), sum);
  }
}

template <std::size_t... Less>
std::size_t sum_rows_avx2(std::index_sequence<Less...>, const Rows& rows, std::int16_t* line, std::size_t elems) {
  std::size_t done = 0;
  ((2 * Less + 2 == rows.count + rows.count % 2 ? void(done = sum_row_pairs_avx2<Less + 1>(rows, line, elems))
                                                : void()),
   ...);
  return done;
}

template <std::size_t... Less>
void sum_columns_avx2(std::index_sequence<Less...>, const std::int16_t* line, const std::size_t* firsts,
                      const std::int32_t* weights, std::size_t count, std::size_t pairs, std::int32_t* sums) {
  ((Less + 1 == pairs ? sum_column_pairs_avx2<Less + 1>(line, firsts, weights, count, sums) : void()), ...);
}

PENSTOCK_AVX2 std::size_t put_bytes_avx2(const std::int32_t* sums, std::size_t count, std::uint8_t* to) {
  const __m256i half = _mm256_set1_epi32(1 << (kSumBits - 1));
  const __m256i pixels_in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i without_fourth = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1, 0, 1, 2, 4, 5,
                                                  6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  const auto load = [&](std::size_t at) PENSTOCK_AVX2 {
    const __m256i two = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums + 4 * at));
    return _mm256_srai_epi32(_mm256_add_epi32(two, half), kSumBits);
  };
  std::size_t i = 0;
  // Each store writes 4 bytes too many, which the next one overwrites.
  for (; i + 10 <= count; i += 8) {
    const __m256i words = _mm256_packs_epi32(load(i), load(i + 2));
    const __m256i more_words = _mm256_packs_epi32(load(i + 4), load(i + 6));
    const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words, more_words), pixels_in_order);
    const __m256i packed = _mm256_shuffle_epi8(bytes, without_fourth);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 3 * i), _mm256_castsi256_si128(packed));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 3 * i + 12), _mm256_extracti128_si256(packed, 1));
  }
  return i;
}
#endif

bool has_vector_code() {
#ifdef PENSTOCK_RESIZE_AVX2
  static const bool found = __builtin_cpu_supports("avx2") != 0;
  return found;
#else
  return false;
#endif
}

void sum_rows([[maybe_unused]] bool vector, const Rows& rows, std::int16_t* line, std::size_t elems) {
  std::size_t done = 0;
#ifdef PENSTOCK_RESIZE_AVX2
  if (vector) done = sum_rows_avx2(std::make_index_sequence<Resizer::kMostIntegerTaps / 2>(), rows, line, elems);
#endif
  sum_rows_from(done, rows, line, elems);
}

void sum_columns([[maybe_unused]] bool vector, const std::int16_t* line, const std::size_t* firsts,
                 const std::int32_t* weights, std::size_t count, std::size_t pairs, std::int32_t* sums) {
#ifdef PENSTOCK_RESIZE_AVX2
  if (vector)
    return sum_columns_avx2(std::make_index_sequence<Resizer::kMostIntegerTaps / 2>(), line, firsts, weights, count,
                            pairs, sums);
#endif
  sum_columns_of_all(line, firsts, weights, count, pairs, sums);
}

void put_bytes([[maybe_unused]] bool vector, const std::int32_t* sums, std::size_t count, std::uint8_t* to) {
  std::size_t done = 0;
#ifdef PENSTOCK_RESIZE_AVX2
  if (vector) done = put_bytes_avx2(sums, count, to);
#endif
  put_bytes_from(done, sums, count, to);
}

constexpr std::size_t kMostUnrolled = 8;

template <class Put, std::size_t... Counts>
void weigh_columns_of(std::index_sequence<Counts...>, const float* line, const std::size_t* firsts,
                      const float* weights, std::size_t to_count, std::size_t count, Put put_pixel) {
  if (count > kMostUnrolled) return weigh_columns<0>(line, firsts, weights, to_count, count, put_pixel);
  ((count == Counts + 1 ? weigh_columns<Counts + 1>(line, firsts, weights, to_count, count, put_pixel) : void()), ...);
}

/// Calls `write` with what puts one pixel after another into a row.
template <class Out, class Write>
void put_pixels(Out* to, const Resizer::Strides& strides, bool interleaved, const Resizer::Values& values,
                Write write) {
  const Pixel scale{values.scale[0], values.scale[1], values.scale[2], 0};
  const Pixel offset{values.offset[0], values.offset[1], values.offset[2], 0};
  if constexpr (std::is_same_v<Out, std::uint8_t>) {
    if (interleaved) return write(InterleavedBytes{to});
  } else if constexpr (std::is_same_v<Out, float>) {
    if (interleaved) return write(InterleavedFloats{to, scale, offset});
  }
  write(Anywhere<Out>{to, strides.column, strides.channel, scale, offset});
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
  most_taps = 0;
  for (const Taps& one : taps) most_taps = std::max(most_taps, one.count);
  integer_weights.clear();
  if (most_taps > kMostIntegerTaps) return true;
  for (const Taps& one : taps) add_integer_weights(weights.data() + one.weights, one.count, integer_weights);
  return true;
}

// Branches on the number of inputs of each column would be mispredicted: it changes all the time.
void Resizer::EvenAxis::prepare(const Axis& axis) {
  const std::size_t lowest = axis.taps.front().first;
  const std::size_t end = axis.taps.back().first + axis.taps.back().count;
  count = axis.most_taps;
  firsts.clear();
  weights.assign(count * axis.taps.size(), 0);
  const std::size_t pairs = (count + 1) / 2;
  integer_pairs.assign(axis.integer_weights.empty() ? 0 : (axis.taps.size() + 1) / 2 * pairs * 8, 0);
  for (std::size_t i = 0; i < axis.taps.size(); ++i) {
    const Axis::Taps& taps = axis.taps[i];
    const std::size_t first = std::min(taps.first, end - count);
    firsts.push_back(3 * (first - lowest));
    std::copy_n(axis.weights.data() + taps.weights, taps.count, weights.data() + i * count + (taps.first - first));
    if (integer_pairs.empty()) continue;
    for (std::size_t j = 0; j < taps.count; ++j) {
      const std::size_t at = taps.first - first + j;
      const auto weight = static_cast<std::uint16_t>(axis.integer_weights[taps.weights + j]);
      std::int32_t* pair = integer_pairs.data() + (i / 2 * pairs + at / 2) * 8 + i % 2 * 4;
      for (std::size_t lane = 0; lane < 4; ++lane) pair[lane] |= static_cast<std::int32_t>(weight) << (at % 2 * 16);
    }
  }
}

// Rows first: whole lines are summed up with full vectors, and only as many lines as are kept go through the columns.
template <class Out>
void Resizer::run(const std::uint8_t* from, Size from_size, Box box, Out* to, Size to_size, const Strides& strides,
                  const Values& values) {
  rows_.prepare(box.top, box.height, from_size.height, to_size.height);
  if (columns_.prepare(box.left, box.width, from_size.width, to_size.width)) even_columns_.prepare(columns_);
  const auto row_elems = static_cast<std::size_t>(from_size.width) * 3;
  if (!rows_.integer_weights.empty() && !columns_.integer_weights.empty())
    return run_integer(from, row_elems, to, to_size, strides, values);
  const std::size_t first_elem = columns_.taps.front().first * 3;
  const std::size_t line_elems = (columns_.taps.back().first + columns_.taps.back().count) * 3 - first_elem;
  line_.resize(line_elems + 1);  // the last load takes a fourth lane
  float* line = line_.data();
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
    put_pixels(to, strides, interleaved, values, write);
    to += strides.row;
  }
}

template <class Out>
void Resizer::run_integer(const std::uint8_t* from, std::size_t row_elems, Out* to, Size to_size,
                          const Strides& strides, const Values& values) {
  const std::size_t first_elem = columns_.taps.front().first * 3;
  const std::size_t line_elems = (columns_.taps.back().first + columns_.taps.back().count) * 3 - first_elem;
  const std::size_t width = even_columns_.firsts.size();
  constexpr std::size_t kReadBeyond = 8;
  if (integer_line_.size() < line_elems + kReadBeyond) integer_line_.resize(line_elems + kReadBeyond);
  sums_.resize((width + 1) / 2 * 8);
  const bool vector = !portable_ && has_vector_code();
  const bool interleaved = strides == Strides::interleaved(to_size);
  to += strides.first;
  for (const Axis::Taps& row : rows_.taps) {
    sum_rows(
        vector,
        {from + row.first * row_elems + first_elem, row_elems, rows_.integer_weights.data() + row.weights, row.count},
        integer_line_.data(), line_elems);
    sum_columns(vector, integer_line_.data(), even_columns_.firsts.data(), even_columns_.integer_pairs.data(), width,
                (even_columns_.count + 1) / 2, sums_.data());
    if constexpr (std::is_same_v<Out, std::uint8_t>) {
      if (interleaved)
        put_bytes(vector, sums_.data(), width, to);
      else
        put_bytes_anywhere(sums_.data(), width, to, strides);
    } else {
      put_pixels(to, strides, interleaved, values, [&](auto put_pixel) {
        for (std::size_t i = 0; i < width; ++i) {
          IntegerPixel sum;
          std::memcpy(&sum, sums_.data() + 4 * i, sizeof sum);
          const Pixel pixel = __builtin_convertvector(sum, Pixel) * (1.0F / (1 << kSumBits));
          i + 1 < width ? put_pixel(pixel) : put_pixel.last(pixel);
        }
      });
    }
    to += strides.row;
  }
}

template void Resizer::run(const std::uint8_t*, Size, Box, std::uint8_t*, Size, const Strides&, const Values&);
template void Resizer::run(const std::uint8_t*, Size, Box, Float16*, Size, const Strides&, const Values&);
template void Resizer::run(const std::uint8_t*, Size, Box, float*, Size, const Strides&, const Values&);

}  // namespace penstock::dataset
