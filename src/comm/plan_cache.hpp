// The plans of a communicator's collectives, kept for the next equal call.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/lru_cache.hpp"
#include "penstock/collective.hpp"

namespace penstock::comm {

struct Planned {
  Collective collective;  ///< normalized
  std::shared_ptr<const Plan> plan;
  std::uint64_t signature = 0;
  std::uint64_t runs = 0;  ///< under the lock of the cache
  /// Of MPI's own collective: why. The plan has the sizes of the buffers alone then. Otherwise nullptr.
  std::shared_ptr<const std::string> native_reason{};

  std::uint64_t memory_bytes() const;
};

/// Any thread. What a caller has got from it lives on when it is evicted.
class PlanCache {
 public:
  explicit PlanCache(std::uint64_t most_bytes) : plans_(most_bytes) {}

  /// The plan for `asked`, counted as one run: made by `make(normalized)` unless an operation that `normalize(asked)`
  /// equals has one.
  template <class Normalize, class Make>
  std::shared_ptr<const Planned> get(const Collective& asked, const Normalize& normalize, const Make& make) {
    Recent& recent = recent_[static_cast<std::size_t>(asked.kind)];
    std::unique_lock lock(mutex_);
    if (!recent.is_set || !(recent.asked == asked)) {
      lock.unlock();
      const Collective collective = normalize(asked);
      lock.lock();
      auto found = plans_.find(collective);
      if (found == plans_.end()) {
        lock.unlock();
        auto planned = std::make_shared<Planned>(make(collective));
        lock.lock();
        found = plans_.find(collective);
        if (found == plans_.end()) found = add(std::move(planned));
      }
      recent = {asked, found, true};
    }
    plans_.use(recent.entry);
    ++recent.entry->value->runs;
    return recent.entry->value;
  }
  /// Of calls of this kind that mean something else from now on.
  void forget_recent(CollectiveKind kind);

  /// The most recently used one first, under the lock.
  void for_each(const std::function<void(const Planned&)>& visit);
  std::uint64_t size_bytes();

 private:
  /// Of the operation that a Planned holds.
  using Key = std::reference_wrapper<const Collective>;
  struct Hash {
    std::size_t operator()(const Collective& collective) const;
  };
  struct Equal {
    bool operator()(const Collective& a, const Collective& b) const { return a == b; }
  };
  using Plans = base::LruCache<Key, std::shared_ptr<Planned>, Hash, Equal>;
  /// The latest call of a kind. A program makes the same one again and again.
  struct Recent {
    Collective asked;
    Plans::Handle entry;
    bool is_set = false;
  };

  Plans::Handle add(std::shared_ptr<Planned> planned);

  std::mutex mutex_;
  Plans plans_;
  std::array<Recent, kCollectiveKinds> recent_;  ///< by kind
};

}  // namespace penstock::comm
