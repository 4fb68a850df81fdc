#include "dataset/resize.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace penstock::dataset {

namespace {

// One pixel in one register; the fourth lane is never looked at.
typedef float Pixel __attribute__((vector_size(16)));

Pixel load(const float* from) {
  Pixel pixel;
  std::memcpy(&pixel, from, sizeof pixel);
  return pixel;
}

void store(const Pixel& pixel, std::uint8_t* to) {
  for (int c = 0; c < 3; ++c) to[c] = static_cast<std::uint8_t>(std::clamp(pixel[c] + 0.5F, 0.0F, 255.0F));
}

void store(const Pixel& pixel, float* to) {
  for (int c = 0; c < 3; ++c) to[c] = pixel[c] * (1.0F / 255.0F);
}

}  // namespace

void Resizer::Axis::prepare(int from_count, int to_count) {
  if (from == from_count && to == to_count) return;
  from = from_count;
  to = to_count;
  const double scale = static_cast<double>(from) / to;
  const double support = std::max(scale, 1.0);
  taps = std::min(from, static_cast<int>(std::ceil(support)) * 2 + 1);
  first.assign(static_cast<std::size_t>(to), 0);
  weights.assign(static_cast<std::size_t>(to) * static_cast<std::size_t>(taps), 0.0F);
  for (int i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale;
    const int begin = std::max(0, static_cast<int>(centre - support + 0.5));
    const int end = std::min(from, static_cast<int>(centre + support + 0.5));
    // The padding must not reach behind the input.
    const int at = std::min(begin, from - taps);
    float* own = weights.data() + static_cast<std::size_t>(i) * static_cast<std::size_t>(taps);
    double sum = 0;
    for (int k = begin; k < end; ++k) sum += std::max(0.0, 1.0 - std::abs((k + 0.5 - centre) / support));
    for (int k = begin; k < end; ++k)
      own[k - at] = static_cast<float>(std::max(0.0, 1.0 - std::abs((k + 0.5 - centre) / support)) / sum);
    first[static_cast<std::size_t>(i)] = at;
  }
}

// Rows first: whole lines are summed up with full vectors, and only as many lines as are kept go through the columns.
template <class Out>
void Resizer::run_any(const std::uint8_t* from, Size from_size, Out* to, Size to_size) {
  rows_.prepare(from_size.height, to_size.height);
  columns_.prepare(from_size.width, to_size.width);
  const auto line_elems = static_cast<std::size_t>(from_size.width) * 3;
  line_.resize(line_elems + 1);  // the last load takes a fourth lane
  for (int y = 0; y < to_size.height; ++y) {
    const float* row_weights = rows_.weights.data() + static_cast<std::ptrdiff_t>(y) * rows_.taps;
    const std::uint8_t* row = from + static_cast<std::size_t>(rows_.first[static_cast<std::size_t>(y)]) * line_elems;
    float* line = line_.data();
    for (std::size_t i = 0; i < line_elems; ++i) line[i] = row_weights[0] * static_cast<float>(row[i]);
    for (int k = 1; k < rows_.taps; ++k) {
      const float weight = row_weights[k];
      if (weight == 0.0F) continue;
      const std::uint8_t* next = row + static_cast<std::size_t>(k) * line_elems;
      for (std::size_t i = 0; i < line_elems; ++i) line[i] += weight * static_cast<float>(next[i]);
    }
    const float* weights = columns_.weights.data();
    for (int x = 0; x < to_size.width; ++x, weights += columns_.taps, to += 3) {
      const float* pixels = line + static_cast<std::ptrdiff_t>(columns_.first[static_cast<std::size_t>(x)]) * 3;
      Pixel sum = load(pixels) * weights[0];
      for (int k = 1; k < columns_.taps; ++k) sum += load(pixels + static_cast<std::ptrdiff_t>(k) * 3) * weights[k];
      store(sum, to);
    }
  }
}

void Resizer::run(const std::uint8_t* from, Size from_size, std::uint8_t* to, Size to_size) {
  run_any(from, from_size, to, to_size);
}

void Resizer::run(const std::uint8_t* from, Size from_size, float* to, Size to_size) {
  run_any(from, from_size, to, to_size);
}

}  // namespace penstock::dataset
