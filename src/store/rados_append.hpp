// The one atomic step in Ceph: an entry under the first free number of a log.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "store/rados_io.hpp"

namespace penstock::store {

/// Whoever finds a number taken is told so only after that number is durable, so that one who tried one number after
/// another would wait for each of those who come at the same time. Where others append, too, the next few numbers are
/// therefore tried at once, in order. Any thread may call.
class RadosAppender {
 public:
  explicit RadosAppender(const RadosIo& index) : index_(index) {}

  /// Puts the entry `value` of attempt `id` under `prefix`/<number> for the first free number from `first` on, in the
  /// map of `shard`; returns the number.
  std::uint64_t append(const std::string& shard, std::string_view prefix, std::uint64_t first, const std::string& id,
                       const std::string& value);

 private:
  /// The number that was made, or the next to try.
  struct Outcome {
    bool made;
    std::uint64_t number;
  };
  Outcome try_numbers(const std::string& shard, std::string_view prefix, std::uint64_t first, std::uint64_t count,
                      const std::string& id, const std::string& value);
  Outcome look(const std::string& shard, std::string_view prefix, std::uint64_t first, std::uint64_t count,
               const std::string& id) const;
  std::string oldest_mark(const std::string& shard);
  void keep_mark(const std::string& shard, const std::string& mark, const std::string& removed);

  const RadosIo& index_;
  std::atomic<std::uint64_t> crowd_{0};  ///< how many came before us lately
  std::mutex mutex_;
  std::map<std::string, std::deque<std::string>> marks_;  ///< by shard, oldest first
};

}  // namespace penstock::store
