#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <span>

#include "dataset/decoder.hpp"
#include "dataset/image.hpp"
#include "dataset/resize.hpp"
#include "penstock/error.hpp"
#include "unit/dataset/images.hpp"

namespace penstock::dataset {
namespace {

using test::expected_value;
using test::ImageOptions;
using test::make_jpeg;

std::vector<std::byte> decode(const std::vector<std::byte>& file, const DecodeOptions& options,
                              SampleForm* form = nullptr) {
  DecoderSet decoders;
  std::vector<std::byte> result;
  Destination destination(result);
  decoders.decode(file, options, {}, destination);
  if (form != nullptr) *form = destination.form();
  return result;
}

std::string refusal(const std::vector<std::byte>& file, const DecodeOptions& options = {}) {
  try {
    decode(file, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    return error.what();
  }
  return "";
}

void expect_image(const ImageOptions& image, const std::vector<std::byte>& pixels, int height, int width) {
  ASSERT_EQ(pixels.size(), static_cast<std::size_t>(height) * static_cast<std::size_t>(width) * 3);
  double error = 0;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c) {
        const int expected = expected_value(image, 128, (2 * x + 1) * image.width / (2 * width),
                                            (2 * y + 1) * image.height / (2 * height));
        error += std::abs(expected - std::to_integer<int>(pixels[static_cast<std::size_t>((y * width + x) * 3 + c)]));
      }
  EXPECT_LT(error / static_cast<double>(pixels.size()), 2.0);
}

TEST(Jpeg, EveryKindIsDecodedToRgb) {
  for (int components : {1, 3, 4})
    for (bool progressive : {false, true})
      for (bool subsampled : {false, true})
        for (int restart_rows : {0, 1}) {
          const ImageOptions image{101, 67, components, 95, progressive, subsampled, restart_rows};
          SCOPED_TRACE(testing::Message() << components << progressive << subsampled << restart_rows);
          SampleForm form;
          const auto file = make_jpeg(image);
          expect_image(image, decode(file, {}, &form), 67, 101);
          EXPECT_EQ(form, (SampleForm{DType::uint8, {67, 101, 3}}));
          expect_image(image, decode(file, {"jpeg", {20, 30, 3}, DType::uint8, 0}), 20, 30);
        }
}

// Noise and a high quality make long codes and values, and blocks that end with their last coefficient.
TEST(Jpeg, PixelsAreThoseOfLibjpeg) {
  DecoderSet decoders;
  for (int components : {1, 3})
    for (int quality : {3, 40, 85, 100})
      for (int noise : {0, 30, 170})
        for (bool subsampled : {false, true})
          for (bool optimized : {false, true})
            for (int restart_rows : {0, 1}) {
              const ImageOptions image{173,        91,           components, quality, false,
                                       subsampled, restart_rows, 0,          noise,   optimized};
              SCOPED_TRACE(testing::Message() << components << " components, quality " << quality << ", noise " << noise
                                              << subsampled << optimized << restart_rows);
              const auto file = make_jpeg(image, 40);
              std::vector<std::byte> found;
              Destination destination(found);
              decoders.decode(file, {}, {}, destination);
              ASSERT_EQ(found, test::decoded_by_libjpeg(file));
            }
}

// A marker that is not the next restart, an end before the last block, and a code that the tables do not have.
TEST(Jpeg, DamageInTheHuffmanCodesIsFound) {
  const auto marker = [](const std::vector<std::byte>& file, std::byte code) {
    const std::array<std::byte, 2> wanted{std::byte{0xff}, code};
    return std::ranges::search(file, wanted).begin() - file.begin();
  };
  auto file = make_jpeg({173, 91, 3, 90, false, true, 1, 0, 100});
  file[static_cast<std::size_t>(marker(file, std::byte{0xd1})) + 1] = std::byte{0xd3};
  EXPECT_NE(refusal(file), "");
  file = make_jpeg({173, 91, 3, 90, false, true, 1, 0, 100});
  file[static_cast<std::size_t>(marker(file, std::byte{0xd1})) + 1] = std::byte{0xd9};
  EXPECT_NE(refusal(file), "");
  file = make_jpeg({173, 91, 3, 90, false, true, 0, 0, 100});
  file.insert(file.begin() + static_cast<std::ptrdiff_t>(file.size() / 2), {std::byte{0xff}, std::byte{0xd9}});
  EXPECT_NE(refusal(file), "");
  file = make_jpeg({173, 91, 3, 90, false, true, 0, 0, 100});
  for (std::size_t i = file.size() / 2; i < file.size() / 2 + 16; i += 2) {
    file[i] = std::byte{0xff};
    file[i + 1] = std::byte{0};
  }
  EXPECT_NE(refusal(file), "");
}

TEST(Jpeg, EverySizeIsReached) {
  const ImageOptions image{320, 240, 3, 90, false, true, 0};
  const auto file = make_jpeg(image);
  for (std::uint64_t side : {1, 7, 30, 31, 40, 64, 120, 121, 240, 241, 500})
    expect_image(image, decode(file, {"jpeg", {side, side, 3}, DType::uint8, 0}), static_cast<int>(side),
                 static_cast<int>(side));
}

TEST(Jpeg, FloatsAreTheBytesScaledToOne) {
  const auto file = make_jpeg({});
  const auto bytes = decode(file, {"jpeg", {33, 21, 3}, DType::uint8, 0});
  const auto floats = decode(file, {"jpeg", {33, 21, 3}, DType::float32, 0});
  ASSERT_EQ(floats.size(), 4 * bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    float value = 0;
    std::memcpy(&value, floats.data() + 4 * i, 4);
    EXPECT_NEAR(value * 255, std::to_integer<int>(bytes[i]), 0.51);
  }
}

TEST(Jpeg, DamagedFilesAreRefusedAndTheDecoderGoesOn) {
  DecoderSet decoders;
  for (bool progressive : {false, true}) {
    const ImageOptions image{200, 160, 3, 90, progressive, true, 0};
    const auto whole = make_jpeg(image);
    const auto expected = decode(whole, {});
    for (std::size_t size = 0; size < whole.size(); size += 1 + whole.size() / 61) {
      std::vector<std::byte> result;
      Destination destination(result);
      const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_THROW(decoders.decode(cut, {}, {}, destination), Error) << size;
      decoders.decode(whole, {}, {}, destination);
      EXPECT_EQ(result, expected);
    }
  }
}

/// A file with a few random changes: changed bytes; ranges removed, duplicated or moved; truncation.
std::vector<std::byte> mutated(std::vector<std::byte> file, std::mt19937& random) {
  const auto place = [&] { return file.begin() + static_cast<std::ptrdiff_t>(random() % file.size()); };
  for (unsigned left = 1 + random() % 4; left > 0 && file.size() > 16; --left) {
    auto first = place(), last = place();
    if (last < first) std::swap(first, last);
    switch (random() % 8) {
      case 0: file.erase(first, std::min(last, first + 64)); break;
      case 1: {
        const std::vector<std::byte> piece(first, std::min(last, first + 512));
        file.insert(place(), piece.begin(), piece.end());
        break;
      }
      case 2: file.resize(file.size() - random() % (file.size() / 2)); break;
      case 3: *first = std::byte{0xff}; break;
      case 4: std::rotate(first, first + (last - first) / 2, last); break;
      default: *first = static_cast<std::byte>(random());
    }
  }
  return file;
}

/// PENSTOCK_TEST_FUZZ, the number of files per format. `./dev test --all` sets a larger one.
int fuzz_trials() {
  const char* chosen = std::getenv("PENSTOCK_TEST_FUZZ");
  return chosen == nullptr ? 400 : std::atoi(chosen);
}

// The result of any bytes is an image or an error, never a crash. AddressSanitizer checks the memory accesses.
void expect_damage_is_survived(const std::vector<std::vector<std::byte>>& files) {
  std::mt19937 random(1);
  DecoderSet decoders;
  int refused = 0;
  const int trials = fuzz_trials();
  for (int trial = 0; trial < trials; ++trial) {
    const auto file = mutated(files[random() % files.size()], random);
    std::vector<std::byte> result;
    Destination destination(result);
    DecodeOptions options{"auto", {32, 32, 3}, trial % 2 == 0 ? DType::uint8 : DType::float32, 0};
    if (trial % 3 == 0)
      options.shape = {};
    else if (trial % 3 == 1)
      options.random_crop = RandomCrop{};
    try {
      decoders.decode(file, options, {.max_pixels = 1 << 16, .index = static_cast<std::uint64_t>(trial)}, destination);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
      ++refused;
    }
  }
  EXPECT_GT(refused, trials / 8);
}

TEST(Jpeg, RandomDamageIsSurvived) {
  std::vector<std::vector<std::byte>> files;
  for (int components : {1, 3, 4})
    for (bool progressive : {false, true})
      files.push_back(make_jpeg({120, 90, components, 80, progressive, true, progressive ? 0 : 1}));
  for (bool optimized : {false, true}) files.push_back(make_jpeg({90, 70, 3, 97, false, true, 0, 0, 120, optimized}));
  expect_damage_is_survived(files);
}

TEST(Jpeg, AHugeImageInASmallFileIsRefused) {
  auto file = make_jpeg({});
  for (std::size_t i = 0; i + 9 < file.size(); ++i)
    if (file[i] == std::byte{0xff} && file[i + 1] == std::byte{0xc0}) {
      file[i + 5] = file[i + 7] = std::byte{0xff};
      break;
    }
  EXPECT_NE(refusal(file).find("pixels"), std::string::npos);
}

TEST(Png, RandomDamageIsSurvived) {
  const auto whole = test::make_png(50, 40);
  if (whole.empty()) GTEST_SKIP() << "built without libpng";
  expect_damage_is_survived({whole, test::make_png(1, 1), test::make_png(3, 200)});
}

TEST(Webp, RandomDamageIsSurvived) {
  const auto whole = test::make_webp(50, 40, false);
  if (whole.empty()) GTEST_SKIP() << "built without libwebp";
  expect_damage_is_survived({whole, test::make_webp(50, 40, true), test::make_webp(1, 1, false)});
}

TEST(Exif, AnyBytesGiveAnOrientation) {
  const unsigned char block[] = {'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8,  0, 2,  // two entries
                                 1,   0,   0,   3,   0, 0, 0,   1,   0, 9,  0, 0, 1, 18, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0};
  const ConstBytes whole = std::as_bytes(std::span(block));
  EXPECT_EQ(exif_orientation(whole), 6);
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_EQ(exif_orientation(whole.first(size)), 1) << size;
  std::mt19937 random(3);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<std::byte> damaged(whole.begin(), whole.end());
    for (int hits = 0; hits < 3; ++hits)
      damaged[6 + random() % (damaged.size() - 6)] = static_cast<std::byte>(random());
    const int orientation = exif_orientation(damaged);
    EXPECT_GE(orientation, 1);
    EXPECT_LE(orientation, 8);
  }
}

TEST(Jpeg, AnImageWithTooManyScansIsRefused) {
  ImageOptions image{64, 48, 3, 90, true, false, 0};
  image.refinements = 1;  // 379 scans
  const auto many = make_jpeg(image);
  expect_image(image, decode(many, {}), 48, 64);
  image.refinements = 2;  // 568
  EXPECT_NE(refusal(make_jpeg(image)).find("more than 500 scans"), std::string::npos);
  // Larger images may have fewer scans, so the work for one image is bounded.
  DecoderSet decoders;
  std::vector<std::byte> result;
  Destination destination(result);
  EXPECT_THROW(decoders.decode(many, {}, {.max_pixels = 64 * 48}, destination), Error);
  EXPECT_NO_THROW(
      decoders.decode(make_jpeg({64, 48, 3, 90, true, false, 0}), {}, {.max_pixels = 64 * 48}, destination));
}

TEST(Jpeg, ThePrecisionOfTwelveBitsIsRefused) {
  auto file = make_jpeg({});
  for (std::size_t i = 0; i + 9 < file.size(); ++i)
    if (file[i] == std::byte{0xff} && file[i + 1] == std::byte{0xc0}) {
      file[i + 4] = std::byte{12};
      break;
    }
  EXPECT_NE(refusal(file).find("precision"), std::string::npos) << refusal(file);
}

TEST(Decoder, IsChosenByContent) {
  EXPECT_FALSE(decode(make_jpeg({}), {}).empty());
  EXPECT_NE(refusal({std::byte{'G'}, std::byte{'I'}, std::byte{'F'}}).find("no known format"), std::string::npos);
  EXPECT_NE(refusal({}).find("empty"), std::string::npos);
}

TEST(Decoder, RawBytesNeedTheRightSize) {
  const std::vector<std::byte> file(24, std::byte{5});
  EXPECT_EQ(decode(file, {"none", {2, 3}, DType::float32, 0}), file);
  EXPECT_NE(refusal(file, {"none", {2, 2}, DType::float32, 0}).find("holds 24 bytes where float32 (2, 2) has 16"),
            std::string::npos);
}

TEST(Decoder, OptionsAreChecked) {
  EXPECT_THROW(check({"gif", {}, DType::uint8, 0}), Error);
  EXPECT_THROW(check({"jpeg", {10, 10, 4}, DType::uint8, 0}), Error);
  EXPECT_THROW(check({"jpeg", {0, 10, 3}, DType::uint8, 0}), Error);
  EXPECT_THROW(check({"auto", {10, 10, 3}, DType::int32, 0}), Error);
  EXPECT_THROW(check({"none", {}, DType::int32, 0}), Error);
  EXPECT_THROW(check({"jpeg", {10, 10, 3}, DType::uint8, -1}), Error);
  EXPECT_NO_THROW(check({"none", {3}, DType::int32, 2}));
}

template <class Out>
void expect_the_portable_values(Resizer::Size from_size, Resizer::Box box, Resizer::Size to_size) {
  SCOPED_TRACE(testing::Message() << from_size.width << " x " << from_size.height << " to " << to_size.width << " x "
                                  << to_size.height << ", elements of " << sizeof(Out) << " bytes");
  std::mt19937 random(5);
  std::vector<std::uint8_t> from(static_cast<std::size_t>(from_size.height * from_size.width * 3));
  for (auto& value : from) value = static_cast<std::uint8_t>(random());
  const std::ptrdiff_t height = to_size.height, width = to_size.width;
  for (const Resizer::Strides& strides :
       {Resizer::Strides::interleaved(to_size), Resizer::Strides{width, 1, height * width, 0},
        Resizer::Strides{3 * width, -3, 1, 3 * (width - 1)}}) {
    // What lies behind the result stays as it is.
    std::vector<Out> with(static_cast<std::size_t>(3 * height * width) + 64), portable(with);
    Resizer().run(from.data(), from_size, box, with.data(), to_size, strides, {});
    Resizer(true).run(from.data(), from_size, box, portable.data(), to_size, strides, {});
    EXPECT_EQ(std::memcmp(with.data(), portable.data(), with.size() * sizeof(Out)), 0);
  }
}

TEST(Resize, VectorCodeGivesThePortableValues) {
  for (auto [from_height, from_width, to_height, to_width] : {std::array{1, 1, 5, 3},
                                                              {5, 7, 5, 7},
                                                              {37, 50, 22, 23},
                                                              {61, 47, 9, 8},
                                                              {200, 300, 224, 224},
                                                              {90, 70, 12, 9},
                                                              {170, 16, 10, 33}}) {
    const Resizer::Size from{from_height, from_width}, to{to_height, to_width};
    const Resizer::Box inner{0.3 * from_height, 0.25 * from_width, 0.55 * from_height, 0.6 * from_width};
    for (const Resizer::Box& box : {Resizer::Box::of(from), inner}) {
      expect_the_portable_values<std::uint8_t>(from, box, to);
      expect_the_portable_values<Float16>(from, box, to);
      expect_the_portable_values<float>(from, box, to);
    }
  }
}

// Compares with the definition, evaluated pixel by pixel in double precision.
TEST(Resize, MatchesTheTriangleFilter) {
  std::mt19937 random(2);
  for (auto [from_height, from_width, to_height, to_width] :
       {std::array{1, 1, 5, 3}, {5, 7, 5, 7}, {10, 13, 7, 29}, {40, 30, 13, 30}, {33, 64, 8, 9}, {2, 50, 60, 1}}) {
    std::vector<std::uint8_t> from(static_cast<std::size_t>(from_height * from_width * 3));
    for (auto& value : from) value = static_cast<std::uint8_t>(random());
    std::vector<std::uint8_t> to(static_cast<std::size_t>(to_height * to_width * 3));
    const Resizer::Size from_size{from_height, from_width}, to_size{to_height, to_width};
    Resizer().run(from.data(), from_size, Resizer::Box::of(from_size), to.data(), to_size,
                  Resizer::Strides::interleaved(to_size), {});
    const auto weight = [](int at, int place, int from_count, int to_count) {
      const double scale = static_cast<double>(from_count) / to_count, support = std::max(1.0, scale);
      return std::max(0.0, 1 - std::abs(at + 0.5 - (place + 0.5) * scale) / support);
    };
    for (int y = 0; y < to_height; ++y)
      for (int x = 0; x < to_width; ++x)
        for (int c = 0; c < 3; ++c) {
          double sum = 0, weights = 0;
          for (int v = 0; v < from_height; ++v)
            for (int u = 0; u < from_width; ++u) {
              const double w = weight(v, y, from_height, to_height) * weight(u, x, from_width, to_width);
              sum += w * from[static_cast<std::size_t>((v * from_width + u) * 3 + c)];
              weights += w;
            }
          EXPECT_NEAR(to[static_cast<std::size_t>((y * to_width + x) * 3 + c)], sum / weights, 0.51);
        }
  }
}

}  // namespace
}  // namespace penstock::dataset
