// What this rank has posted to the transport, and what is not complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "engine/core.hpp"
#include "engine/remote/long_messages.hpp"
#include "engine/remote/settlement.hpp"

namespace penstock::engine {

/// Numbers the messages by tokens, and owns memory that belongs to no operation, so that the transport never touches
/// memory that is freed. The engine's lock protects it.
class InFlight {
 public:
  enum class Kind : std::uint8_t {
    send,        ///< of a step
    receive,     ///< of a step
    packet_out,  ///< a packet
    packet_in,   ///< a packet
    sink,        ///< receives what was sent for an operation that has failed
    excess,      ///< receives what no plan receives
  };
  struct Entry {
    Kind kind = Kind::send;
    int peer = 0;
    StepId step = 0;
    Operation* operation = nullptr;  ///< of a step; a packet's owner, or nullptr
    std::uint64_t sequence = 0;      ///< of the operation of a message
    LongMessages::Posted posted{};
    std::unique_ptr<std::byte[]> memory{};
  };

  explicit InFlight(Core& core) : core_(core) {}

  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  /// What the next add() will return. That needs no memory.
  std::uint32_t next() { return entries_.next(); }
  std::uint32_t add(Entry entry) {
    ++count_;
    return entries_.add(std::move(entry));
  }
  const Entry& at(std::uint32_t token) { return *entries_.find(token); }
  Entry remove(std::uint32_t token) {
    Entry entry = std::move(*entries_.find(token));
    drop(token);
    return entry;
  }
  /// remove() for an entry without memory.
  void drop(std::uint32_t token) {
    --count_;
    entries_.remove(token);
  }
  /// Receives a message into memory that nobody reads.
  void receive_nowhere(Kind kind, int peer, std::uint64_t sequence, const SentMessage& message);
  /// Withdraws those receives for which the predicate holds.
  template <typename Predicate>
  void withdraw_if(Predicate predicate) {
    std::vector<std::uint32_t> receives;
    entries_.for_each_id([&](std::uint32_t token, const Entry& each) {
      if (predicate(each)) receives.push_back(token);
    });
    for (const std::uint32_t token : receives) core_.transport->cancel(token);
  }
  /// The function adds and removes nothing.
  template <typename Function>
  void for_each(Function function) {
    entries_.for_each_id([&](std::uint32_t, Entry& each) { function(each); });
  }
  template <typename Function>
  void for_each(Function function) const {
    entries_.for_each(function);
  }
  /// After the last poll: the transport may use the memory until the process ends.
  void leave_memory() noexcept;

 private:
  Core& core_;
  SlotTable<Entry> entries_;
  std::size_t count_ = 0;
};

}  // namespace penstock::engine
