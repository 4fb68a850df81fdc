// Scaling of RGB images.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::dataset {

/// Separable scaling with a triangle filter: bilinear if the image grows; if it shrinks, an average over the covered
/// area with a soft edge (what Pillow calls BILINEAR). In integers, so that all processors give the same values:
/// weights have 14 bits, lines 7 behind the point. Filters of more than kMostIntegerTaps inputs use floats. Keeps its
/// tables and scratch memory; one thread at a time.
class Resizer {
 public:
  struct Size {
    int height = 0;
    int width = 0;
    bool operator==(const Size&) const = default;
  };
  /// A part of an image, in pixels. What lies outside has no influence on the result.
  struct Box {
    double top = 0;
    double left = 0;
    double height = 0;
    double width = 0;
    static Box of(Size size) { return {0, 0, static_cast<double>(size.height), static_cast<double>(size.width)}; }
    bool operator==(const Box&) const = default;
  };
  /// Where the values are written, in elements: rows and columns may be exchanged and mirrored, channels interleaved or
  /// apart.
  struct Strides {
    std::ptrdiff_t row = 0;
    std::ptrdiff_t column = 0;
    std::ptrdiff_t channel = 0;
    std::ptrdiff_t first = 0;  ///< place of the first value
    static Strides interleaved(Size size) { return {3 * static_cast<std::ptrdiff_t>(size.width), 3, 1, 0}; }
    bool operator==(const Strides&) const = default;
  };
  /// The transformation of a value from 0 to 255, by channel: scale * value + offset.
  struct Values {
    std::array<float, 3> scale{1, 1, 1};
    std::array<float, 3> offset{0, 0, 0};
    bool operator==(const Values&) const = default;
  };

  static constexpr std::size_t kMostIntegerTaps = 16;

  /// `portable`: without code for particular processors, which gives the same values.
  explicit Resizer(bool portable = false) : portable_(portable) {}

  /// RGB, interleaved, rows without gaps. uint8 results are rounded and take no `values`.
  template <class Out>
  void run(const std::uint8_t* from, Size from_size, Box box, Out* to, Size to_size, const Strides& strides,
           const Values& values);

 private:
  /// For every output place: which inputs, and how much of each.
  struct Axis {
    struct Taps {
      std::size_t first;  ///< input
      std::size_t count;
      std::size_t weights;  ///< place of the first weight
    };
    double first = 0;
    double extent = 0;
    int to = 0;
    int from = 0;
    std::vector<Taps> taps;
    std::vector<float> weights;
    std::vector<std::int16_t> integer_weights;
    std::size_t most_taps = 0;
    /// Of [new_first, new_first + new_extent) among `from_count` inputs. False if it is what was prepared last.
    bool prepare(double new_first, double new_extent, int from_count, int to_count);
  };
  /// The same number of inputs for every output place. Some have the weight 0.
  struct EvenAxis {
    std::size_t count = 0;
    std::vector<std::size_t> firsts;  ///< elements of a line that begins with the lowest input
    std::vector<float> weights;
    /// Weights of two inputs in each number, four times, as vector code takes them: of outputs 0 and 1 for the inputs 0
    /// and 1, of the same outputs for the inputs 2 and 3, and so on.
    std::vector<std::int32_t> integer_pairs;
    void prepare(const Axis& axis);
  };

  template <class Out>
  void run_integer(const std::uint8_t* from, std::size_t row_elems, Out* to, Size to_size, const Strides& strides,
                   const Values& values);

  bool portable_;
  Axis rows_;
  Axis columns_;
  EvenAxis even_columns_;
  std::vector<float> line_;
  std::vector<std::int16_t> integer_line_;
  std::vector<std::int32_t> sums_;  ///< of a row: four for each pixel
};

}  // namespace penstock::dataset
