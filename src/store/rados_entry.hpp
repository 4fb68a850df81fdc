// Where objects lie in a pool of Ceph: their entries in the maps of the index objects, and the names of their stripes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::store {

constexpr std::uint64_t kRadosShards = 16;

/// The entry of an object in its index.
struct RadosEntry {
  std::string id;  ///< of the attempt to put it
  std::uint64_t size_bytes = 0;
  std::uint64_t stripe_bytes = 0;  ///< 0: the data is `data`
  std::vector<std::byte> data;
};

/// `pieces` take the place of `entry.data`.
std::string encode(const RadosEntry& entry, std::span<const ConstBytes> pieces);
/// Throws corrupt; `name` says what it is that was read.
RadosEntry decode_rados_entry(const std::string& value, const std::string& name);

/// '@' is in no key, so that stripes are told from everything else by their names.
std::string stripe_name(std::string_view key, std::string_view id, std::uint64_t number);

/// Marks an attempt that cannot be made any more: a reclaim has given it up, or it was made under another key, which
/// the value of the mark ends with then. '!' comes before all keys.
std::string grave(std::string_view id);

/// The name of an index object, 0 to kRadosShards - 1.
std::string shard_object(std::uint64_t shard);
/// The first two parts of a key choose its index: all of a blob lies in one, and is listed by one operation.
std::string shard_of(std::string_view key);

}  // namespace penstock::store
