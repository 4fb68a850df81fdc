// The manifest of a checkpoint: the saved arrays, the places of their bytes, and their checksums. A checkpoint exists
// if and only if its manifest exists.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/digest.hpp"
#include "checkpoint/keys.hpp"
#include "penstock/layout.hpp"
#include "penstock/types.hpp"

namespace penstock::checkpoint {

/// Name, type and layout of an array.
struct ArraySpec {
  std::string name;
  DType dtype = DType::uint8;
  Layout layout;
};

/// The data object of one rank: its local arrays one after another, each at a multiple of kArrayAlignment, then the
/// digests of all chunks. A rank without data has no object, and size_bytes is 0.
struct ObjectInfo {
  std::uint64_t size_bytes = 0;
  std::uint64_t data_bytes = 0;   ///< without the digests
  Digest table{};                 ///< digest of the digests
  std::uint64_t place_bytes = 0;  ///< where it begins in the blob of the run, if the slow tier is one
};

std::uint64_t chunks_of(std::uint64_t data_bytes, std::uint64_t chunk_bytes);

inline constexpr std::uint64_t kArrayAlignment = 64;

/// A value, equal on all ranks.
struct Manifest {
  Version version;
  std::uint64_t chunk_bytes = 0;
  std::vector<ArraySpec> arrays;
  std::vector<std::vector<std::uint64_t>> offsets_bytes;  ///< [array][rank], in the rank's object
  std::vector<ObjectInfo> objects;                        ///< one per rank that saved
  std::string metadata;                                   ///< the caller's text
  std::map<std::string, double> metrics;                  ///< of the caller; finite
  std::uint64_t saved_at_us = 0;                          ///< since 1970, by the clock of rank 0; 0: unknown

  int ranks() const { return static_cast<int>(objects.size()); }

  std::string serialize() const;
  /// Verifies the text's own checksum first. Throws Error(corrupt), or Error(unsupported) for a later format.
  static Manifest parse(std::string_view text);
};

/// Size of the array's part on `rank`.
std::uint64_t local_bytes(const ArraySpec& array, int rank);

/// Offsets of the arrays in the object of `rank`; last, the size of its data.
std::vector<std::uint64_t> object_offsets(const std::vector<ArraySpec>& arrays, int rank);

}  // namespace penstock::checkpoint
