// A number that many processes add to, each alone and at any time: the pointer that the ranks of a file share. Entry n
// of a series says where the n-th addition ended, and is created exclusively, after entry n - 1. A process that dies
// leaves a complete entry, or none.
//
//   counters/<time>-<random>-<series>-<n>   the value after the n-th addition
//   counters/<time>-<random>-<series>-gone  a gc took the processes for dead
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "penstock/store.hpp"
#include "store/backend.hpp"

namespace penstock::store {

class Counter {
 public:
  Counter() = default;
  /// Nothing is stored before the first addition. Processes that share a counter give the same `name`, see new_name.
  Counter(std::shared_ptr<Backend> backend, std::string name, std::uint64_t start)
      : backend_(std::move(backend)), name_(std::move(name)), start_(start) {}
  /// The name of a counter that nobody else has.
  static std::string new_name();

  std::uint64_t value() const;
  /// Returns the value before. Throws io when a gc has given this counter up, because nobody had used it for longer
  /// than the lease.
  std::uint64_t add(std::uint64_t amount);

  /// Another series, from `start` on. All processes do that, with the same value, while none of them adds.
  void restart(std::uint64_t start);
  /// Removes what the present series has left in the store. Nobody uses it any more.
  void clean() noexcept;

 private:
  std::string series() const;
  std::string key(std::uint64_t number) const;
  void look() const;

  std::shared_ptr<Backend> backend_;
  std::string name_;
  std::uint64_t series_ = 0;
  std::uint64_t start_ = 0;
  mutable std::uint64_t number_ = 0;  ///< the newest entry that this process knows of
  mutable std::uint64_t known_ = 0;   ///< the value then
};

/// Removes entries that no process has added to within the lease.
void collect_counters(Backend& backend, std::chrono::seconds lease, GcReport& report);

}  // namespace penstock::store
