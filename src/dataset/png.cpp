// PNG images, through libpng.
#include <cstring>
#include <memory>

#include "dataset/decoder.hpp"
#include "dataset/image.hpp"
#include "penstock/error.hpp"

#ifdef PENSTOCK_PNG
#include <csetjmp>
#include <cstdio>
#include <vector>

#include <png.h>
#endif

namespace penstock::dataset {

bool recognises_png(ConstBytes encoded) {
  static constexpr unsigned char kSignature[] = {0x89, 'P', 'N', 'G', 0x0d, 0x0a, 0x1a, 0x0a};
  return encoded.size() >= sizeof kSignature && std::memcmp(encoded.data(), kSignature, sizeof kSignature) == 0;
}

void check_png(const DecodeOptions& options) { check_image(options); }

#ifdef PENSTOCK_PNG

namespace {

/// One image in libpng's hands. libpng is C, so no exception may pass through it: an error jumps to the last setjmp,
/// and functions that call setjmp have no objects with destructors.
struct PngReader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const std::byte* next = nullptr;
  std::size_t left_bytes = 0;
  std::jmp_buf out;
  char text[256] = "";

  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }

  static PngReader& of(png_structp png) { return *static_cast<PngReader*>(png_get_error_ptr(png)); }

  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    PngReader& self = of(png);
    std::snprintf(self.text, sizeof self.text, "%s", message);
    std::longjmp(self.out, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep to, std::size_t count) {
    auto& self = *static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > self.left_bytes) png_error(png, "the file ends too early");
    std::memcpy(to, self.next, count);
    self.next += count;
    self.left_bytes -= count;
  }

  bool read_header(ConstBytes encoded) {
    next = encoded.data();
    left_bytes = encoded.size();
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    info = png == nullptr ? nullptr : png_create_info_struct(png);
    if (info == nullptr) {
      std::snprintf(text, sizeof text, "libpng cannot start");
      return false;
    }
    if (setjmp(out)) return false;
    png_set_read_fn(png, this, on_read);
    // Text and profiles may be compressed a thousandfold, and nothing here needs them.
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
    png_set_chunk_malloc_max(png, png_alloc_size_t{1} << 20);
    png_set_chunk_cache_max(png, 16);
    png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
    png_read_info(png, info);
    return true;
  }

  bool read_pixels(png_bytep pixels, std::size_t row_bytes, png_bytepp rows, png_uint_32 height) {
    if (setjmp(out)) return false;
    png_set_palette_to_rgb(png);
    png_set_expand_gray_1_2_4_to_8(png);
    png_set_gray_to_rgb(png);
    png_set_scale_16(png);
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != row_bytes) png_error(png, "its rows are not RGB");
    for (png_uint_32 y = 0; y < height; ++y) rows[y] = pixels + y * row_bytes;
    png_read_image(png, rows);
    png_read_end(png, nullptr);
    return true;
  }
};

class PngDecoder : public Decoder {
 public:
  void decode(ConstBytes encoded, const DecodeOptions& options, const DecodeContext& context,
              Destination& destination) override {
    PngReader reader;
    const auto require = [&](bool done) {
      if (!done) throw Error(ErrorCode::corrupt, "is not a usable PNG image", -1, reader.text);
    };
    require(reader.read_header(encoded));
    const png_uint_32 height = png_get_image_height(reader.png, reader.info);
    const Resizer::Size stored{static_cast<int>(height),
                               static_cast<int>(png_get_image_width(reader.png, reader.info))};
    const ImagePlan plan = plan_image(stored, 1, options, context);
    const std::size_t row_bytes = 3 * static_cast<std::size_t>(stored.width);
    rows_.resize(height);
    if (plan.target == stored && plan.keeps_all(options)) {
      const Bytes result = destination.place(plan.form(options));
      require(reader.read_pixels(reinterpret_cast<png_bytep>(result.data()), row_bytes, rows_.data(), height));
      return;
    }
    std::uint8_t* pixels = finisher_.scratch(row_bytes * height);
    require(reader.read_pixels(pixels, row_bytes, rows_.data(), height));
    finisher_.run(pixels, stored, plan, options, destination);
  }

 private:
  ImageFinisher finisher_;
  std::vector<png_bytep> rows_;
};

}  // namespace

std::unique_ptr<Decoder> make_png_decoder() { return std::make_unique<PngDecoder>(); }

#else

std::unique_ptr<Decoder> make_png_decoder() {
  throw Error(ErrorCode::unsupported, "is a PNG image, and Penstock was built without libpng");
}

#endif

}  // namespace penstock::dataset
