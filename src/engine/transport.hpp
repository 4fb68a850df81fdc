// What the engine needs from a message-passing library: bytes between the ranks of one private communicator.
// src/mpi implements it for each MPI ABI; LocalTransport (threads of one process as ranks) for tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::engine {

/// Thread rule: if any_thread() is false, only the thread that called into Penstock may call a member; otherwise any
/// thread may, at any time. Failures throw Error(mpi).
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

  /// Non-blocking, any size, tag in [0, kMaxTransportTag]. The memory stays the caller's and must stay valid until
  /// test() has reported completion. Messages of one (source, tag) pair match in the order in which they were posted.
  virtual Handle isend(ConstBytes from, int peer, int tag) = 0;
  virtual Handle irecv(Bytes to, int peer, int tag) = 0;

  /// The number of bytes moved, once complete; the handle is then gone. A message longer than the receive buffer is
  /// an Error(mismatch).
  virtual std::optional<std::uint64_t> test(Handle handle) = 0;
  /// Gives up a transfer, best effort; the memory may be reused on return.
  virtual void cancel(Handle handle) = 0;

  /// A short text (at most 1 KiB) that the peer's poll_notice() returns; never blocks, needs no receive.
  virtual void send_notice(int peer, const std::string& text) = 0;
  struct Notice {
    int peer;
    std::string text;
  };
  virtual std::optional<Notice> poll_notice() = 0;

  /// Blocking and collective; only while a communicator is made or destroyed.
  virtual void allgather(ConstBytes mine, Bytes all) = 0;
};

inline constexpr int kMaxTransportTag = 32767;  // what every MPI guarantees for MPI_TAG_UB

}  // namespace penstock::engine
