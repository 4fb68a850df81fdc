// The constants of a communicator: its settings, and what its ranks agreed on when it was made.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.hpp"
#include "penstock/comm.hpp"
#include "penstock/plan.hpp"
#include "penstock/tuning.hpp"

namespace penstock::comm {

struct Facts {
  CommOptions options{};
  Team team{};
  std::shared_ptr<const Graph> graph{};  ///< of neighbourhood collectives; or nullptr
  bool any_thread = false;               ///< see Comm::any_thread
  bool debug = false;                    ///< whether some rank sets debug level 1 or more
  bool native = true;                    ///< whether all ranks let a table choose MPI's own collectives
  std::uint64_t plan_cache_bytes = 0;    ///< the option; the minimum over the ranks
  std::string mpi{};                     ///< library, version, settings of its collectives
  std::string tuning{};                  ///< what the tuning table gave, or why it is not used; empty without a table
  std::string progress_reason{};         ///< the number of progress threads, and why

  TuningKey tuning_key() const { return penstock::tuning_key(team, mpi, any_thread); }
};

/// Rank 0 reads the table at `path` and broadcasts it. Only rank 0's `path` counts. Collective, before any other
/// operation. A bad table is no error: the defaults stay.
void read_tuning(engine::Engine& engine, Facts& facts, const std::string& path);

}  // namespace penstock::comm
