// The one atomic step in Ceph: an entry under the first free number of a log.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "store/rados_io.hpp"

namespace penstock::store {

/// Whoever finds a number taken is told so only when that number is durable, so that one who tried one number after
/// another would wait for each of those who come at the same time. Where others append, too, the next few numbers are
/// therefore tried at once, in order. Any thread may call.
class RadosAppender {
 public:
  explicit RadosAppender(const RadosIo& index) : index_(index) {}

  struct Entry {
    std::string shard;   ///< the index object
    std::string prefix;  ///< of its key, which ends with a number
    std::string id;      ///< of the attempt
    std::string value;
  };
  /// Puts the entry under the first free number from `first` on; returns the number.
  std::uint64_t append(const Entry& entry, std::uint64_t first);
  /// The same from `known` + 1 on, if `known` exists.
  std::optional<std::uint64_t> append_behind(const Entry& entry, std::uint64_t known);
  /// See Backend.
  std::uint64_t last_number(const std::string& shard, std::string_view prefix, std::uint64_t known) const;

 private:
  /// The number that was made, or the next to try.
  struct Outcome {
    bool made;
    std::uint64_t number;
  };
  std::optional<std::uint64_t> append(const Entry& entry, std::uint64_t first, bool behind);
  std::optional<Outcome> try_numbers(const Entry& entry, std::uint64_t first, std::uint64_t count, bool behind);
  /// Nothing if `behind` and the number before `first` is gone.
  std::optional<Outcome> look(const Entry& entry, std::uint64_t first, std::uint64_t count, bool behind) const;
  std::string oldest_mark(const std::string& shard);
  void keep_mark(const std::string& shard, const std::string& mark, const std::string& removed);

  const RadosIo& index_;
  std::atomic<std::uint64_t> crowd_{0};  ///< kMemory times the number of those that came before us lately
  std::mutex mutex_;
  std::map<std::string, std::deque<std::string>> marks_;  ///< by shard, oldest first
};

}  // namespace penstock::store
