// Reads of any pieces of any sources return the written bytes, and detect damage.
#include "store/scattered_read.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "penstock/error.hpp"
#include "store/in_parallel.hpp"
#include "unit/store/schemes.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock::store {
namespace {

std::vector<std::byte> noise(std::size_t size, unsigned seed) {
  std::minstd_rand random(seed);
  std::vector<std::byte> data(size);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random() >> 8);
  return data;
}

class Scattered : public testing::TestWithParam<std::string> {
 protected:
  Scattered() : backend_(open_backend(test_url(GetParam(), directory_))) {}

  /// Stores an object that consists of regions of these sizes.
  std::shared_ptr<const Source> put(const std::string& key, ConstBytes content, const std::vector<std::size_t>& sizes) {
    std::vector<ConstBytes> regions;
    for (const std::size_t size : sizes) {
      regions.push_back(content.first(size));
      content = content.subspan(size);
    }
    DataObject object = lay_out(key, regions);
    regions.push_back(object.tail);
    backend_->put_unannounced(key, regions);
    return std::make_shared<const Source>(object.reference);
  }

  const TemporaryDirectory directory_;
  const std::shared_ptr<Backend> backend_;
};

TEST_P(Scattered, ReadsAnyPiecesOfAnySources) {
  std::minstd_rand random(7);
  const auto below = [&](std::size_t n) { return std::size_t{random()} % n; };
  struct Object {
    std::vector<std::byte> content;
    std::shared_ptr<const Source> source;
  };
  std::vector<Object> objects;
  for (unsigned i = 0; i < 4; ++i) {
    std::vector<std::size_t> sizes;
    std::size_t total = 0;
    for (int region = 0; region < 60; ++region) {
      sizes.push_back(1 + below(region % 3 == 0 ? 200'000 : region % 3 == 1 ? 9'000 : 700));
      total += sizes.back();
    }
    objects.push_back({noise(total, i + 1), nullptr});
    objects.back().source = put("data/" + std::to_string(i), objects.back().content, sizes);
  }
  const std::vector<std::byte> inlined = noise(3000, 99);
  objects.push_back({inlined, std::make_shared<const Source>(inlined)});
  for (int round = 0; round < 24; ++round) {
    struct Wanted {
      const Object* object;
      std::size_t offset, size, at;
    };
    std::vector<Wanted> wanted;
    std::size_t used = 16;
    for (std::size_t i = 0, count = 1 + below(300); i < count; ++i) {
      const Object& object = objects[below(objects.size())];
      const std::size_t size = 1 + below(std::min(object.content.size(), std::size_t{1} << below(22)));
      const std::size_t offset = below(object.content.size() - size + 1);
      wanted.push_back({&object, offset, size, used});
      used += size + (i % 2 == 0 ? 0 : below(100));
    }
    if (round % 3 == 0) {  // ordered pieces with gaps
      wanted.clear();
      used = 16;
      for (const Object& object : objects) {
        const std::size_t step = 1 + below(5000);
        for (std::size_t offset = 0; offset + step <= object.content.size(); offset += step) {
          wanted.push_back({&object, offset, step, used});
          used += step + (round % 2 == 0 ? 0 : 3);
        }
      }
    }
    std::vector<std::byte> found(used);
    ScatteredRead read(*backend_);
    for (const Wanted& one : wanted) read.add(*one.object->source, one.offset, Bytes(found).subspan(one.at, one.size));
    read.run();
    for (const Wanted& one : wanted) {
      ASSERT_TRUE(std::equal(found.begin() + static_cast<std::ptrdiff_t>(one.at),
                             found.begin() + static_cast<std::ptrdiff_t>(one.at + one.size),
                             one.object->content.begin() + static_cast<std::ptrdiff_t>(one.offset)))
          << "round " << round << ": " << one.size << " bytes from " << one.offset;
    }
  }
}

TEST_P(Scattered, FindsOneWrongBitWhereverItIsAndHoweverItIsRead) {
  std::vector<std::byte> content = noise(5 << 20, 3);
  const std::vector<std::size_t> sizes = {1 << 20, 5000, 3000, (4 << 20) - 8000};
  const auto good = put("data/good", content, sizes);
  ObjectReference reference = good->object();
  for (const std::size_t wrong :
       {std::size_t{0}, std::size_t{1} << 20, (std::size_t{1} << 20) + 6000, content.size() - 1}) {
    // The object has damaged data before the table of the good data.
    std::vector<std::byte> damaged = content;
    damaged[wrong] ^= std::byte{16};
    std::vector<std::byte> tail(tail_bytes(reference));
    backend_->read(reference.key, content.size(), tail);
    const std::string key = "data/wrong-" + std::to_string(wrong);
    const std::vector<ConstBytes> pieces = {damaged, tail};
    backend_->put_unannounced(key, pieces);
    ObjectReference renamed = reference;
    renamed.key = key;
    const Source source(renamed);
    for (const bool in_pieces : {false, true}) {
      std::vector<std::byte> found(content.size() + content.size() / 1000 + 16);
      ScatteredRead read(*backend_);
      const std::size_t step = in_pieces ? 1000 : content.size();
      for (std::size_t at = 0, to = 0; at < content.size(); at += step, to += step + 1) {
        read.add(source, at, Bytes(found).subspan(to, std::min(step, content.size() - at)));
      }
      try {
        read.run();
        ADD_FAILURE() << "the damage at " << wrong << " was not found";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::corrupt);
        EXPECT_NE(error.message().find(key + " is damaged at offset"), std::string::npos) << error.message();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Scattered, testing::ValuesIn(test_schemes()));

TEST(InParallel, CallsEachOnceAndPassesOnAFailure) {
  for (const std::size_t threads : {1u, 3u, 100u}) {
    std::vector<std::atomic<int>> calls(1000);
    in_parallel(calls.size(), threads, [&](std::size_t i, std::size_t thread) {
      EXPECT_LT(thread, threads);
      ++calls[i];
    });
    for (const auto& count : calls) EXPECT_EQ(count, 1);
    EXPECT_THROW(in_parallel(50, threads,
                             [](std::size_t i, std::size_t) {
                               if (i == 20) throw Error(ErrorCode::io, "no");
                             }),
                 Error);
  }
}

}  // namespace
}  // namespace penstock::store
