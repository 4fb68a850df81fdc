// Machines that were measured before, by this process or by earlier jobs.
#pragma once

#include <optional>
#include <string>

#include "measurement/trials.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/plan.hpp"

namespace penstock::measurement {

/// What machines have in common that have the same costs: processor, network, MPI, the kind of host and of team.
struct MachineKey {
  std::string host;       ///< all but the team
  int pairs_class = 0;    ///< number of binary digits of the pairs that send at once: 3 for 4 to 7
  bool has_node = false;  ///< several ranks on a node
  std::string text() const;
};
MachineKey key_of(const Team& team, const std::string& mpi, const Parties& parties);

struct KeptMachine {
  Machine machine;
  std::string source;  ///< see MeasuredMachine
};
/// From this process's memory, or from a file of earlier jobs (option `machine_folder`). One that was measured with
/// more ranks on each node holds for fewer, too, unless they shared cores.
std::optional<KeptMachine> kept_machine(const MachineKey& key);

/// As later jobs read it: with the digits that a file has.
Machine as_kept(const MachineKey& key, const Machine& machine);
/// For kept_machine(). That no file can be written is no error.
void keep(const MachineKey& key, const Machine& machine);

}  // namespace penstock::measurement
