// An engine without a communicator.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.hpp"
#include "engine/node_setup.hpp"

namespace penstock::engine {

/// Collective. Sets up the node's shared memory. If that fails, for example because /dev/shm is too small, all ranks
/// of the node use the transport, and report() says so.
inline std::shared_ptr<Engine> make_engine(std::shared_ptr<Transport> transport, const EngineOptions& options) {
  NodeSetup setup(*transport, std::vector<std::byte>(NodeSetup::memory_bytes(transport->size(), {})), {});
  setup.exchange_facts(options);
  setup.exchange_results();
  std::shared_ptr<Engine> engine = Engine::create(std::move(transport), options, setup.finish(options));
  engine->enter();
  return engine;
}

}  // namespace penstock::engine
