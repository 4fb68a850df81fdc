#include "file/view.hpp"

#include <algorithm>
#include <string>

#include "penstock/error.hpp"

namespace penstock::file {

namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 63;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::invalid_argument, "file view: " + what); }

/// Merges adjacent pieces, within a repetition and across repetitions. A view without holes then has no pieces.
void simplify(FileView& view) {
  std::vector<FileView::Piece> joined;
  for (const FileView::Piece& piece : view.pieces) {
    if (piece.size_bytes == 0) continue;
    if (!joined.empty() && joined.back().offset_bytes + joined.back().size_bytes == piece.offset_bytes) {
      joined.back().size_bytes += piece.size_bytes;
    } else {
      joined.push_back(piece);
    }
  }
  view.pieces = std::move(joined);
  if (view.pieces.size() == 1 && view.pieces.front().size_bytes == view.extent_bytes) {
    view.displacement_bytes += view.pieces.front().offset_bytes;
    view.pieces.clear();
    view.extent_bytes = 0;
  }
}

}  // namespace

ViewMap::ViewMap(FileView view) : view_(std::move(view)) {
  if (view_.etype_bytes == 0) refuse("the etype has no bytes; expected at least 1");
  if (view_.displacement_bytes >= kMostBytes) {
    refuse("the displacement " + std::to_string(view_.displacement_bytes) + " is beyond 2^63");
  }
  if (view_.pieces.empty()) return;
  std::uint64_t end = 0;
  for (const FileView::Piece& piece : view_.pieces) {
    if (piece.offset_bytes >= kMostBytes || piece.size_bytes >= kMostBytes) refuse("a piece reaches beyond 2^63");
    if (piece.offset_bytes < end) {
      refuse("the piece at " + std::to_string(piece.offset_bytes) + " begins before the end, " + std::to_string(end) +
             ", of the one before it; pieces must be ascending and disjoint");
    }
    end = piece.offset_bytes + piece.size_bytes;
    repetition_bytes_ += piece.size_bytes;
  }
  if (shows_nothing()) return;
  if (repetition_bytes_ % view_.etype_bytes != 0) {
    refuse("the file type has " + std::to_string(repetition_bytes_) + " bytes, no multiple of the etype's " +
           std::to_string(view_.etype_bytes));
  }
  span_bytes_ = end - view_.pieces.front().offset_bytes;
  simplify(view_);
  std::uint64_t data = 0;
  for (const FileView::Piece& piece : view_.pieces) data_ends_.push_back(data += piece.size_bytes);
}

void ViewMap::visit(std::uint64_t position, std::uint64_t size,
                    const std::function<void(std::uint64_t, std::uint64_t)>& visitor) const {
  if (size == 0) return;
  if (shows_nothing())
    refuse("an access of " + std::to_string(size) + " bytes; the file type has no bytes, so expected 0");
  if (position >= kMostBytes || size > kMostBytes || file_offset(position + size - 1) >= kMostBytes) {
    refuse("an access of " + std::to_string(size) + " bytes at byte " + std::to_string(position) +
           " of the data reaches beyond 2^63");
  }
  if (contiguous()) {
    visitor(view_.displacement_bytes + position, size);
    return;
  }
  if (!repeats() && position + size > repetition_bytes_)
    refuse("an access of " + std::to_string(size) + " bytes at byte " + std::to_string(position) +
           " of the data reaches beyond the first repetition of " + std::to_string(repetition_bytes_) +
           " bytes; the extent of " + std::to_string(view_.extent_bytes) + " bytes is less than the " +
           std::to_string(span_bytes_) + " that the pieces span, so repetitions would overlap");
  std::uint64_t tile_start = view_.displacement_bytes + position / repetition_bytes_ * view_.extent_bytes;
  const std::uint64_t in_tile = position % repetition_bytes_;
  auto piece =
      static_cast<std::size_t>(std::upper_bound(data_ends_.begin(), data_ends_.end(), in_tile) - data_ends_.begin());
  std::uint64_t skip = in_tile - (data_ends_[piece] - view_.pieces[piece].size_bytes);
  std::uint64_t pending_offset = 0;
  std::uint64_t pending_size = 0;
  while (size > 0) {
    const std::uint64_t offset = tile_start + view_.pieces[piece].offset_bytes + skip;
    const std::uint64_t step = std::min(size, view_.pieces[piece].size_bytes - skip);
    if (pending_size > 0 && pending_offset + pending_size == offset) {
      pending_size += step;
    } else {
      if (pending_size > 0) visitor(pending_offset, pending_size);
      pending_offset = offset;
      pending_size = step;
    }
    size -= step;
    skip = 0;
    if (++piece == view_.pieces.size()) {
      piece = 0;
      tile_start += view_.extent_bytes;
    }
  }
  visitor(pending_offset, pending_size);
}

std::uint64_t ViewMap::file_offset(std::uint64_t position) const {
  if (contiguous()) return view_.displacement_bytes + position;
  if (shows_nothing()) return view_.displacement_bytes;
  const std::uint64_t repetition = position / repetition_bytes_;
  if (view_.extent_bytes != 0 && repetition > kMostBytes / view_.extent_bytes) return kMostBytes;
  const std::uint64_t in_tile = position % repetition_bytes_;
  const auto piece =
      static_cast<std::size_t>(std::upper_bound(data_ends_.begin(), data_ends_.end(), in_tile) - data_ends_.begin());
  const std::uint64_t before = data_ends_[piece] - view_.pieces[piece].size_bytes;
  return view_.displacement_bytes + repetition * view_.extent_bytes + view_.pieces[piece].offset_bytes + in_tile -
         before;
}

std::uint64_t ViewMap::data_before(std::uint64_t offset) const {
  if (offset <= view_.displacement_bytes || shows_nothing()) return 0;
  offset -= view_.displacement_bytes;
  if (contiguous()) return offset;
  // A repetition's data starts with its first piece, which may lie behind the start of the extent.
  const std::uint64_t first = view_.pieces.front().offset_bytes;
  if (offset <= first) return 0;
  offset -= first;
  std::uint64_t data = repeats() ? offset / view_.extent_bytes * repetition_bytes_ : 0;
  const std::uint64_t in_tile = (repeats() ? offset % view_.extent_bytes : offset) + first;
  for (const FileView::Piece& piece : view_.pieces) {
    if (piece.offset_bytes >= in_tile) break;
    data += std::min(piece.size_bytes, in_tile - piece.offset_bytes);
  }
  return data;
}

}  // namespace penstock::file

namespace penstock {

FileView make_view(std::uint64_t displacement_bytes, std::uint64_t etype_bytes, const Datatype& filetype) {
  if (filetype.extent_bytes() < 0)
    file::refuse("the file type has a negative extent of " + std::to_string(filetype.extent_bytes()) + " bytes");
  FileView view{displacement_bytes, etype_bytes, {}, static_cast<std::uint64_t>(filetype.extent_bytes())};
  for (const Datatype::Piece& piece : filetype.pieces()) {
    if (piece.offset_bytes < 0)
      file::refuse("the file type has " + std::to_string(piece.size_bytes) + " bytes at " +
                   std::to_string(piece.offset_bytes) + ", before the displacement");
    view.pieces.push_back(
        {static_cast<std::uint64_t>(piece.offset_bytes), static_cast<std::uint64_t>(piece.size_bytes)});
  }
  if (view.pieces.empty()) view.pieces.emplace_back();  // without any, the view would show every byte
  return view;
}

}  // namespace penstock
