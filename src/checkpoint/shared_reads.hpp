// Which rank reads what several ranks need: from storage it comes once, then by broadcast.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/gather.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/object.hpp"
#include "checkpoint/peers.hpp"
#include "checkpoint/stream.hpp"

namespace penstock::checkpoint {

/// Consecutive chunks of the object of one saving rank.
struct ObjectChunks {
  std::uint64_t object = 0;
  ChunkRange range;
};

/// Chunks that one rank reads for all.
struct SharedRead {
  ObjectChunks chunks;
  int reader = 0;
};

std::uint64_t range_bytes(const Manifest& manifest, const ObjectChunks& chunks);

/// The chunks that ranks of more than one node need and at least half of the ranks do: of the others, a broadcast would
/// move more to ranks without need than it saves. In rounds: in each, a rank reads at most one range, of at most
/// `most_chunks`. Each rank that reads a range needs it.
///
/// `needs`: by rank; ascending, without overlaps. `at_hand[rank][object]` is not 0 if the rank need not go to the slow
/// tier for it; empty: none has anything. `nodes`: by rank; what ranks of one node read alike costs them nothing;
/// empty: each rank is its own node. Pure, so all ranks plan alike.
std::vector<std::vector<SharedRead>> plan_shared_reads(const std::vector<std::vector<ObjectChunks>>& needs,
                                                       const std::vector<std::vector<std::uint8_t>>& at_hand,
                                                       const std::vector<int>& nodes, std::uint64_t most_chunks);

/// Reads the objects of one checkpoint. Each is opened when it is first asked for. Several threads may use it at once.
class ObjectReaders {
 public:
  /// Keeps references. `warn` as ObjectReader has it.
  ObjectReaders(std::vector<const Tier*> tiers, const Manifest& manifest, std::function<void(const std::string&)> warn);

  /// Throws as ObjectReader.
  ObjectReader& of(std::uint64_t object);

 private:
  const std::vector<const Tier*> tiers_;
  const Manifest& manifest_;
  const std::function<void(const std::string&)> warn_;
  struct Opened {
    std::mutex mutex;
    std::unique_ptr<ObjectReader> reader;
  };
  std::mutex mutex_;  ///< of the map; it is not held while an object is opened
  std::mutex warning_;
  std::map<std::uint64_t, Opened> readers_;
};

/// Executes `rounds`: each range is read by its reader, which reads the next ones meanwhile, and is broadcast. Copies
/// what `pieces` have of it. Ascending, by object: `needed`, the chunks that this rank needs; those that it has got are
/// taken out. What could not be read stays in it. Collective.
void read_shared(Peers& peers, const std::vector<std::vector<SharedRead>>& rounds, ObjectReaders& readers,
                 const Manifest& manifest, const std::vector<std::vector<Piece>>& pieces,
                 std::vector<std::vector<std::uint64_t>>& needed);

}  // namespace penstock::checkpoint
