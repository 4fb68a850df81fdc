// What the engine needs from a message-passing library: bytes between the ranks of one private communicator.
// src/mpi implements it for each MPI ABI. Tests run it over threads of one process.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::engine {

/// Connects one rank to the others. The engine owns it (Core::transport). If any_thread() is false, only threads of the
/// application that have called Penstock call members; otherwise any thread may. The engine never calls two members of
/// one transport at the same time. Failures throw Error(mpi).
class Transport {
 public:
  /// The caller's number for a message, unique among those in flight.
  using Token = std::uint32_t;
  struct Completion {
    Token token = 0;
    std::uint64_t bytes = 0;  ///< that were sent, as far as the library tells
    bool too_long = false;    ///< more were sent than the receive had room for; the message is gone
    bool withdrawn = false;   ///< by cancel()
  };

  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The node of each rank, numbered from 0 by first appearance: ranks of one node can share memory.
  virtual const std::vector<std::int32_t>& node_of_rank() const = 0;
  virtual bool any_thread() const = 0;
  /// Tags are in [0, max_tag()]; at least 32767. Ranks may differ.
  virtual int max_tag() const = 0;
  /// For reports: library, version, ABI and thread level.
  virtual std::string description() const = 0;

  /// Non-blocking, any size (also 0). The memory stays the caller's and must stay valid until the message is complete.
  /// Messages of one (source, tag) pair match in the order in which they are posted, each one receive, whatever their
  /// lengths.
  /// True if the message is complete already; no Completion follows.
  virtual bool isend(ConstBytes from, int peer, int tag, Token token) = 0;
  virtual void irecv(Bytes to, int peer, int tag, Token token) = 0;
  /// Receives the next message that has come from any rank under this tag, of at most `to.size()` bytes, as irecv()
  /// does; false if there is none. Nobody calls irecv() under such a tag.
  virtual bool take(Bytes to, int tag, Token token) = 0;

  /// The tag of the first message that has come from this rank and that no receive matches; -1: none has, or the
  /// library cannot tell.
  virtual int first_unmatched(int /*peer*/) { return -1; }

  /// Lets the library move messages, and appends what is complete. Never blocks.
  virtual void poll(std::vector<Completion>& complete) = 0;
  /// The same, but may leave it to later calls to report other messages than this one, which is in flight.
  virtual void poll_for(Token /*token*/, std::vector<Completion>& complete) { poll(complete); }
  /// Whether the last poll(), if it found nothing, has let other threads have the core. The caller then need not.
  virtual bool yielded() const noexcept { return false; }
  /// Withdraws a receive that irecv() posted. A Completion follows: withdrawn, unless a message had been matched
  /// already. Sends are never withdrawn.
  virtual void cancel(Token receive) = 0;
  /// All ranks have made what uses their transport. Only then may a peer expect an answer of this one.
  virtual void enter() noexcept {}
  /// What a rank gets that sends this one a message under `tag` after this transport has ended, as soon as the library
  /// is called here: the answer of a rank that has left.
  virtual void set_farewell(ConstBytes /*packet*/, int /*tag*/) {}
  /// The last call, if nothing is in flight here.
  virtual void retire() noexcept {}

  /// Whether the library knows that the peer's process has ended. If true, all that the peer sent has been received.
  /// Any thread may call it. MPI has no such call, hence the default: MPI ends the job or reports nothing.
  virtual bool has_gone(int /*peer*/) noexcept { return false; }

  /// Lets the library move the application's own messages. Waiting threads call it now and then: a peer may need such a
  /// message before it reaches the operation that they wait for. Never blocks.
  virtual void poke() noexcept = 0;

  /// Blocking and collective; the same number of bytes on all ranks. The engine calls it only while a communicator is
  /// made.
  virtual void allgather(ConstBytes mine, Bytes all) = 0;
  /// Replaces each value by its maximum over all ranks; otherwise as allgather(). If the library can, it allocates no
  /// memory: so a rank that is out of memory can tell the others. `meanwhile`, which may be empty, is called again and
  /// again until all ranks have come. It may call other members.
  virtual void maximum(std::span<std::uint64_t> values, const std::function<void()>& meanwhile) = 0;
};

}  // namespace penstock::engine
