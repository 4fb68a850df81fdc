// JPEG images for the tests, made with libjpeg.
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
  int restart_rows = 0;     ///< rows of blocks between restart markers
  int refinements = 0;      ///< RGB: one scan for each coefficient and refinement: 190 + 189 * refinements
  int noise = 0;            ///< amplitude: values differ from expected_value() by less
  bool optimized = false;   ///< Huffman tables of the image's own
};

/// A smooth image. `shade` determines its first pixel value, so tests can distinguish images.
std::vector<std::byte> make_jpeg(const ImageOptions& options, int shade = 128);

/// Gray or RGB, as libjpeg decodes it.
std::vector<std::byte> decoded_by_libjpeg(const std::vector<std::byte>& file);

/// A PNG image; empty if libpng is missing.
std::vector<std::byte> make_png(int width, int height);
std::vector<std::byte> make_webp(int width, int height, bool lossless);

/// The value of every channel of make_jpeg's image at a pixel.
int expected_value(const ImageOptions& options, int shade, int x, int y);

}  // namespace penstock::dataset::test
