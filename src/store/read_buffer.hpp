// Memory that files are read to at full speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "penstock/types.hpp"

namespace penstock::store {

/// Whether the kernel copies slowly from this offset of a file to this address. Kernels copy files with `rep movsb`. On
/// AMD's processors that takes four times as long if, modulo the page size, the target is 1 to 31 bytes behind the
/// source. Memory that numpy allocates begins 16 bytes behind a page.
bool copies_slowly(std::uint64_t offset_bytes, const std::byte* to);

/// Memory for what cannot be read straight to its target. Not cleared.
class ReadBuffer {
 public:
  /// At least `size_bytes` for reading from this offset of a file. Valid until the next call.
  Bytes take(std::uint64_t offset_bytes, std::size_t size_bytes);

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_bytes_ = 0;
};

}  // namespace penstock::store
