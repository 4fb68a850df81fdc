// Stores of earlier versions stay readable. The disabled test at the end wrote tests/data/store-v<n> when format n was
// new (2: shorter indexes, 3: large indexes in parts, 4: compressed data). A changed format gets a new number and a new
// folder, and older formats stay readable.
#include <gtest/gtest.h>

#include <filesystem>

#include "penstock/store.hpp"
#include "store/blob_state.hpp"
#include "unit/store/outcomes.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;

fs::path golden(const std::string& name) { return fs::path(PENSTOCK_TEST_DATA) / name; }

std::vector<std::byte> pattern(std::size_t size_bytes, int seed) {
  std::vector<std::byte> data(size_bytes);
  for (std::size_t i = 0; i < size_bytes; ++i)
    data[i] = static_cast<std::byte>(i * 7 + i / 251 + static_cast<std::size_t>(seed));
  return data;
}

/// The content of version `version` of "field": one large write, then 69 small writes of two regions each.
std::vector<std::byte> field_at(std::uint64_t version) {
  std::vector<std::byte> data(80'000);
  const auto large = pattern(70'000, 1);
  if (version >= 1) std::copy(large.begin(), large.end(), data.begin() + 10);
  for (std::uint64_t v = 2; v <= version; ++v) {
    const auto small = pattern(40, static_cast<int>(v));
    std::copy(small.begin(), small.end(), data.begin() + static_cast<std::ptrdiff_t>(v * 1000));
    std::copy(small.begin(), small.begin() + 20, data.begin() + static_cast<std::ptrdiff_t>(v * 100));
  }
  return data;
}

class StoreFormat : public testing::TestWithParam<const char*> {};

TEST_P(StoreFormat, IsReadAndWrittenOn) {
  const TemporaryDirectory directory;
  fs::copy(golden(GetParam()), directory.path() + "/store", fs::copy_options::recursive);
  Store store(directory.url(), {.create = false});
  const CheckReport report = store.check();
  EXPECT_TRUE(report.problems.empty()) << report.problems.front();
  const auto blobs = store.list();
  ASSERT_EQ(blobs.size(), 2u);
  EXPECT_EQ(blobs[0].name, "field");
  EXPECT_EQ(blobs[0].first_version, 61u);
  EXPECT_EQ(blobs[0].latest_version, 70u);
  EXPECT_EQ(blobs[1].name, "log");
  EXPECT_TRUE(blobs[1].grows);
  for (std::uint64_t version = 61; version <= 70; ++version) {
    EXPECT_EQ(whole(store.open("field").snapshot(version)), field_at(version)) << version;
  }
  const Blob log = store.open("log");
  const auto data = pattern(5'000, 3);
  EXPECT_EQ(whole(log.snapshot(1)), data);
  std::vector<std::byte> expected(data.begin(), data.begin() + 3'000);
  expected.insert(expected.end(), data.begin(), data.begin() + 10);
  EXPECT_EQ(whole(log.snapshot()), expected);
  std::string kinds;
  for (const LogEntry& entry : log.log()) kinds += entry.kind + " ";
  EXPECT_EQ(kinds, "append resize append fence void ");
  // Old stores accept new writes.
  Blob field = store.open("field");
  EXPECT_EQ(field.write({}), 71u);
}

INSTANTIATE_TEST_SUITE_P(All, StoreFormat, testing::Values("store-v1", "store-v2"),
                         [](const auto& store) { return std::string(store.param + 6); });

constexpr std::size_t kParts = 18'000;

/// The content of version `version` of "parts": many regions that do not join, then one small write per version.
std::vector<std::byte> parts_at(std::uint64_t version) {
  std::vector<std::byte> data(kParts * 5);
  for (std::size_t i = 0; i < kParts; ++i) {
    std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(i * 5), 3, static_cast<std::byte>(i));
  }
  for (std::uint64_t v = 2; v <= version; ++v) {
    const auto small = pattern(100, static_cast<int>(v));
    std::copy(small.begin(), small.end(), data.begin() + static_cast<std::ptrdiff_t>(v * 11'111));
  }
  return data;
}

TEST(StoreFormat3, IsReadInPartsAndWrittenOn) {
  const TemporaryDirectory directory;
  fs::copy(golden("store-v3"), directory.path() + "/store", fs::copy_options::recursive);
  Store store(directory.url(), {.create = false});
  const CheckReport report = store.check();
  EXPECT_TRUE(report.problems.empty()) << report.problems.front();
  const auto backend = store::open_backend(directory.url());
  const auto cold = store::BlobState::open(backend, "parts");
  EXPECT_TRUE(cold->readable_at(4).map->is_partial());
  EXPECT_EQ(store.list().front().first_version, 3u);
  for (std::uint64_t version = 3; version <= 5; ++version) {
    EXPECT_EQ(whole(store.open("parts").snapshot(version)), parts_at(version)) << version;
  }
  Blob parts = store.open("parts");
  EXPECT_EQ(parts.write({}), 6u);
  store.gc({.keep_last = 1, .lease = std::chrono::seconds(0)});
  EXPECT_EQ(whole(store.open("parts").snapshot()), parts_at(5));
}

TEST(StoreFormat3, DISABLED_WriteStore) {
  Store store("file://" + golden("store-v3").string());
  Blob parts = store.create("parts", {.size_bytes = kParts * 5});
  const std::vector<std::byte> first = parts_at(1);
  std::vector<WriteRegion> regions;
  for (std::size_t i = 0; i < kParts; ++i) regions.push_back({i * 5, ConstBytes(first).subspan(i * 5, 3)});
  parts.write(regions);
  for (std::uint64_t version = 2; version <= 5; ++version) {
    const auto small = pattern(100, static_cast<int>(version));
    const WriteRegion region{version * 11'111, small};
    parts.write(std::span(&region, 1));
  }
  store.gc({.keep_last = 3});
}

/// The content of version `version` of "deltas": many regions, then two small ones per version.
std::vector<std::byte> deltas_at(std::uint64_t version) {
  std::vector<std::byte> data(30'000);
  for (std::size_t i = 0; i < 3'000; ++i) {
    std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(i * 10), 3, static_cast<std::byte>(i));
  }
  for (std::uint64_t v = 2; v <= version; ++v) {
    const auto small = pattern(40, static_cast<int>(v));
    std::copy(small.begin(), small.end(), data.begin() + static_cast<std::ptrdiff_t>(v * 411));
  }
  return data;
}

TEST(StoreWithDeltas, IsReadByThemAndWrittenOn) {
  const TemporaryDirectory directory;
  fs::copy(golden("store-v3-deltas"), directory.path() + "/store", fs::copy_options::recursive);
  Store store(directory.url(), {.create = false});
  const CheckReport report = store.check();
  EXPECT_TRUE(report.problems.empty()) << report.problems.front();
  const auto backend = store::open_backend(directory.url());
  const auto state = store::BlobState::open(backend, "deltas");
  EXPECT_EQ(backend->list(state->key("delta")), (std::vector<std::string>{state->delta_key(32), state->delta_key(64)}));
  EXPECT_TRUE(state->readable_at(70).map->is_partial());
  // Nothing but the deltas says what these versions changed.
  for (std::uint64_t version = 7; version < 64; ++version) backend->replace(state->record_key(version), {});
  for (const std::uint64_t version : {1, 6, 32, 64, 65, 70}) {
    EXPECT_EQ(whole(store.open("deltas").snapshot(version)), deltas_at(version)) << version;
  }
  EXPECT_EQ(store.open("deltas").write({}), 71u);
}

TEST(StoreWithDeltas, DISABLED_WriteStore) {
  Store store("file://" + golden("store-v3-deltas").string());
  Blob blob = store.create("deltas", {.size_bytes = 30'000});
  const std::vector<std::byte> first = deltas_at(1);
  std::vector<WriteRegion> regions;
  for (std::size_t i = 0; i < 3'000; ++i) regions.push_back({i * 10, ConstBytes(first).subspan(i * 10, 3)});
  blob.write(regions);
  for (std::uint64_t version = 2; version <= 70; ++version) {
    const auto small = pattern(40, static_cast<int>(version));
    const WriteRegion region{version * 411, small};
    blob.write(std::span(&region, 1));
  }
}

/// The content of version `version` of "compressed".
std::vector<std::byte> compressed_at(std::uint64_t version) {
  std::vector<std::byte> data(150'000);
  for (std::uint64_t v = 1; v <= version; ++v) {
    const auto stretch = pattern(30'000, static_cast<int>(v));
    std::copy(stretch.begin(), stretch.end(), data.begin() + static_cast<std::ptrdiff_t>(v * 10'000));
  }
  return data;
}

TEST(StoreFormat4, IsReadAndWrittenOn) {
  const TemporaryDirectory directory;
  fs::copy(golden("store-v4"), directory.path() + "/store", fs::copy_options::recursive);
  Store store(directory.url(), {.create = false});
  const CheckReport report = store.check();
  EXPECT_TRUE(report.problems.empty()) << report.problems.front();
  EXPECT_EQ(report.objects, 8U);
  EXPECT_EQ(store.list().front().first_version, 5u);
  for (std::uint64_t version = 5; version <= 8; ++version) {
    EXPECT_EQ(whole(store.open("compressed").snapshot(version)), compressed_at(version)) << version;
  }
  EXPECT_EQ(store.open("compressed").write({}), 9u);
}

TEST(StoreFormat4, DISABLED_WriteStore) {
  Store store("file://" + golden("store-v4").string(), {.compress_level = 3});
  Blob blob = store.create("compressed", {.size_bytes = 150'000});
  for (std::uint64_t version = 1; version <= 8; ++version) {
    const auto stretch = pattern(30'000, static_cast<int>(version));
    const WriteRegion region{version * 10'000, stretch};
    blob.write(std::span(&region, 1));
  }
  store.gc({.keep_last = 4});
}

TEST(StoreFormatOfNow, DISABLED_WriteStore) {
  const fs::path folder = golden("store-v2");
  Store store("file://" + folder.string());
  Blob field = store.create("field", {.size_bytes = 80'000});
  const auto large = pattern(70'000, 1);
  const WriteRegion region{10, large};
  field.write(std::span(&region, 1));
  for (std::uint64_t version = 2; version <= 70; ++version) {
    const auto small = pattern(40, static_cast<int>(version));
    const WriteRegion regions[] = {{version * 1000, small}, {version * 100, ConstBytes(small).first(20)}};
    field.write(regions);
  }
  store.gc({.keep_last = 10});
  Blob log = store.create("log", {.grows = true});
  const auto data = pattern(5'000, 3);
  const ConstBytes pieces[] = {ConstBytes(data), ConstBytes(data).first(10)};
  log.append(std::span(pieces, 1));
  log.resize(3'000);
  log.append(std::span(pieces + 1, 1));
  const WriteRegion lost{0, data};
  const StagedWrite part = log.stage(std::span(&lost, 1));
  store.gc({.lease = std::chrono::seconds(0)});
  EXPECT_EQ(log.commit(std::span(&part, 1)), std::nullopt);
}

}  // namespace
}  // namespace penstock
