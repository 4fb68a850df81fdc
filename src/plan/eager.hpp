// The length of the messages into which plans cut data between nodes.
#pragma once

#include <cstdint>

namespace penstock::plan {

/// Avoids a second rendezvous handshake: the receiver's buffer is already posted. MPI libraries send up to 64 KiB,
/// their own header included, eagerly; a message of 64 KiB needs a handshake in Open MPI over TCP.
inline constexpr std::uint64_t kEagerBytes = 60 << 10;

}  // namespace penstock::plan
