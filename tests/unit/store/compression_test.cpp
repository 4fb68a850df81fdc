// Compressed data: what is read is what was written, whoever reads it, and damage is found.
#include "store/compression.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "store/blob_state.hpp"
#include "store/encoding.hpp"
#include "unit/store/frequent_deltas.hpp"
#include "unit/store/outcomes.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock::store {
namespace {

constexpr int kLevel = 3;
constexpr std::uint64_t kCompressedBlobBytes = 400'000;

/// Stretches that compress well, badly, and not at all.
std::vector<std::byte> mixture(std::size_t size_bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> data;
  while (data.size() < size_bytes) {
    const unsigned kind = random() % 3;
    const auto value = static_cast<std::byte>(random());
    for (unsigned left = 1 + random() % 90'000; left > 0 && data.size() < size_bytes; --left) {
      data.push_back(kind == 0 ? value : static_cast<std::byte>(kind == 1 ? random() % 16 : random()));
    }
  }
  return data;
}

std::uint64_t write_at(Blob& blob, std::uint64_t offset_bytes, ConstBytes data) {
  const WriteRegion region{offset_bytes, data};
  return blob.write(std::span(&region, 1));
}

std::uint64_t stored_bytes(const std::shared_ptr<Backend>& backend, const BlobState& blob) {
  std::uint64_t total_bytes = 0;
  for (const std::string& key : backend->list(blob.key("data"))) total_bytes += backend->size_bytes(key);
  return total_bytes;
}

void expect_sound_store(const std::string& url) {
  const CheckReport report = Store(url, {.create = false}).check();
  EXPECT_TRUE(report.problems.empty()) << report.problems.front();
}

TEST(Compression, AnybodyReadsWhatWasWrittenWithAnyLevel) {
  // Indexes and deltas, in parts and as a whole.
  const FrequentDeltas often(2);
  const TemporaryDirectory directory;
  std::vector<std::vector<std::byte>> truths = {std::vector<std::byte>(kCompressedBlobBytes)};
  std::mt19937 random(1);
  Store(directory.url(), {.durable = false}).create("field", {.size_bytes = kCompressedBlobBytes});
  for (int i = 0; i < 60; ++i) {
    Store store(directory.url(), {.create = false, .durable = false, .compress_level = i % 3 == 0 ? 0 : kLevel});
    Blob blob = store.open("field");
    std::vector<std::byte> truth = truths.back();
    std::vector<std::byte> data = mixture(1 + random() % 200'000, random());
    const std::uint64_t at = random() % (kCompressedBlobBytes - data.size());
    std::copy(data.begin(), data.end(), truth.begin() + static_cast<std::ptrdiff_t>(at));
    // In two regions, and sometimes in many small ones that share chunks.
    std::vector<WriteRegion> regions;
    const std::size_t step = i % 5 == 0 ? 700 : data.size() / 2 + 1;
    for (std::size_t done = 0; done < data.size(); done += step) {
      regions.push_back({at + done, ConstBytes(data).subspan(done, std::min(step, data.size() - done))});
    }
    EXPECT_EQ(blob.write(regions), truths.size());
    truths.push_back(std::move(truth));
  }
  Store store(directory.url(), {.create = false});
  for (const std::uint64_t version : {1, 2, 3, 17, 40, 60}) {
    EXPECT_EQ(whole(store.open("field").snapshot(version)), truths[version]) << version;
  }
  const Snapshot newest = store.open("field").snapshot();
  for (int i = 0; i < 300; ++i) {
    const std::uint64_t at = random() % kCompressedBlobBytes;
    std::vector<std::byte> part(1 + random() % (kCompressedBlobBytes - at));
    const ReadRegion region{at, part};
    newest.read(std::span(&region, 1));
    EXPECT_EQ(0, std::memcmp(part.data(), truths[60].data() + at, part.size())) << at;
  }
  expect_sound_store(directory.url());

  Blob blob = store.open("field");
  blob.tag("good", 40);
  blob.compact(40);
  store.clone("field", 50, "copy");
  store.gc({.keep_last = 1, .lease = std::chrono::seconds(0)});
  EXPECT_EQ(whole(Store(directory.url()).open("field").snapshot(40)), truths[40]);
  EXPECT_EQ(whole(Store(directory.url()).open("copy").snapshot()), truths[50]);
  EXPECT_EQ(whole(Store(directory.url()).open("field").snapshot()), truths[60]);
  EXPECT_TRUE(store.repair({}).actions.empty());
  expect_sound_store(directory.url());
}

TEST(Compression, LargeMapsAreReadInParts) {
  const TemporaryDirectory directory;
  Store store(directory.url(), {.durable = false, .compress_level = kLevel});
  Blob blob = store.create("many", {.size_bytes = 400'000});
  std::vector<std::byte> truth(400'000);
  std::vector<WriteRegion> regions;
  std::vector<std::byte> data(200'000, std::byte{7});
  for (std::size_t i = 0; i < 40'000; ++i) {
    regions.push_back({i * 10, ConstBytes(data).subspan(i * 5, 5)});
    std::fill_n(truth.begin() + static_cast<std::ptrdiff_t>(i * 10), 5, std::byte{7});
  }
  blob.write(regions);
  for (std::uint64_t version = 2; version <= 8; ++version) {
    std::fill_n(truth.begin() + static_cast<std::ptrdiff_t>(version * 20'000), 10'000, static_cast<std::byte>(version));
    write_at(blob, version * 20'000, std::vector<std::byte>(10'000, static_cast<std::byte>(version)));
  }
  store.gc({.keep_last = 2});
  const auto backend = open_backend(directory.url());
  const auto cold = BlobState::open(backend, "many");
  EXPECT_TRUE(cold->readable_at(8).map->is_partial());
  EXPECT_EQ(whole(Blob(cold).snapshot()), truth);
  EXPECT_LT(stored_bytes(backend, *cold), 40'000U);
  expect_sound_store(directory.url());
}

TEST(Compression, AStagedWriteTakesMemoryForFewBytesAtATime) {
  constexpr std::uint64_t kMostBytes = 32 << 20;  // of compressed data in memory
  const TemporaryDirectory directory;
  Store store(directory.url(), {.durable = false, .compress_level = kLevel});
  Blob blob = store.create("field", {.grows = true});
  std::vector<std::byte> data(70 << 20, std::byte{1});
  data.front() = data.back() = std::byte{2};
  const std::vector<WriteRegion> regions{{5, ConstBytes(data).first(1000)}, {5000, data}};
  const StagedWrite dropped = blob.stage(regions);
  const StagedWrite staged = blob.stage(regions);
  const auto backend = open_backend(directory.url());
  const auto state = BlobState::open(backend, "field");
  EXPECT_GE(backend->list(state->key("data")).size(), 6U);
  blob.discard(dropped);
  ASSERT_EQ(blob.commit(std::span(&staged, 1)), std::optional<std::uint64_t>(1));
  const std::vector<Part> parts = state->record(1).parts;
  EXPECT_EQ(backend->list(state->key("data")).size(), parts.size());
  for (const Part& part : parts) EXPECT_LE(part.object.data_bytes, kMostBytes);
  std::vector<std::byte> found(data.size());
  const std::vector<ReadRegion> read{{5000, found}};
  blob.read(read);
  EXPECT_EQ(found, data);
  expect_sound_store(directory.url());
}

TEST(Compression, WhatDoesNotShrinkIsStoredAsItIs) {
  const TemporaryDirectory directory;
  Store store(directory.url(), {.durable = false, .compress_level = kLevel});
  Blob blob = store.create("field", {.grows = true});
  std::mt19937 random(5);
  std::vector<std::byte> noise(100'000);
  for (std::byte& one : noise) one = static_cast<std::byte>(random());
  write_at(blob, 0, noise);
  write_at(blob, 0, std::vector<std::byte>(100'000, std::byte{1}));
  const auto backend = open_backend(directory.url());
  const auto state = BlobState::open(backend, "field");
  EXPECT_FALSE(state->record(1).parts[0].object.compressed());
  EXPECT_TRUE(state->record(2).parts[0].object.compressed());
  EXPECT_LT(state->record(2).parts[0].object.stored_bytes, 1'000U);
  // So says the format: an older Penstock reads the first, and reports that it needs a newer one for the second.
  for (const std::uint64_t version : {1, 2}) {
    const std::vector<std::byte> sealed = read_all(*backend, state->record_key(version));
    Decoder decoder(sealed, "a record");
    std::uint32_t magic = 0;
    std::memcpy(&magic, sealed.data(), sizeof magic);
    if (version == 1) {
      EXPECT_EQ(decode_head(decoder, magic, "a record", 1), 1U);
      continue;
    }
    try {
      decode_head(decoder, magic, "a record", 1);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(error.message().find("use a newer Penstock"), std::string::npos);
    }
  }
}

TEST(Compression, EveryFlippedBitIsFound) {
  const TemporaryDirectory directory;
  const std::vector<std::byte> truth = mixture(kCompressedBlobBytes, 12);
  Store store(directory.url(), {.durable = false, .compress_level = kLevel});
  Blob blob = store.create("field", {.size_bytes = kCompressedBlobBytes});
  write_at(blob, 0, truth);
  const auto backend = open_backend(directory.url());
  const auto state = BlobState::open(backend, "field");
  const ObjectReference object = state->record(1).parts[0].object;
  ASSERT_TRUE(object.compressed());
  const std::vector<std::byte> stored = read_all(*backend, object.key);
  ASSERT_EQ(stored.size(), object.tail_at() + tail_bytes(object));
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::byte> damaged = stored;
    if (round % 10 == 0) {
      damaged.resize(random() % stored.size());
    } else {
      damaged[random() % stored.size()] ^= static_cast<std::byte>(1 << random() % 8);
    }
    const ConstBytes piece = damaged;
    backend->replace(object.key, std::span(&piece, 1));
    try {
      EXPECT_EQ(whole(Store(directory.url()).open("field").snapshot()), truth) << "wrong data";
      ADD_FAILURE() << "the damage was not noticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
      EXPECT_NE(error.message().find(object.key), std::string::npos) << error.message();
    }
    EXPECT_FALSE(Store(directory.url()).check().problems.empty());
  }
  const ConstBytes piece = stored;
  backend->replace(object.key, std::span(&piece, 1));
  EXPECT_EQ(whole(store.open("field").snapshot()), truth);
}

/// A table or a frame that lies takes no memory that it does not pay for, and writes over nothing.
TEST(Compression, LiesAreFoundBeforeMemoryIsTaken) {
  const auto backend = open_backend("memory:");
  const std::vector<std::byte> data(200'000, std::byte{1});
  const ConstBytes region = data;
  const DataObject honest = lay_out_compressed("object", std::span(&region, 1), kLevel);
  std::vector<ConstBytes> pieces = honest.stored;
  pieces.push_back(honest.tail);
  ASSERT_TRUE(backend->put_if_absent("object", pieces));
  EXPECT_EQ(Source(honest.reference).chunks(*backend).size(), 4U);
  const auto expect_corrupt = [&](const ObjectReference& lie) {
    try {
      Source(lie).chunks(*backend);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
    }
  };
  ObjectReference lie = honest.reference;
  lie.chunk_count = std::uint64_t{1} << 40;
  expect_corrupt(lie);
  lie.stored_bytes = lie.data_bytes = std::uint64_t{1} << 50;
  expect_corrupt(lie);
  lie = honest.reference;
  lie.data_bytes += 1;
  expect_corrupt(lie);

  // A frame that says that it holds 2^60 bytes; and one that holds more than it should.
  Decompressor decompressor;
  std::vector<std::byte> guarded(300, std::byte{9});
  const unsigned char header[] = {0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0x58, 0, 0, 0, 0, 0, 0, 0, 0x10, 1, 0, 0};
  EXPECT_NE(decompressor.decompress(std::as_bytes(std::span(header)), Bytes(guarded).first(100)), "");
  std::vector<std::byte> frame(1000);
  Compressor compressor(kLevel);
  frame.resize(compressor.compress(ConstBytes(data).first(200), frame));
  EXPECT_NE(decompressor.decompress(frame, Bytes(guarded).first(100)), "");
  EXPECT_NE(decompressor.decompress(frame, Bytes(guarded).first(201)), "");
  EXPECT_EQ(decompressor.decompress(frame, Bytes(guarded).first(200)), "");
  EXPECT_EQ(guarded[200], std::byte{9});
  EXPECT_EQ(compressor.compress(data, Bytes(frame).first(3)), 0U);
}

/// Frames that were changed, cut and joined at random. Sanitizers watch.
TEST(Compression, AnyBytesMayBeDecompressed) {
  std::mt19937 random(77);
  Compressor compressor(kLevel);
  Decompressor decompressor;
  std::vector<std::vector<std::byte>> frames;
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<std::byte> data = mixture(1 + random() % 20'000, seed);
    frames.emplace_back(data.size() + 1000);
    frames.back().resize(compressor.compress(data, frames.back()));
  }
  for (int round = 0; round < 4'000; ++round) {
    std::vector<std::byte> frame = frames[random() % frames.size()];
    for (unsigned changes = 1 + random() % 8; changes > 0; --changes) {
      // The first bytes decide most.
      const std::size_t at =
          random() % 2 == 0 ? random() % std::min<std::size_t>(frame.size(), 40) : random() % frame.size();
      frame[at] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) frame.resize(random() % frame.size() + 1);
    if (random() % 4 == 0) {
      const auto& other = frames[random() % frames.size()];
      frame.insert(frame.end(), other.begin(), other.end());
    }
    constexpr std::size_t kGuardBytes = 256;
    std::vector<std::byte> to(kGuardBytes + 1 + random() % 30'000, std::byte{0xA5});
    decompressor.decompress(frame, Bytes(to).first(to.size() - kGuardBytes));
    // Sanitizers do not see what a library writes that was not compiled with them.
    ASSERT_EQ(std::count(to.end() - kGuardBytes, to.end(), std::byte{0xA5}), std::ptrdiff_t{kGuardBytes});
  }
}

TEST(Compression, LevelsAreChecked) {
  for (const int level : {-1, 23, 1000}) {
    try {
      Store("memory:", {.compress_level = level});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(error.message().find("compress_level is " + std::to_string(level)), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace penstock::store
