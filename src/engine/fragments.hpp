// The messages of the transport in which a long one travels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/transport.hpp"

namespace penstock::engine {

/// MPI asks the receiver of a long message whether it is ready, although here it has said so already, and on a busy
/// link a question takes its time. So a message travels in fragments that are short enough, unless those were too many.
/// Both sides cut it alike, by its length.
class Fragments {
 public:
  void isend(Transport& transport, ConstBytes from, int peer, int tag);
  void irecv(Transport& transport, Bytes to, int peer, int tag);

  /// The number of bytes moved, once all is complete. An empty message in place of the fragments is complete, too.
  std::optional<std::uint64_t> test(Transport& transport);

  /// Withdraws the receives of what has not come. True if there are any: it is to be received into other memory, as
  /// long as the message, unless nothing is on its way.
  bool withdraw(Transport& transport);
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
