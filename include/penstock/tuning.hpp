// Measured choices of algorithms, and the parts of hierarchical collectives that are measured to make them (paper 001).
// `penstock tune` makes tables; a communicator reads the one that the option `tuning` names.
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

/// What happens to one segment in a hierarchical collective (paper 001, figures 1 and 5): reductions (r) and broadcasts
/// (b), inside a node through shared memory (s) and between the nodes' leaders (i).
enum class Stage : std::uint8_t { sr, ir, ib, sb };

/// One of the paper's tasks, such as sbib: its stages run at the same time, each on a segment of its own. `collective`
/// counts the elements of one segment and names an algorithm that is a pipeline over two levels (levels.def); its kind
/// is not looked at. The buffers, both, hold four segments, in the order of Stage. Local; pure; any thread. Throws
/// Error(invalid_argument) for an algorithm that has no tasks or does not fit the team.
PENSTOCK_API Plan plan_task(const Team& team, const Collective& collective, std::span<const Stage> stages);

/// For what a table was measured: it is used for nothing else.
struct TuningKey {
  std::string mpi;           ///< library, version, and what the environment sets about its own collectives
  std::string thread_level;  ///< "multiple" or "below multiple"
  std::uint64_t nodes = 0;
  std::string ranks_per_node;  ///< "2 3": of each node
  std::string placement;  ///< the node of each rank: "0*2 1*3" has two ranks on node 0, then three on node 1. Behind
                          ///< "; domains ", if there are several in a node, the domain of each
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
  /// What was measured for one operation and size, what is preferred first: the best, or what cannot be told from it.
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

  /// Reads a table file and keeps the part that was made for `key`. Throws Error(corrupt) for text that is no table of
  /// this format, Error(unsupported) for one of another version or with algorithms that do not exist, and
  /// Error(not_found), naming the closest, where no part is for `key`. Version 1 had MPI's own collective beside the
  /// candidates instead of among them: such a table never chooses it.
  static Tuning parse(std::string_view text, const TuningKey& key);

  /// The preferred algorithm for `collective`: of a size that was measured, or of both neighbouring sizes, or, where
  /// these differ, the best by interpolating the times of the candidates that both have, on logarithmic scales. Nothing
  /// for operations without points. Candidates that do not fit are passed over, and so is MPI's own collective unless
  /// `with_native`.
  std::optional<Found> find(const Team& team, const Collective& collective, bool with_native = false) const;

  std::size_t point_count() const;

 private:
  std::map<CollectiveKind, std::vector<Point>> points_;  // by size
};

}  // namespace penstock
