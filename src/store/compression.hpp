// Compression of single chunks by zstd. The library is loaded when a process first compresses or meets a compressed
// chunk, so a build and a wheel do not need it.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/types.hpp"

namespace penstock::store {

/// Throws Error(invalid_argument) unless `level` is 0 (none) or a level of zstd, and Error(unsupported) if one is given
/// and this machine has no libzstd.
void check_compress_level(int level);

/// One thread at a time. Throws Error(unsupported) if this machine has no libzstd.
class Compressor {
 public:
  explicit Compressor(int level);
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  /// Returns the compressed size; 0 if it does not fit into `to`.
  std::uint64_t compress(ConstBytes from, Bytes to);

 private:
  void* const context_;
  const int level_;
};

/// One thread at a time. Throws Error(unsupported) if this machine has no libzstd.
class Decompressor {
 public:
  Decompressor();
  ~Decompressor();
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  /// Fills `to`, whatever `from` claims about its size. Returns what is wrong with `from`; empty if nothing is.
  std::string decompress(ConstBytes from, Bytes to);

 private:
  void* const context_;
};

}  // namespace penstock::store
