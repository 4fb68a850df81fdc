// WebP images, through libwebp.
#include <cstring>
#include <memory>

#include "dataset/decoder.hpp"
#include "dataset/image.hpp"
#include "penstock/error.hpp"

#ifdef PENSTOCK_WEBP
#include <webp/decode.h>
#endif

namespace penstock::dataset {

bool recognises_webp(ConstBytes encoded) {
  return encoded.size() >= 12 && std::memcmp(encoded.data(), "RIFF", 4) == 0 &&
         std::memcmp(encoded.data() + 8, "WEBP", 4) == 0;
}

void check_webp(const DecodeOptions& options) { check_image(options); }

#ifdef PENSTOCK_WEBP

namespace {

class WebpDecoder : public Decoder {
 public:
  void decode(ConstBytes encoded, const DecodeOptions& options, const DecodeContext& context,
              Destination& destination) override {
    const auto* data = reinterpret_cast<const std::uint8_t*>(encoded.data());
    WebPBitstreamFeatures features;
    require(WebPGetFeatures(data, encoded.size(), &features));
    if (features.has_animation != 0) throw Error(ErrorCode::corrupt, "is an animation, not one WebP image");
    const Resizer::Size stored{features.height, features.width};
    const ImagePlan plan = plan_image(stored, 1, options, context);
    const int row_bytes = 3 * stored.width;
    const std::size_t size_bytes = static_cast<std::size_t>(row_bytes) * static_cast<std::size_t>(stored.height);
    if (plan.target == stored && plan.keeps_all(options)) {
      const Bytes result = destination.place(plan.form(options));
      read(data, encoded.size(), reinterpret_cast<std::uint8_t*>(result.data()), size_bytes, row_bytes);
      return;
    }
    std::uint8_t* pixels = finisher_.scratch(size_bytes);
    read(data, encoded.size(), pixels, size_bytes, row_bytes);
    finisher_.run(pixels, stored, plan, options, destination);
  }

 private:
  static void require(VP8StatusCode status) {
    if (status == VP8_STATUS_OK) return;
    const char* reason = status == VP8_STATUS_NOT_ENOUGH_DATA       ? "the file ends too early"
                         : status == VP8_STATUS_OUT_OF_MEMORY       ? "it needs more memory than there is"
                         : status == VP8_STATUS_UNSUPPORTED_FEATURE ? "it uses a feature that libwebp does not know"
                                                                    : "its data is damaged";
    throw Error(ErrorCode::corrupt, "is not a usable WebP image", -1, reason);
  }

  static void read(const std::uint8_t* data, std::size_t data_bytes, std::uint8_t* pixels, std::size_t size_bytes,
                   int row_bytes) {
    WebPDecoderConfig config;
    if (WebPInitDecoderConfig(&config) == 0) throw Error(ErrorCode::internal, "libwebp has another version");
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = {pixels, row_bytes, size_bytes};
    require(WebPDecode(data, data_bytes, &config));
  }

  ImageFinisher finisher_;
};

}  // namespace

std::unique_ptr<Decoder> make_webp_decoder() { return std::make_unique<WebpDecoder>(); }

#else

std::unique_ptr<Decoder> make_webp_decoder() {
  throw Error(ErrorCode::unsupported, "is a WebP image, and Penstock was built without libwebp");
}

#endif

}  // namespace penstock::dataset
