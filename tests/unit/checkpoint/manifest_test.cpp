#include "checkpoint/manifest.hpp"

#include <gtest/gtest.h>

#include "penstock/error.hpp"

namespace penstock::checkpoint {
namespace {

Manifest example() {
  Manifest manifest;
  manifest.version = {18446744073709551615u, 7, 3};
  manifest.chunk_bytes = 4096;
  manifest.arrays.push_back({"weights/\"conv\" 1\n", DType::float32, Layout::block_cyclic({10, 8}, {3, 2}, {2, 1})});
  manifest.arrays.push_back({"größe", DType::complex128, Layout::whole({3}, 1, 2)});
  manifest.offsets_bytes = {{0, 0}, {0, 128}};
  for (int r = 0; r < 2; ++r) {
    const std::uint64_t data_bytes = object_offsets(manifest.arrays, r).back();
    manifest.objects.push_back({data_bytes + 16, data_bytes, digest(std::to_string(r))});
  }
  manifest.metadata = "{\"epoch\": 3, \"text\": \"tab\\t\"}\x01";
  return manifest;
}

ErrorCode code_of(const std::string& text) {
  try {
    Manifest::parse(text);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::internal;
}

TEST(Manifest, ComesBackAsItWas) {
  const Manifest manifest = example();
  const std::string text = manifest.serialize();
  const Manifest parsed = Manifest::parse(text);
  EXPECT_EQ(parsed.serialize(), text);
  EXPECT_EQ(parsed.version, manifest.version);
  EXPECT_EQ(parsed.metadata, manifest.metadata);
  ASSERT_EQ(parsed.arrays.size(), 2u);
  EXPECT_EQ(parsed.arrays[0].name, manifest.arrays[0].name);
  EXPECT_EQ(parsed.arrays[1].dtype, DType::complex128);
  EXPECT_EQ(parsed.arrays[0].layout, manifest.arrays[0].layout);
  EXPECT_EQ(parsed.offsets_bytes, manifest.offsets_bytes);
  EXPECT_EQ(parsed.objects[1].table, manifest.objects[1].table);
}

TEST(Manifest, MetricsAndTheTimeComeBackExactly) {
  Manifest manifest = example();
  EXPECT_EQ(Manifest::parse(manifest.serialize()).saved_at_us, 0u);
  manifest.saved_at_us = 1764112345678901u;
  manifest.metrics = {{"val/\"loss\"", 0.1}, {"accuracy", -1e-300}, {"tiny", 5e-324}, {"huge", 1.7976931348623157e308}};
  const Manifest parsed = Manifest::parse(manifest.serialize());
  EXPECT_EQ(parsed.saved_at_us, manifest.saved_at_us);
  EXPECT_EQ(parsed.metrics, manifest.metrics);
}

TEST(Manifest, WhatWouldNotComeBackIsRefused) {
  Manifest manifest = example();
  manifest.arrays[1].name =
      "gr\xf6\xdf"
      "e";
  EXPECT_THROW(manifest.serialize(), Error);
  manifest = example();
  manifest.metadata = "\xf6";
  EXPECT_THROW(manifest.serialize(), Error);
  manifest = example();
  manifest.metrics = {{"\xf6", 1}};
  EXPECT_THROW(manifest.serialize(), Error);
}

TEST(Manifest, EveryFlippedBitAndEveryTruncationIsFound) {
  const std::string text = example().serialize();
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    ASSERT_EQ(code_of(damaged), ErrorCode::corrupt) << "byte " << i;
    ASSERT_EQ(code_of(text.substr(0, i)), ErrorCode::corrupt) << "cut at " << i;
  }
  EXPECT_EQ(code_of(text + " "), ErrorCode::corrupt);
}

/// So many arrays that format 2 would list too many offsets.
Manifest large(int arrays, int ranks) {
  Manifest manifest;
  manifest.version = {5, 1, 1};
  manifest.chunk_bytes = 1 << 20;
  for (int i = 0; i < arrays; ++i) {
    // Few shapes, as in a network of many equal layers.
    manifest.arrays.push_back({"layer " + std::to_string(i), DType::float32, Layout::even({4096 + i % 12, 64}, ranks)});
  }
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<std::uint64_t> offsets = object_offsets(manifest.arrays, rank);
    manifest.offsets_bytes.resize(manifest.arrays.size());
    for (std::size_t a = 0; a < manifest.arrays.size(); ++a) manifest.offsets_bytes[a].push_back(offsets[a]);
    manifest.objects.push_back({offsets.back() + 16, offsets.back(), digest(std::to_string(rank))});
  }
  return manifest;
}

TEST(Manifest, OfManyArraysOnManyRanksIsSmall) {
  const Manifest manifest = large(1000, 200);
  const std::string text = manifest.serialize();
  EXPECT_LT(text.size(), 200000u);
  EXPECT_EQ(text.find("offsets_bytes"), std::string::npos);
  const Manifest parsed = Manifest::parse(text);
  EXPECT_EQ(parsed.serialize(), text);
  EXPECT_EQ(parsed.offsets_bytes, manifest.offsets_bytes);
  ASSERT_EQ(parsed.arrays.size(), manifest.arrays.size());
  for (std::size_t a = 0; a < parsed.arrays.size(); ++a) {
    ASSERT_EQ(parsed.arrays[a].name, manifest.arrays[a].name);
    ASSERT_EQ(parsed.arrays[a].layout, manifest.arrays[a].layout);
  }
}

std::string sealed(std::string text) { return text + ",\n\"checksum\": \"" + to_hex(digest(text)) + "\"}\n"; }

TEST(Manifest, ALaterFormatIsNoDamage) {
  EXPECT_EQ(code_of(sealed("{\"penstock\": \"checkpoint\", \"format\": 4")), ErrorCode::unsupported);
}

TEST(Manifest, ValidChecksumWithWrongContentsIsCorrupt) {
  EXPECT_EQ(code_of(sealed("{\"penstock\": \"store\", \"format\": 1")), ErrorCode::corrupt);
  EXPECT_EQ(code_of(sealed("{\"penstock\": \"checkpoint\"")), ErrorCode::corrupt);
  Manifest outside = example();
  outside.offsets_bytes[1][1] = 1 << 20;
  EXPECT_EQ(code_of(outside.serialize()), ErrorCode::corrupt);
  const std::string known =
      "\"format\": 3, \"step\": 1, \"generation\": 1, \"sequence\": 0, \"ranks\": 1, "
      "\"chunk_bytes\": 64, \"layouts\": [], \"arrays\": [{\"name\": \"a\", \"dtype\": "
      "\"float32\", \"layout\": 0}], \"objects\": [{\"size_bytes\": 0, \"data_bytes\": 0, "
      "\"table\": \"00000000000000000000000000000000\"}], \"metadata\": \"\"";
  EXPECT_EQ(code_of(sealed("{\"penstock\": \"checkpoint\", " + known)), ErrorCode::corrupt);
  Manifest odd = example();
  odd.chunk_bytes = 100;
  EXPECT_EQ(code_of(odd.serialize()), ErrorCode::corrupt);
}

TEST(Manifest, OffsetsAreAlignedAndEmptyArraysTakeNoRoom) {
  const std::vector<ArraySpec> arrays = {{"a", DType::uint8, Layout::whole({3})},
                                         {"empty", DType::float64, Layout::whole({0})},
                                         {"b", DType::float64, Layout::whole({2})},
                                         {"other rank's", DType::float64, Layout::whole({9}, 1, 2)}};
  EXPECT_EQ(object_offsets(arrays, 0), (std::vector<std::uint64_t>{0, 0, 64, 0, 80}));
  EXPECT_EQ(object_offsets(arrays, 1), (std::vector<std::uint64_t>{0, 0, 0, 0, 72}));
}

}  // namespace
}  // namespace penstock::checkpoint
