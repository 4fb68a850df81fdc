// A call by threads of this process as ranks, which may fail on some of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "penstock/comm.hpp"
#include "penstock/error.hpp"

namespace penstock::comm {

/// What each rank's call gave: the error, if any. Afterwards the communicator has to work.
std::vector<std::optional<Error>> outcomes(const std::vector<std::int32_t>& nodes,
                                           const std::function<void(Comm&)>& call);

}  // namespace penstock::comm
