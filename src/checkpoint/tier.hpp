// Where checkpoints are kept. A tier is a folder of objects (folder_tier.hpp) or a blob of a store (blob_tier.hpp).
// docs/design/checkpoint.md has the order of the calls.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/keys.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/stream.hpp"
#include "penstock/error.hpp"
#include "store/backend.hpp"

namespace penstock::checkpoint {

using Warn = std::function<void(const std::string&)>;

/// One rank's object, as a tier gets it.
struct Content {
  ObjectInfo info;
  std::uint64_t chunk_bytes = 0;
  std::vector<Digest> digests;  ///< of all chunks
  bool read_soon = false;       ///< to be drained; else only a restore reads it
  /// Reads ranges of chunks, which ascend. One stream at a time.
  std::function<std::unique_ptr<ChunkStream>(const std::vector<ChunkRange>& ranges)> open;
  /// Called between pieces of the work: waits while a save copies.
  std::function<void()> give_way = [] {};
};

/// What a save builds on. Equal on all ranks.
struct Base {
  std::uint64_t number = 0;      ///< the version of the blob before; 0: nothing
  std::uint64_t distrusted = 0;  ///< some rank has found damage, or cannot know: verify what is not written again
};

/// What one rank has written, for the rank that publishes. A tier that needs nothing leaves it empty. Only the tier
/// that made it can read it.
using Written = std::vector<std::byte>;

/// A checkpoint whose data all ranks have written.
struct Draft {
  const std::string& manifest;
  std::uint64_t end_bytes = 0;  ///< the end of the last rank's object, see places()
  Base base;
  std::vector<Written> written;  ///< by rank
  bool drained = false;          ///< it is complete in the burst buffer, too
};

struct Publication {
  /// Not 0: published, under this number. 0 without a failure: a collector has given up what was written, since it was
  /// older than the lease; write it again.
  std::uint64_t number = 0;
  std::optional<Error> failure;
  bool gone = false;    ///< it failed, and certainly nothing can be seen of it
  std::string warning;  ///< not empty: it succeeded, but not all of it
};

/// All functions but those of saving may be called by several threads at once.
class Tier {
 public:
  virtual ~Tier() = default;

  virtual const std::string& url() const = 0;
  /// The place, for messages.
  virtual std::string title() const = 0;
  /// An object, for messages. `rank` < 0: the manifest.
  virtual std::string name_of(const Version& version, int rank) const = 0;

  /// All versions. Throws Error(io) or Error(mismatch) if something else is in the place.
  virtual std::map<Version, Holding> list() const = 0;
  /// The text of a manifest. Throws Error(not_found).
  virtual std::string manifest(const Version& version) const = 0;
  /// Reads a part of a rank's object.
  virtual void read(const Version& version, int rank, const ObjectInfo& info, std::uint64_t offset_bytes,
                    Bytes to) const = 0;
  /// How much one of several concurrent reads should ask for. Where a request costs next to nothing that is little, so
  /// that a chunk is verified while it is in the core's cache.
  virtual std::uint64_t request_bytes() const { return kMostRequestBytes; }

  static constexpr std::uint64_t kMostRequestBytes = std::uint64_t{8} << 20;

  /// Slow tier only. Takes the next generation above `seen`, durably. From then on, check_generation fails for all
  /// lower ones.
  virtual std::uint64_t take_generation(std::uint64_t seen) = 0;
  /// Slow tier only. Throws Error(fenced), which names the newer job, if a higher generation than this was taken.
  virtual void check_generation(std::uint64_t generation) const = 0;
  /// Removes what jobs of lower generations have left unfinished. Such a job may be alive, but cannot complete it any
  /// more. `held` is what list() returned here, `complete` what is complete as seen by any rank.
  virtual void reclaim(std::uint64_t generation, const std::map<Version, Holding>& held,
                       const std::set<Version>& complete, const Warn& warn) = 0;

  /// Whether saves build on the one before: base() and what ranks have written then count.
  virtual bool builds_on_base() const { return false; }
  /// Rank 0, before the ranks write. Throws Error(fenced) if a newer job has begun.
  virtual Base base(std::uint64_t) { return {}; }
  /// Whether this rank's part of a base must not be trusted.
  virtual bool distrusts() const { return false; }
  /// Stores the object of `rank`, durably. Throws Error(exists) if another program has put one there.
  virtual Written write(const Attempt& attempt, int rank, const Content& content, const Base& base) = 0;
  /// Takes back what this process has written and nobody publishes. Failures are warnings.
  virtual void discard(const Attempt& attempt, int rank, const Written& written, const Warn& warn) = 0;
  /// Rank 0. Makes the checkpoint exist, unless a newer job than that of the attempt has taken its generation in
  /// `slow`.
  virtual Publication publish(const Attempt& attempt, const Draft& draft, const Tier& slow) = 0;
  /// Burst buffer only. Puts a manifest that rank 0 has published in its own.
  virtual void copy_manifest(const Version&, const std::string&) {}
  /// Every rank, after the publication has succeeded.
  virtual void published(std::uint64_t, const Content&) {}

  /// Removes a checkpoint, durably: from then on it does not exist. Its data goes by remove_data and sweep.
  virtual void remove(const Version& version) = 0;
  /// Slow tier only. Marks durably that it was removed, for those whose burst buffers hold it, too. Before remove().
  virtual void mark_removed(const Version& version) = 0;
  virtual void remove_data(const Version& version, const std::vector<int>& ranks) = 0;
  /// Frees what only removed checkpoints needed. One process is enough.
  virtual void sweep() {}
};

/// The highest generation that has left something in a tier.
std::uint64_t newest_generation(const Tier& tier);

/// Runs `action`; an error is a warning.
void try_to(const Warn& warn, const std::string& what, const std::function<void()>& action);

/// The error of a job that a newer one has fenced. `who`: the newer one, " (host node7, process 812)".
Error fenced(const std::string& title, std::uint64_t newest, const std::string& who, std::uint64_t generation);

}  // namespace penstock::checkpoint
