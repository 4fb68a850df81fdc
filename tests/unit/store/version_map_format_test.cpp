// Stored maps: decoding returns the encoded map, for any writers and any names of the data, and the encoding is small.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "penstock/error.hpp"
#include "store/encoding.hpp"
#include "store/version_map.hpp"

namespace penstock::store {
namespace {

std::string data_key(std::uint64_t base, std::uint64_t time_ns, std::uint64_t writer, std::uint64_t n) {
  char name[120];
  std::snprintf(name, sizeof name, "blobs/field/data/%020llu-%020llu-%016llx-%llu",
                static_cast<unsigned long long>(base), static_cast<unsigned long long>(time_ns),
                static_cast<unsigned long long>(writer), static_cast<unsigned long long>(n));
  return name;
}

Record record_of(std::uint64_t identity, std::string key, std::vector<Extent> extents) {
  Record record;
  record.identity = identity;
  Part part;
  std::uint64_t total_bytes = 0;
  for (const Extent& extent : extents) total_bytes += extent.size_bytes;
  part.extents = std::move(extents);
  if (key.empty()) {
    part.inlined.assign(total_bytes, static_cast<std::byte>(identity));
  } else {
    part.object = {std::move(key), total_bytes, 1 + total_bytes / 4096, {identity * 7, ~identity}};
  }
  record.parts.push_back(std::move(part));
  return record;
}

/// The sources of all bytes, as text.
std::string described(const VersionMap& map) {
  std::string text = std::to_string(map.version()) + " " + std::to_string(map.size_bytes()) + ":";
  map.visit(0, map.size_bytes(),
            [&](std::uint64_t offset, std::uint64_t size, const Source* source, std::uint64_t skip) {
              text += " " + std::to_string(offset) + "+" + std::to_string(size);
              if (source == nullptr) return;
              const ObjectReference& object = source->object();
              text += "=" +
                      (source->is_object() ? object.key + "," + std::to_string(object.data_bytes) + "," +
                                                 std::to_string(object.chunk_count) + to_string(object.table_sum)
                                           : std::to_string(static_cast<int>(source->inlined()[0]))) +
                      "@" + std::to_string(skip);
            });
  return text;
}

VersionMap stored_and_read(const VersionMap& map) {
  const std::vector<std::byte> sealed = map.encode();
  return VersionMap::decode(sealed, "map");
}

TEST(VersionMapFormat, ComesBackAsItWas) {
  std::mt19937_64 random(1);
  for (const std::uint64_t writers : {1, 3, 100}) {
    VersionMap map(5, 1 << 20);
    std::vector<std::uint64_t> identities(writers);
    for (auto& identity : identities) identity = random();
    std::vector<std::uint64_t> made;
    for (std::uint64_t version = 1; version <= 1100; ++version) {
      const std::uint64_t writer = random() % writers;
      made.push_back(identities[writer] += 1 + random() % 3 + (random() % 50 == 0 ? random() >> 20 : 0));
      std::string key = data_key(version - 1, 1'795'212'426'819'743'589 + version * 1000, writer * 77, version);
      if (random() % 8 == 0) key.clear();
      if (random() % 16 == 0) key = "blobs/field/data/" + std::to_string(version);  // of another form
      if (random() % 16 == 0) key = "homes/1-2/data/" + std::to_string(version);    // in another folder
      const std::uint64_t at = random() % 900'000;
      Record record = record_of(made.back(), key, {{at, 1 + random() % 300}, {at + 1000, 1 + random() % 5000}});
      if (version == 500) {
        record.kind = RecordKind::fence;
        record.number = 3;
        record.base = 499;
      }
      record.base = version % 97 == 0 ? 0 : version - 1;  // void if after the fence
      if (version > 500 && version % 97 == 0) made.back() = 0;
      map.apply(record);
    }
    const VersionMap read = stored_and_read(map);
    EXPECT_EQ(described(read), described(map));
    EXPECT_TRUE(read == map);
    EXPECT_EQ(read.fences(2), map.fences(2));
    for (std::uint64_t version = 80; version <= 1100; ++version) {
      if (made[version - 1] == 0) continue;
      EXPECT_EQ(read.made(made[version - 1], version), true) << version;
      EXPECT_EQ(read.made(made[version - 1] + 1, version), false) << version;
    }
    EXPECT_EQ(read.made(1, 70), std::nullopt) << "too long ago";
  }
}

TEST(VersionMapFormat, HoldsTheLargestNumbers) {
  VersionMap map(~0ull, std::uint64_t{1} << 63);
  map.apply(record_of(~0ull, data_key(~0ull, ~0ull, ~0ull, ~0ull), {{(std::uint64_t{1} << 63) - 10, 10}}));
  map.apply(record_of(1, data_key(0, 0, 0, 0), {{0, std::uint64_t{1} << 62}}));
  map.apply(record_of(0x8000'0000'0000'0000, "", {{std::uint64_t{1} << 62, 4}}));
  EXPECT_EQ(described(stored_and_read(map)), described(map));
  EXPECT_EQ(described(stored_and_read(VersionMap(1, 0))), described(VersionMap(1, 0)));
}

TEST(VersionMapFormat, TakesFewBytes) {
  VersionMap map(5, 64'000 << 10);
  for (std::uint64_t version = 1; version <= 1000; ++version) {
    map.apply(record_of(1'000'000 + 2 * version,
                        data_key(version - 1, 1'795'212'426'819'743'589 + version * 190'000, 9, 2 * version),
                        {{(version - 1) << 16, 64 << 10}}));
  }
  EXPECT_LT(map.encode().size(), 1000u * 42);
}

TEST(VersionMapFormat, FindsThatSomethingIsWrong) {
  VersionMap map(5, 1 << 20);
  map.apply(record_of(7, data_key(0, 1, 2, 3), {{10, 5'000}}));
  map.apply(record_of(9, "", {{100, 50}}));
  const std::vector<std::byte> sealed = map.encode();
  const std::vector<std::byte> content(sealed.begin(), sealed.end() - 16);
  // The changed map is sealed again, as by a faulty writer. Decoding it gives an Error or a map, never a crash.
  std::size_t refused = 0;
  const auto decode = [&](const std::vector<std::byte>& changed) {
    Encoder encoder;
    encoder.raw(changed);
    const std::vector<std::byte> again = encoder.seal();
    try {
      (void)VersionMap::decode(again, "map");
    } catch (const Error&) {
      ++refused;
    }
  };
  for (std::size_t size = 0; size < content.size(); ++size)
    decode({content.begin(), content.begin() + static_cast<std::ptrdiff_t>(size)});
  EXPECT_EQ(refused, content.size()) << "a map that ends early was taken for one";
  for (std::size_t at = 0; at < content.size(); ++at) {
    for (const int value : {0x00, 0x7f, 0x80, 0xff}) {
      std::vector<std::byte> changed = content;
      changed[at] = static_cast<std::byte>(value);
      decode(changed);
    }
  }
  std::vector<std::byte> newer = content;
  newer[4] = std::byte{6};
  Encoder encoder;
  encoder.raw(newer);
  const std::vector<std::byte> again = encoder.seal();
  try {
    (void)VersionMap::decode(again, "map");
    FAIL() << "read a map of a newer format";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
  }
}

}  // namespace
}  // namespace penstock::store
