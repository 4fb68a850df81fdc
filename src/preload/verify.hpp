// PENSTOCK_VERIFY: blocking collectives are run by MPI and by Penstock, and the results are compared.
#pragma once

#include <functional>

#include "preload/communicators.hpp"

namespace penstock::preload {

/// Runs `native`, keeps what it receives, restores the receive buffer, runs `served` and compares: bits, or for sums
/// and products of floating-point numbers within what their order can change. A difference is printed and counted, and
/// the program goes on with MPI's result. Returns what `native` returns. Throws what `served` throws.
int verify(Communicator& on, const Call& call, Tally& tally, const std::function<int()>& native,
           const std::function<void()>& served);

}  // namespace penstock::preload
