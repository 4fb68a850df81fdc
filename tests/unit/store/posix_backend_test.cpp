// Properties of the POSIX backend: where stores may be created, formats, leftovers, and failing system calls.
#include "store/posix_backend.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <vector>

#include "penstock/error.hpp"
#include "store/blob_state.hpp"
#include "unit/store/outcomes.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock::store {
namespace {

ConstBytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

bool put(Backend& backend, std::string_view key, std::string_view text) {
  const ConstBytes piece = bytes_of(text);
  return backend.put_if_absent(key, std::span(&piece, 1));
}

void write_file(const std::string& path, std::string_view text) { std::ofstream(path) << text; }

std::size_t entries(const std::string& path) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator()));
}

TEST(PosixBackend, FoundsAStoreInNewAndEmptyDirectoriesOnly) {
  const TemporaryDirectory directory;
  open_backend(directory.url("new/with/parents"));
  std::filesystem::create_directory(directory.path() + "/empty");
  EXPECT_EQ(code_of([&] { open_backend(directory.url("empty"), {.create = false}); }), ErrorCode::not_found);
  open_backend(directory.url("empty"));
  std::filesystem::create_directory(directory.path() + "/other");
  write_file(directory.path() + "/other/file", "x");
  EXPECT_EQ(code_of([&] { open_backend(directory.url("other")); }), ErrorCode::invalid_argument);
  EXPECT_EQ(entries(directory.path() + "/other"), 1u);
  EXPECT_EQ(code_of([&] { open_backend(directory.url("other/file")); }), ErrorCode::invalid_argument);
}

TEST(PosixBackend, ChecksTheFormat) {
  const TemporaryDirectory directory;
  const std::string format = directory.path() + "/store/PENSTOCK";
  open_backend(directory.url());
  write_file(format, "{\"penstock\": \"store\", \"format\": 2}\n");
  EXPECT_EQ(code_of([&] { open_backend(directory.url()); }), ErrorCode::unsupported);
  write_file(format, "");
  EXPECT_EQ(code_of([&] { open_backend(directory.url()); }), ErrorCode::corrupt);
  write_file(format, "{\"penstock\": \"store\", \"format\":1, \"later\": true}");
  EXPECT_NO_THROW(open_backend(directory.url()));
}

TEST(PosixBackend, LeavesNoTemporaryFilesAndReclaimsThoseOfTheDead) {
  const TemporaryDirectory directory;
  const std::string temporary = directory.path() + "/store/.tmp";
  const auto backend = open_backend(directory.url());
  EXPECT_TRUE(put(*backend, "a", "x"));
  EXPECT_FALSE(put(*backend, "a", "x"));
  EXPECT_EQ(entries(temporary), 0u);
  write_file(temporary + "/of-a-dead-writer", "12345");
  EXPECT_EQ(backend->reclaim(std::chrono::hours(1)), 0u);
  EXPECT_EQ(entries(temporary), 1u);
  EXPECT_EQ(backend->reclaim(std::chrono::seconds(0)), 5u);
  EXPECT_EQ(entries(temporary), 0u);
}

TEST(PosixBackend, SeesObjectsThatAnotherProcessRemovedAndMadeAgain) {
  const TemporaryDirectory directory;
  const auto one = open_backend(directory.url());
  const auto other = open_backend(directory.url());
  EXPECT_TRUE(put(*one, "a", "old"));
  EXPECT_EQ(read_all(*one, "a").size(), 3u);
  EXPECT_TRUE(other->remove("a"));
  EXPECT_TRUE(put(*other, "a", "newer"));
  const auto data = read_all(*one, "a");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(data.data()), data.size()), "newer");
}

/// Fails call number `fail_at` with `error`, and writes at most `most_bytes` per call.
class FaultyCalls : public PosixCalls {
 public:
  int fail_at = -1;
  int error = EIO;
  std::size_t most_bytes = SIZE_MAX;
  int calls = 0;

  int create(const std::string& path) override { return fails() ? -1 : PosixCalls::create(path); }
  ssize_t writev(int fd, const iovec* pieces, int count) override {
    if (fails()) return -1;
    if (most_bytes == SIZE_MAX) return PosixCalls::writev(fd, pieces, count);
    const iovec first{pieces->iov_base, std::min(pieces->iov_len, most_bytes)};
    return PosixCalls::writev(fd, &first, 1);
  }
  int reserve(int fd, std::uint64_t size) override { return fails() ? -1 : PosixCalls::reserve(fd, size); }
  int fdatasync(int fd) override { return fails() ? -1 : PosixCalls::fdatasync(fd); }
  int sync_directory(const std::string& path) override { return fails() ? -1 : PosixCalls::sync_directory(path); }
  int link(const std::string& from, const std::string& to) override {
    return fails() ? -1 : PosixCalls::link(from, to);
  }
  int mkdir(const std::string& path) override { return fails() ? -1 : PosixCalls::mkdir(path); }

 private:
  bool fails() {
    if (calls++ != fail_at) return false;
    errno = error;
    return true;
  }
};

TEST(PosixBackend, AFailureOfAnyCallIsReportedAndLeavesAllOrNothing) {
  const std::string text(10000, 'x');
  for (const int error : {EIO, ENOSPC, EDQUOT}) {
    int fail_at = 0;
    for (bool failed = true; failed; ++fail_at) {
      const TemporaryDirectory directory;
      FaultyCalls calls;
      const auto backend = open_directory(directory.path() + "/store", directory.url(), {}, calls);
      calls.calls = 0;
      calls.fail_at = fail_at;
      calls.error = error;
      failed = false;
      try {
        EXPECT_TRUE(put(*backend, "some/where/a", text));
      } catch (const Error& caught) {
        failed = true;
        EXPECT_EQ(caught.code(), error == EIO ? ErrorCode::io : ErrorCode::no_space);
        EXPECT_FALSE(caught.cause().empty());
        EXPECT_EQ(caught.system_error(), error);
      }
      calls.fail_at = -1;
      EXPECT_EQ(entries(directory.path() + "/store/.tmp"), 0u);
      if (backend->exists("some/where/a")) {
        EXPECT_EQ(read_all(*backend, "some/where/a").size(), text.size());
      } else {
        EXPECT_TRUE(failed);
        EXPECT_TRUE(put(*backend, "some/where/a", text));
      }
    }
    EXPECT_GE(fail_at, 6);
  }
}

/// Pieces of `text`, each of `piece_bytes`; the one after `intact` of them throws.
Stream stream_of(std::string_view text, std::size_t piece_bytes, std::size_t intact = SIZE_MAX) {
  return {text.size(), [=] {
            return [=, at = std::size_t{0}]() mutable {
              if (at / piece_bytes >= intact) throw Error(ErrorCode::corrupt, "damaged");
              const std::string_view piece = text.substr(std::min(at, text.size()), piece_bytes);
              at += piece_bytes;
              return bytes_of(piece);
            };
          }};
}

TEST(PosixBackend, AnObjectThatIsMadeWhileItIsPutAppearsAsAWhole) {
  const TemporaryDirectory directory;
  const std::string text(100'000, 'y');
  const auto backend = open_directory(directory.path() + "/store", directory.url(), {}, PosixCalls::system());
  const auto code = [&](const Stream& stream) {
    return code_of([&] { backend->put_stream_if_absent("some/where/a", stream); });
  };
  EXPECT_EQ(code(stream_of(text, 1000, 60)), ErrorCode::corrupt);
  Stream wrong = stream_of(text, 1000);
  wrong.size_bytes += 1;
  EXPECT_EQ(code(wrong), ErrorCode::internal);
  EXPECT_FALSE(backend->exists("some/where/a"));
  EXPECT_EQ(entries(directory.path() + "/store/.tmp"), 0u);
  EXPECT_TRUE(backend->put_stream_if_absent("some/where/a", stream_of(text, 999)));
  EXPECT_TRUE(std::ranges::equal(read_all(*backend, "some/where/a"), bytes_of(text)));
  EXPECT_FALSE(backend->put_stream_if_absent("some/where/a", stream_of(text, 1000)));
  for (int fail_at = 0, failed = 1; failed == 1; ++fail_at) {
    const TemporaryDirectory other;
    FaultyCalls calls;
    const auto faulty = open_directory(other.path() + "/store", other.url(), {}, calls);
    calls.calls = 0;
    calls.fail_at = fail_at;
    calls.error = EIO;
    failed = 0;
    try {
      EXPECT_TRUE(faulty->put_stream_if_absent("a", stream_of(text, 30'000)));
    } catch (const Error& caught) {
      failed = 1;
      EXPECT_EQ(caught.code(), ErrorCode::io);
    }
    calls.fail_at = -1;
    EXPECT_EQ(entries(other.path() + "/store/.tmp"), 0u);
    if (faulty->exists("a")) {
      EXPECT_EQ(read_all(*faulty, "a").size(), text.size());
    } else {
      EXPECT_EQ(failed, 1);
    }
  }
}

/// Notes what the device was told to write, until it is synced.
class WriteBehindCalls : public PosixCalls {
 public:
  std::uint64_t started_bytes = 0, started_before_sync_bytes = 0;
  bool in_order = true;

  int start_writing(int fd, std::uint64_t offset, std::uint64_t size) override {
    in_order = in_order && offset == started_bytes;
    started_bytes += size;
    return PosixCalls::start_writing(fd, offset, size);
  }
  int fdatasync(int fd) override {
    started_before_sync_bytes = std::max(started_before_sync_bytes, started_bytes);
    return PosixCalls::fdatasync(fd);
  }
};

/// Notes what is taken out of the page cache, and whether the device had it.
class DropCalls : public PosixCalls {
 public:
  bool synced = false, dropped_all = false;
  std::uint64_t dropped_bytes = 0;

  int fdatasync(int fd) override {
    synced = true;
    return PosixCalls::fdatasync(fd);
  }
  int drop_cached(int fd, std::uint64_t offset, std::uint64_t size) override {
    if (size == 0) {
      dropped_all = synced && offset == 0;
    } else {
      dropped_bytes = std::max(dropped_bytes, offset + size);
    }
    return PosixCalls::drop_cached(fd, offset, size);
  }
};

TEST(PosixBackend, ADurableStreamThatIsNotReadSoonDoesNotStayInThePageCache) {
  const std::string text(20 << 20, 'x');
  const ConstBytes whole = bytes_of(text);
  for (const bool durable : {true, false}) {
    for (const bool read_soon : {true, false}) {
      const TemporaryDirectory directory;
      DropCalls calls;
      const auto backend = open_directory(directory.path() + "/store", directory.url(), {.durable = durable}, calls);
      Stream stream = penstock::store::stream_of(std::span(&whole, 1));
      stream.read_soon = read_soon;
      EXPECT_TRUE(backend->put_stream_if_absent("a", stream));
      const bool drops = durable && !read_soon;
      EXPECT_EQ(calls.dropped_all, drops);
      EXPECT_EQ(calls.dropped_bytes, drops ? 8U << 20 : 0U);
      EXPECT_TRUE(std::ranges::equal(read_all(*backend, "a"), whole));
      // In pieces of memory, and too small to be worth a call.
      calls.dropped_all = false;
      calls.dropped_bytes = 0;
      const ConstBytes part = whole.first(1000);
      backend->put_unannounced("small", std::span(&part, 1), read_soon);
      EXPECT_FALSE(calls.dropped_all);
      const std::vector<ConstBytes> pieces{whole.first(3000001), whole.subspan(3000001)};
      backend->put_unannounced("b", pieces, read_soon);
      EXPECT_EQ(calls.dropped_all, drops);
      EXPECT_EQ(calls.dropped_bytes, drops ? 8U << 20 : 0U);
      EXPECT_TRUE(std::ranges::equal(read_all(*backend, "b"), whole));
    }
  }
}

TEST(PosixBackend, ALargeDurableObjectIsOnItsWayToTheDeviceBeforeItIsSynced) {
  const std::string text(20 << 20, 'x');
  const ConstBytes whole = bytes_of(text);
  // One piece, and pieces of which none is a multiple of what is written at once.
  const std::vector<ConstBytes> cut{whole.first(3000001), whole.subspan(3000001, 12000000), whole.subspan(15000001)};
  for (const bool durable : {true, false}) {
    for (const auto& pieces : {std::vector<ConstBytes>{whole}, cut}) {
      const TemporaryDirectory directory;
      WriteBehindCalls calls;
      const auto backend = open_directory(directory.path() + "/store", directory.url(), {.durable = durable}, calls);
      EXPECT_TRUE(backend->put_if_absent("a", pieces));
      EXPECT_TRUE(backend->put_if_absent("small", std::span(pieces).first(0)));
      EXPECT_TRUE(calls.in_order);
      EXPECT_EQ(calls.started_before_sync_bytes, calls.started_bytes);
      if (durable) {
        EXPECT_GE(calls.started_bytes, 8U << 20);
      } else {
        EXPECT_EQ(calls.started_bytes, 0U);
      }
      EXPECT_TRUE(std::ranges::equal(read_all(*backend, "a"), whole));
    }
  }
}

/// Another process removes the empty directory of a new object `prunes` times, just before the object gets there.
class PruningCalls : public PosixCalls {
 public:
  int prunes = 1;

  int create(const std::string& path) override {
    if (path.find("/.tmp/") == std::string::npos) prune(path);
    return PosixCalls::create(path);
  }
  int link(const std::string& from, const std::string& to) override {
    prune(to);
    return PosixCalls::link(from, to);
  }

 private:
  void prune(const std::string& path) {
    if (path.find("/pruned/") == std::string::npos || prunes <= 0) return;
    --prunes;
    EXPECT_EQ(PosixCalls::rmdir(path.substr(0, path.rfind('/'))), 0);
  }
};

TEST(PosixBackend, MakesADirectoryAgainThatAnotherProcessHasRemoved) {
  const TemporaryDirectory directory;
  PruningCalls calls;
  const auto backend = open_directory(directory.path() + "/store", directory.url(), {}, calls);
  EXPECT_TRUE(put(*backend, "pruned/a", "announced"));
  EXPECT_EQ(calls.prunes, 0);
  EXPECT_TRUE(backend->remove("pruned/a"));
  calls.prunes = 1;
  const std::string text = "unannounced";
  const ConstBytes piece = bytes_of(text);
  backend->put_unannounced("pruned/b", std::span(&piece, 1));
  EXPECT_EQ(calls.prunes, 0);
  EXPECT_EQ(read_all(*backend, "pruned/b").size(), text.size());
  EXPECT_TRUE(put(*backend, "elsewhere", text));
  EXPECT_TRUE(backend->remove("pruned/b"));
  calls.prunes = 1;
  const std::pair<std::string, std::string> copy("elsewhere", "pruned/c");
  backend->copy_all(std::span(&copy, 1));
  EXPECT_EQ(calls.prunes, 0);
  EXPECT_EQ(read_all(*backend, "pruned/c").size(), text.size());
}

/// Another process removes a new directory and its parent, both empty, just before the parent is synced.
class PruningBeforeSyncCalls : public PosixCalls {
 public:
  int prunes = 0;

  int sync_directory(const std::string& path) override {
    if (path.ends_with("/pruned") && prunes > 0) {
      --prunes;
      EXPECT_EQ(PosixCalls::rmdir(path + "/inner"), 0);
      EXPECT_EQ(PosixCalls::rmdir(path), 0);
    }
    return PosixCalls::sync_directory(path);
  }
};

TEST(PosixBackend, MakesADirectoryAgainWhoseParentAnotherProcessHasRemoved) {
  const TemporaryDirectory directory;
  PruningBeforeSyncCalls calls;
  const auto backend = open_directory(directory.path() + "/store", directory.url(), {}, calls);
  calls.prunes = 2;
  EXPECT_TRUE(put(*backend, "pruned/inner/a", "text"));
  EXPECT_EQ(calls.prunes, 0);
  EXPECT_TRUE(backend->exists("pruned/inner/a"));
}

TEST(PosixBackend, AFailedUnannouncedPutLeavesNothing) {
  const std::string text(2 << 20, 'x');
  const ConstBytes piece = bytes_of(text);
  for (const int error : {EIO, ENOSPC}) {
    int failures = 0;
    bool failed = true;
    for (int fail_at = 0; failed || fail_at < 8; ++fail_at) {
      const TemporaryDirectory directory;
      FaultyCalls calls;
      const auto backend = open_directory(directory.path() + "/store", directory.url(), {}, calls);
      calls.calls = 0;
      calls.fail_at = fail_at;
      calls.error = error;
      failed = false;
      try {
        backend->put_unannounced("some/a", std::span(&piece, 1));
        EXPECT_EQ(backend->size_bytes("some/a"), text.size());
      } catch (const Error& caught) {
        failed = true;
        ++failures;
        EXPECT_EQ(caught.code(), error == EIO ? ErrorCode::io : ErrorCode::no_space);
        calls.fail_at = -1;
        EXPECT_TRUE(backend->list("some").empty()) << "call " << fail_at;
      }
    }
    EXPECT_GE(failures, 5);
  }
}

TEST(PosixBackend, ShortAndInterruptedWritesAreContinued) {
  const TemporaryDirectory directory;
  FaultyCalls calls;
  const auto backend = open_directory(directory.path() + "/store", directory.url(), {}, calls);
  calls.most_bytes = 7;
  calls.calls = 0;
  calls.fail_at = 3;
  calls.error = EINTR;
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>('a' + i % 26);
  const std::vector<ConstBytes> pieces = {bytes_of(text).subspan(0, 30), bytes_of(text).subspan(30)};
  EXPECT_TRUE(backend->put_if_absent("a", pieces));
  const auto data = read_all(*backend, "a");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(data.data()), data.size()), text);
}

TEST(PosixBackend, WithoutDurabilityNothingIsSynced) {
  class Counting : public PosixCalls {
   public:
    int syncs = 0;
    int fdatasync(int fd) override { return ++syncs, PosixCalls::fdatasync(fd); }
    int sync_directory(const std::string& path) override { return ++syncs, PosixCalls::sync_directory(path); }
    int file_system_syncs = 0;
    int sync_file_system(const std::string& path) override {
      return ++file_system_syncs, PosixCalls::sync_file_system(path);
    }
  };
  const TemporaryDirectory directory;
  Counting calls;
  const auto quick = open_directory(directory.path() + "/quick", directory.url("quick"), {.durable = false}, calls);
  EXPECT_TRUE(put(*quick, "a/b", "x"));
  EXPECT_GT(calls.syncs, 0) << "founding, and the mark that says what comes, are durable";
  calls.syncs = 0;
  EXPECT_TRUE(put(*quick, "a/c", "x"));
  EXPECT_TRUE(put(*quick, "d/e", "x"));
  EXPECT_EQ(calls.syncs, 0);
  // Except what others rely on: a blob, and a clone with its data.
  const auto blob = BlobState::create(quick, "field", {.size_bytes = 100'000});
  EXPECT_GT(calls.syncs, 0);
  const std::vector<std::byte> data(100'000, std::byte{7});
  const WriteRegion region{0, data};
  calls.syncs = calls.file_system_syncs = 0;
  EXPECT_EQ(Blob(blob).write(std::span(&region, 1)), 1u);
  EXPECT_EQ(calls.syncs + calls.file_system_syncs, 0);
  blob->clone(1, "copy");
  EXPECT_GT(calls.syncs, 0);
  EXPECT_GT(calls.file_system_syncs, 0) << "the data that it shares is not on the device";
  const auto safe = open_directory(directory.path() + "/safe", directory.url("safe"), {}, calls);
  EXPECT_TRUE(put(*safe, "a/b", "x"));
  EXPECT_GT(calls.syncs, 0);
}

}  // namespace
}  // namespace penstock::store
