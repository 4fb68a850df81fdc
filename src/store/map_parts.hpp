// A map in parts (format 3): the root of two trees of blocks, one of the fragments by offset and one of the sources by
// number. Each block is sealed by a checksum in its parent. So one lookup in a map of n fragments reads O(log n)
// blocks, and verifies what it reads. All blocks of a map lie in one object, and no block refers to another object.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "penstock/types.hpp"
#include "store/backend.hpp"
#include "store/data_object.hpp"
#include "store/fragments.hpp"
#include "store/record.hpp"

namespace penstock::store {

class VersionMap;

inline constexpr std::uint16_t kPartsFormat = 3;
/// The same with compressed data. A Penstock that does not know such data thus knows that it needs a newer one.
inline constexpr std::uint16_t kCompressedPartsFormat = 5;

inline bool is_in_parts(std::uint16_t format) { return format == kPartsFormat || format == kCompressedPartsFormat; }

/// What a map says besides places.
struct MapHead {
  std::uint64_t blob_id = 0;
  std::uint64_t version = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t fence_below = 0;
  std::deque<std::uint64_t> identities;
  /// Of a delta: it has what the versions behind this one changed.
  std::uint64_t base = 0;
  Replayed replayed;  ///< of a delta: the records that it stands for
  std::uint64_t source_count = 0;
  std::uint64_t fragment_count = 0;
};

using Sources = std::vector<std::shared_ptr<const Source>>;

/// Counts the fragments and sources itself. `sources` are those in use, in the order of their first byte, null for
/// zeros of a delta; numbers[s] is the place in `sources` of the source that the fragments call s.
std::vector<std::byte> encode_in_parts(std::uint32_t magic, const MapHead& head, const Sources& sources,
                                       const Fragments& fragments, std::span<const std::uint32_t> numbers);

struct WholeMap {
  MapHead head;
  Sources sources;
  std::vector<Fragment> fragments;
};
/// Decodes the content of an object in parts that was unsealed as a whole. Throws Error(corrupt) that names `name`.
WholeMap decode_parts(ConstBytes content, const std::string& name);

class StoredMap;

/// A delta of which the root was read.
struct OpenedDelta {
  MapHead head;
  std::uint64_t size_bytes = 0;  ///< of the object
  /// The map of the delta's version, given that of its base or of a version between. Call it once.
  std::function<std::shared_ptr<const StoredMap>(VersionMap)> over;
};
/// Throws Error(not_found); Error(corrupt) if the root is damaged.
OpenedDelta open_delta(std::shared_ptr<const Backend> backend, const std::string& key);

/// A map that stays in its object. Reads the blocks that lookups need, once, and keeps them. Thread-safe.
class StoredMap {
 public:
  /// A map of which only the head is known.
  static std::shared_ptr<const StoredMap> head_only(MapHead head);
  /// Nothing if the object is so small that reading it as a whole costs no more, or is not in parts. Throws
  /// Error(not_found); Error(corrupt) if the root is damaged.
  static std::shared_ptr<const StoredMap> open(std::shared_ptr<const Backend> backend, const std::string& key,
                                               std::uint32_t magic);
  virtual ~StoredMap() = default;

  const MapHead& head() const { return head_; }
  /// Of the object.
  std::uint64_t size_bytes() const { return size_bytes_; }

  /// As VersionMap::visit. Throws Error(not_found) if the object was removed, Error(corrupt) if a block is damaged.
  virtual void visit(
      std::uint64_t offset_bytes, std::uint64_t size_bytes,
      const std::function<void(std::uint64_t, std::uint64_t, const Source*, std::uint64_t)>& visitor) const = 0;

 protected:
  explicit StoredMap(MapHead head, std::uint64_t size_bytes = 0) : head_(std::move(head)), size_bytes_(size_bytes) {}

 private:
  const MapHead head_;
  const std::uint64_t size_bytes_;
};

}  // namespace penstock::store
