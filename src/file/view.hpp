// Maps positions in the data of a view to regions of the file.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "penstock/file.hpp"

namespace penstock::file {

/// Immutable.
class ViewMap {
 public:
  /// Throws Error(invalid_argument) for a view that violates FileView's rules.
  explicit ViewMap(FileView view);

  const FileView& view() const { return view_; }

  /// Calls visit(file offset, size) for the data at [position, position + size), in order; adjacent regions are merged.
  /// Throws Error(invalid_argument) if the data reaches beyond 2^63 or beyond what the view shows.
  void visit(std::uint64_t position_bytes, std::uint64_t size_bytes,
             const std::function<void(std::uint64_t, std::uint64_t)>& visitor) const;
  /// File offset of one byte of the data; the displacement if the view shows nothing.
  std::uint64_t file_offset(std::uint64_t position_bytes) const;
  /// Number of data bytes before a file offset.
  std::uint64_t data_before(std::uint64_t file_offset_bytes) const;

 private:
  bool contiguous() const { return view_.pieces.empty(); }
  bool shows_nothing() const { return !contiguous() && repetition_bytes_ == 0; }
  /// If not, repetitions would overlap, and only the first one can be accessed.
  bool repeats() const { return view_.extent_bytes >= span_bytes_; }

  FileView view_;
  std::vector<std::uint64_t> data_ends_;  ///< cumulative sizes of the pieces
  std::uint64_t repetition_bytes_ = 0;    ///< data bytes in one repetition
  std::uint64_t span_bytes_ = 0;          ///< from the first piece of a repetition to the end of the last one
};

}  // namespace penstock::file
