// Files of one process, and of several ranks, which are threads here.
#include "penstock/file.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "comm/state.hpp"
#include "local_transport.hpp"
#include "penstock/error.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock {
namespace {

/// Runs `body` on every rank of a new communicator.
void on_ranks(int ranks, const std::function<void(const Comm&)>& body) {
  std::mutex mutex;
  std::vector<std::vector<std::unique_ptr<engine::Transport>>> worlds;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::size_t made = 0;
      const auto make = [&, made]() mutable {
        const std::lock_guard lock(mutex);
        if (worlds.size() == made) {
          worlds.push_back(engine::make_local_transports(std::vector<std::int32_t>(static_cast<std::size_t>(ranks))));
        }
        return std::move(worlds[made++][static_cast<std::size_t>(rank)]);
      };
      try {
        // Each call of the factory makes the next communicator, equally on all ranks.
        auto factory = std::make_shared<std::decay_t<decltype(make)>>(make);
        body(comm::make_comm([factory] { return (*factory)(); }, {.progress_cores = 0}));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::byte> filled(std::size_t size_bytes, int value) {
  return std::vector<std::byte>(size_bytes, static_cast<std::byte>(value));
}

template <typename Action>
ErrorCode code_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::internal;
}

TEST(FileAlone, WritesReadsAndSeeks) {
  const TemporaryDirectory directory;
  File file = File::open(directory.url("field"), {.create = true});
  EXPECT_EQ(file.write(filled(10, 1)), 1u);
  EXPECT_EQ(file.write(filled(5, 2)), 2u);
  EXPECT_EQ(file.position(), 15u);
  EXPECT_EQ(file.size_bytes(), 15u);
  file.seek(-10, Whence::current);
  std::vector<std::byte> data(20);
  EXPECT_EQ(file.read(data), 10u);
  EXPECT_EQ(file.position(), 15u);
  auto expected = filled(5, 1);
  expected.resize(10, std::byte{2});
  EXPECT_EQ(std::vector<std::byte>(data.begin(), data.begin() + 10), expected);
  file.seek(-3, Whence::end);
  EXPECT_EQ(file.position(), 12u);
  file.seek(100, Whence::set);
  EXPECT_EQ(file.read(data), 0u);
  EXPECT_EQ(code_of([&] { file.seek(-101, Whence::current); }), ErrorCode::invalid_argument);
  EXPECT_EQ(file.position(), 100u);
  FileRequest write = file.start_write_at(3, data);
  EXPECT_EQ(write.wait(), 20u);
  EXPECT_EQ(file.size_bytes(), 23u);
  FileRequest read = file.start_read_at(20, data);
  EXPECT_EQ(read.wait(), 3u);
  EXPECT_EQ(read.wait(), 3u);
  EXPECT_TRUE(read.test());
}

TEST(FileAlone, ViewsPickTheirBytes) {
  const TemporaryDirectory directory;
  File file = File::open(directory.url("field"), {.create = true});
  file.write_at(0, filled(64, 9));
  file.set_view({.displacement_bytes = 4, .etype_bytes = 4, .pieces = {{0, 4}, {8, 4}}, .extent_bytes = 16});
  EXPECT_EQ(file.byte_offset(3), 28u);
  EXPECT_EQ(file.write_at(1, filled(8, 1)), 2u);
  std::vector<std::byte> all(64);
  file.set_view({});
  EXPECT_EQ(file.read_at(0, all), 64u);
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(all[i], std::byte((i >= 12 && i < 16) || (i >= 20 && i < 24) ? 1 : 9)) << i;
  }
  file.set_view({.displacement_bytes = 4, .etype_bytes = 4, .pieces = {{0, 4}, {8, 4}}, .extent_bytes = 16});
  EXPECT_EQ(code_of([&] { file.write_at(0, filled(6, 1)); }), ErrorCode::invalid_argument);
  EXPECT_EQ(file.read_at(4, all), 16u) << "until the end of the file";
}

TEST(FileAlone, ModesAreKept) {
  const TemporaryDirectory directory;
  const std::string url = directory.url("field");
  EXPECT_EQ(code_of([&] { File::open(url, {}); }), ErrorCode::not_found);
  File file = File::open(url, {.create = true});
  EXPECT_EQ(code_of([&] { File::open(url, {.create = true, .exclusive = true}); }), ErrorCode::exists);
  EXPECT_EQ(code_of([&] { File::open(url, {.read = false, .write = false}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { File::open("memory:", {}); }), ErrorCode::invalid_argument);
  file.write(filled(3, 1));
  File reader = File::open(url, {.write = false});
  EXPECT_EQ(code_of([&] { reader.write(filled(3, 1)); }), ErrorCode::invalid_argument);
  File writer = File::open(url, {.read = false, .append = true});
  std::vector<std::byte> data(3);
  EXPECT_EQ(code_of([&] { writer.read(data); }), ErrorCode::invalid_argument);
  EXPECT_EQ(writer.position(), 3u);
  writer.set_size(2);
  EXPECT_EQ(reader.size_bytes(), 2u);
  writer.preallocate(1);
  EXPECT_EQ(reader.size_bytes(), 2u);
  writer.preallocate(9);
  EXPECT_EQ(reader.size_bytes(), 9u);
  writer.close();
  EXPECT_EQ(code_of([&] { writer.write(data); }), ErrorCode::invalid_argument);
}

TEST(FileAlone, ClosesEvenIfItsLastActionFails) {
  const TemporaryDirectory directory;
  File file = File::open(directory.url("field"), {.create = true});
  file.write_at(0, filled(8, 1));
  std::uint64_t seen = 0;
  EXPECT_EQ(code_of([&] {
              file.close_after([&] {
                seen = file.version();
                throw Error(ErrorCode::io, "cannot export");
              });
            }),
            ErrorCode::io);
  EXPECT_EQ(seen, 1u);
  EXPECT_EQ(code_of([&] { file.write(filled(1, 1)); }), ErrorCode::invalid_argument);
}

TEST(FileAlone, ASnapshotStaysAsItIs) {
  const TemporaryDirectory directory;
  File file = File::open(directory.url("field"), {.create = true});
  file.write_at(0, filled(8, 1));
  File pinned = file.snapshot();
  file.write_at(4, filled(8, 2));
  std::vector<std::byte> data(12);
  EXPECT_EQ(pinned.read_at(0, data), 8u);
  EXPECT_EQ(data[7], std::byte{1});
  EXPECT_EQ(pinned.version(), 1u);
  EXPECT_EQ(file.version(), 2u);
  EXPECT_EQ(code_of([&] { pinned.write(data); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { file.snapshot(3); }), ErrorCode::not_found);
}

TEST(FileTogether, ACollectiveWriteIsOneVersionAndTheHigherRankWins) {
  const TemporaryDirectory directory;
  on_ranks(3, [&](const Comm& comm) {
    File file = File::open(comm, directory.url("field"), {.create = true});
    // Every rank writes 10 bytes at 5 * rank: neighbours overlap by half. Rank 2 stores an object, the others inline.
    const std::size_t size = comm.rank() == 2 ? 10'000 : 10;
    EXPECT_EQ(file.write_at_all(static_cast<std::uint64_t>(comm.rank()) * 5, filled(size, comm.rank() + 1)), 1u);
    std::vector<std::byte> data(10'010);
    EXPECT_EQ(file.read_at_all(0, data), 10'010u);
    for (std::size_t i = 0; i < data.size(); ++i) EXPECT_EQ(data[i], std::byte(i < 5 ? 1 : i < 10 ? 2 : 3));
    EXPECT_EQ(file.blob().log().front().regions, 3u);
    EXPECT_EQ(file.write_all({}), 2u);
    file.close();
  });
}

TEST(FileTogether, AFailureOnOneRankIsOneOnAllAndWritesNothing) {
  const TemporaryDirectory directory;
  on_ranks(3, [&](const Comm& comm) {
    File file = File::open(comm, directory.url("field"), {.create = true});
    file.set_view({.displacement_bytes = static_cast<std::uint64_t>(comm.rank()), .etype_bytes = 2});
    const auto data = filled(comm.rank() == 1 ? 4999 : 5000, 1);
    EXPECT_EQ(code_of([&] { file.write_all(data); }),
              comm.rank() == 1 ? ErrorCode::invalid_argument : ErrorCode::peer_failed);
    EXPECT_EQ(file.version(), 0u);
    EXPECT_EQ(file.position(), 0u);
    EXPECT_EQ(file.write_all(filled(6, 1)), 1u);
    comm.duplicate();  // all ranks are here
    EXPECT_EQ(Store("file://" + directory.path(), {.create = false}).check().garbage_objects, 0u);
    file.close();
    EXPECT_EQ(code_of([&] { File::open(comm, directory.url("none"), {}); }),
              comm.rank() == 0 ? ErrorCode::not_found : ErrorCode::peer_failed);
  });
}

TEST(FileTogether, OrderedAccessFollowsTheRanks) {
  const TemporaryDirectory directory;
  on_ranks(4, [&](const Comm& comm) {
    File file = File::open(comm, directory.url("field"), {.create = true});
    for (int round = 0; round < 2; ++round) {
      file.write_ordered(filled(static_cast<std::size_t>(comm.rank()), 10 * round + comm.rank()));
    }
    EXPECT_EQ(file.position_shared(), 12u);
    EXPECT_EQ(file.version(), 2u);
    file.seek_shared(-6, Whence::end);
    std::vector<std::byte> data(static_cast<std::size_t>(comm.rank()));
    EXPECT_EQ(file.read_ordered(data), data.size());
    EXPECT_EQ(data, filled(data.size(), 10 + comm.rank()));
    file.close();
  });
}

TEST(FileTogether, SharedAccessesHaveEachAPlaceOfTheirOwn) {
  const TemporaryDirectory directory;
  constexpr int kRanks = 4, kEach = 12;
  on_ranks(kRanks, [&](const Comm& comm) {
    File file = File::open(comm, directory.url("log"), {.create = true, .durable = false});
    file.set_view({.displacement_bytes = 100, .etype_bytes = 4, .pieces = {}});
    std::vector<FileRequest> started;
    std::vector<std::vector<std::byte>> data;
    for (int i = 0; i < kEach; ++i)
      data.push_back(filled(4 * static_cast<std::size_t>(1 + i % 3), comm.rank() * 20 + i));
    for (std::size_t i = 0; i < data.size(); ++i) {
      if (i % 2 == 0) {
        file.write_shared(data[i]);
      } else {
        started.push_back(file.start_write_shared(data[i]));
      }
    }
    for (FileRequest& request : started) request.wait();
    file.sync();
    EXPECT_EQ(file.position_shared(), std::uint64_t{kRanks * kEach * 2});
    EXPECT_EQ(file.size_bytes(), 100u + 4 * kRanks * kEach * 2);
    // Every access is somewhere, complete, and those of one rank are in order.
    std::vector<std::byte> all(4 * kRanks * kEach * 2);
    EXPECT_EQ(file.read_at_all(0, all), all.size());
    int next[kRanks] = {};
    for (std::size_t at = 0; at < all.size();) {
      const int value = std::to_integer<int>(all[at]);
      ASSERT_LT(value / 20, kRanks);
      EXPECT_EQ(value % 20, next[value / 20]++);
      for (std::size_t end = at + 4 * static_cast<std::size_t>(1 + value % 20 % 3); at < end; ++at) {
        ASSERT_LT(at, all.size());
        EXPECT_EQ(all[at], static_cast<std::byte>(value));
      }
    }
    // Collective and independent accesses move the same pointer.
    file.seek_shared(-2, Whence::current);
    file.write_ordered(filled(4, 200 + comm.rank()));
    EXPECT_EQ(file.position_shared(), std::uint64_t{kRanks * kEach * 2 - 2 + kRanks});
    file.sync();
    if (comm.rank() == 1) file.write_shared(filled(4, 250));
    file.sync();
    EXPECT_EQ(file.position_shared(), std::uint64_t{kRanks * kEach * 2 - 1 + kRanks});
    file.seek_shared(0, Whence::set);
    std::vector<std::byte> first(8);
    EXPECT_EQ(file.read_shared(first), 8u);
    EXPECT_EQ(code_of([&] { file.write_shared(filled(3, 1)); }), ErrorCode::invalid_argument);
    file.sync();
    EXPECT_EQ(file.position_shared(), std::uint64_t{kRanks * 2});
    EXPECT_EQ(code_of([&] { file.seek_shared(-1, Whence::set); }), ErrorCode::invalid_argument);
    file.close();
  });
  EXPECT_TRUE(std::filesystem::is_empty(directory.path() + "/counters"));
}

TEST(FileTogether, IndependentWritesOfOverlappingTilesAreEachAtomic) {
  const TemporaryDirectory directory;
  constexpr std::uint64_t kRows = 32, kWidth = 64, kRounds = 8;
  on_ranks(4, [&](const Comm& comm) {
    File file = File::open(comm, directory.url("field"), {.create = true, .durable = false});
    file.set_atomicity(true);
    EXPECT_TRUE(file.atomicity());
    // A row of tiles of 32 columns, 16 of them shared with the next tile.
    const auto column = static_cast<std::uint64_t>(comm.rank()) * 16 % kWidth;
    FileView view{.displacement_bytes = column, .pieces = {}, .extent_bytes = kRows * kWidth};
    const std::uint64_t width = std::min<std::uint64_t>(32, kWidth - column);
    for (std::uint64_t row = 0; row < kRows; ++row) view.pieces.push_back({row * kWidth, width});
    view.extent_bytes = kRows * kWidth;
    file.set_view(view);
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      file.write_at(0, filled(kRows * width, static_cast<int>(round * 4) + comm.rank() + 1));
    }
    file.sync();
    // In every version, each column of the field has one value: no row of a tile is older than another.
    for (std::uint64_t version = 1; version <= 4 * kRounds; ++version) {
      File pinned = file.snapshot(version);
      pinned.set_view({});
      std::vector<std::byte> data(kRows * kWidth);
      const std::uint64_t size = pinned.read_at(0, data);
      for (std::uint64_t i = kWidth; i < size; ++i) ASSERT_EQ(data[i], data[i - kWidth]) << version << " " << i;
    }
    file.close();
  });
}

}  // namespace
}  // namespace penstock
