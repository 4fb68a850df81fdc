// Ranks as threads of this process. Each has its own engine.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "engine/engine.hpp"
#include "local_transport.hpp"
#include "make_engine.hpp"
#include "penstock/error.hpp"

namespace penstock::engine {

struct RanksOptions {
  std::vector<std::int32_t> nodes;
  EngineOptions engine;
  LocalTransportOptions transport;
};

inline std::vector<std::int32_t> one_node(int ranks) {
  return std::vector<std::int32_t>(static_cast<std::size_t>(ranks), 0);
}
inline RanksOptions ranks_of(std::vector<std::int32_t> nodes) {
  RanksOptions options;
  options.nodes = std::move(nodes);
  return options;
}

/// Runs `body(engine, rank)` on every rank, each in its own thread. An uncaught exception fails the test.
inline void run_ranks(const RanksOptions& options, const std::function<void(Engine&, int)>& body) {
  auto transports = make_local_transports(options.nodes, options.transport);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < transports.size(); ++rank)
    threads.emplace_back([&options, &body, rank, transport = std::move(transports[rank])]() mutable {
      try {
        const auto engine = make_engine(std::move(transport), options.engine);
        body(*engine, static_cast<int>(rank));
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

/// None if the operation succeeds.
inline std::optional<Error> failure_of(Run& run) {
  try {
    run.wait();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

template <typename T>
ConstBytes bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}
template <typename T>
Bytes bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

}  // namespace penstock::engine
