// JPEG images, through the libjpeg API as libjpeg-turbo implements it.
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <cmath>

#include "dataset/decoder.hpp"
#include "dataset/image.hpp"
#include "dataset/jpeg_huffman.hpp"
#include "penstock/error.hpp"

// libjpeg declares its Huffman decoder and defines it in a header that few distributions install. Its first two members
// are these in libjpeg 6b and in all versions of libjpeg-turbo.
#if defined(LIBJPEG_TURBO_VERSION_NUMBER)
#define PENSTOCK_JPEG_HUFFMAN
#endif

// Decoding of a part of an image came with libjpeg-turbo 1.5. Mistakes in it were mended until 2.1.
#if defined(LIBJPEG_TURBO_VERSION_NUMBER) && LIBJPEG_TURBO_VERSION_NUMBER >= 2001000
#define PENSTOCK_JPEG_PARTS
#endif

namespace penstock::dataset {

namespace {

using Part = ImageFinisher::Part;

// The coefficients of a progressive image, 2 bytes each, of three components without subsampling.
constexpr std::uint64_t kMaxCoefficientBytesPerPixel = 6;
// A progressive image takes a pass over its coefficients for each scan, and a scan may take only 10 bytes of the file.
// Encoders make at most a few dozen. Larger images may have fewer scans, so that no sample takes more work than the
// largest image with kMaxScansOfLargestImage.
constexpr std::uint64_t kMaxScans = 500;
constexpr std::uint64_t kMaxScansOfLargestImage = 16;

// What libjpeg warns of although the image is whole.
bool harmless(int message) {
  return message == JWRN_ADOBE_XFORM || message == JWRN_JFIF_MAJOR || message == JWRN_EXTRANEOUS_DATA ||
         message == JWRN_NOT_SEQUENTIAL || message == JWRN_BOGUS_ICC;
}

/// libjpeg's state and the way back out of it. libjpeg is C, so no exception may pass through it: an error jumps to
/// the last setjmp, and functions that call setjmp have no objects with destructors.
struct Library {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf out;
  std::uint64_t max_scans;
  JpegHuffman* huffman;
  char text[JMSG_LENGTH_MAX];

  static Library& of(j_common_ptr common) { return *static_cast<Library*>(common->client_data); }

  [[noreturn]] static void on_error(j_common_ptr common) {
    Library& self = of(common);
    if (common->err->msg_code == JERR_NO_BACKING_STORE)
      std::snprintf(self.text, sizeof self.text, "its coefficients need more than %ld MiB",
                    self.info.mem->max_memory_to_use >> 20);
    else
      common->err->format_message(common, self.text);
    std::longjmp(self.out, 1);
  }

  static void on_message(j_common_ptr common, int level) {
    if (level < 0 && !harmless(common->err->msg_code)) on_error(common);
  }

  static void on_output(j_common_ptr) {}

  static void on_progress(j_common_ptr common) {
    Library& self = of(common);
    if (static_cast<std::uint64_t>(self.info.input_scan_number) <= self.max_scans) return;
    std::snprintf(self.text, sizeof self.text, "it has more than %d scans, the limit for its size",
                  static_cast<int>(self.max_scans));
    std::longjmp(self.out, 1);
  }

#ifdef PENSTOCK_JPEG_HUFFMAN
  struct EntropyDecoder {
    void (*start_pass)(j_decompress_ptr);
    boolean (*decode_mcu)(j_decompress_ptr, JBLOCKROW*);
  };

  static boolean decode_mcu(j_decompress_ptr info, JBLOCKROW* blocks) {
    const auto common = reinterpret_cast<j_common_ptr>(info);
    const int warning = of(common).huffman->decode(blocks);
    if (warning != 0) {
      info->err->msg_code = warning;
      on_message(common, -1);
    }
    return TRUE;
  }
#endif

  bool create() {
    info.err = jpeg_std_error(&errors);
    info.client_data = this;
    errors.error_exit = on_error;
    errors.emit_message = on_message;
    errors.output_message = on_output;
    progress.progress_monitor = on_progress;
    if (setjmp(out)) return false;
    jpeg_create_decompress(&info);
    info.progress = &progress;
    return true;
  }

  bool read_header(const unsigned char* data, unsigned long size, bool with_exif) {
    if (setjmp(out)) return false;
    jpeg_save_markers(&info, JPEG_APP0 + 1, with_exif ? 0xffff : 0);
    jpeg_mem_src(&info, data, size);
    jpeg_read_header(&info, TRUE);
    return true;
  }

  bool calculate_output() {
    if (setjmp(out)) return false;
    jpeg_calc_output_dimensions(&info);
    return true;
  }

  /// Decodes a part of the image, whose rows follow one another without gaps. Columns may become more, on the left:
  /// `part` says which they are. What lies below the part is not read if the image is not progressive.
  bool read_pixels(JSAMPLE* pixels, Part& part) {
    if (setjmp(out)) return false;
    jpeg_start_decompress(&info);
#ifdef PENSTOCK_JPEG_HUFFMAN
    if (huffman->begin(info)) reinterpret_cast<EntropyDecoder*>(info.entropy)->decode_mcu = decode_mcu;
#endif
    JDIMENSION left = static_cast<JDIMENSION>(part.left), width = static_cast<JDIMENSION>(part.width);
    const auto top = static_cast<JDIMENSION>(part.top), end = static_cast<JDIMENSION>(part.top + part.height);
#ifdef PENSTOCK_JPEG_PARTS
    if (width < info.output_width) jpeg_crop_scanline(&info, &left, &width);
    if (top > 0) jpeg_skip_scanlines(&info, top);
#endif
    part.left = static_cast<int>(left);
    part.width = static_cast<int>(width);
    const std::size_t row_bytes = static_cast<std::size_t>(width) * static_cast<std::size_t>(info.output_components);
    while (info.output_scanline < end) {
      JSAMPROW rows[8];
      const JDIMENSION rest = end - info.output_scanline;
      const JDIMENSION count = rest < 8 ? rest : 8;
      for (JDIMENSION i = 0; i < count; ++i) rows[i] = pixels + (info.output_scanline - top + i) * row_bytes;
      jpeg_read_scanlines(&info, rows, count);
    }
    if (end == info.output_height)
      jpeg_finish_decompress(&info);
    else
      jpeg_abort_decompress(&info);
    return true;
  }
};

// Adobe writes inverted values, and nobody else writes CMYK.
void cmyk_to_rgb(std::uint8_t* pixels, std::size_t count, bool inverted) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t* from = pixels + 4 * i;
    const int flip = inverted ? 0 : 255;
    const int key = from[3] ^ flip;
    std::uint8_t rgb[3];
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<std::uint8_t>(((from[c] ^ flip) * key + 127) / 255);
    std::memcpy(pixels + 3 * i, rgb, 3);
  }
}

class JpegDecoder : public Decoder {
 public:
  JpegDecoder() {
    library_.huffman = &huffman_;
    if (!library_.create()) throw Error(ErrorCode::internal, "libjpeg cannot start", -1, library_.text);
  }
  ~JpegDecoder() override { jpeg_destroy_decompress(&library_.info); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  void decode(ConstBytes encoded, const DecodeOptions& options, const DecodeContext& context,
              Destination& destination) override {
    try {
      decode_or_throw(encoded, options, context, destination);
    } catch (...) {
      jpeg_abort_decompress(&library_.info);
      throw;
    }
  }

 private:
  void decode_or_throw(ConstBytes encoded, const DecodeOptions& options, const DecodeContext& context,
                       Destination& destination) {
    jpeg_decompress_struct& info = library_.info;
    require(
        library_.read_header(reinterpret_cast<const unsigned char*>(encoded.data()), encoded.size(), options.orient));
    const Resizer::Size stored{static_cast<int>(info.image_height), static_cast<int>(info.image_width)};
    const ImagePlan plan = plan_image(stored, options.orient ? orientation() : 1, options, context);
    limit_work(context);
    huffman_.reserve(encoded.size());
    info.out_color_space = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK ? JCS_CMYK : JCS_RGB;
    choose_scale(plan);
    require(library_.calculate_output());
    const Resizer::Size decoded{static_cast<int>(info.output_height), static_cast<int>(info.output_width)};
    if (decoded == plan.target && info.output_components == 3 && plan.keeps_all(options)) {
      const Bytes result = destination.place(plan.form(options));
      Part whole = Part::of(decoded);
      require(library_.read_pixels(reinterpret_cast<JSAMPLE*>(result.data()), whole));
      return;
    }
    Part part = needed_part(plan, decoded);
    // Of whole rows, since the part may become wider.
    std::uint8_t* pixels =
        finisher_.scratch(static_cast<std::size_t>(info.output_width) *
                          static_cast<std::size_t>(info.output_components) * static_cast<std::size_t>(part.height));
    require(library_.read_pixels(pixels, part));
    if (info.output_components == 4)
      cmyk_to_rgb(pixels, static_cast<std::size_t>(part.width) * static_cast<std::size_t>(part.height),
                  info.saw_Adobe_marker != 0);
    finisher_.run(pixels, decoded, part, plan, options, destination);
  }

  /// What the plan keeps, and so much around it that upsampling of the colours gives the values that it has in the
  /// whole image.
  static Part needed_part(const ImagePlan& plan, Resizer::Size decoded) {
    Part part = Part::of(decoded);
#ifdef PENSTOCK_JPEG_PARTS
    constexpr int kAround = 4;
    const Resizer::Box box = plan.box_in(decoded);
    part.top = std::max(0, static_cast<int>(std::floor(box.top)) - kAround);
    part.left = std::max(0, static_cast<int>(std::floor(box.left)) - kAround);
    part.height = std::min(decoded.height, static_cast<int>(std::ceil(box.top + box.height)) + kAround) - part.top;
    part.width = std::min(decoded.width, static_cast<int>(std::ceil(box.left + box.width)) + kAround) - part.left;
#endif
    return part;
  }

  void limit_work(const DecodeContext& context) {
    jpeg_decompress_struct& info = library_.info;
    // libjpeg needs some memory for any image, and none has more than 65,500 x 65,500 pixels.
    const auto memory_pixels = std::clamp(context.max_pixels, std::uint64_t{1} << 22, std::uint64_t{1} << 32);
    info.mem->max_memory_to_use = static_cast<long>(memory_pixels * kMaxCoefficientBytesPerPixel);
    const std::uint64_t pixels = std::uint64_t{info.image_width} * info.image_height;
    library_.max_scans =
        std::min(kMaxScans, kMaxScansOfLargestImage * std::min(kMaxScans, context.max_pixels / pixels));
  }

  int orientation() const {
    for (const jpeg_marker_struct* marker = library_.info.marker_list; marker != nullptr; marker = marker->next) {
      const int found = exif_orientation({reinterpret_cast<const std::byte*>(marker->data), marker->data_length});
      if (found != 1) return found;
    }
    return 1;
  }

  // 1/8, 1/4 and 1/2 leave out the high frequencies, with vector code for each; the ratios between have none.
  void choose_scale(const ImagePlan& plan) {
    jpeg_decompress_struct& info = library_.info;
    info.scale_num = 1;
    for (unsigned denominator : {8U, 4U, 2U, 1U}) {
      info.scale_denom = denominator;
      if (std::ceil(plan.box.width / denominator) >= plan.target.width &&
          std::ceil(plan.box.height / denominator) >= plan.target.height)
        return;
    }
  }

  void require(bool done) {
    if (!done) throw Error(ErrorCode::corrupt, "is not a usable JPEG image", -1, library_.text);
  }

  Library library_{};
  JpegHuffman huffman_;
  ImageFinisher finisher_;
};

}  // namespace

std::unique_ptr<Decoder> make_jpeg_decoder() { return std::make_unique<JpegDecoder>(); }

bool recognises_jpeg(ConstBytes encoded) {
  return encoded.size() >= 3 && encoded[0] == std::byte{0xff} && encoded[1] == std::byte{0xd8} &&
         encoded[2] == std::byte{0xff};
}

void check_jpeg(const DecodeOptions& options) { check_image(options); }

}  // namespace penstock::dataset
