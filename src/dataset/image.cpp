#include "dataset/image.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/hash.hpp"
#include "penstock/error.hpp"

namespace penstock::dataset {

namespace {

constexpr int kMaxSide = 65500;

[[noreturn]] void refuse_options(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

/// Numbers for one sample in one epoch: the same wherever and whenever it is decoded.
class Draws {
 public:
  Draws(std::uint64_t seed, const DecodeContext& context)
      : key_(base::mix(base::mix(base::mix(base::mix(base::kSeed, seed), context.epoch), context.index),
                       context.position)) {}
  /// In [low, high).
  double uniform(double low, double high) {
    // Twice, because the last word that is mixed in has not reached all bits after one.
    ++drawn_;
    const std::uint64_t bits = base::mix(base::mix(key_, drawn_), drawn_);
    return low + (high - low) * static_cast<double>(bits >> 11) * 0x1.0p-53;
  }

 private:
  std::uint64_t key_;
  std::uint64_t drawn_ = 0;
};

/// As torchvision's RandomResizedCrop: ten attempts at a random area and aspect ratio, then the largest central box.
Resizer::Box random_box(Resizer::Size size, const RandomCrop& crop, Draws& draws) {
  const double height = size.height, width = size.width;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = height * width * draws.uniform(crop.min_area, crop.max_area);
    const double aspect = std::exp(draws.uniform(std::log(crop.min_aspect), std::log(crop.max_aspect)));
    const double w = std::round(std::sqrt(area * aspect)), h = std::round(std::sqrt(area / aspect));
    if (w < 1 || w > width || h < 1 || h > height) continue;
    const double top = std::floor(draws.uniform(0, height - h + 1)), left = std::floor(draws.uniform(0, width - w + 1));
    return {top, left, h, w};
  }
  double h = height, w = width;
  if (width / height < crop.min_aspect)
    h = std::max(1.0, std::round(width / crop.min_aspect));
  else if (width / height > crop.max_aspect)
    w = std::max(1.0, std::round(height * crop.max_aspect));
  return {std::floor((height - h) / 2), std::floor((width - w) / 2), h, w};
}

Resizer::Box central_box(Resizer::Size size, double fraction, Resizer::Size target) {
  const double aspect = static_cast<double>(target.width) / target.height;
  const double h = fraction * std::min<double>(size.height, size.width / aspect), w = h * aspect;
  return {(size.height - h) / 2, (size.width - w) / 2, h, w};
}

Resizer::Size asked_size(const DecodeOptions& options) {
  const std::size_t first = options.layout == ImageLayout::chw ? 1 : 0;
  return {static_cast<int>(options.shape[first]), static_cast<int>(options.shape[first + 1])};
}

bool is_normalised(const DecodeOptions& options) {
  return options.mean != std::array<float, 3>{0, 0, 0} || options.deviation != std::array<float, 3>{1, 1, 1};
}

}  // namespace

SampleForm ImagePlan::form(const DecodeOptions& options) const {
  const auto height = static_cast<std::uint64_t>(transpose ? target.width : target.height);
  const auto width = static_cast<std::uint64_t>(transpose ? target.height : target.width);
  if (options.layout == ImageLayout::chw) return {options.dtype, {3, height, width}};
  return {options.dtype, {height, width, 3}};
}

Resizer::Box ImagePlan::box_in(Resizer::Size decoded) const {
  const double rows = static_cast<double>(decoded.height) / stored.height;
  const double columns = static_cast<double>(decoded.width) / stored.width;
  return {box.top * rows, box.left * columns, box.height * rows, box.width * columns};
}

bool ImagePlan::keeps_all(const DecodeOptions& options) const {
  return !mirror_rows && !mirror_columns && !transpose && options.dtype == DType::uint8 &&
         options.layout == ImageLayout::hwc && box == Resizer::Box::of(stored);
}

ImagePlan plan_image(Resizer::Size stored, int orientation, const DecodeOptions& options,
                     const DecodeContext& context) {
  const std::string size = std::to_string(stored.width) + " x " + std::to_string(stored.height) + " pixels";
  if (stored.height < 1 || stored.width < 1) throw Error(ErrorCode::corrupt, "is an image of " + size);
  if (static_cast<std::uint64_t>(stored.height) * static_cast<std::uint64_t>(stored.width) > context.max_pixels)
    throw Error(ErrorCode::corrupt, "has " + size + ", more than the limit of " + std::to_string(context.max_pixels) +
                                        " pixels per sample");
  ImagePlan plan{.stored = stored, .box = {}, .target = stored};
  plan.transpose = orientation >= 5;
  plan.mirror_rows = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  plan.mirror_columns = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const Resizer::Size shown = plan.transpose ? Resizer::Size{stored.width, stored.height} : stored;
  Resizer::Size target = options.shape.empty() ? shown : asked_size(options);

  Draws draws(options.seed, context);
  Resizer::Box box = Resizer::Box::of(shown);
  if (options.random_crop)
    box = random_box(shown, *options.random_crop, draws);
  else if (options.central_crop > 0)
    box = central_box(shown, options.central_crop, target);
  // Converts the box to the stored image. The flip comes last, since it changes the mirroring that this reads.
  if (plan.transpose) {
    std::swap(box.top, box.left);
    std::swap(box.height, box.width);
    std::swap(target.height, target.width);
  }
  if (plan.mirror_rows) box.top = stored.height - box.top - box.height;
  if (plan.mirror_columns) box.left = stored.width - box.left - box.width;
  if (options.flip > 0 && draws.uniform(0, 1) < options.flip)
    (plan.transpose ? plan.mirror_rows : plan.mirror_columns) ^= true;
  plan.box = box;
  plan.target = target;
  return plan;
}

void check_image(const DecodeOptions& options) {
  const auto& shape = options.shape;
  const std::size_t channel = options.layout == ImageLayout::chw ? 0 : 2, first = channel == 0 ? 1 : 0;
  const auto side = [&](std::size_t i) { return shape[i] >= 1 && shape[i] <= kMaxSide; };
  if (!shape.empty() && !(shape.size() == 3 && shape[channel] == 3 && side(first) && side(first + 1)))
    refuse_options("images cannot have the form " + SampleForm{options.dtype, shape}.describe() + "; expected " +
                   (channel == 0 ? "(3, height, width)" : "(height, width, 3)") +
                   " with sides of 1 to 65500, or nothing");
  if (options.dtype != DType::uint8 && options.dtype != DType::float32 && options.dtype != DType::float16)
    refuse_options("images cannot be decoded to " + std::string(name(options.dtype)) +
                   "; expected uint8, float16 or float32");
  if (options.dtype == DType::uint8 && is_normalised(options))
    refuse_options("images cannot be normalised as uint8; decode them to float16 or float32");
  for (const float deviation : options.deviation)
    if (!(deviation > 0))
      refuse_options("images cannot be divided by a deviation of " + std::to_string(deviation) +
                     "; expected more than 0");
  if (!(options.flip >= 0 && options.flip <= 1))
    refuse_options("images cannot be flipped with a probability of " + std::to_string(options.flip) +
                   "; expected 0 to 1");
  if (!(options.central_crop >= 0 && options.central_crop <= 1))
    refuse_options("a central crop cannot take a fraction of " + std::to_string(options.central_crop) +
                   "; expected 0 to 1");
  if (!options.random_crop && options.central_crop == 0) return;
  if (shape.empty()) refuse_options("images that are cropped need a size; give the shape of the result");
  if (!options.random_crop) return;
  if (options.central_crop > 0) refuse_options("a random crop and a central crop were both given; give one of them");
  const RandomCrop& crop = *options.random_crop;
  if (!(crop.min_area > 0 && crop.min_area <= crop.max_area && crop.max_area <= 1))
    refuse_options("a random crop cannot take " + std::to_string(crop.min_area) + " to " +
                   std::to_string(crop.max_area) + " of the area; expected 0 < min <= max <= 1");
  if (!(crop.min_aspect > 0 && crop.min_aspect <= crop.max_aspect && std::isfinite(crop.max_aspect)))
    refuse_options("a random crop cannot have aspect ratios of " + std::to_string(crop.min_aspect) + " to " +
                   std::to_string(crop.max_aspect) + "; expected 0 < min <= max");
}

int exif_orientation(ConstBytes exif) {
  constexpr int kNone = 1;
  constexpr std::size_t kTiff = 6;
  if (exif.size() < kTiff + 8 || std::memcmp(exif.data(), "Exif\0\0", kTiff) != 0) return kNone;
  const ConstBytes tiff = exif.subspan(kTiff);
  const auto byte = [&](std::size_t at) { return std::to_integer<std::uint32_t>(tiff[at]); };
  const bool little = byte(0) == 'I' && byte(1) == 'I';
  if (!little && !(byte(0) == 'M' && byte(1) == 'M')) return kNone;
  const auto number = [&](std::size_t at, std::size_t count) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < count; ++i) value = value << 8 | byte(little ? at + count - 1 - i : at + i);
    return value;
  };
  const std::size_t directory = number(4, 4);
  if (directory > tiff.size() - 2) return kNone;
  const std::size_t entries = number(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + 12 * i;
    if (entry + 12 > tiff.size()) return kNone;
    if (number(entry, 2) != 0x0112) continue;
    const std::uint32_t orientation = number(entry + 8, 2);
    return orientation >= 1 && orientation <= 8 ? static_cast<int>(orientation) : kNone;
  }
  return kNone;
}

std::uint8_t* ImageFinisher::scratch(std::size_t size_bytes) {
  constexpr std::size_t kKeptBytes = std::size_t{16} << 20;
  if (scratch_.size() < size_bytes || (scratch_.size() > kKeptBytes && size_bytes <= kKeptBytes)) {
    scratch_ = {};
    scratch_.resize(size_bytes);
  }
  return scratch_.data();
}

void ImageFinisher::run(const std::uint8_t* pixels, Resizer::Size decoded, const Part& part, const ImagePlan& plan,
                        const DecodeOptions& options, Destination& destination) {
  const Bytes result = destination.place(plan.form(options));
  const Resizer::Size size{part.height, part.width};
  Resizer::Box box = plan.box_in(decoded);
  box.top -= part.top;
  box.left -= part.left;

  const std::ptrdiff_t height = plan.transpose ? plan.target.width : plan.target.height;
  const std::ptrdiff_t width = plan.transpose ? plan.target.height : plan.target.width;
  const bool planes = options.layout == ImageLayout::chw;
  Resizer::Strides strides{planes ? width : 3 * width, planes ? 1 : 3, planes ? height * width : 1, 0};
  if (plan.transpose) std::swap(strides.row, strides.column);
  if (plan.mirror_rows) {
    strides.first += (plan.target.height - 1) * strides.row;
    strides.row = -strides.row;
  }
  if (plan.mirror_columns) {
    strides.first += (plan.target.width - 1) * strides.column;
    strides.column = -strides.column;
  }
  Resizer::Values values;
  for (std::size_t c = 0; c < 3; ++c) {
    if (options.dtype == DType::uint8) continue;
    values.scale[c] = 1.0F / (255.0F * options.deviation[c]);
    values.offset[c] = -options.mean[c] / options.deviation[c];
  }
  switch (options.dtype) {
    case DType::uint8:
      return resizer_.run(pixels, size, box, reinterpret_cast<std::uint8_t*>(result.data()), plan.target, strides,
                          values);
    case DType::float16:
      return resizer_.run(pixels, size, box, reinterpret_cast<Float16*>(result.data()), plan.target, strides, values);
    default:
      return resizer_.run(pixels, size, box, reinterpret_cast<float*>(result.data()), plan.target, strides, values);
  }
}

}  // namespace penstock::dataset
