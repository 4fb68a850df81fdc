// A cache with a limit in bytes that evicts the least recently used entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <unordered_map>
#include <utility>

namespace penstock::base {

/// The entry added last stays even if it exceeds the limit alone; otherwise a repeated call would be planned each time.
/// Keys are copied, so they should be small or refer to their values. Not thread-safe.
template <class Key, class Value, class Hash = std::hash<Key>, class Equal = std::equal_to<Key>>
class LruCache {
 public:
  struct Entry {
    Key key;
    Value value;
    std::uint64_t size_bytes;
  };
  /// Valid until its entry is evicted.
  using Handle = typename std::list<Entry>::iterator;

  explicit LruCache(std::uint64_t most_bytes) : most_bytes_(most_bytes) {}

  /// The entry, or end(). Does not count as a use.
  Handle find(const Key& key) {
    const auto found = index_.find(key);
    return found == index_.end() ? entries_.end() : found->second;
  }
  void use(Handle entry) {
    if (entry != entries_.begin()) entries_.splice(entries_.begin(), entries_, entry);
  }
  /// Adds a key that the cache does not have, and evicts entries beyond the limit.
  Handle add(Key key, Value value, std::uint64_t size_bytes) {
    entries_.push_front({std::move(key), std::move(value), size_bytes});
    index_.emplace(entries_.front().key, entries_.begin());
    for (size_bytes_ += size_bytes; size_bytes_ > most_bytes_ && entries_.size() > 1; entries_.pop_back()) {
      size_bytes_ -= entries_.back().size_bytes;
      index_.erase(entries_.back().key);
    }
    return entries_.begin();
  }

  /// The most recently used entry first.
  Handle begin() { return entries_.begin(); }
  Handle end() { return entries_.end(); }
  std::size_t size() const { return entries_.size(); }
  std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  std::uint64_t most_bytes_;
  std::uint64_t size_bytes_ = 0;
  std::list<Entry> entries_;
  std::unordered_map<Key, Handle, Hash, Equal> index_;
};

}  // namespace penstock::base
