// What a communicator is built on: a transport, and optionally the library's own collectives.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "comm/native.hpp"
#include "engine/transport.hpp"
#include "penstock/comm.hpp"
#include "penstock/export.hpp"

namespace penstock::comm {

struct Link;
/// Makes a new link between the same ranks. Collective, once per communicator.
using MakeLink = std::function<Link()>;

/// If `native` is nullptr, all collectives are Penstock's own.
struct Link {
  Link(std::unique_ptr<engine::Transport> given, std::unique_ptr<Native> own = nullptr)
      : transport(std::move(given)), native(std::move(own)) {}

  std::unique_ptr<engine::Transport> transport;
  std::unique_ptr<Native> native;  ///< destroyed before the transport
  /// Of the library's communicator, equal on all ranks; nullptr: none.
  std::shared_ptr<const Graph> graph{};
  /// What failed on this rank after the transport was made: making the communicator then fails on all ranks.
  std::exception_ptr failure{};
  /// Of exchange_bytes(). It is taken before the ranks agree to go on, so that each can take part in the exchanges.
  /// Empty: make_comm() takes it, and the ranks agree once more.
  std::vector<std::byte> exchange_memory{};
  /// Runs the action that ends the communicator on a thread that may call the library: on this one at once, or on
  /// another one later. Any thread may call it. Empty: any thread may call the library.
  std::function<void(std::function<void()>)> end{};
  /// Makes the links of duplicates while the transport lives. Empty: as this one was made.
  MakeLink duplicate{};
};

/// What the exchanges of make_comm() need on a rank.
PENSTOCK_API std::size_t exchange_bytes(int ranks) noexcept;

/// Collective. If it fails on one rank, it fails on all.
PENSTOCK_API Comm make_comm(MakeLink make_link, const CommOptions& options);

}  // namespace penstock::comm
