// The cache of a communicator's collective plans.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/lru_cache.hpp"
#include "base/two_places.hpp"
#include "penstock/collective.hpp"

namespace penstock::comm {

/// A plan in the cache.
struct Planned {
  Collective collective;  ///< normalized
  std::shared_ptr<const Plan> plan;
  std::uint64_t signature = 0;
  std::uint64_t runs = 0;  ///< protected by the cache's lock
  /// If MPI's own collective runs: the reason; the plan then only has the sizes of the buffers. Otherwise nullptr.
  std::shared_ptr<const std::string> native_reason{};

  std::uint64_t memory_bytes() const;
};

/// Any thread. Callers share the ownership of plans, which survive their eviction.
class PlanCache {
 public:
  explicit PlanCache(std::uint64_t most_bytes) : plans_(most_bytes) {}

  /// The plan for `asked`; counts one run. Looks up `normalize(asked)`, and calls `make(normalized)` if it is not
  /// cached.
  template <class Normalize, class Make>
  std::shared_ptr<const Planned> get(const Collective& asked, const Normalize& normalize, const Make& make) {
    const bool has_lists = !asked.receive.counts.empty();
    const std::uint64_t hash = hash_of(asked.kind, asked.root, has_lists ? asked.receive.counts.front() : asked.count);
    std::unique_lock lock(mutex_);
    Recent* recent = recent_.find(hash, [&](const Recent& kept) { return kept.is_set && kept.asked == asked; });
    if (recent == nullptr) {
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
      const std::optional<PlainCall> plain = PlainCall::of(asked);
      const bool is_plain = plain && found->value->native_reason == nullptr;
      recent = &recent_.make_room(hash, [](const Recent& kept) { return !kept.is_set; });
      *recent = {plain.value_or(PlainCall{}), is_plain, true, found, asked};
    }
    return used(*recent);
  }
  /// The same for a recent call that an algorithm of Penstock runs, if `fits(plan)`; or nullptr, and no run is counted.
  /// Valid until the next get().
  template <class Fits>
  const Planned* again(const PlainCall& asked, const Fits& fits) {
    const std::lock_guard lock(mutex_);
    const Recent* const recent = recent_.find(hash_of(asked.kind, asked.root, asked.count),
                                              [&](const Recent& kept) { return kept.is_plain && kept.plain == asked; });
    return recent != nullptr && fits(*recent->entry->value->plan) ? used(*recent).get() : nullptr;
  }
  /// Later calls are normalized again, because Comm::use has changed their meaning.
  void forget_recent();

  /// Visits all plans under the lock, the most recently used one first.
  void for_each(const std::function<void(const Planned&)>& visit);
  std::uint64_t size_bytes();

 private:
  /// Refers to Planned::collective.
  using Key = std::reference_wrapper<const Collective>;
  struct Hash {
    std::size_t operator()(const Collective& collective) const;
  };
  struct Equal {
    bool operator()(const Collective& a, const Collective& b) const { return a == b; }
  };
  using Plans = base::LruCache<Key, std::shared_ptr<Planned>, Hash, Equal>;
  /// A recent call: programs repeat a few, such as one from each root.
  struct alignas(64) Recent {
    PlainCall plain{};
    bool is_plain = false;  ///< `plain` is all of the call, and the engine runs it
    bool is_set = false;
    Plans::Handle entry{};
    Collective asked{};
  };

  static std::uint64_t hash_of(CollectiveKind kind, int root, std::uint64_t count) noexcept {
    return base::hash_of_call(static_cast<std::uint64_t>(kind), root, count);
  }
  const std::shared_ptr<Planned>& used(const Recent& recent) {
    plans_.use(recent.entry);
    ++recent.entry->value->runs;
    return recent.entry->value;
  }
  Plans::Handle add(std::shared_ptr<Planned> planned);

  std::mutex mutex_;
  Plans plans_;
  base::TwoPlaces<Recent> recent_;
};

}  // namespace penstock::comm
