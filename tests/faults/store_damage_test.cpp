// Flips bits in files of every kind and truncates them. The store detects damage to what it needs, and never returns
// wrong data.
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "store/blob_state.hpp"
#include "store/posix_backend.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock {
namespace {

namespace fs = std::filesystem;

std::vector<char> content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void replace(const fs::path& path, const std::vector<char>& data) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(data.data(), static_cast<std::streamsize>(data.size()));
}

std::uint64_t write(Blob& blob, std::uint64_t offset, std::size_t size, int value) {
  const std::vector<std::byte> data(size, static_cast<std::byte>(value));
  const WriteRegion region{offset, data};
  return blob.write(std::span(&region, 1));
}

std::vector<std::byte> whole(const Snapshot& snapshot) {
  std::vector<std::byte> data(snapshot.size_bytes());
  const ReadRegion region{0, data};
  snapshot.read(std::span(&region, 1));
  return data;
}

class StoreDamage : public testing::Test {
 protected:
  StoreDamage() : store_(directory_.url(), {.durable = false}) {
    Blob blob = store_.create("field", {.size_bytes = 300'000});
    truths_.push_back(whole(blob.snapshot()));
    for (int i = 1; i <= 70; ++i) {
      write(blob, static_cast<std::uint64_t>(i) * 2'000, i % 3 == 0 ? 50 : 100'000, i);
      truths_.push_back(whole(blob.snapshot()));
    }
    truth_ = truths_.back();
  }

  /// All files of the blob.
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(directory_.path() + "/store")) {
      // Marks carry all information in their names.
      const std::string folder = entry.path().parent_path().filename();
      if (entry.is_regular_file() && entry.path().filename() != "PENSTOCK" && folder != "unsynced") {
        found.push_back(entry.path());
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  /// Expects the right bytes if the damaged file is not needed; else an older version that reports the damage, or an
  /// error.
  void expect_no_wrong_data(const std::string& what) {
    try {
      const Snapshot newest = store_.open("field").snapshot();
      EXPECT_EQ(newest.damage().empty(), newest.version() == 70) << what << ": " << newest.damage();
      fallbacks_ += newest.damage().empty() ? 0 : 1;
      EXPECT_TRUE(whole(newest) == truths_[newest.version()]) << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt) << what << ": " << error.what();
      ++errors_;
    }
    const CheckReport report = Store(directory_.url()).check();
    EXPECT_FALSE(report.problems.empty()) << what << ": check sees nothing wrong";
  }

  const TemporaryDirectory directory_;
  Store store_;
  std::vector<std::vector<std::byte>> truths_;  ///< by version
  std::vector<std::byte> truth_;                ///< the newest version
  int errors_ = 0;
  int fallbacks_ = 0;
};

TEST_F(StoreDamage, FlippedBitsAreFound) {
  std::mt19937 random(3);
  const auto all = files();
  ASSERT_GT(all.size(), 100u);
  for (int round = 0; round < 60; ++round) {
    const fs::path& path = all[random() % all.size()];
    const auto before = content(path);
    auto after = before;
    after[random() % after.size()] ^= static_cast<char>(1 << random() % 8);
    replace(path, after);
    expect_no_wrong_data("a flipped bit in " + path.string());
    replace(path, before);
  }
  EXPECT_GT(errors_, 5);
  EXPECT_GT(fallbacks_, 1);
  EXPECT_TRUE(store_.check().problems.empty());
}

TEST_F(StoreDamage, CutOffAndMissingFilesAreFound) {
  std::mt19937 random(4);
  const auto all = files();
  for (int round = 0; round < 60; ++round) {
    const fs::path& path = all[random() % all.size()];
    if (path.parent_path().filename() == "index") continue;  // a missing index is legitimate: it may not exist yet
    if (path.parent_path().filename() == "catalog" && round % 3 == 0) continue;
    const auto before = content(path);
    if (round % 3 == 0) {
      fs::remove(path);
      // Without its record the last version was never written.
      if (path.filename() == "00000000000000000070") {
        replace(path, before);
        continue;
      }
      try {
        const Blob blob = store_.open("field");
        EXPECT_TRUE(whole(blob.snapshot(blob.latest() == 70 ? 70 : 71)) == truth_);
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::not_found) << error.what();
      }
      EXPECT_FALSE(Store(directory_.url()).check().problems.empty()) << path;
    } else {
      replace(path, {before.begin(), before.begin() + static_cast<std::ptrdiff_t>(random() % before.size())});
      expect_no_wrong_data("cut off " + path.string());
    }
    replace(path, before);
  }
}

TEST_F(StoreDamage, TheErrorNamesObjectOffsetAndChecksums) {
  for (const fs::path& path : files()) {
    if (path.parent_path().filename() != "data") continue;
    auto data = content(path);
    data[70'000] ^= 1;
    replace(path, data);
  }
  try {
    whole(store_.open("field").snapshot());
    FAIL() << "damage was not noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_NE(error.message().find("/data/"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("offset 65536"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("expected checksum"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("found"), std::string::npos) << error.message();
  }
}

/// Fails `failures` calls that can fail, from call number `fail_from` on.
class FailingCalls : public store::PosixCalls {
 public:
  int fail_from = -1;
  int failures = 1;
  int error = ENOSPC;
  int calls = 0;

  int create(const std::string& path) override { return fails() ? -1 : PosixCalls::create(path); }
  ssize_t writev(int fd, const iovec* pieces, int count) override {
    return fails() ? -1 : PosixCalls::writev(fd, pieces, count);
  }
  int fdatasync(int fd) override { return fails() ? -1 : PosixCalls::fdatasync(fd); }
  int link(const std::string& from, const std::string& to) override {
    return fails() ? -1 : PosixCalls::link(from, to);
  }
  int sync_directory(const std::string& path) override { return fails() ? -1 : PosixCalls::sync_directory(path); }
  ssize_t preadv(int fd, const iovec* pieces, int count, std::uint64_t offset) override {
    return fails() ? -1 : PosixCalls::preadv(fd, pieces, count, offset);
  }

 private:
  bool fails() {
    const int call = calls++;
    if (fail_from < 0 || call < fail_from || call >= fail_from + failures) return false;
    errno = error;
    return true;
  }
};

TEST(StoreFailure, ReachesTheCallerOfThatWriteAlone) {
  const TemporaryDirectory directory;
  FailingCalls calls;
  const auto failing = store::open_directory(directory.path() + "/store", directory.url(), {}, calls);
  store::BlobState::create(failing, "field", {.size_bytes = 100'000});
  Blob victim(store::BlobState::open(failing, "field"));
  Blob other = Store(directory.url(), {.durable = false}).open("field");
  int value = 0;
  for (const int error : {ENOSPC, EDQUOT, EIO}) {
    bool failed = true;
    for (int fail_from = 0; failed; ++fail_from) {
      const std::uint64_t before = victim.latest();
      const auto truth = whole(victim.snapshot());
      calls.calls = 0;
      calls.fail_from = fail_from;
      calls.error = error;
      failed = false;
      ++value;
      try {
        EXPECT_EQ(write(victim, 0, 90'000, value), before + 1);
      } catch (const Error& caught) {
        failed = true;
        EXPECT_EQ(caught.code(), error == EIO ? ErrorCode::io : ErrorCode::no_space) << caught.what();
      }
      calls.fail_from = -1;
      // Every process sees the whole write or nothing of it, and the next write of any process works.
      const auto now = whole(other.snapshot());
      if (victim.latest() == before) {
        EXPECT_TRUE(failed);
        EXPECT_EQ(now, truth);
      } else {
        EXPECT_EQ(now[0], static_cast<std::byte>(value));
        EXPECT_EQ(now[89'999], static_cast<std::byte>(value));
      }
      const std::uint64_t next = write(other, 50, 10, 255);
      EXPECT_EQ(next, victim.latest());
    }
  }
  const CheckReport report = Store(directory.url()).check();
  EXPECT_TRUE(report.problems.empty()) << report.problems.front();
}

TEST(StoreFailure, AFullDeviceKeepsNoGarbage) {
  const TemporaryDirectory directory;
  FailingCalls calls;
  const auto failing = store::open_directory(directory.path() + "/store", directory.url(), {.durable = false}, calls);
  store::BlobState::create(failing, "field", {.size_bytes = 100'000});
  Blob blob(store::BlobState::open(failing, "field"));
  write(blob, 0, 90'000, 1);
  for (int fail_from = 0; fail_from < 5; ++fail_from) {
    calls.calls = 0;
    calls.fail_from = fail_from;
    calls.failures = 1000;
    EXPECT_THROW(write(blob, 0, 90'000, 2), Error) << fail_from;
    calls.fail_from = -1;
    EXPECT_EQ(Store(directory.url()).check().garbage_objects, 0u) << fail_from;
    EXPECT_TRUE(fs::is_empty(directory.path() + "/store/.tmp"));
  }
}

TEST(StoreFailure, AReadErrorIsNoDamage) {
  const TemporaryDirectory directory;
  FailingCalls calls;
  const auto failing = store::open_directory(directory.path() + "/store", directory.url(), {.durable = false}, calls);
  store::BlobState::create(failing, "field", {.size_bytes = 100'000});
  Blob blob(store::BlobState::open(failing, "field"));
  write(blob, 0, 90'000, 1);
  calls.calls = 0;
  calls.fail_from = 0;
  calls.error = EIO;
  try {
    whole(blob.snapshot());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_FALSE(error.cause().empty());
  }
  calls.fail_from = -1;
  EXPECT_EQ(whole(blob.snapshot())[0], std::byte{1});
}

}  // namespace
}  // namespace penstock
