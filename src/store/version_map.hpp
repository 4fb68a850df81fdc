// What one version of a blob consists of: for every byte the place where it is stored. Built by replaying records;
// a copy of it, sealed, is an index object.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/data_object.hpp"
#include "store/fragments.hpp"
#include "store/record.hpp"

namespace penstock::store {

class VersionMap {
 public:
  /// Version 0: zeros.
  VersionMap(std::uint64_t blob_id, std::uint64_t size_bytes) : blob_id_(blob_id), size_bytes_(size_bytes) {}

  std::uint64_t version() const { return version_; }
  std::uint64_t size_bytes() const { return size_bytes_; }
  std::size_t fragment_count() const { return fragments_.count(); }
  /// A record with this base would be void as the next one.
  bool fences(std::uint64_t base) const { return base < fence_below_; }

  /// Becomes the next version. False when the record is void: then nothing but the version changes.
  bool apply(const Record& record);

  /// Whether the attempt with this identity made version `version`, not void; nothing where that is too long ago.
  std::optional<bool> made(std::uint64_t identity, std::uint64_t version) const;

  /// Calls visit(offset, size, source or nullptr for zeros, offset in the source) from `offset` on, in order.
  void visit(std::uint64_t offset_bytes, std::uint64_t size_bytes,
             const std::function<void(std::uint64_t, std::uint64_t, const Source*, std::uint64_t)>& visitor) const;
  struct Replayed {
    std::uint64_t cost = 0;         ///< of replaying records, in places of regions
    std::uint64_t index_bytes = 0;  ///< that an index in their place may take, for metadata to stay small
  };
  /// Of the records after `version`, as far as they were replayed to make this map.
  Replayed replayed_since(std::uint64_t version) const;

  /// This version of another blob, as that one's first, with sources of other names.
  VersionMap adopted(std::uint64_t blob_id,
                     const std::function<ObjectReference(const ObjectReference&)>& renamed) const;
  /// The same bytes in other places; what the parts do not cover is zero.
  VersionMap moved(const std::vector<Part>& parts) const;
  /// Whether this is the result of moved().
  bool compacted() const { return compacted_; }
  /// The ranges, ascending and disjoint, that are not stored in the same place in both or lie in one alone.
  std::vector<Extent> changes_since(const VersionMap& other) const;
  /// The ranges that are stored at all, joined where they touch.
  std::vector<Extent> stored_ranges() const;

  /// All sources that any byte still comes from.
  std::vector<std::shared_ptr<const Source>> sources() const;

  std::vector<std::byte> encode() const;
  static VersionMap decode(ConstBytes sealed, const std::string& source);
  std::uint64_t blob_id() const { return blob_id_; }

  friend bool operator==(const VersionMap& a, const VersionMap& b) { return a.encode() == b.encode(); }

 private:
  void place_parts(const std::vector<Part>& parts, std::uint64_t start_bytes);
  std::uint32_t add_source(std::shared_ptr<const Source> source);
  void drop_unused_sources();
  /// The numbers that are in use, in the order of their first byte.
  std::vector<std::uint32_t> used_sources() const;

  std::uint64_t blob_id_;
  std::uint64_t version_ = 0;
  std::uint64_t size_bytes_;
  std::uint64_t fence_below_ = 0;
  Fragments fragments_;
  std::vector<std::shared_ptr<const Source>> sources_;  ///< by number; some may not be in use any more
  std::size_t sources_in_use_ = 0;                      ///< when somebody looked last
  std::deque<std::uint64_t> identities_;                ///< of the newest versions up to this one; 0 for void ones
  std::deque<Replayed> replayed_;                       ///< what was applied to make this, not what was decoded
  bool compacted_ = false;
};

}  // namespace penstock::store
