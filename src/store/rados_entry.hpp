// Names and formats in a pool of Ceph: the entries of objects in the maps (omap) of the index objects, and the names of
// stripes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::store {

constexpr std::uint64_t kRadosShards = 16;

/// An object's entry in its index object. Its presence makes the object exist.
struct RadosEntry {
  std::string id;  ///< of the attempt that put the object
  std::uint64_t size_bytes = 0;
  std::uint64_t stripe_bytes = 0;  ///< 0: the data lies in `data`, not in stripes
  std::vector<std::byte> data;
};

/// The value of an entry. Takes the data from `pieces`, not from `entry.data`.
std::string encode(const RadosEntry& entry, std::span<const ConstBytes> pieces);
/// Throws Error(corrupt); `name` says in the message what was read.
RadosEntry decode_rados_entry(const std::string& value, const std::string& name);

/// The name of a stripe's RADOS object. No key has an '@', so no other object has such a name.
std::string stripe_name(std::string_view key, std::string_view id, std::uint64_t number);

/// The key of an attempt's grave, an entry that excludes the entry of the attempt. Either a reclaim has given the
/// attempt up, or an append has put it already; the value of the grave is then the key under which it did. '!' sorts
/// before all keys.
std::string grave(std::string_view id);

/// The name of an index object, 0 to kRadosShards - 1.
std::string shard_object(std::uint64_t shard);
/// The index object of a key. It depends on the first two parts of the key, so one index object has all entries of a
/// blob, and one operation lists them.
std::string shard_of(std::string_view key);

}  // namespace penstock::store
