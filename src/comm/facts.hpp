// What is known about a communicator when it has been made: its settings, and what its ranks agreed on.
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
  bool any_thread = false;             ///< see Comm::any_thread
  bool debug = false;                  ///< whether a rank wants debug level 1 or more
  bool native = true;                  ///< whether all ranks let a table choose MPI's own collectives
  std::uint64_t plan_cache_bytes = 0;  ///< the fewest of any rank: the option
  std::string mpi{};                   ///< library, version, settings of its collectives
  std::string tuning{};                ///< what became of the table that was asked for; empty where none was
  std::string progress_reason{};       ///< how many progress threads, and why

  TuningKey tuning_key() const { return penstock::tuning_key(team, mpi, any_thread); }
};

/// Rank 0 reads the table at `path`, which only it needs to know, and all use what it found. Collective, before any
/// other operation; never fails for the sake of a table.
void read_tuning(engine::Engine& engine, Facts& facts, const std::string& path);

}  // namespace penstock::comm
