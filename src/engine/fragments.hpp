// The fragments of a long message: the transport messages in which it travels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/transport.hpp"

namespace penstock::engine {

/// One side of one long message, sent or received in fragments under one tag. Avoids MPI's own rendezvous handshake,
/// which is slow on a busy link: the receiver's buffer is already posted, and MPI sends short messages eagerly. A
/// message that would need more than kMost fragments travels as one. Both sides cut it alike, by its length. The
/// caller owns the memory of the message; the handles are this object's until test() or withdraw() ends them.
class Fragments {
 public:
  void isend(Transport& transport, ConstBytes from, int peer, int tag);
  void irecv(Transport& transport, Bytes to, int peer, int tag);

  /// The number of bytes moved, once all fragments are complete. An empty message in place of the fragments completes a
  /// receive, too.
  std::optional<std::uint64_t> test(Transport& transport);

  /// Withdraws the receives that no fragment has matched. True if there are any. If the sender may still send these
  /// fragments, the caller must post them again by irecv_rest().
  bool withdraw(Transport& transport);
  /// Posts receives for the fragments that are left. `to` is other memory, as long as the whole message.
  void irecv_rest(Transport& transport, Bytes to, int peer, int tag);

 private:
  static constexpr std::size_t kMost = 4;

  static std::size_t count(std::uint64_t size_bytes);
  std::uint64_t begin(std::size_t fragment) const { return size_bytes_ * fragment / count_; }
  void cut(std::uint64_t size_bytes);

  std::uint64_t size_bytes_ = 0;
  std::uint64_t moved_bytes_ = 0;
  std::size_t count_ = 0;
  std::size_t done_ = 0;
  std::array<Transport::Handle, kMost> handles_{};
};

}  // namespace penstock::engine
