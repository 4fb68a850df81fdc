// How long the messages are into which plans cut what goes between nodes.
#pragma once

#include <cstdint>

namespace penstock::plan {

/// MPIs send up to 64 KiB, their own header included, without asking the receiver; here it has said already that it is
/// ready. A message of 64 KiB is asked about, and Open MPI over TCP then takes twice as long for it as for one of 60.
inline constexpr std::uint64_t kEagerBytes = 60 << 10;

}  // namespace penstock::plan
