// Properties of the Ceph backend: stripes, attempts that a reclaim has given up, pools. Needs a cluster, see
// schemes.hpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>

#include "penstock/error.hpp"
#include "store/backend.hpp"
#include "store/rados_append.hpp"
#include "store/rados_entry.hpp"
#include "store/rados_io.hpp"
#include "unit/store/schemes.hpp"

namespace penstock::store {
namespace {

class RadosBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    if (test_place("rados").empty()) GTEST_SKIP() << "needs a Ceph cluster: ./dev test --with-ceph";
    url_ = test_url("rados", directory_) + "?stripe_bytes=65536";
    backend_ = open_backend(url_);
    const RadosPlace place = parse_rados_url(url_);
    io_ = std::make_unique<RadosIo>(RadosCluster::connect(place), place, place.pool);
  }

  std::vector<std::string> stripes() const {
    std::vector<std::string> names = io_->objects();
    std::erase_if(names, [](const std::string& name) { return std::ranges::count(name, '@') != 2; });
    return names;
  }

  const TemporaryDirectory directory_;
  std::string url_;
  std::shared_ptr<Backend> backend_;
  std::unique_ptr<RadosIo> io_;
};

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> data(size);
  for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(i * 7 + i / 1000);
  return data;
}

TEST_F(RadosBackendTest, StripesAndGathersAcrossBoundaries) {
  const std::vector<std::byte> data = pattern(1'000'003);
  std::vector<ConstBytes> pieces;
  const ConstBytes all(data);
  for (std::size_t at = 0, size = 1; at < data.size(); at += size, size = size * 3 + 1) {
    pieces.push_back(all.subspan(at, std::min(size, data.size() - at)));
  }
  backend_->put_unannounced("data/x", pieces);
  EXPECT_TRUE(backend_->put_if_absent("data/y", pieces));
  EXPECT_FALSE(backend_->put_if_absent("data/y", pieces));
  EXPECT_EQ(stripes().size(), 2u * 16);
  for (const char* key : {"data/x", "data/y"}) {
    EXPECT_EQ(read_all(*backend_, key), data);
    for (const std::size_t offset : {0u, 65535u, 65536u, 131'000u, 999'000u}) {
      std::vector<std::byte> part(1003);
      backend_->read(key, offset, part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), data.begin() + static_cast<std::ptrdiff_t>(offset))) << offset;
    }
  }
  const auto other = open_backend(test_url("rados", directory_));  // has another stripe size: the writer chooses it
  EXPECT_EQ(read_all(*other, "data/x"), data);
  EXPECT_TRUE(other->remove("data/x"));
  EXPECT_EQ(stripes().size(), 16u);
  std::byte to[4];
  EXPECT_THROW(backend_->read("data/x", 0, to), Error);
  EXPECT_EQ(backend_->reclaim(std::chrono::seconds(0)), 0u);
  EXPECT_EQ(read_all(*backend_, "data/y"), data);
}

TEST_F(RadosBackendTest, ReclaimsStripesOfDeadWritersAndStopsSlowOnes) {
  const std::vector<std::byte> data = pattern(200'000);
  RadosBatch batch(*io_);
  for (int i = 0; i < 3; ++i) batch.write("data/z@dead@" + std::to_string(i), ConstBytes(data).first(65536));
  ASSERT_EQ(batch.wait(), 0);
  EXPECT_EQ(backend_->reclaim(std::chrono::hours(1)), 0u);
  EXPECT_EQ(stripes().size(), 3u);
  EXPECT_EQ(backend_->reclaim(std::chrono::seconds(0)), 3u * 65536);
  EXPECT_TRUE(stripes().empty());
  EXPECT_TRUE(backend_->list("data").empty());
  EXPECT_FALSE(backend_->exists("data/z"));
}

TEST_F(RadosBackendTest, WritersGoOnWhileTheirStripesAreReclaimed) {
  const std::vector<std::byte> data = pattern(3 << 20);
  const ConstBytes piece(data);
  std::atomic<bool> stop{false};
  std::thread collector([&] {
    while (!stop) backend_->reclaim(std::chrono::seconds(0));
  });
  for (int i = 0; i < 12; ++i) {
    const std::string key = "data/" + std::to_string(i);
    if (i % 2 == 0) {
      backend_->put_unannounced(key, std::span(&piece, 1));
    } else {
      EXPECT_TRUE(backend_->put_if_absent(key, std::span(&piece, 1)));
    }
  }
  stop = true;
  collector.join();
  for (int i = 0; i < 12; ++i) EXPECT_EQ(read_all(*backend_, "data/" + std::to_string(i)), data) << i;
}

TEST_F(RadosBackendTest, AppendsOfManyAtOnceAreDenseAndMadeOnce) {
  constexpr int kWriters = 6, kEach = 25;
  std::vector<std::map<std::uint64_t, std::string>> made(kWriters);
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      const auto backend = open_backend(url_);
      for (int i = 0; i < kEach; ++i) {
        // One text in five is too long for several attempts at a time, and one in five is too long for an entry.
        std::string text = std::to_string(writer) + " " + std::to_string(i);
        text.resize(i % 5 == 0 ? 100'000 : i % 5 == 1 ? 200'000 : 500, ' ');
        const ConstBytes piece = std::as_bytes(std::span(text));
        made[writer][backend->append("blobs/x/versions", 1, std::span(&piece, 1))] = text;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  std::map<std::uint64_t, std::string> all;
  for (const auto& some : made) all.insert(some.begin(), some.end());
  ASSERT_EQ(all.size(), std::size_t{kWriters * kEach});
  EXPECT_EQ(all.rbegin()->first, std::uint64_t{kWriters * kEach});
  EXPECT_EQ(backend_->list("blobs/x/versions").size(), all.size());
  for (const auto& [number, text] : all) {
    const std::vector<std::byte> found = backend_->contents(numbered_key("blobs/x/versions", number));
    EXPECT_TRUE(std::ranges::equal(found, std::as_bytes(std::span(text)))) << number;
  }
}

TEST_F(RadosBackendTest, AnAppendThatCephRepeatsIsMadeOnce) {
  const std::string prefix = "blobs/x/versions", shard = shard_of(prefix);
  const auto entry = [&](const std::string& id) {
    return RadosAppender::Entry{shard, prefix, id, encode(RadosEntry{id, 0, 0, {}}, {})};
  };
  RadosAppender appender(*io_);
  for (std::uint64_t number = 1; number <= 5; ++number) {
    const std::string id = "other" + std::to_string(number);
    EXPECT_EQ(RadosAppender(*io_).append(entry(id), number), number);
  }
  // This appender finds the numbers taken, and tries several numbers at once from then on.
  EXPECT_EQ(appender.append(entry("a"), 1), 6u);
  EXPECT_EQ(appender.append(entry("b"), 6), 7u);
  EXPECT_EQ(appender.append(entry("a"), 1), 6u);
  EXPECT_EQ(appender.append(entry("b"), 6), 7u);
  EXPECT_EQ(RadosAppender(*io_).append(entry("other3"), 3), 3u);
  EXPECT_EQ(backend_->list(prefix).size(), 7u);
}

TEST_F(RadosBackendTest, AnAppendBehindANumberTakesNoneThatWasFreed) {
  const std::string prefix = "blobs/x/versions";
  const std::string text = "record";
  const ConstBytes piece = std::as_bytes(std::span(text));
  EXPECT_EQ(backend_->append_behind(prefix, 3, std::span(&piece, 1)), std::nullopt);
  for (std::uint64_t number = 1; number <= 60; ++number) {
    ASSERT_EQ(backend_->append(prefix, number, std::span(&piece, 1)), number);
  }
  EXPECT_EQ(backend_->append_behind(prefix, 2, std::span(&piece, 1)), 61u);
  EXPECT_EQ(backend_->last_number(prefix, 0), 61u);
  EXPECT_EQ(backend_->last_number(prefix, 61), 61u);
  for (std::uint64_t number = 1; number <= 50; ++number) backend_->remove(numbered_key(prefix, number));
  EXPECT_EQ(backend_->append_behind(prefix, 2, std::span(&piece, 1)), std::nullopt);
  EXPECT_EQ(backend_->append_behind(prefix, 51, std::span(&piece, 1)), 62u);
  EXPECT_FALSE(backend_->exists(numbered_key(prefix, 3)));
  const std::vector<std::string> keys{numbered_key(prefix, 50), numbered_key(prefix, 62)};
  const auto found = backend_->contents_of(keys);
  EXPECT_TRUE(found[0].empty());
  EXPECT_TRUE(std::ranges::equal(found[1], piece));
}

TEST_F(RadosBackendTest, MarksOfAppendsDoNotPileUp) {
  const std::string prefix = "blobs/y/versions", shard = shard_of(prefix);
  const auto entry = [&](const std::string& id) {
    return RadosAppender::Entry{shard, prefix, id, encode(RadosEntry{id, 0, 0, {}}, {})};
  };
  RadosAppender appender(*io_), other(*io_);
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::string mine = "mine" + std::to_string(i), theirs = "theirs" + std::to_string(i);
    ASSERT_EQ(other.append(entry(theirs), 2 * i + 1), 2 * i + 1);
    ASSERT_EQ(appender.append(entry(mine), 2 * i + 1), 2 * i + 2);
  }
  const std::size_t marks = io_->keys(shard, "!").size();
  EXPECT_GE(marks, 32u);
  EXPECT_LE(marks, 64u);
}

TEST_F(RadosBackendTest, ReportsAMissingStripeAndAMissingPool) {
  const std::vector<std::byte> data = pattern(200'000);
  const ConstBytes piece(data);
  backend_->put_unannounced("data/x", std::span(&piece, 1));
  RadosBatch batch(*io_);
  batch.remove(stripes().front());
  ASSERT_EQ(batch.wait(), 0);
  try {
    read_all(*backend_, "data/x");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
  }
  try {
    open_backend("rados://no-such-pool/x");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found) << error.what();
  }
}

}  // namespace
}  // namespace penstock::store
