// JPEG images for the tests, made with libjpeg itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::dataset::test {

struct ImageOptions {
  int width = 64;
  int height = 48;
  int components = 3;  ///< 1 gray, 3 RGB, 4 CMYK
  int quality = 95;
  bool progressive = false;
  bool subsampled = false;  ///< 4:2:0
  int restart_rows = 0;     ///< restart markers after so many rows of blocks
  int refinements = 0;      ///< RGB: a scan for each coefficient and for each refinement of it, 190 + 189 for each
};

/// A smooth image whose first pixel value is a function of `shade`, so that images can be told apart.
std::vector<std::byte> make_jpeg(const ImageOptions& options, int shade = 128);

/// Empty if the library is missing.
std::vector<std::byte> make_png(int width, int height);
std::vector<std::byte> make_webp(int width, int height, bool lossless);

/// The value that every channel of make_jpeg's image has at a place.
int expected_value(const ImageOptions& options, int shade, int x, int y);

}  // namespace penstock::dataset::test
