// Data objects: written with one digest per chunk; every chunk that is read or copied is verified.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/staging.hpp"
#include "checkpoint/tier.hpp"

namespace penstock::checkpoint {

/// The object of `data`, which is to lie at `place_bytes` if the tier is a blob. Keeps a view of `data`.
Content content_of(ConstBytes data, std::uint64_t chunk_bytes, std::uint64_t place_bytes);

/// The tiers that may hold a rank's object, preferred ones first.
struct Source {
  std::vector<const Tier*> tiers;
  Version version;
  int rank = 0;
};

/// Reads verified chunks of one object. If one tier lacks the object or holds it damaged, it reads the next tier.
class ObjectReader {
 public:
  /// `warn` receives damage that another tier could replace.
  ObjectReader(Source source, const ObjectInfo& info, std::uint64_t chunk_bytes,
               std::function<void(const std::string&)> warn);

  std::uint64_t chunk_count() const;
  /// Valid until the next call. Throws Error(corrupt), Error(not_found) or Error(io) if no tier has it intact.
  ConstBytes chunk(std::uint64_t index);

 private:
  /// Calls `read` with one tier after the other until it succeeds, starting with the tier that succeeded last.
  void first_intact(const std::function<void(const Tier&)>& read);

  const Source source_;
  const ObjectInfo info_;
  const std::uint64_t chunk_bytes_;
  const std::function<void(const std::string&)> warn_;
  std::size_t tier_ = 0;
  std::vector<Digest> digests_;
  std::vector<std::byte> buffer_;
};

/// An object in a tier, to be written to another one. Chunks are read into `memory` when they are loaded, and verified.
/// Keeps references to `from` and `memory`.
Content content_in(const Tier& from, const Version& version, int rank, const ObjectInfo& info,
                   std::uint64_t chunk_bytes, Staging& memory);

/// The digests of all chunks of an object. Verifies them as a whole.
std::vector<Digest> read_digests(const Tier& tier, const Version& version, int rank, const ObjectInfo& info,
                                 std::uint64_t chunk_bytes);

}  // namespace penstock::checkpoint
