// Scaling of RGB images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::dataset {

/// Separable scaling with a triangle filter: bilinear where the image grows, averaging over the covered area, with a
/// soft edge, where it shrinks (what Pillow calls BILINEAR). Keeps its tables and scratch memory; one thread at a time.
class Resizer {
 public:
  struct Size {
    int height = 0;
    int width = 0;
    bool operator==(const Size&) const = default;
  };

  /// RGB, interleaved, rows without gaps. uint8 results are rounded, float32 ones lie in [0, 1].
  void run(const std::uint8_t* from, Size from_size, std::uint8_t* to, Size to_size);
  void run(const std::uint8_t* from, Size from_size, float* to, Size to_size);

 private:
  /// For every output place: which inputs, and how much of each.
  struct Axis {
    struct Taps {
      std::size_t first;  ///< input
      std::size_t count;
      std::size_t weights;  ///< place of the first weight
    };
    int from = 0;
    int to = 0;
    std::vector<Taps> taps;
    std::vector<float> weights;
    void prepare(int from_count, int to_count);
  };

  template <class Out>
  void run_any(const std::uint8_t* from, Size from_size, Out* to, Size to_size);

  Axis rows_;
  Axis columns_;
  std::vector<float> line_;
};

}  // namespace penstock::dataset
