// Runs a call on all ranks, which are threads of this process. The call may fail on some of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "local_transport.hpp"
#include "penstock/comm.hpp"
#include "penstock/error.hpp"

namespace penstock::comm {

/// The error of each rank's call, if any. Checks that the communicator works afterwards.
inline std::vector<std::optional<Error>> outcomes(const std::vector<std::int32_t>& nodes,
                                                  const std::function<void(Comm&)>& call) {
  auto transports = engine::make_local_transports(nodes);
  std::vector<std::optional<Error>> errors(nodes.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        Comm comm = make_comm([&] { return std::move(transports[rank]); }, {.progress_cores = 0});
        try {
          call(comm);
        } catch (const Error& error) {
          errors[rank] = error;
        }
        const std::int32_t one = 1;
        std::int32_t sum = 0;
        comm.run({.kind = CollectiveKind::allreduce, .count = 1, .dtype = DType::int32},
                 std::as_bytes(std::span(&one, 1)), std::as_writable_bytes(std::span(&sum, 1)));
        EXPECT_EQ(sum, comm.size());
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace penstock::comm
