// Data objects: written with one digest per chunk; every chunk that is read or copied is verified.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/rate_limit.hpp"
#include "checkpoint/staging.hpp"
#include "checkpoint/tier.hpp"

namespace penstock::checkpoint {

/// The object of `data`, which is to lie at `place_bytes` if the tier is a blob. Keeps a view of `data`.
Content content_of(
    ConstBytes data, std::uint64_t chunk_bytes, std::uint64_t place_bytes,
    const std::function<void()>& give_way = [] {});

/// The tiers that may hold a rank's object, preferred ones first.
struct Source {
  std::vector<const Tier*> tiers;
  Version version;
  int rank = 0;
};

/// Reads verified chunks of one object. If one tier lacks the object or holds it damaged, it reads the next tier.
/// Several threads may read at once.
class ObjectReader {
 public:
  /// Reads the digests. `warn` receives damage that another tier could replace; one thread at a time calls it. Throws
  /// as read().
  ObjectReader(Source source, const ObjectInfo& info, std::uint64_t chunk_bytes,
               std::function<void(const std::string&)> warn);

  /// The size of a range of chunks.
  std::uint64_t size_bytes(const ChunkRange& range) const;
  /// Reads size_bytes(range). Throws Error(corrupt), Error(not_found) or Error(io) if no tier has a chunk intact; the
  /// contents of `to` are undefined then.
  void read(const ChunkRange& range, Bytes to);

 private:
  /// Calls `read` with one tier after the other until it succeeds, starting with the tier that succeeded last.
  void first_intact(const std::function<void(const Tier&)>& read);

  const Source source_;
  const ObjectInfo info_;
  const std::uint64_t chunk_bytes_;
  const std::function<void(const std::string&)> warn_;
  std::vector<Digest> digests_;
  std::mutex warning_;
  std::atomic<std::size_t> tier_{0};
};

/// What the drains of one rank share, one after another.
struct DrainState {
  Staging memory;
  RateLimit limit{0};
  std::function<void()> give_way = [] {};
  std::uint64_t piece_bytes = StreamShape::kPieceBytes;
};

/// An object in a tier, to be written to another one. A stream reads its chunks ahead into `drain.memory`, of which it
/// takes no more than StreamShape says, verifies them, and keeps to the limit. Keeps references to `from` and `drain`.
Content content_in(const Tier& from, const Version& version, int rank, const ObjectInfo& info,
                   std::uint64_t chunk_bytes, DrainState& drain);

/// The digests of all chunks of an object. Verifies them as a whole.
std::vector<Digest> read_digests(const Tier& tier, const Version& version, int rank, const ObjectInfo& info,
                                 std::uint64_t chunk_bytes);

}  // namespace penstock::checkpoint
