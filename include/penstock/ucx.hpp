// Communicators over UCX, for programs that no MPI launcher has started. libucp is opened at run time. The processes
// find each other by what the caller lets them tell each other, such as a key-value store.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "penstock/comm.hpp"
#include "penstock/export.hpp"
#include "penstock/types.hpp"

namespace penstock::ucx {

/// Opens UCX in this process, if it is not open, and returns the address of this process: bytes that any other process
/// may use to reach it. If a libucp has been loaded already, by MPI for instance, it is used: a process must not have
/// two. Otherwise the option `ucx_library`, the loader's own search and `candidates`, paths of libucp.so.0, are tried
/// in this order. Thread-safe. Throws Error(unsupported) if there is no libucp, or if it is older than 1.13; throws
/// Error(io) if UCX finds no network.
PENSTOCK_API std::string open(const std::vector<std::string>& candidates = {});

/// Version and path of the libucp in use. After open().
PENSTOCK_API std::string description();

/// How many other processes this one has connected to; 0 before open().
PENSTOCK_API std::size_t connections();

/// Sends what UCX still has for other processes; waits for that at most as long as `patience`. To be called before the
/// process ends.
PENSTOCK_API void flush(std::chrono::milliseconds patience) noexcept;

/// The ranks whose addresses a rank needs before a group can be made: log2(size) of them, rounded up. It learns all
/// others from these, and connects to them when it first sends them something.
PENSTOCK_API std::vector<int> first_peers(int rank, int size);

struct Group {
  int rank = 0;
  int size = 1;
  /// Equal on all ranks of the group, and random.
  std::uint64_t nonce = 0;
  /// Of first_peers().
  std::map<int, std::string> addresses{};
  /// Making the group fails if nothing comes from a rank for so long.
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
};

/// A message between two ranks. The buffer belongs to it until test() has returned true or thrown, or cancel() has
/// returned true. Movable; not thread-safe. The destructor cancels.
class PENSTOCK_API Message {
 public:
  struct State;
  explicit Message(std::shared_ptr<State> state);
  Message(Message&&) noexcept;
  Message& operator=(Message&&) noexcept;
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  ~Message();

  /// Makes progress; whether the message is complete. Throws Error(mismatch) if the message was longer than the buffer,
  /// and Error(peer_failed) if the other process has ended.
  bool test();
  /// Of a complete message.
  int source() const;
  std::uint64_t size_bytes() const;
  /// False if the memory is still in use.
  bool cancel() noexcept;

 private:
  std::shared_ptr<State> state_;
};

/// The application's own messages within a group, apart from those of its collectives. Messages of one sender under one
/// tag match in order. Thread-safe.
class PENSTOCK_API Messages {
 public:
  virtual ~Messages() = default;
  /// Tags are in [0, max_tag()].
  virtual int max_tag() const = 0;
  virtual Message send(ConstBytes from, int peer, int tag) = 0;
  /// `peer` is a rank, or -1 for any.
  virtual Message receive(Bytes to, int peer, int tag) = 0;
};

struct Joined {
  Comm comm;
  std::shared_ptr<Messages> messages;
};

/// Makes the communicator of a group, and its messages. Collective and blocking, after open() on all ranks. Fails on
/// all ranks if it fails on one: Error(peer_failed) names a rank whose process has ended, Error(timed_out) one from
/// which nothing has come. A rank that fails tells the others for a second, and later in flush().
PENSTOCK_API Joined join(const Group& group, const CommOptions& options = {});

}  // namespace penstock::ucx
