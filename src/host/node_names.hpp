// Which ranks share a node, for a Transport that has to find out.
#pragma once

#include <cstdint>
#include <span>

#include "penstock/export.hpp"

namespace penstock::host {

/// Equal for two processes if they run under one kernel and one host name, and see the same /dev/shm, in which they
/// share memory, and the same processes in /proc, where they find it. Throws Error(io) without a free file descriptor.
PENSTOCK_API std::uint64_t node_of_process();

/// Equal for two processes if they run under one kernel, which gives both turns on its CPUs, though they may be on
/// different (emulated) nodes or in containers. 0: not known. Throws as above.
PENSTOCK_API std::uint64_t kernel_of_process();

/// Numbers the nodes of all ranks from 0 by first appearance. The spans have an entry for each rank; what `scratch`
/// holds does not matter. Allocates nothing.
PENSTOCK_API void number_nodes(std::span<const std::uint64_t> name_of_rank, std::span<std::int32_t> scratch,
                               std::span<std::int32_t> node_of_rank);

}  // namespace penstock::host
