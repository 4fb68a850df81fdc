#include "unit/dataset/images.hpp"

#include <cstdio>
#include <cstdlib>
#include <random>

#include <jpeglib.h>
#ifdef PENSTOCK_PNG
#include <png.h>
#endif
#ifdef PENSTOCK_WEBP
#include <webp/encode.h>
#endif

namespace penstock::dataset::test {

int expected_value(const ImageOptions& options, int shade, int x, int y) {
  const int slope = (x * 40) / options.width + (y * 40) / options.height;
  return shade / 2 + slope;
}

std::vector<std::byte> make_jpeg(const ImageOptions& options, int shade) {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(options.width);
  info.image_height = static_cast<JDIMENSION>(options.height);
  info.input_components = options.components;
  info.in_color_space = options.components == 1 ? JCS_GRAYSCALE : options.components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, options.quality, TRUE);
  if (options.components == 3 && !options.subsampled)
    info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = 1;
  if (options.progressive) jpeg_simple_progression(&info);
  std::vector<jpeg_scan_info> scans;
  if (options.refinements > 0) {
    scans.push_back({3, {0, 1, 2, 0}, 0, 0, 0, 0});
    for (int component = 0; component < 3; ++component)
      for (int coefficient = 1; coefficient < 64; ++coefficient)
        for (int low = options.refinements; low >= 0; --low)
          scans.push_back(
              {1, {component, 0, 0, 0}, coefficient, coefficient, low == options.refinements ? 0 : low + 1, low});
    info.scan_info = scans.data();
    info.num_scans = static_cast<int>(scans.size());
  }
  info.restart_in_rows = options.restart_rows;
  info.optimize_coding = options.optimized ? TRUE : FALSE;
  std::mt19937 random(7);
  jpeg_start_compress(&info, TRUE);
  std::vector<JSAMPLE> row(static_cast<std::size_t>(options.width) * static_cast<std::size_t>(options.components));
  for (int y = 0; y < options.height; ++y) {
    for (int x = 0; x < options.width; ++x)
      for (int c = 0; c < options.components; ++c)
        row[static_cast<std::size_t>(x * options.components + c)] = static_cast<JSAMPLE>(
            c == 3 ? 255
                   : expected_value(options, shade, x, y) +
                         (options.noise > 0 ? static_cast<int>(random() % static_cast<unsigned>(options.noise)) : 0));
    JSAMPROW rows[1] = {row.data()};
    jpeg_write_scanlines(&info, rows, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* bytes = reinterpret_cast<const std::byte*>(memory);
  std::vector<std::byte> result(bytes, bytes + size);
  std::free(memory);
  return result;
}

std::vector<std::byte> decoded_by_libjpeg(const std::vector<std::byte>& file) {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  const std::size_t row_bytes = std::size_t{info.output_width} * 3;
  std::vector<std::byte> pixels(row_bytes * info.output_height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW rows[1] = {reinterpret_cast<JSAMPLE*>(pixels.data() + info.output_scanline * row_bytes)};
    jpeg_read_scanlines(&info, rows, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return pixels;
}

namespace {

std::vector<std::uint8_t> pixels_of(int width, int height) {
  std::vector<std::uint8_t> pixels;
  for (int i = 0; i < width * height * 3; ++i) pixels.push_back(static_cast<std::uint8_t>(i * i / 97 + i % 11));
  return pixels;
}

}  // namespace

std::vector<std::byte> make_png([[maybe_unused]] int width, [[maybe_unused]] int height) {
  std::vector<std::byte> result;
#ifdef PENSTOCK_PNG
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = PNG_FORMAT_RGB;
  const std::vector<std::uint8_t> pixels = pixels_of(width, height);
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, nullptr);
  result.resize(size);
  png_image_write_to_memory(&image, result.data(), &size, 0, pixels.data(), 0, nullptr);
  result.resize(size);
#endif
  return result;
}

std::vector<std::byte> make_webp([[maybe_unused]] int width, [[maybe_unused]] int height,
                                 [[maybe_unused]] bool lossless) {
  std::vector<std::byte> result;
#ifdef PENSTOCK_WEBP
  const std::vector<std::uint8_t> pixels = pixels_of(width, height);
  std::uint8_t* memory = nullptr;
  const std::size_t size = lossless ? WebPEncodeLosslessRGB(pixels.data(), width, height, 3 * width, &memory)
                                    : WebPEncodeRGB(pixels.data(), width, height, 3 * width, 80, &memory);
  const auto* bytes = reinterpret_cast<const std::byte*>(memory);
  result.assign(bytes, bytes + size);
  WebPFree(memory);
#endif
  return result;
}

}  // namespace penstock::dataset::test
