// The first bytes of every version of a run's blob: which job the run belongs to, and what the version holds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/keys.hpp"

namespace penstock::checkpoint {

/// A line of JSON, padded with spaces.
inline constexpr std::uint64_t kHeaderBytes = 1024;
/// Objects of ranks and the manifest begin at multiples of this, the first one after the header.
inline constexpr std::uint64_t kPlaceAlignment = 4096;

/// The first place at or after `bytes`.
std::uint64_t aligned_place(std::uint64_t bytes);

struct BlobHeader {
  std::uint64_t job = 0;  ///< the generation that has taken the run; 0: none
  std::string host;
  std::uint64_t pid = 0;
  bool complete = false;  ///< the version is a checkpoint
  Version version;        ///< the checkpoint that the version holds, or of which it has what was not overwritten
  std::uint64_t manifest_place_bytes = 0;
  std::uint64_t manifest_bytes = 0;  ///< 0: the version holds no checkpoint at all

  /// A header that names this process as the job.
  static BlobHeader of_job(std::uint64_t generation);
  /// kHeaderBytes long.
  std::string serialize() const;
  /// Throws Error(corrupt), or Error(unsupported) for a later format.
  static BlobHeader parse(std::string_view text);
};

}  // namespace penstock::checkpoint
