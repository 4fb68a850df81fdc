// What a communicator is made over.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "comm/native.hpp"
#include "engine/transport.hpp"
#include "penstock/comm.hpp"
#include "penstock/export.hpp"

namespace penstock::comm {

struct Link;
/// A new link between the same ranks; called collectively, once for each communicator.
using MakeLink = std::function<Link()>;

/// Without `native` everything is Penstock's own.
struct Link {
  Link(std::unique_ptr<engine::Transport> given, std::unique_ptr<Native> own = nullptr)
      : transport(std::move(given)), native(std::move(own)) {}

  std::unique_ptr<engine::Transport> transport;
  std::unique_ptr<Native> native;  ///< to be destroyed before the transport
  /// What has failed on this rank after the transport was made: then no communicator is made, on all ranks.
  std::exception_ptr failure{};
  /// Runs what ends the communicator, on a thread that may call the library: this one at once, or another one later.
  /// Any thread. Empty: any thread may.
  std::function<void(std::function<void()>)> end{};
  /// Makes the links of duplicates, as long as the transport is there. Empty: as this one was made.
  MakeLink duplicate{};
};

/// Collective; where it fails on one rank, it fails on all.
PENSTOCK_API Comm make_comm(MakeLink make_link, const CommOptions& options);

}  // namespace penstock::comm
