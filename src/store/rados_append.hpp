// Backend::append in Ceph: creates an entry under the first free number of a log, exclusively.
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

/// Ceph reports that a number is taken only when its entry is durable. A writer that tried one number after another
/// would wait for each concurrent writer in turn. So if others appended lately, an append tries the next few numbers at
/// once, in order. Thread-safe; throws penstock::Error.
class RadosAppender {
 public:
  /// `index` must outlive this object.
  explicit RadosAppender(const RadosIo& index) : index_(index) {}

  struct Entry {
    std::string shard;   ///< the index object
    std::string prefix;  ///< of its key: <prefix>/<number>
    std::string id;      ///< of the attempt
    std::string value;
  };
  /// Puts the entry under the first free number from `first` on, and returns the number.
  std::uint64_t append(const Entry& entry, std::uint64_t first);
  /// As append from `known` + 1 on. Returns nothing, and creates nothing, if `known` no longer exists.
  std::optional<std::uint64_t> append_behind(const Entry& entry, std::uint64_t known);
  /// As Backend::last_number.
  std::uint64_t last_number(const std::string& shard, std::string_view prefix, std::uint64_t known) const;

 private:
  /// The number that was created, or the next one to try.
  struct Outcome {
    bool made;
    std::uint64_t number;
  };
  std::optional<std::uint64_t> append(const Entry& entry, std::uint64_t first, bool behind);
  std::optional<Outcome> try_numbers(const Entry& entry, std::uint64_t first, std::uint64_t count, bool behind);
  /// Looks which number an append whose operations failed has made. Returns nothing if `behind` and neither the number
  /// before `first` nor `first` exists.
  std::optional<Outcome> look(const Entry& entry, std::uint64_t first, std::uint64_t count, bool behind) const;
  std::string oldest_mark(const std::string& shard);
  void keep_mark(const std::string& shard, const std::string& mark, const std::string& removed);

  const RadosIo& index_;
  std::atomic<std::uint64_t> crowd_{0};  ///< kMemory times how many numbers others took before us in recent appends
  std::mutex mutex_;
  std::map<std::string, std::deque<std::string>> marks_;  ///< graves of our appends by shard, oldest first
};

}  // namespace penstock::store
