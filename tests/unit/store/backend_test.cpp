// One suite for all rows of backends.def. A new backend needs no edit here.
#include "store/backend.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "penstock/error.hpp"
#include "unit/store/outcomes.hpp"
#include "unit/store/schemes.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock::store {
namespace {

ConstBytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

bool put(Backend& backend, std::string_view key, std::string_view text) {
  const ConstBytes piece = bytes_of(text);
  return backend.put_if_absent(key, std::span(&piece, 1));
}

std::string text_of(const Backend& backend, std::string_view key) {
  const std::vector<std::byte> data = read_all(backend, key);
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

class BackendContract : public testing::TestWithParam<std::string> {
 protected:
  BackendContract() : url_(test_url(GetParam(), directory_)), backend_(open_backend(url_)) {}

  const TemporaryDirectory directory_;
  const std::string url_;
  const std::shared_ptr<Backend> backend_;
};

TEST_P(BackendContract, GivesBackWhatWasPut) {
  const std::string a = "one", b = "", c = "three";
  const std::vector<ConstBytes> pieces = {bytes_of(a), bytes_of(b), bytes_of(c)};
  EXPECT_TRUE(backend_->put_if_absent("a/b/c-1_.x", pieces));
  EXPECT_EQ(text_of(*backend_, "a/b/c-1_.x"), "onethree");
  EXPECT_EQ(backend_->size_bytes("a/b/c-1_.x"), 8u);
  EXPECT_TRUE(backend_->exists("a/b/c-1_.x"));
  std::string part(3, ' ');
  backend_->read("a/b/c-1_.x", 2, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "eth");
}

TEST_P(BackendContract, ReadsIntoManyPlacesAtOnce) {
  std::string text(100'000, ' ');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 23);
  EXPECT_TRUE(put(*backend_, "long", text));
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < 3000; ++i) parts.emplace_back(i % 50, ' ');
  std::vector<Bytes> targets;
  for (std::string& part : parts) targets.push_back(std::as_writable_bytes(std::span(part)));
  backend_->read_scattered("long", 1000, targets);
  std::string together;
  for (const std::string& part : parts) together += part;
  EXPECT_EQ(together, text.substr(1000, together.size()));
  EXPECT_EQ(code_of([&] { backend_->read_scattered("long", 99'000, targets); }), ErrorCode::corrupt);
  EXPECT_EQ(code_of([&] { backend_->read_scattered("absent", 0, targets); }), ErrorCode::not_found);
}

TEST_P(BackendContract, HoldsEmptyObjectsAndManyPieces) {
  EXPECT_TRUE(backend_->put_if_absent("empty", {}));
  EXPECT_EQ(backend_->size_bytes("empty"), 0u);
  EXPECT_EQ(text_of(*backend_, "empty"), "");
  std::string all;
  for (int i = 0; i < 5000; ++i) all += static_cast<char>('a' + i % 26);
  std::vector<ConstBytes> pieces;
  for (std::size_t i = 0; i < all.size(); ++i) pieces.push_back(bytes_of(std::string_view(all).substr(i, 1)));
  EXPECT_TRUE(backend_->put_if_absent("pieces", pieces));
  EXPECT_EQ(text_of(*backend_, "pieces"), all);
}

TEST_P(BackendContract, PutsUnannouncedObjectsAndNeverReplacesThem) {
  std::string text(3 << 20, 'x');
  for (std::size_t i = 0; i < text.size(); i += 1000) text[i] = static_cast<char>('a' + i / 1000 % 26);
  // The first two pieces adjoin in memory, then there is a gap, then the last two adjoin.
  const std::string_view all = text;
  const std::vector<ConstBytes> pieces = {bytes_of(all.substr(0, 1 << 20)), bytes_of(all.substr(1 << 20, 5000)),
                                          bytes_of(all.substr(2 << 20, 7)), bytes_of(all.substr((2 << 20) + 7))};
  backend_->put_unannounced("data/x", pieces);
  EXPECT_EQ(text_of(*backend_, "data/x"), text.substr(0, (1 << 20) + 5000) + text.substr(2 << 20));
  EXPECT_EQ(code_of([&] { backend_->put_unannounced("data/x", {}); }), ErrorCode::exists);
  EXPECT_EQ(backend_->size_bytes("data/x"), text.size() - (1 << 20) + 5000);
}

TEST_P(BackendContract, NeverReplacesAnObject) {
  EXPECT_TRUE(put(*backend_, "a/x", "first"));
  EXPECT_FALSE(put(*backend_, "a/x", "second"));
  EXPECT_EQ(text_of(*backend_, "a/x"), "first");
}

TEST_P(BackendContract, AppendTakesTheFirstFreeNumber) {
  const ConstBytes piece = bytes_of("r");
  EXPECT_EQ(backend_->append("log", 1, std::span(&piece, 1)), 1u);
  EXPECT_EQ(backend_->append("log", 1, std::span(&piece, 1)), 2u);
  EXPECT_TRUE(put(*backend_, numbered_key("log", 3), "r"));
  EXPECT_EQ(backend_->append("log", 2, std::span(&piece, 1)), 4u);
  const auto keys = backend_->list("log");
  ASSERT_EQ(keys.size(), 4u);
  for (std::size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(number_of(keys[i]), i + 1);
}

TEST_P(BackendContract, ListsBelowAPrefixSorted) {
  for (const char* key : {"a/2", "a/1", "a/b/3", "ab/4", "c"}) EXPECT_TRUE(put(*backend_, key, key));
  EXPECT_EQ(backend_->list("a"), (std::vector<std::string>{"a/1", "a/2", "a/b/3"}));
  EXPECT_TRUE(backend_->list("nothing").empty());
  EXPECT_TRUE(backend_->list("c").empty());
}

TEST_P(BackendContract, RemovesAndSaysWhetherItWasThere) {
  EXPECT_TRUE(put(*backend_, "a/x", "first"));
  EXPECT_EQ(text_of(*backend_, "a/x"), "first");
  EXPECT_TRUE(backend_->remove("a/x"));
  EXPECT_FALSE(backend_->remove("a/x"));
  EXPECT_FALSE(backend_->exists("a/x"));
  EXPECT_EQ(code_of([&] { text_of(*backend_, "a/x"); }), ErrorCode::not_found);
  EXPECT_TRUE(put(*backend_, "a/x", "again"));
  EXPECT_EQ(text_of(*backend_, "a/x"), "again");
  EXPECT_TRUE(put(*backend_, "a/y", "y"));
  const std::vector<std::string> keys = {"a/x", "a/none", "a/y"};
  EXPECT_EQ(backend_->remove_all(keys), 2u);
  EXPECT_TRUE(backend_->list("a").empty());
}

TEST_P(BackendContract, ReportsMissingAndShortObjects) {
  std::byte to[8];
  EXPECT_EQ(code_of([&] { backend_->read("x", 0, to); }), ErrorCode::not_found);
  EXPECT_EQ(code_of([&] { backend_->size_bytes("x"); }), ErrorCode::not_found);
  EXPECT_FALSE(backend_->exists("x"));
  EXPECT_FALSE(backend_->exists("x/y"));
  EXPECT_TRUE(put(*backend_, "x", "1234567"));
  EXPECT_EQ(code_of([&] { backend_->read("x", 0, to); }), ErrorCode::corrupt);
  EXPECT_EQ(code_of([&] { backend_->read("x", 8, Bytes(to, 1)); }), ErrorCode::corrupt);
  EXPECT_NO_THROW(backend_->read("x", 7, Bytes(to, 0)));
}

TEST_P(BackendContract, RefusesKeysThatAreNoKeys) {
  for (const char* key : {"", "/a", "a/", "a//b", ".a", "a/.b", "../a", "a b", "a\n", "\xc3\xa4", "a:b"}) {
    EXPECT_EQ(code_of([&] { put(*backend_, key, "x"); }), ErrorCode::invalid_argument) << key;
    EXPECT_EQ(code_of([&] { text_of(*backend_, key); }), ErrorCode::invalid_argument) << key;
  }
  EXPECT_EQ(code_of([&] { put(*backend_, std::string(256, 'a'), "x"); }), ErrorCode::invalid_argument);
  EXPECT_TRUE(put(*backend_, std::string(255, 'a'), "x"));
}

TEST_P(BackendContract, IsSharedByAllOpenersOfAUrl) {
  const auto other = open_backend(url_, {.create = false});
  EXPECT_TRUE(put(*backend_, "a", "first"));
  EXPECT_FALSE(put(*other, "a", "second"));
  EXPECT_EQ(text_of(*other, "a"), "first");
  EXPECT_EQ(other->url(), url_);
}

TEST_P(BackendContract, WithoutCreateAMissingStoreIsNotFound) {
  EXPECT_EQ(code_of([&] { open_backend(url_ + "-not-there", {.create = false}); }), ErrorCode::not_found);
}

TEST_P(BackendContract, GivesEachNumberToOneOfManyThreads) {
  constexpr int kThreads = 8, kEach = 25;
  std::vector<std::vector<std::uint64_t>> numbers(kThreads);
  std::vector<std::thread> threads;
  std::atomic<int> firsts{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto mine = open_backend(url_, {.durable = false});
      for (int i = 0; i < kEach; ++i) {
        const std::string text = std::to_string(t) + ":" + std::to_string(i);
        const ConstBytes piece = bytes_of(text);
        numbers[t].push_back(mine->append("log", numbers[t].empty() ? 1 : numbers[t].back(), std::span(&piece, 1)));
        firsts += put(*mine, "race/" + std::to_string(i), text) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(firsts, kEach);
  std::set<std::uint64_t> all;
  for (int t = 0; t < kThreads; ++t) {
    for (int i = 0; i < kEach; ++i) {
      all.insert(numbers[t][i]);
      EXPECT_EQ(text_of(*backend_, numbered_key("log", numbers[t][i])), std::to_string(t) + ":" + std::to_string(i));
    }
  }
  EXPECT_EQ(all.size(), std::size_t{kThreads * kEach});
  EXPECT_EQ(*all.rbegin(), std::uint64_t{kThreads * kEach});
}

INSTANTIATE_TEST_SUITE_P(All, BackendContract, testing::ValuesIn(test_schemes()),
                         [](const auto& row) { return row.param; });

TEST(OpenBackend, SaysWhatIsWrongWithAUrl) {
  EXPECT_EQ(code_of([] { open_backend("/scratch/run7"); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { open_backend("ftp://host/x"); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { open_backend("file:relative"); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { open_backend("file://host/path"); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { open_backend("file:///"); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { open_backend(""); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { open_backend("s3://bucket/run 7"); }), ErrorCode::invalid_argument);
  for (const char* url : {"rados:pool/name", "rados://pool", "rados:///name", "rados://pool/name?colour=red",
                          "rados://pool/name?stripe_bytes=1", "rados://pool/name?stripe_bytes=4M"}) {
    EXPECT_EQ(code_of([&] { open_backend(url); }), ErrorCode::invalid_argument) << url;
  }
}

TEST(OpenBackend, SplitsTheUrlOfABlob) {
  using Parts = std::pair<std::string, std::string>;
  EXPECT_EQ(split_blob_url("file:///a/b?c/d"), (Parts{"file:///a/b?c", "d"}));
  EXPECT_EQ(split_blob_url("rados://pool/run/field?conf=/etc/x"), (Parts{"rados://pool/run?conf=/etc/x", "field"}));
  EXPECT_EQ(code_of([] { split_blob_url("field"); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { split_blob_url("rados://pool/run/?conf=/etc/x"); }), ErrorCode::invalid_argument);
}

/// An unsafe backend: a put replaces an existing object.
class Forgetful final : public Backend {
 public:
  bool put_if_absent(std::string_view key, std::span<const ConstBytes> pieces) override {
    below_->remove(key);
    return below_->put_if_absent(key, pieces);
  }
  void read(std::string_view key, std::uint64_t offset, Bytes to) const override { below_->read(key, offset, to); }
  std::uint64_t size_bytes(std::string_view key) const override { return below_->size_bytes(key); }
  bool exists(std::string_view key) const override { return below_->exists(key); }
  std::vector<std::string> list(std::string_view prefix) const override { return below_->list(prefix); }
  bool remove(std::string_view key) override { return below_->remove(key); }
  const std::string& url() const override { return below_->url(); }

 private:
  const std::shared_ptr<Backend> below_ = open_backend("memory:");
};

TEST(ProbeSafety, RefusesPlacesThatReplaceObjects) {
  const auto good = open_backend("memory:");
  EXPECT_NO_THROW(probe_safety(*good));
  EXPECT_TRUE(good->list("probe").empty());
  Forgetful bad;
  EXPECT_EQ(code_of([&] { probe_safety(bad); }), ErrorCode::unsupported);
}

TEST(MemoryBackend, WithoutNameIsPrivate) {
  const auto one = open_backend("memory:");
  EXPECT_TRUE(put(*one, "a", "x"));
  EXPECT_FALSE(open_backend("memory:")->exists("a"));
}

}  // namespace
}  // namespace penstock::store
