// Blobs on every backend: writes, snapshots and refused calls.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <thread>

#include "eventually.hpp"
#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "unit/store/outcomes.hpp"
#include "unit/store/schemes.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock {
namespace {

std::vector<std::byte> filled(std::size_t size_bytes, int seed) {
  std::vector<std::byte> data(size_bytes);
  std::uint32_t state = static_cast<std::uint32_t>(seed) * 2654435761u + 1;
  for (std::byte& byte : data) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return data;
}

std::vector<std::byte> read(const Snapshot& snapshot, std::uint64_t offset, std::size_t size) {
  std::vector<std::byte> data(size, std::byte{0xee});
  const ReadRegion region{offset, data};
  snapshot.read(std::span(&region, 1));
  return data;
}

std::uint64_t write(Blob& blob, std::uint64_t offset, ConstBytes data) {
  const WriteRegion region{offset, data};
  return blob.write(std::span(&region, 1));
}

class BlobOn : public testing::TestWithParam<std::string> {
 protected:
  BlobOn() : store_(store::test_url(GetParam(), directory_), {.durable = false}) {}
  const TemporaryDirectory directory_;
  Store store_;
};

TEST_P(BlobOn, StartsAsZeros) {
  Blob blob = store_.create("field", {.size_bytes = 100'000});
  EXPECT_EQ(blob.latest(), 0u);
  EXPECT_EQ(blob.size_bytes(), 100'000u);
  EXPECT_EQ(whole(blob.snapshot()), std::vector<std::byte>(100'000));
  EXPECT_TRUE(blob.log().empty());
}

TEST_P(BlobOn, AConditionalWriteNeedsItsParentToBeTheNewest) {
  Blob blob = store_.create("field", {.size_bytes = 100'000});
  const auto first = filled(50'000, 1), second = filled(50'000, 2);
  const WriteRegion one{0, first}, other{1000, second};
  EXPECT_EQ(blob.write_if(0, std::span(&one, 1)), 1u);
  EXPECT_EQ(code_of([&] { blob.write_if(0, std::span(&other, 1)); }), ErrorCode::exists);
  EXPECT_EQ(code_of([&] { blob.write_if(2, std::span(&other, 1)); }), ErrorCode::invalid_argument);
  EXPECT_EQ(blob.latest(), 1u);
  EXPECT_EQ(read(blob.snapshot(), 0, first.size()), first);
  EXPECT_EQ(store_.check().garbage_objects, 0u) << "what was refused is freed at once";

  // Staged parts outlive a refused commit.
  const StagedWrite part = blob.stage(std::span(&other, 1));
  EXPECT_EQ(code_of([&] { blob.commit_if(0, std::span(&part, 1)); }), ErrorCode::exists);
  EXPECT_EQ(blob.commit_if(1, std::span(&part, 1)), 2u);
  EXPECT_EQ(read(blob.snapshot(), 1000, second.size()), second);
}

TEST_P(BlobOn, EveryWriteIsAVersionAndOldOnesStay) {
  Blob blob = store_.create("field", {.size_bytes = 300'000});
  std::vector<std::byte> model(300'000);
  std::vector<std::vector<std::byte>> models = {model};
  for (int i = 1; i <= 150; ++i) {
    const auto data = filled(static_cast<std::size_t>(1 + i * i * 3), i);
    const std::uint64_t offset = static_cast<std::uint64_t>(i) * 977 % 230'000;
    EXPECT_EQ(write(blob, offset, data), static_cast<std::uint64_t>(i));
    std::memcpy(model.data() + offset, data.data(), data.size());
    models.push_back(model);
  }
  const Blob other = store_.open("field");
  for (std::size_t version : {150, 0, 1, 63, 64, 65, 128, 149, 7, 150}) {
    EXPECT_EQ(whole(blob.snapshot(version)), models[version]) << version;
    EXPECT_EQ(whole(other.snapshot(version)), models[version]) << version;
  }
  EXPECT_EQ(other.latest(), 150u);
  const auto log = other.log();
  ASSERT_EQ(log.size(), 150u);
  EXPECT_EQ(log[9].version, 10u);
  EXPECT_EQ(log[9].bytes, 301u);
  EXPECT_EQ(log[9].regions, 1u);
  EXPECT_EQ(log[9].kind, "write");
  EXPECT_FALSE(log[9].writer.empty());
  EXPECT_EQ(other.log(149).size(), 2u);
}

TEST_P(BlobOn, AWriteOfManyRegionsIsOneVersion) {
  for (const std::size_t region_bytes : {3, 700, 5'000, 70'000}) {
    constexpr std::size_t kRegions = 50;
    const std::size_t stride = region_bytes * 2 + 1;
    Blob blob = store_.create("tiles-" + std::to_string(region_bytes), {.size_bytes = kRegions * stride});
    const auto data = filled(kRegions * region_bytes, 5);
    std::vector<WriteRegion> regions;
    std::vector<std::byte> model(kRegions * stride);
    for (std::size_t i = 0; i < kRegions; ++i) {
      const std::size_t place = (i * 7) % kRegions;  // not in the order of offsets
      const ConstBytes piece = ConstBytes(data).subspan(i * region_bytes, region_bytes);
      regions.push_back({place * stride, piece});
      std::memcpy(model.data() + place * stride, piece.data(), piece.size());
    }
    EXPECT_EQ(blob.write(regions), 1u);
    EXPECT_EQ(whole(blob.snapshot()), model);
    EXPECT_EQ(blob.log().front().regions, kRegions);
    std::vector<std::vector<std::byte>> back(kRegions, std::vector<std::byte>(region_bytes));
    std::vector<ReadRegion> reads;
    for (std::size_t i = 0; i < kRegions; ++i) reads.push_back({regions[i].offset_bytes, back[i]});
    blob.read(reads, 1);
    for (std::size_t i = 0; i < kRegions; ++i) {
      EXPECT_TRUE(std::equal(back[i].begin(), back[i].end(), regions[i].data.begin()));
    }
  }
}

TEST_P(BlobOn, EmptyRegionsAndEmptyWritesAreFine) {
  Blob blob = store_.create("field", {.size_bytes = 10});
  const auto data = filled(2, 1);
  const std::vector<WriteRegion> regions = {{10, {}}, {3, {}}, {2, data}, {4, {}}};
  EXPECT_EQ(blob.write(regions), 1u);
  EXPECT_EQ(blob.write({}), 2u);
  EXPECT_EQ(read(blob.snapshot(2), 2, 2), data);
  EXPECT_TRUE(read(blob.snapshot(2), 10, 0).empty());
}

TEST_P(BlobOn, RefusesRegionsThatOverlapOrLieOutside) {
  Blob blob = store_.create("field", {.size_bytes = 100});
  const auto data = filled(20, 1);
  EXPECT_EQ(code_of([&] { write(blob, 81, data); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { write(blob, UINT64_MAX, data); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { write(blob, 101, {}); }), ErrorCode::invalid_argument);
  const std::vector<WriteRegion> overlapping = {{50, data}, {10, data}, {29, data}};
  EXPECT_EQ(code_of([&] { blob.write(overlapping); }), ErrorCode::invalid_argument);
  const std::vector<WriteRegion> adjacent = {{50, data}, {10, data}, {30, data}};
  EXPECT_EQ(blob.write(adjacent), 1u);
  EXPECT_EQ(code_of([&] { read(blob.snapshot(), 90, 11); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { read(blob.snapshot(), UINT64_MAX, 1); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { blob.append({}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { blob.resize(5); }), ErrorCode::invalid_argument);
  EXPECT_EQ(blob.latest(), 1u);
  Blob growing = store_.create("growing", {.grows = true});
  EXPECT_EQ(code_of([&] { write(growing, (std::uint64_t{1} << 63) - 19, data); }), ErrorCode::invalid_argument);
  EXPECT_EQ(growing.latest(), 0u);
}

TEST_P(BlobOn, RefusesUnknownNamesAndVersions) {
  EXPECT_EQ(code_of([&] { store_.open("field"); }), ErrorCode::not_found);
  Blob blob = store_.create("field", {.size_bytes = 100});
  EXPECT_EQ(code_of([&] { store_.create("field", {.size_bytes = 7}); }), ErrorCode::exists);
  EXPECT_EQ(code_of([&] { store_.create("a/b", {}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { store_.create("", {}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { store_.create(".x", {}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { store_.create("x", {.size_bytes = UINT64_MAX}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { blob.snapshot(1); }), ErrorCode::not_found);
  EXPECT_FALSE(store_.exists("x"));
  EXPECT_TRUE(store_.exists("field"));
}

TEST_P(BlobOn, GrowsShrinksAndAppends) {
  Blob blob = store_.create("log", {.size_bytes = 10, .grows = true});
  const auto data = filled(6000, 3);
  EXPECT_EQ(write(blob, 8, ConstBytes(data).first(5)), 1u);
  EXPECT_EQ(blob.size_bytes(), 13u);
  const ConstBytes pieces[] = {ConstBytes(data).first(1000), ConstBytes(data).subspan(1000)};
  const Blob::Appended appended = blob.append(pieces);
  EXPECT_EQ(appended.version, 2u);
  EXPECT_EQ(appended.offset_bytes, 13u);
  EXPECT_EQ(read(blob.snapshot(), 13, 6000), data);
  EXPECT_EQ(blob.resize(1013), 3u);
  EXPECT_EQ(blob.size_bytes(), 1013u);
  EXPECT_EQ(blob.resize(2000), 4u);
  auto expected = std::vector<std::byte>(1987);
  std::copy_n(data.begin(), 1000, expected.begin());
  EXPECT_EQ(read(blob.snapshot(), 13, 1987), expected);
  EXPECT_EQ(blob.snapshot(2).size_bytes(), 6013u);
  EXPECT_EQ(read(blob.snapshot(2), 13, 6000), data);
}

TEST_P(BlobOn, StagedPartsMakeOneVersionAndTheLaterWins) {
  Blob blob = store_.create("field", {.size_bytes = 100'000});
  Blob other = store_.open("field");
  const auto a = filled(60'000, 1), b = filled(60'000, 2), c = filled(10, 3);
  const WriteRegion first{0, a}, second{40'000, b}, third{50'000, c};
  const std::vector<StagedWrite> parts = {blob.stage(std::span(&first, 1)), other.stage(std::span(&second, 1)),
                                          other.stage(std::span(&third, 1))};
  EXPECT_EQ(blob.latest(), 0u);
  EXPECT_EQ(blob.commit(parts), 1u);
  std::vector<std::byte> model(100'000);
  std::memcpy(model.data(), a.data(), a.size());
  std::memcpy(model.data() + 40'000, b.data(), b.size());
  std::memcpy(model.data() + 50'000, c.data(), c.size());
  EXPECT_EQ(whole(other.snapshot()), model);
  const std::vector<StagedWrite> damaged = {{std::vector<std::byte>(40)}};
  EXPECT_EQ(code_of([&] { blob.commit(damaged); }), ErrorCode::corrupt);
}

TEST_P(BlobOn, WaitReturnsWhenTheVersionIsThere) {
  Blob blob = store_.create("field", {.size_bytes = 10});
  EXPECT_TRUE(blob.wait(0, std::chrono::seconds(0)));
  EXPECT_FALSE(blob.wait(1, std::chrono::milliseconds(5)));
  store_.open("field").write({});
  EXPECT_TRUE(blob.wait(1, test::kHung));
}

TEST_P(BlobOn, CheckAndListSeeEverything) {
  Blob blob = store_.create("a", {.size_bytes = 500'000});
  store_.create("b", {.grows = true});
  for (int i = 0; i < 70; ++i) write(blob, static_cast<std::uint64_t>(i) * 5000, filled(9000, i));
  const CheckReport report = store_.check();
  EXPECT_EQ(report.blobs, 2u);
  EXPECT_EQ(report.versions, 70u);
  EXPECT_EQ(report.objects, 70u);
  EXPECT_EQ(report.bytes, 70u * 9000u);
  EXPECT_EQ(report.garbage_objects, 0u);
  EXPECT_TRUE(report.problems.empty()) << report.problems.front();
  const auto blobs = store_.list();
  ASSERT_EQ(blobs.size(), 2u);
  EXPECT_EQ(blobs[0].name, "a");
  EXPECT_EQ(blobs[0].latest_version, 70u);
  EXPECT_EQ(blobs[0].size_bytes, 500'000u);
  EXPECT_TRUE(blobs[1].grows);
}

TEST_P(BlobOn, ExportsAPlainFile) {
  Blob blob = store_.create("field", {.size_bytes = 9'000'000});
  const auto data = filled(200'000, 1);
  write(blob, 8'300'001, data);
  write(blob, 0, data);
  const std::string path = directory_.path() + "/plain";
  store_.export_file("field", 1, path);
  std::vector<std::byte> found(9'000'000);
  FILE* file = std::fopen(path.c_str(), "rb");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(std::fread(found.data(), 1, found.size(), file), found.size());
  std::fclose(file);
  EXPECT_EQ(found, whole(blob.snapshot(1)));
  EXPECT_EQ(code_of([&] { store_.export_file("field", 1, directory_.path() + "/none/plain"); }), ErrorCode::io);
}

TEST_P(BlobOn, ExportsHolesAsHoles) {
  constexpr std::uint64_t kSize = std::uint64_t{64} << 30;
  Blob blob = store_.create("field", {.size_bytes = kSize});
  auto data = filled(3 << 20, 1);
  std::fill(data.begin() + (1 << 20), data.begin() + (2 << 20), std::byte{0});
  write(blob, kSize - data.size(), data);
  const std::string path = directory_.path() + "/plain";
  store_.export_file("field", 1, path);
  struct stat status;
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(status.st_size), kSize);
  EXPECT_LT(status.st_blocks * 512, 3 << 20) << "zeros take space";
  std::vector<std::byte> found(data.size());
  FILE* file = std::fopen(path.c_str(), "rb");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(::fseeko(file, static_cast<off_t>(kSize - data.size()), SEEK_SET), 0);
  EXPECT_EQ(std::fread(found.data(), 1, found.size(), file), found.size());
  std::fclose(file);
  EXPECT_EQ(found, data);
}

TEST_P(BlobOn, ExportsAtOnceToOnePathLeaveOneOfThem) {
  constexpr std::size_t kSize = 1'000'000;
  Blob blob = store_.create("field", {.size_bytes = kSize});
  write(blob, 0, filled(kSize, 1));
  write(blob, 0, filled(kSize, 2));
  const std::string path = directory_.path() + "/plain";
  for (int round = 0; round < 10; ++round) {
    std::thread other([&] { store_.export_file("field", 1, path); });
    store_.export_file("field", 2, path);
    other.join();
    std::vector<std::byte> found(kSize);
    FILE* file = std::fopen(path.c_str(), "rb");
    ASSERT_NE(file, nullptr);
    EXPECT_EQ(std::fread(found.data(), 1, found.size(), file), found.size());
    std::fclose(file);
    EXPECT_TRUE(found == filled(kSize, 1) || found == filled(kSize, 2)) << "round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(All, BlobOn, testing::ValuesIn(store::test_schemes()),
                         [](const auto& row) { return row.param; });

}  // namespace
}  // namespace penstock
