// Maps in parts: what lookups find in a stored map, with records on top, is what the whole map says. They read a small
// part of the object, and notice every changed byte of what they read.
#include "store/map_parts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "eventually.hpp"
#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "store/blob_state.hpp"
#include "store/encoding.hpp"
#include "store/version_map.hpp"
#include "unit/store/outcomes.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock::store {
namespace {

/// Holds one object, and counts what is read of it.
class OneObject final : public Backend {
 public:
  explicit OneObject(std::vector<std::byte> content) : content_(std::move(content)) {}

  void read(std::string_view, std::uint64_t offset_bytes, Bytes to) const override {
    if (content_.empty()) throw Error(ErrorCode::not_found, "the object was removed");
    if (offset_bytes + to.size() > content_.size()) throw Error(ErrorCode::corrupt, "the object is too short");
    std::copy_n(content_.data() + offset_bytes, to.size(), to.data());
    read_bytes += to.size();
    ++reads;
    on_read();
  }
  std::uint64_t size_bytes(std::string_view) const override { return content_.size(); }
  bool put_if_absent(std::string_view, std::span<const ConstBytes>) override { return false; }
  bool exists(std::string_view) const override { return true; }
  std::vector<std::string> list(std::string_view) const override { return {}; }
  bool remove(std::string_view) override { return false; }
  const std::string& url() const override { return url_; }

  std::vector<std::byte> content_;
  mutable std::atomic<std::uint64_t> read_bytes{0};
  mutable std::atomic<std::uint64_t> reads{0};
  std::function<void()> on_read = [] {};

 private:
  const std::string url_ = "test:";
};

Record record_of(std::uint64_t number, std::vector<Extent> extents, bool inlined = false) {
  Record record;
  record.identity = 1000 + number;
  Part part;
  std::uint64_t total_bytes = 0;
  for (const Extent& extent : extents) total_bytes += extent.size_bytes;
  part.extents = std::move(extents);
  if (inlined) {
    part.inlined.assign(total_bytes, static_cast<std::byte>(number));
  } else {
    char key[120];
    std::snprintf(key, sizeof key, "places/1-2/data/%020llu-%020llu-%016llx-%llu",
                  static_cast<unsigned long long>(number), static_cast<unsigned long long>(number * 977), 5ull,
                  static_cast<unsigned long long>(number));
    part.object = {key, total_bytes, 1 + total_bytes / 4096, {number * 7, ~number}};
  }
  record.parts.push_back(std::move(part));
  return record;
}

/// Where the bytes of a range lie, as text. Neighbouring stretches of one source are joined.
std::string described(const VersionMap& map, std::uint64_t offset, std::uint64_t size) {
  std::string text;
  std::uint64_t end = offset;
  std::string before;
  map.visit(offset, size, [&](std::uint64_t at, std::uint64_t length, const Source* source, std::uint64_t skip) {
    EXPECT_EQ(at, end);
    end = at + length;
    const std::string name = source == nullptr ? "zeros"
                             : source->is_object()
                                 ? source->object().key + "," + std::to_string(source->object().data_bytes) +
                                       to_string(source->object().table_sum)
                                 : "inlined " + std::to_string(int(source->inlined()[0]));
    const std::string place = name + "@" + (source == nullptr ? "" : std::to_string(at - skip));
    if (place != before) text += "\n" + std::to_string(at) + " " + place;
    before = place;
  });
  EXPECT_EQ(end, offset + size);
  return text + "\n" + std::to_string(end);
}

/// A version of `count` fragments and more sources than one block holds.
VersionMap many_fragments(std::size_t count, std::mt19937_64& random) {
  VersionMap map(7, 0);
  constexpr std::uint64_t kRegions = 500;
  for (std::uint64_t number = 1; map.fragment_count() < count; ++number) {
    std::vector<Extent> extents;
    std::uint64_t at = random() % (40 * count);
    for (std::uint64_t i = 0; i < kRegions / (number % 3 == 0 ? 100 : 1); ++i) {
      at += 1 + random() % 100;
      extents.push_back({at, 1 + random() % 60});
      at += extents.back().size_bytes;
    }
    map.apply(record_of(number, std::move(extents), number % 3 == 0));
  }
  return map;
}

std::shared_ptr<OneObject> stored(const VersionMap& map) { return std::make_shared<OneObject>(map.encode_parts()); }

VersionMap partial(const std::shared_ptr<OneObject>& object) {
  auto map = StoredMap::open(object, "index/1", kIndexMagic);
  if (!map) throw Error(ErrorCode::internal, "the map is not in parts");
  return VersionMap(std::move(map));
}

TEST(MapParts, ComeBackAsAWhole) {
  std::mt19937_64 random(1);
  for (const std::size_t count : {1u, 511u, 5'000u, 200'000u}) {
    const VersionMap map = many_fragments(count, random);
    const VersionMap read = VersionMap::decode(map.encode_parts(), "map");
    EXPECT_TRUE(read == map) << count;
    EXPECT_EQ(read.encode_whole(), map.encode_whole()) << count;
  }
  const VersionMap empty(7, 100);
  EXPECT_TRUE(VersionMap::decode(empty.encode_parts(), "map") == empty);
}

TEST(MapParts, TakeLittleMoreSpaceThanAWhole) {
  std::mt19937_64 random(2);
  const VersionMap map = many_fragments(100'000, random);
  EXPECT_LT(map.encode_parts().size(), map.encode_whole().size() * 11 / 10);
}

TEST(MapParts, LookupsFindWhatTheWholeMapSays) {
  std::mt19937_64 random(3);
  const VersionMap whole = many_fragments(150'000, random);
  const auto object = stored(whole);
  const VersionMap parts = partial(object);
  EXPECT_TRUE(parts.is_partial());
  EXPECT_EQ(parts.version(), whole.version());
  EXPECT_EQ(parts.size_bytes(), whole.size_bytes());
  for (int i = 0; i < 300; ++i) {
    const std::uint64_t offset = random() % whole.size_bytes();
    const std::uint64_t size = std::min(whole.size_bytes() - offset, random() % (i % 10 == 0 ? 400'000 : 3'000));
    ASSERT_EQ(described(parts, offset, size), described(whole, offset, size)) << offset << "+" << size;
  }
  ASSERT_EQ(described(parts, 0, whole.size_bytes()), described(whole, 0, whole.size_bytes()));
  EXPECT_LT(object->read_bytes, 2 * object->content_.size()) << "what was read is kept";
  EXPECT_EQ(described(parts, whole.size_bytes(), 1000), described(whole, whole.size_bytes(), 1000));
}

TEST(MapParts, ALookupReadsFewBlocks) {
  std::mt19937_64 random(4);
  std::uint64_t before = 100u << 10;
  for (const std::size_t count : {20'000u, 640'000u}) {
    const VersionMap whole = many_fragments(count, random);
    const auto object = stored(whole);
    const VersionMap parts = partial(object);
    const std::uint64_t offset = random() % (whole.size_bytes() - 1000);
    described(parts, offset, 1000);
    EXPECT_LT(object->read_bytes, 200u << 10) << "of " << object->content_.size() << " for " << count << " fragments";
    EXPECT_LT(object->reads, 60u) << count << " fragments";
    EXPECT_LT(object->read_bytes, before + (100u << 10)) << "32 times the fragments";
    before = object->read_bytes;
  }
}

/// A random record; void, or of any kind.
Record any_record(const VersionMap& map, std::uint64_t number, std::mt19937_64& random) {
  Record record = record_of(number, {{random() % 900'000, 1 + random() % 5'000}}, number % 2 == 0);
  record.base = random() % 3 == 0 ? 1 : map.version();
  const auto kind = random() % 8;
  if (kind == 0) {
    record.kind = RecordKind::append;
  } else if (kind == 1) {
    record.kind = RecordKind::resize;
    record.number = random() % 1'200'000;
  } else if (kind == 2) {
    record.kind = RecordKind::fence;
    record.number = 2;
  }
  return record;
}

/// Threads that meet. A failure of the test, and not its end, if one does not come for a long time.
class Meeting {
 public:
  explicit Meeting(int members) : missing_(members) {}

  void join() {
    std::unique_lock lock(mutex_);
    if (--missing_ <= 0) return changed_.notify_all();
    met_ = changed_.wait_for(lock, test::kHung, [&] { return missing_ <= 0; });
    missing_ = 0;
  }
  bool all_met() const { return met_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int missing_;
  bool met_ = false;
};

TEST(MapParts, LookupsOfOneMapReadAtTheSameTime) {
  std::mt19937_64 random(8);
  const VersionMap map = many_fragments(300'000, random);
  const auto object = stored(map);
  const VersionMap lookups = partial(object);
  const std::uint64_t low = map.size_bytes() / 8;
  const std::uint64_t high = map.size_bytes() / 8 * 7;
  Meeting reads(2);
  object->on_read = [&] { reads.join(); };
  std::string low_text;
  std::string high_text;
  std::thread reader([&] { low_text = described(lookups, low, 1000); });
  high_text = described(lookups, high, 1000);
  reader.join();
  EXPECT_TRUE(reads.all_met()) << "a lookup waited while another one read from storage";
  EXPECT_EQ(low_text, described(map, low, 1000));
  EXPECT_EQ(high_text, described(map, high, 1000));
}

TEST(MapParts, ABlockThatSeveralLookupsNeedIsReadOnce) {
  std::mt19937_64 random(9);
  const VersionMap map = many_fragments(50'000, random);
  const std::uint64_t size_bytes = map.size_bytes();
  const auto once = stored(map);
  const std::string expected = described(partial(once), 0, size_bytes);
  const auto object = stored(map);
  const VersionMap lookups = partial(object);
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts) threads.emplace_back([&] { text = described(lookups, 0, size_bytes); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, expected);
  EXPECT_EQ(object->read_bytes.load(), once->read_bytes.load());
}

TEST(MapParts, AFailedReadIsTriedAgainByTheNextLookup) {
  std::mt19937_64 random(10);
  const VersionMap map = many_fragments(20'000, random);
  const auto object = stored(map);
  const VersionMap lookups = partial(object);
  object->on_read = [] { throw Error(ErrorCode::io, "the device does not answer"); };
  const std::uint64_t middle = map.size_bytes() / 2;
  EXPECT_THROW(described(lookups, middle, 1000), Error);
  object->on_read = [] {};
  EXPECT_EQ(described(lookups, middle, 1000), described(map, middle, 1000));
}

TEST(MapParts, RecordsOnTopAreReplayedAsOnAWholeMap) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 4; ++round) {
    VersionMap whole = many_fragments(20'000, random);
    VersionMap parts = partial(stored(whole));
    for (std::uint64_t number = 1; number < 120; ++number) {
      const Record record = any_record(whole, 100'000 + number, random);
      ASSERT_EQ(parts.apply(record), whole.apply(record));
      ASSERT_EQ(parts.size_bytes(), whole.size_bytes());
      ASSERT_EQ(parts.made(record.identity, parts.version()), whole.made(record.identity, whole.version()));
      if (number % 10 != 0) continue;
      const std::uint64_t offset = whole.size_bytes() / 3;
      ASSERT_EQ(described(parts, offset, whole.size_bytes() / 2), described(whole, offset, whole.size_bytes() / 2));
    }
    ASSERT_EQ(described(parts, 0, whole.size_bytes()), described(whole, 0, whole.size_bytes()));
  }
}

/// A delta of the records behind `from`, on top of what `merged` have.
std::vector<std::byte> delta_of(const VersionMap& from, const std::vector<std::vector<std::byte>>& merged,
                                const std::vector<Record>& records) {
  VersionMap changes(StoredMap::head_only(from.head()));
  for (const auto& delta : merged) changes.apply_delta(delta, "delta");
  for (const Record& record : records) changes.apply(record);
  return changes.encode_delta();
}

TEST(Deltas, SayWhatTheRecordsSay) {
  std::mt19937_64 random(9);
  for (int round = 0; round < 6; ++round) {
    const VersionMap base = many_fragments(20'000, random);
    VersionMap whole = base;
    std::vector<VersionMap> at = {base};
    std::vector<std::vector<std::byte>> deltas;
    std::vector<Record> all;
    for (int one = 0; one < 4; ++one) {
      std::vector<Record> records;
      for (std::uint64_t i = 0; i < 40; ++i) {
        records.push_back(any_record(whole, 1'000'000 + whole.version(), random));
        whole.apply(records.back());
        all.push_back(records.back());
      }
      deltas.push_back(delta_of(at.back(), {}, records));
      at.push_back(whole);
    }
    const std::vector<std::byte> merged = delta_of(base, deltas, {});
    VersionMap by_deltas(StoredMap::head_only(base.head()));
    VersionMap by_records = by_deltas;
    by_deltas.apply_delta(merged, "delta");
    EXPECT_FALSE(by_deltas.changes_as(by_records));
    for (const Record& record : all) by_records.apply(record);
    EXPECT_TRUE(by_deltas.changes_as(by_records));
    VersionMap other = by_records;
    Record one = record_of(9, {{random() % 900'000, 1}});
    one.base = UINT64_MAX;
    other.apply(one);
    one.parts.clear();
    by_records.apply(one);
    EXPECT_FALSE(by_records.changes_as(other));
    // On the base, and on any version between, whole or in parts.
    for (std::size_t from = 0; from < at.size(); ++from) {
      // A small map is never partial.
      const bool is_large = at[from].encode_parts().size() > (64 << 10);
      for (VersionMap map : {at[from], is_large ? partial(stored(at[from])) : at[from]}) {
        map.apply_delta(merged, "delta");
        EXPECT_EQ(map.size_bytes(), whole.size_bytes());
        EXPECT_EQ(map.version(), whole.version());
        ASSERT_EQ(described(map, 0, whole.size_bytes()), described(whole, 0, whole.size_bytes())) << from;
        Record late = record_of(5, {{7, 9}});
        late.base = 1;
        EXPECT_EQ(map.apply(late), VersionMap(whole).apply(late)) << "fences count";
      }
    }
    // In layers that are read in parts.
    VersionMap layers = partial(stored(base));
    for (const auto& delta : deltas) {
      const auto object = std::make_shared<OneObject>(delta);
      layers = VersionMap::over(std::move(layers), open_delta(object, "delta/1"));
    }
    for (int i = 0; i < 30; ++i) {
      const std::uint64_t offset = random() % (whole.size_bytes() + 1);
      const std::uint64_t size = random() % (whole.size_bytes() - offset + 1);
      ASSERT_EQ(described(layers, offset, size), described(whole, offset, size));
    }
    EXPECT_EQ(layers.replayed_since(base.version()).cost, whole.replayed_since(base.version()).cost);
    EXPECT_GE(layers.fragment_count(), whole.fragment_count());
  }
}

TEST(Deltas, AreNotTakenForIndexesOrForThoseOfOtherVersions) {
  std::mt19937_64 random(10);
  const VersionMap base = many_fragments(5'000, random);
  const std::vector<std::byte> delta = delta_of(base, {}, {record_of(1, {{0, 10}}), record_of(2, {{50, 10}})});
  EXPECT_EQ(code_of([&] { (void)VersionMap::decode(delta, "map"); }), ErrorCode::corrupt);
  VersionMap before(7, 100);
  EXPECT_EQ(code_of([&] { before.apply_delta(delta, "delta"); }), ErrorCode::corrupt);
  VersionMap map = base;
  EXPECT_EQ(code_of([&] { map.apply_delta(base.encode_parts(), "delta"); }), ErrorCode::corrupt);
  for (std::size_t at = 0; at < delta.size(); ++at) {
    std::vector<std::byte> changed = delta;
    changed[at] ^= std::byte{4};
    EXPECT_EQ(code_of([&] { VersionMap(base).apply_delta(changed, "delta"); }), ErrorCode::corrupt) << at;
  }
}

TEST(MapParts, APartialMapIsNotTakenForAWholeOne) {
  std::mt19937_64 random(6);
  const VersionMap parts = partial(stored(many_fragments(20'000, random)));
  EXPECT_EQ(code_of([&] { (void)parts.encode(); }), ErrorCode::internal);
  EXPECT_EQ(code_of([&] { (void)parts.sources(); }), ErrorCode::internal);
  EXPECT_EQ(code_of([&] { (void)parts.stored_ranges(); }), ErrorCode::internal);
}

TEST(MapParts, EveryChangedByteIsNoticedWhereItIsRead) {
  std::mt19937_64 random(7);
  const VersionMap whole = many_fragments(20'000, random);
  const std::vector<std::byte> sound = whole.encode_parts();
  const std::string truth = described(whole, 0, whole.size_bytes());
  std::size_t noticed = 0, tried = 0;
  const auto look = [&](std::vector<std::byte> content) {
    ++tried;
    const auto object = std::make_shared<OneObject>(std::move(content));
    try {
      const auto map = StoredMap::open(object, "index/1", kIndexMagic);
      // Not in parts: then it is read as a whole.
      EXPECT_EQ(described(map ? VersionMap(map) : VersionMap::decode(object->content_, "map"), 0, whole.size_bytes()),
                truth);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
      ++noticed;
    }
    EXPECT_THROW((void)VersionMap::decode(object->content_, "map"), Error);
  };
  for (std::size_t at = 0; at < sound.size(); at += at < 200 ? 1 : 1 + random() % 4000) {
    std::vector<std::byte> changed = sound;
    changed[at] ^= std::byte{0x10};
    look(std::move(changed));
  }
  EXPECT_EQ(noticed, tried);
  for (const std::size_t size : {sound.size() - 1, sound.size() - 16, sound.size() / 2, std::size_t{66'000}}) {
    look({sound.begin(), sound.begin() + static_cast<std::ptrdiff_t>(size)});
  }
}

TEST(MapParts, AFaultyWriterIsNoticed) {
  std::mt19937_64 random(8);
  const VersionMap map = many_fragments(600, random);
  const std::vector<std::byte> sealed = map.encode_parts();
  const std::vector<std::byte> content(sealed.begin(), sealed.end() - 16);
  std::size_t refused = 0;
  // The changed map is sealed again. Decoding it gives an Error or a map, never a crash.
  const auto decode = [&](const std::vector<std::byte>& changed) {
    Encoder encoder;
    encoder.raw(changed);
    try {
      (void)VersionMap::decode(encoder.seal(), "map");
    } catch (const Error&) {
      ++refused;
    }
  };
  std::size_t ends = 0;
  for (std::size_t size = 0; size < content.size(); size += 7, ++ends) {
    decode({content.begin(), content.begin() + static_cast<std::ptrdiff_t>(size)});
  }
  EXPECT_EQ(refused, ends) << "a map that ends early was taken for one";
  for (std::size_t at = 0; at < content.size(); at += 3) {
    for (const int value : {0x00, 0x7f, 0x80, 0xff}) {
      std::vector<std::byte> changed = content;
      changed[at] = static_cast<std::byte>(value);
      decode(changed);
    }
  }
}

/// A blob of 30,000 fragments in a directory, and its bytes.
class BlobInParts : public testing::Test {
 protected:
  static constexpr std::size_t kPieces = 30'000;
  static constexpr std::size_t kPiece = 40;

  BlobInParts() : url_("file://" + directory_.path() + "/store"), store_(url_, {.durable = false}) {
    Blob blob = store_.create("field", {.size_bytes = kPieces * kPiece});
    truth_.resize(kPieces * kPiece);
    for (std::uint64_t version = 1; version <= 4; ++version) {
      std::vector<WriteRegion> regions;
      for (std::size_t piece = version % 2; piece < kPieces; piece += 2) {
        std::fill_n(truth_.begin() + static_cast<std::ptrdiff_t>(piece * kPiece), kPiece,
                    static_cast<std::byte>(version * 50 + piece % 50));
      }
      const std::vector<std::byte>& content = truths_.emplace_back(truth_);
      for (std::size_t piece = version % 2; piece < kPieces; piece += 2) {
        regions.push_back({piece * kPiece, ConstBytes(content).subspan(piece * kPiece, kPiece)});
      }
      blob.write(regions);
    }
    backend_ = open_backend(url_);
  }

  std::vector<std::byte> read(const Snapshot& snapshot, std::uint64_t offset, std::size_t size) const {
    std::vector<std::byte> data(size);
    const ReadRegion region{offset, data};
    snapshot.read(std::span(&region, 1));
    return data;
  }
  std::vector<std::byte> expected(std::uint64_t version, std::uint64_t offset, std::size_t size) const {
    const auto& truth = truths_.at(version - 1);
    return {truth.begin() + static_cast<std::ptrdiff_t>(offset),
            truth.begin() + static_cast<std::ptrdiff_t>(offset + size)};
  }
  std::shared_ptr<BlobState> state() const { return BlobState::open(backend_, "field"); }
  std::string path(const std::string& key) const { return directory_.path() + "/store/" + key; }
  void flip(const std::string& key, std::size_t at) const {
    std::fstream file(path(key), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
    ASSERT_TRUE(file.good());
  }

  const TemporaryDirectory directory_;
  const std::string url_;
  Store store_;
  std::shared_ptr<Backend> backend_;
  std::vector<std::byte> truth_;
  std::vector<std::vector<std::byte>> truths_;  ///< by version - 1
};

TEST_F(BlobInParts, IsReadColdFromItsIndex) {
  state()->put_index(2);
  state()->put_index(4);
  const auto cold = state();
  EXPECT_TRUE(cold->readable_at(4).map->is_partial());
  EXPECT_TRUE(cold->readable_at(2).map->is_partial());
  for (const std::uint64_t version : {1, 2, 3, 4}) {
    const Snapshot snapshot = store_.open("field").snapshot(version);
    EXPECT_EQ(read(snapshot, 333'333, 40'000), expected(version, 333'333, 40'000)) << version;
    EXPECT_EQ(read(snapshot, 0, truth_.size()), expected(version, 0, truth_.size())) << version;
  }
  EXPECT_TRUE(store_.check().problems.empty());
}

TEST_F(BlobInParts, AVersionWithAnIndexIsReadWithoutItsRecord) {
  state()->put_index(4);
  flip(state()->record_key(4), 20);
  const Snapshot snapshot = store_.open("field").snapshot(4);
  EXPECT_EQ(read(snapshot, 0, truth_.size()), truth_);
}

TEST_F(BlobInParts, ADamagedBlockIsPassedOver) {
  state()->put_index(4);
  const std::string index = state()->index_key(4);
  const std::uint64_t size = backend_->size_bytes(index);
  const Snapshot opened = store_.open("field").snapshot(4);
  for (std::uint64_t at = size / 2; at < size - 40; at += size / 9) flip(index, at);
  EXPECT_EQ(read(opened, 0, truth_.size()), truth_) << "opened before";
  const Snapshot snapshot = store_.open("field").snapshot();
  EXPECT_EQ(read(snapshot, 0, truth_.size()), truth_) << "the log says the same";
  EXPECT_EQ(read(store_.open("field").snapshot(4), 500'000, 100'000), expected(4, 500'000, 100'000));
  EXPECT_EQ(store_.check().problems.size(), 1u);
  EXPECT_EQ(store_.repair({.apply = true}).actions.size(), 1u);
  EXPECT_TRUE(store_.check().problems.empty());
}

TEST_F(BlobInParts, DamageWithoutALogIsCorruptWhereItIsRead) {
  store_.gc({.keep_last = 1, .lease = std::chrono::seconds(0)});
  const std::string index = state()->index_key(4);
  ASSERT_TRUE(backend_->exists(index));
  // The last leaf of the fragments; nodes and the seal come behind it.
  flip(index, backend_->size_bytes(index) - 200);
  const Snapshot snapshot = store_.open("field").snapshot(4);
  EXPECT_EQ(read(snapshot, 0, 100'000), expected(4, 0, 100'000)) << "far from the damage";
  EXPECT_EQ(code_of([&] { read(snapshot, 0, truth_.size()); }), ErrorCode::corrupt);
  EXPECT_FALSE(store_.check().problems.empty());
}

TEST_F(BlobInParts, AVersionStaysReadableWhileItsIndexIsCollected) {
  state()->put_index(3);
  Blob blob = store_.open("field");
  const Snapshot collected = blob.snapshot(3);
  const Snapshot kept = store_.open("field").snapshot(4);
  EXPECT_EQ(read(kept, 0, 100), expected(4, 0, 100)) << "by the index of version 3";
  store_.gc({.keep_last = 1, .lease = std::chrono::seconds(0)});
  ASSERT_FALSE(backend_->exists(state()->index_key(3)));
  EXPECT_EQ(read(kept, 0, truth_.size()), truth_);
  EXPECT_EQ(code_of([&] { read(collected, 0, truth_.size()); }), ErrorCode::not_found);
}

TEST_F(BlobInParts, AWriterGoesOnBehindIt) {
  state()->put_index(4);
  Blob blob = store_.open("field");
  EXPECT_EQ(read(blob.snapshot(), 700'000, 5'000), expected(4, 700'000, 5'000));
  const std::vector<std::byte> news(3'000, std::byte{9});
  const WriteRegion region{700'500, news};
  EXPECT_EQ(blob.write(std::span(&region, 1)), 5u);
  std::copy(news.begin(), news.end(), truth_.begin() + 700'500);
  EXPECT_EQ(read(blob.snapshot(), 0, truth_.size()), truth_);
  EXPECT_EQ(read(store_.open("field").snapshot(), 0, truth_.size()), truth_) << "read cold";
}

}  // namespace
}  // namespace penstock::store
