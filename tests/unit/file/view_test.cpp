// Views against a model that lists every byte.
#include "file/view.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "penstock/error.hpp"

namespace penstock::file {
namespace {

std::vector<std::uint64_t> bytes_shown(const FileView& view, std::size_t count) {
  std::vector<std::uint64_t> bytes;
  for (std::uint64_t tile = 0; bytes.size() < count; ++tile) {
    if (view.pieces.empty()) {
      bytes.push_back(view.displacement_bytes + tile);
      continue;
    }
    for (const FileView::Piece& piece : view.pieces) {
      for (std::uint64_t i = 0; i < piece.size_bytes; ++i) {
        bytes.push_back(view.displacement_bytes + tile * view.extent_bytes + piece.offset_bytes + i);
      }
    }
  }
  bytes.resize(count);
  return bytes;
}

FileView random_view(std::mt19937& random) {
  const auto below = [&](std::uint64_t n) { return random() % n; };
  FileView view;
  view.displacement_bytes = below(20);
  std::uint64_t end = below(5);
  const std::uint64_t first = end;
  for (std::uint64_t n = below(5); n > 0; --n) {
    view.pieces.push_back({end, below(4)});
    end += view.pieces.back().size_bytes + below(3);
  }
  std::uint64_t shown = 0;
  for (const auto& piece : view.pieces) shown += piece.size_bytes;
  if (shown == 0) view.pieces.clear();
  view.extent_bytes = end - first + below(4);
  return view;
}

TEST(View, ShowsTheBytesThatTheModelShows) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const FileView view = random_view(random);
    const ViewMap map(view);
    const auto model = bytes_shown(view, 60);
    const std::uint64_t start = random() % 30, size = random() % 30;
    std::vector<std::uint64_t> found;
    std::uint64_t calls = 0, end = UINT64_MAX;
    map.visit(start, size, [&](std::uint64_t offset, std::uint64_t length) {
      EXPECT_NE(offset, end) << "pieces that touch are one";
      end = offset + length;
      ++calls;
      for (std::uint64_t i = 0; i < length; ++i) found.push_back(offset + i);
    });
    const auto at = model.begin() + static_cast<std::ptrdiff_t>(start);
    ASSERT_EQ(found, std::vector<std::uint64_t>(at, at + static_cast<std::ptrdiff_t>(size)));
    EXPECT_EQ(map.file_offset(start), model[start]);
    const std::uint64_t offset = random() % 40;
    const auto before = static_cast<std::uint64_t>(
        std::count_if(model.begin(), model.end(), [&](std::uint64_t byte) { return byte < offset; }));
    ASSERT_EQ(map.data_before(offset), before) << "round " << round << " offset " << offset;
  }
}

// HDF5 makes file types for one repetition, whose extent may be less than what they span.
TEST(View, ShowsOneRepetitionIfOthersWouldOverlap) {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    FileView view = random_view(random);
    if (view.pieces.size() < 2) continue;
    std::uint64_t shown = 0;
    for (const auto& piece : view.pieces) shown += piece.size_bytes;
    const std::uint64_t span =
        view.pieces.back().offset_bytes + view.pieces.back().size_bytes - view.pieces.front().offset_bytes;
    if (shown == 0 || span < 2) continue;
    view.extent_bytes = random() % span;
    const ViewMap map(view);
    if (view.pieces.size() == 1 || map.view().pieces.empty()) continue;  // its pieces touch
    const auto model = bytes_shown(view, shown);
    std::vector<std::uint64_t> found;
    map.visit(0, shown, [&](std::uint64_t offset, std::uint64_t length) {
      for (std::uint64_t i = 0; i < length; ++i) found.push_back(offset + i);
    });
    ASSERT_EQ(found, model);
    EXPECT_THROW(map.visit(shown, 1, [](std::uint64_t, std::uint64_t) {}), Error);
    EXPECT_THROW(map.visit(shown - 1, 2, [](std::uint64_t, std::uint64_t) {}), Error);
    const std::uint64_t offset = random() % 80;
    const auto before = static_cast<std::uint64_t>(
        std::count_if(model.begin(), model.end(), [&](std::uint64_t byte) { return byte < offset; }));
    ASSERT_EQ(map.data_before(offset), before) << "round " << round << " offset " << offset;
  }
}

// PnetCDF gives a rank without data such file types, and ignores what MPI_File_set_view returns.
TEST(View, MayShowNothing) {
  for (const FileView& view :
       {FileView{.displacement_bytes = 7, .pieces = {{3, 0}}},
        FileView{.displacement_bytes = 7, .etype_bytes = 4, .pieces = {{0, 0}, {8, 0}}, .extent_bytes = 16},
        make_view(7, 1, Datatype({}, 16))}) {
    const ViewMap map(view);
    map.visit(0, 0, [](std::uint64_t, std::uint64_t) { ADD_FAILURE(); });
    EXPECT_THROW(map.visit(0, 1, [](std::uint64_t, std::uint64_t) {}), Error);
    EXPECT_EQ(map.file_offset(0), 7u);
    for (const std::uint64_t offset : {0, 7, 100}) EXPECT_EQ(map.data_before(offset), 0u);
  }
}

TEST(View, RefusesWhatItCannotShow) {
  const auto refused = [](FileView view) {
    try {
      const ViewMap map(std::move(view));
    } catch (const Error& error) {
      return error.code() == ErrorCode::invalid_argument;
    }
    return false;
  };
  EXPECT_TRUE(refused({.etype_bytes = 0}));
  EXPECT_TRUE(refused({.displacement_bytes = std::uint64_t{1} << 63}));
  EXPECT_TRUE(refused({.pieces = {{4, 4}, {6, 4}}, .extent_bytes = 20}));
  EXPECT_TRUE(refused({.pieces = {{8, 4}, {0, 4}}, .extent_bytes = 20}));
  EXPECT_TRUE(refused({.etype_bytes = 4, .pieces = {{0, 6}}, .extent_bytes = 8}));
  EXPECT_FALSE(refused({.etype_bytes = 4, .pieces = {{8, 4}, {16, 4}}, .extent_bytes = 12}));
  const ViewMap far({.pieces = {{0, 1}}, .extent_bytes = std::uint64_t{1} << 62});
  EXPECT_THROW(far.visit(2, 1, [](std::uint64_t, std::uint64_t) {}), Error);
}

}  // namespace
}  // namespace penstock::file
