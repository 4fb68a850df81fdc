// A number that many processes add to, each at any time without the others: the shared file pointer of MPI-IO. Entry n
// of a series holds the value after the n-th addition. It is created exclusively, after entry n - 1. A process that
// dies leaves a complete entry, or none.
//
//   counters/<time>-<random>-<series>-<n>   the value after the n-th addition
//   counters/<time>-<random>-<series>-gone  a gc has given the series up: its processes seemed dead
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "penstock/store.hpp"
#include "store/backend.hpp"

namespace penstock::store {

/// One process's handle of a shared counter. Not thread-safe. Throws penstock::Error.
class Counter {
 public:
  Counter() = default;
  /// Stores nothing before the first addition. Processes that share a counter give the same `name`: one calls new_name
  /// and sends it to the others.
  Counter(std::shared_ptr<Backend> backend, std::string name, std::uint64_t start)
      : backend_(std::move(backend)), name_(std::move(name)), start_(start) {}
  /// A unique name.
  static std::string new_name();

  /// The value now. Errors as for add.
  std::uint64_t value() const;
  /// Adds, and returns the value before. Throws Error(io) if a gc has collected the counter, since it was idle for
  /// longer than the lease.
  std::uint64_t add(std::uint64_t amount);

  /// Begins a new series at `start`. Collective: all processes call it with the same value while none of them adds.
  void restart(std::uint64_t start);
  /// Removes the objects of the current series. No process may use the series afterwards.
  void clean() noexcept;

 private:
  std::string series() const;
  std::string key(std::uint64_t number) const;
  void look() const;

  std::shared_ptr<Backend> backend_;
  std::string name_;
  std::uint64_t series_ = 0;
  std::uint64_t start_ = 0;
  mutable std::uint64_t number_ = 0;  ///< the newest entry that this process has seen
  mutable std::uint64_t known_ = 0;   ///< the value in that entry
};

/// Removes the series that were idle for longer than the lease. Adds what it does to `report`.
void collect_counters(Backend& backend, std::chrono::seconds lease, GcReport& report);

}  // namespace penstock::store
