// From positions in the data that a view shows to regions of the file.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "penstock/file.hpp"

namespace penstock::file {

class ViewMap {
 public:
  /// Throws Error(invalid_argument) for a view that breaks a rule of FileView.
  explicit ViewMap(FileView view);

  const FileView& view() const { return view_; }

  /// Calls visit(offset in the file, size) for the data at [position, position + size), in order, joining what
  /// touches. Throws invalid_argument when that goes beyond 2^63.
  void visit(std::uint64_t position_bytes, std::uint64_t size_bytes,
             const std::function<void(std::uint64_t, std::uint64_t)>& visitor) const;
  /// Where one byte of the data lies.
  std::uint64_t file_offset(std::uint64_t position_bytes) const;
  /// How much of the data lies before an offset of the file.
  std::uint64_t data_before(std::uint64_t file_offset_bytes) const;

 private:
  bool contiguous() const { return view_.pieces.empty(); }

  FileView view_;
  std::vector<std::uint64_t> data_ends_;  ///< sum of the sizes of the pieces up to and with this one
  std::uint64_t tile_bytes_ = 0;          ///< data in one repetition
};

}  // namespace penstock::file
