// Messages of one communicator through the worker of this process.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "penstock/types.hpp"
#include "ucx/worker.hpp"

namespace penstock::ucx {

/// How UCX's tags of 64 bits are divided. Messages of two communicators of a process never have the same tag, and the
/// tag names the sender.
///
///   communicators   0 | context: 19 bits | source: 20 bits | tag: 24 bits, the highest of which the application's have
///   their making    1 | nonce: 42 bits | failure: 1 bit | source: 20 bits
struct TagSpace {
  static constexpr int kSourceBits = 20;
  static constexpr int kTagBits = 24;
  static constexpr std::uint32_t kContexts = 1u << 19;
  static constexpr int kMostRanks = 1 << kSourceBits;

  std::uint64_t base = 0;
  int source_shift = 0;

  /// Of blocking exchanges, and of what ends them if a rank fails.
  std::uint64_t exchange_tag = 0;
  std::uint64_t failure_tag = 0;

  static TagSpace of_context(std::uint32_t context) {
    const std::uint64_t highest = (std::uint64_t{1} << (kTagBits - 1)) - 1;
    return {std::uint64_t{context} << (kSourceBits + kTagBits), kTagBits, highest, highest - 1};
  }
  static TagSpace of_nonce(std::uint64_t nonce) {
    return {std::uint64_t{1} << 63 | nonce << (kSourceBits + 1), 0, 0, std::uint64_t{1} << kSourceBits};
  }

  std::uint64_t tag(std::uint64_t source, std::uint64_t tag) const { return base | source << source_shift | tag; }
  std::uint64_t source_field() const { return ((std::uint64_t{1} << kSourceBits) - 1) << source_shift; }
  int source_of(std::uint64_t tag) const { return static_cast<int>((tag & source_field()) >> source_shift); }
};

/// Not thread-safe, but for has_gone(); different channels may be used by different threads.
class Channel final : public Pending::Owner {
 public:
  struct Done {
    std::uint32_t token = 0;
    std::uint64_t bytes = 0;
    int source = 0;
    bool too_long = false;
    bool withdrawn = false;
    bool is_lost = false;  ///< a send whose peer has ended
  };
  static constexpr int kAnyRank = -1;

  /// `addresses` may be empty for ranks that nothing is sent to.
  Channel(Worker& worker, TagSpace tags, int rank, Addresses addresses, std::chrono::milliseconds timeout);
  /// Withdraws what has not been received, and waits for a while for what is being received and sent.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  Worker& worker() { return worker_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(addresses_->size()); }
  const Addresses& addresses() const { return addresses_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  /// True if it is complete; then no Done follows.
  bool send(ConstBytes from, int peer, std::uint64_t tag, std::uint32_t token);
  void receive(Bytes to, int peer, std::uint64_t tag, std::uint32_t token);
  bool take(Bytes to, std::uint64_t tag, std::uint32_t token);
  void poll(std::vector<Done>& done);
  /// Of a receive. A Done follows.
  void cancel(std::uint32_t token);
  bool has_gone(int peer) const noexcept;
  /// What was sent last may not have left.
  bool has_failed(int peer);
  /// Connects, so that the end of the peer's process is noticed.
  void watch(int peer);
  void make_progress() noexcept;

  /// What ranks get that send this one something under `tag` after the channel has ended.
  void set_farewell(ConstBytes packet, std::uint64_t tag);

  // Blocking; all ranks. If one of them fails, so do all ranks that have not completed them.

  void allgather(ConstBytes mine, Bytes all);
  /// See Transport::maximum.
  void maximum(std::span<std::uint64_t> values, const std::function<void()>& meanwhile = {});

 private:
  struct Exchange;
  void on_done(Pending& done, ucs_status_t status, std::uint64_t length, std::uint64_t tag) noexcept override;
  Endpoint& endpoint(int peer);
  Pending* add(std::uint32_t token, int peer);
  void remove(Pending& pending) noexcept;
  /// Sends to one rank and receives as many bytes as `to` holds from another one.
  void exchange(ConstBytes from, int to_rank, Bytes to, int from_rank, const std::function<void()>& meanwhile = {});
  /// The rank that has said so; -1 if none has.
  int find_failure();
  void tell_failure();
  std::string error_of(int peer);

  Worker& worker_;
  const TagSpace tags_;
  const int rank_;
  const Addresses addresses_;
  const std::chrono::milliseconds timeout_;
  std::vector<std::atomic<Endpoint*>> endpoints_;
  Pending* first_ = nullptr;
  std::vector<Done> done_;
  std::vector<std::byte> farewell_;
  std::uint64_t farewell_tag_ = 0;
};

}  // namespace penstock::ucx
