// Machines that were measured before, by this process or by earlier jobs.
#pragma once

#include <optional>
#include <string>

#include "measurement/trials.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/plan.hpp"

namespace penstock::measurement {

/// What machines have in common that have the same costs: processor, network, MPI, the kind of host and of team.
std::string key_of(const Team& team, const std::string& mpi, const Parties& parties);

struct KeptMachine {
  Machine machine;
  std::string source;  ///< see MeasuredMachine
};
/// From the file of earlier jobs (option `machine_folder`), or from this process's memory.
std::optional<KeptMachine> kept_machine(const std::string& key);

/// As later jobs read it: with the digits that a file has.
Machine as_kept(const std::string& key, const Machine& machine);
/// For kept_machine(). That no file can be written is no error.
void keep(const std::string& key, const Machine& machine);

}  // namespace penstock::measurement
