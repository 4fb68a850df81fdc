// What the engine needs from a message-passing library: bytes between the ranks of one private communicator.
// src/mpi implements it for each MPI ABI. LocalTransport implements it for tests; its ranks are threads of one process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::engine {

inline constexpr int kMaxTransportTag = 32767;  ///< MPI_TAG_UB is at least this
inline constexpr int kAnyRank = -1;             ///< peer of irecv(): a message of any rank matches

/// Connects one rank to the others. The engine owns it (Core::transport). If any_thread() is false, only threads of the
/// application that have called Penstock call members; otherwise any thread may. The engine never calls two members of
/// one transport at the same time. Failures throw Error(mpi).
class Transport {
 public:
  /// An isend or irecv in flight. test() ends it when it reports completion, cancel() always.
  using Handle = std::uint64_t;

  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The node of each rank, numbered from 0 by first appearance: ranks of one node can share memory.
  virtual const std::vector<std::int32_t>& node_of_rank() const = 0;
  virtual bool any_thread() const = 0;
  /// For reports: library, version, ABI and thread level.
  virtual std::string description() const = 0;

  /// Non-blocking; any size (also 0); tag in [0, kMaxTransportTag]. The caller owns the memory and keeps it valid until
  /// test() has reported completion. Messages of one (source, tag) pair match in the order of posting. `peer` of a
  /// receive may be kAnyRank.
  virtual Handle isend(ConstBytes from, int peer, int tag) = 0;
  virtual Handle irecv(Bytes to, int peer, int tag) = 0;

  /// Lets the library move messages and finds completed handles. Never blocks.
  virtual void poll() = 0;
  /// The number of bytes moved if poll() has found the handle complete; this ends the handle. Throws Error(mismatch) if
  /// the message is longer than the receive buffer.
  virtual std::optional<std::uint64_t> test(Handle handle) = 0;
  /// Withdraws a receive and ends its handle; its memory may then be reused. False if the receive had matched a
  /// message: the message is received (MPI_Cancel, MPI_Wait, !MPI_Test_cancelled). Sends cannot be withdrawn.
  virtual bool cancel(Handle receive) = 0;

  /// Whether the library knows that the peer's process has ended. If true, all that the peer sent has been received.
  /// Any thread may call it. MPI has no such call, hence the default: MPI ends the job or reports nothing.
  virtual bool has_gone(int peer) noexcept {
    static_cast<void>(peer);
    return false;
  }

  /// Lets the library move the application's own messages. Waiting threads call it now and then: a peer may need such a
  /// message before it reaches the operation that they wait for. Never blocks.
  virtual void poke() noexcept = 0;

  /// Blocking and collective; the same number of bytes on all ranks. The engine calls it only while a communicator is
  /// made.
  virtual void allgather(ConstBytes mine, Bytes all) = 0;
  /// Replaces each value by its maximum over all ranks; otherwise as allgather(). If the library can, it allocates no
  /// memory: so a rank that is out of memory can tell the others.
  virtual void maximum(std::span<std::uint64_t> values) {
    std::vector<std::uint64_t> all(values.size() * static_cast<std::size_t>(size()));
    allgather(std::as_bytes(values), std::as_writable_bytes(std::span(all)));
    for (std::size_t i = 0; i < all.size(); ++i)
      values[i % values.size()] = std::max(values[i % values.size()], all[i]);
  }
};

}  // namespace penstock::engine
