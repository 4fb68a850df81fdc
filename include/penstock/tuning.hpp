// Measured choices of algorithms, and the tasks of hierarchical collectives that are measured for them (HAN).
// `penstock tune` makes tables. A communicator reads the one that the option `tuning` names.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/collective.hpp"
#include "penstock/export.hpp"
#include "penstock/plan.hpp"

namespace penstock {

/// A stage of one segment in a hierarchical collective (HAN, figures 1 and 5): r reduces, b broadcasts; s works
/// inside a node through shared memory, i between the leaders of the nodes.
enum class Stage : std::uint8_t { sr, ir, ib, sb };

/// The plan of one of the paper's tasks, such as sbib: its stages run at the same time, each on its own segment.
/// `collective` gives the elements of one segment and an algorithm of levels.def; its kind is ignored. Input and output
/// hold four segments each, in the order of Stage. Local, pure, any thread. Throws Error(invalid_argument) for an
/// algorithm that has no tasks or does not fit the team.
PENSTOCK_API Plan plan_task(const Team& team, const Collective& collective, std::span<const Stage> stages);

/// Where a table was measured. It is used only for a communicator whose key has equal members.
struct TuningKey {
  std::string mpi;           ///< library, version, and what the environment sets about its own collectives
  std::string thread_level;  ///< "multiple" or "below multiple"
  std::uint64_t nodes = 0;
  std::string ranks_per_node;  ///< "2 3": one number per node
  std::string placement;       ///< the node of each rank: "0*2 1*3" is two ranks on node 0, then three on node 1. If
                               ///< nodes have several domains, "; domains " and the domain of each rank follow
  std::uint64_t progress_cores = 0;
  std::string single_copy;  ///< "on" or "off"

  friend bool operator==(const TuningKey&, const TuningKey&) = default;
};

PENSTOCK_API TuningKey tuning_key(const Team& team, std::string_view mpi, bool any_thread);
/// A JSON object of the members.
PENSTOCK_API std::string to_json(const TuningKey& key);

/// The choices for one team.
class PENSTOCK_API Tuning {
 public:
  struct Candidate {
    std::string algorithm;  ///< a row of algorithms.def, or "native": MPI's own collective, called through Penstock
    std::uint64_t segment_bytes = 0;
    std::uint64_t nanoseconds = 0;  ///< of the slowest rank, a median
  };
  /// The measurements of one operation and size. The preferred candidate comes first: the best one, or one whose
  /// difference from the best is within the noise.
  struct Point {
    std::uint64_t bytes = 0;               ///< of one rank's contribution
    std::uint64_t native_nanoseconds = 0;  ///< MPI's own collective, called by itself; 0: not measured
    std::vector<Candidate> candidates;
  };
  struct Found {
    std::string algorithm;
    std::uint64_t segment_bytes = 0;
    std::string reason;
  };

  /// Reads a table file and keeps the part for `key`. Throws Error(corrupt) if the text is no table, Error(unsupported)
  /// for another version or an unknown algorithm (such as those of a table of Penstock 0.1 that have new names), and
  /// Error(not_found), naming the closest part, if no part is for `key`. Tables of version 1 never choose MPI's own
  /// collective, since it is not among their candidates.
  static Tuning parse(std::string_view text, const TuningKey& key);

  /// The preferred algorithm for `collective`. If its size was not measured and the neighbouring sizes prefer different
  /// algorithms, the times of the candidates that both sizes have are interpolated on logarithmic scales, and the
  /// shortest wins. std::nullopt if the operation was not measured. Skips candidates that do not fit, and MPI's own
  /// collective unless `with_native`.
  std::optional<Found> find(const Team& team, const Collective& collective, bool with_native = false) const;

  std::size_t point_count() const;

 private:
  std::map<CollectiveKind, std::vector<Point>> points_;  // by size
};

}  // namespace penstock
