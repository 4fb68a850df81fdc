// What communication costs on a machine: the parameters, and the time that plans take under them.
//
// The model is LogGP (Alexandrov, Ionescu, Schauser, Scheiman 1995) with what it lacks for nodes of many cores: a link
// that the ranks of a node share, an injection rate of one process below the link's, rendezvous, and costs inside a
// node that differ in kind from those between nodes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "penstock/export.hpp"
#include "penstock/plan.hpp"

namespace penstock {

/// The costs of a machine: of the network between its nodes, and inside a node. Times in seconds. All nodes are equal.
struct Machine {
  /// Between nodes. A message occupies the injection of its process, then the link out of its node and, `latency`
  /// later, the link into the other node, each as soon as it is free.
  struct Network {
    double latency_seconds = 1.3e-6;            ///< from one node to another, of the first byte
    double overhead_seconds = 0.3e-6;           ///< of a core, for each message sent and each received
    double gap_seconds = 0.1e-6;                ///< of each message besides its bytes, of its process and of each link
    double seconds_per_byte = 0.08e-9;          ///< of a node's link, in each direction
    double process_seconds_per_byte = 0.08e-9;  ///< of what one process can inject
    std::uint64_t eager_bytes = 16 << 10;       ///< longer messages wait for their receiver: the rendezvous handshake
  };

  /// Inside a node.
  struct Node {
    double flag_seconds = 0.1e-6;               ///< until another core sees a flag, or takes a short message
    double copy_seconds_per_byte = 0.1e-9;      ///< of one core, into or out of memory that ranks of one domain share
    double far_copy_seconds_per_byte = 0.2e-9;  ///< the same between domains (Team::domain_of_rank)
    double remote_read_seconds = 1e-6;          ///< of the system call by which a rank reads another rank's memory
    double remote_read_seconds_per_byte = 0.12e-9;
    double combine_seconds_per_byte = 0.15e-9;  ///< of an element-wise reduction, by byte of the result
    double task_seconds = 0.2e-6;               ///< of claiming a shared task
    double uncached_factor = 1.5;  ///< copies and combinations of more than cache_bytes take as many times longer
    std::uint64_t message_bytes = 16 << 10;  ///< longer messages are read by the receiver, if Team::single_copy
    std::uint64_t cache_bytes = 2 << 20;     ///< of one core
    int cores = 64;                          ///< ranks beyond them share cores
    /// That take turns, on this node or, if nodes are emulated on one machine, on several.
    double ranks_per_core = 1;
  };

  Network network{};
  Node node{};

  /// Two threads of one core may need less than half of it each.
  bool shares_cores() const noexcept { return node.ranks_per_core > 1.5; }
};

/// One JSON object: "network" and "node" with the members of Machine.
PENSTOCK_API std::string to_json(const Machine& machine);

/// A class of networks, with its parameters before anything is measured. A row of networks.def.
struct NetworkClass {
  std::string_view name;  ///< "tcp-10g"
  std::string_view description;
  Machine::Network network;
};
PENSTOCK_API std::span<const NetworkClass> network_classes() noexcept;
/// A machine with this network and the default node. Throws Error(invalid_argument) that lists the known names.
PENSTOCK_API Machine machine_with(std::string_view network);

/// The time from a common start to the end of the last step, if each rank has a core of its own and all nodes are as in
/// `machine`. Work waits for its core or link in the order in which it becomes ready:
/// - a message between nodes takes overhead of both cores and the links in between, see Machine::Network; the sender's
///   buffer is free as soon as a short message is handed over, or a long one has left the process
/// - a short message inside a node is copied in by the sender and out by the receiver; a long one is read by the
///   receiver (Team::single_copy) or copied by both at once
/// - a wait takes a flag's time of its core; copies, reads and combinations take their bytes; a shared task is run by
///   the core of its node that is free first.
/// `team.rank` does not matter, and neither do lanes. The plans must be correct (verify). Local, pure, any thread.
/// Throws Error(internal) if they deadlock.
PENSTOCK_API double simulated_seconds(std::span<const Plan> plans, const Team& team, const Machine& machine);

/// What an operation spends its time on.
enum class CostTerm : std::uint8_t {
  latency,          ///< between nodes, handshakes of long messages included
  overhead,         ///< of cores, for each message between nodes
  link,             ///< messages that leave a process or pass a link, and that wait for others there
  copy,             ///< copies and reads of memory inside a node
  combine,          ///< reductions
  synchronization,  ///< flags, claims of shared tasks, system calls of remote reads
};
inline constexpr std::size_t kCostTerms = 6;
PENSTOCK_API std::string_view name(CostTerm term) noexcept;

/// A time and its terms, whose sum it is. Work that waits for a core or a link has the terms of what it waits for. So
/// the terms are those along the critical path: a machine on which one of them costs nothing may have another path.
struct Cost {
  double seconds = 0;
  std::array<double, kCostTerms> terms{};

  double of(CostTerm term) const { return terms[static_cast<std::size_t>(term)]; }
};

/// simulated_seconds() and its terms.
PENSTOCK_API Cost simulated_cost(std::span<const Plan> plans, const Team& team, const Machine& machine);

}  // namespace penstock
