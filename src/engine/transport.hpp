// What the engine needs from a message-passing library: bytes between the ranks of one private communicator.
// src/mpi implements it for each MPI ABI; LocalTransport (threads of one process as ranks) for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::engine {

inline constexpr int kMaxTransportTag = 32767;  ///< what every MPI guarantees for MPI_TAG_UB
inline constexpr int kAnyRank = -1;             ///< for irecv: the next message of any rank under this tag

/// Thread rule: if any_thread() is false, only threads that called into Penstock call a member; otherwise any thread
/// may. The engine never calls two members of one transport at the same time. Failures throw Error(mpi).
class Transport {
 public:
  using Handle = std::uint64_t;

  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The node of each rank, numbered from 0 by first appearance: ranks of one node can share memory.
  virtual const std::vector<std::int32_t>& node_of_rank() const = 0;
  virtual bool any_thread() const = 0;
  /// For reports: library, version, ABI and thread level.
  virtual std::string description() const = 0;

  /// Non-blocking, any size (also 0), tag in [0, kMaxTransportTag]. The memory stays the caller's and must stay valid
  /// until test() has reported completion. Messages of one (source, tag) pair match in the order in which they were
  /// posted. `peer` of a receive may be kAnyRank.
  virtual Handle isend(ConstBytes from, int peer, int tag) = 0;
  virtual Handle irecv(Bytes to, int peer, int tag) = 0;

  /// Lets the library move messages, and finds what is complete. Never blocks.
  virtual void poll() = 0;
  /// The number of bytes moved, once poll() has found it complete; the handle is then gone. A message longer than the
  /// receive buffer is an Error(mismatch).
  virtual std::optional<std::uint64_t> test(Handle handle) = 0;
  /// Withdraws a receive; the handle is then gone and its memory may be reused. False when it had already matched a
  /// message, which then has been received (MPI_Cancel, MPI_Wait, !MPI_Test_cancelled). Sends are never withdrawn.
  virtual bool cancel(Handle receive) = 0;

  /// Whether that rank's process has ended, as far as the library can tell; what came from it before has then been
  /// received. Any thread. MPI has no such call: it ends the job, or says nothing.
  virtual bool has_gone(int peer) noexcept {
    static_cast<void>(peer);
    return false;
  }

  /// Lets the library move messages of the application that are none of ours. Threads that wait call it now and then:
  /// a peer may depend on such a message before it comes to what they wait for. Never blocks.
  virtual void poke() noexcept = 0;

  /// Blocking and collective, with the same number of bytes on all ranks; only while a communicator is made.
  virtual void allgather(ConstBytes mine, Bytes all) = 0;
  /// Replaces each value by the largest that a rank gives for it; otherwise as allgather(). Where the library can, by
  /// no memory but the values: so a rank without memory can tell the others.
  virtual void maximum(std::span<std::uint64_t> values) {
    std::vector<std::uint64_t> all(values.size() * static_cast<std::size_t>(size()));
    allgather(std::as_bytes(values), std::as_writable_bytes(std::span(all)));
    for (std::size_t i = 0; i < all.size(); ++i)
      values[i % values.size()] = std::max(values[i % values.size()], all[i]);
  }
};

}  // namespace penstock::engine
