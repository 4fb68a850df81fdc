// engine::Transport over UCX, and how the ranks of a group find each other.
#pragma once

#include <memory>

#include "comm/link.hpp"
#include "engine/transport.hpp"
#include "penstock/ucx.hpp"
#include "ucx/channel.hpp"

namespace penstock::ucx {

/// What the ranks of a group know after they have found each other.
struct Members {
  Addresses addresses;
  std::vector<std::int32_t> node_of_rank;
  std::uint32_t context = 0;
};

/// Collective, blocking. `node`: of this rank, equal for ranks that share memory.
Members find_members(Worker& worker, const Group& group, std::uint64_t node);

/// The link of a communicator, and of its duplicates. The worker outlives it.
comm::Link make_link(Worker& worker, const Group& group, const Members& members);

/// The application's messages, on the same context as the communicator.
std::shared_ptr<Messages> make_messages(Worker& worker, const Group& group, const Members& members);

}  // namespace penstock::ucx
