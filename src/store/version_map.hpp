// The map of one version of a blob: where each byte is stored. Replaying records builds it. An index object is an
// encoded, sealed map.
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

class StoredMap;
struct MapHead;
struct OpenedDelta;

inline constexpr std::uint32_t kIndexMagic = 0x58495350;  // "PSIX"
inline constexpr std::uint32_t kDeltaMagic = 0x44445350;  // "PSDD"

/// A value type. Copies are cheap: they share fragments and sources. Not thread-safe; several threads may read a const
/// map.
class VersionMap {
 public:
  /// The map of version 0: zeros.
  VersionMap(std::uint64_t blob_id, std::uint64_t size_bytes) : blob_id_(blob_id), size_bytes_(size_bytes) {}
  /// The map of a stored one, which is read as lookups need it. Only visit(), apply() and what they rely on are for
  /// such a map; visit() then throws as StoredMap::visit does.
  explicit VersionMap(std::shared_ptr<const StoredMap> stored);
  /// The map of a delta's version, as such a map. `below` is the map of the delta's base, or of a version between.
  static VersionMap over(VersionMap below, const OpenedDelta& delta);

  std::uint64_t version() const { return version_; }
  std::uint64_t size_bytes() const { return size_bytes_; }
  MapHead head() const;
  /// Of a partial map: at least as many as there are.
  std::size_t fragment_count() const { return fragments_.count() + stored_fragments_; }
  /// Whether part of the map may still lie in an index only.
  bool is_partial() const { return stored_ != nullptr; }
  /// Whether a record with this base would be void as the next one.
  bool fences(std::uint64_t base) const { return base < fence_below_; }

  /// Replays the record of the next version: the map becomes that of the next version. Returns false if the record is
  /// void; then only the version number changes.
  bool apply(const Record& record);

  /// Whether the attempt with this identity made `version` by a record that is not void. Nothing if the version is too
  /// old for the map to know.
  std::optional<bool> made(std::uint64_t identity, std::uint64_t version) const;

  /// Calls visitor(offset, size, source, offset in the source) for each stretch of the range, in order. The source is
  /// null for zeros.
  void visit(std::uint64_t offset_bytes, std::uint64_t size_bytes,
             const std::function<void(std::uint64_t, std::uint64_t, const Source*, std::uint64_t)>& visitor) const;
  /// The sums for the records after `version` that were replayed to make this map, and for those that its deltas stand
  /// for.
  Replayed replayed_since(std::uint64_t version) const;
  /// About how large an index would be.
  std::uint64_t estimated_index_bytes() const;

  /// This map as the first version of blob `blob_id`. `renamed` gives the new reference of each data object.
  VersionMap adopted(std::uint64_t blob_id,
                     const std::function<ObjectReference(const ObjectReference&)>& renamed) const;
  /// A map of the same version whose bytes lie in `parts`. Bytes outside the parts are zero.
  VersionMap moved(const std::vector<Part>& parts) const;
  /// Whether this map is a result of moved().
  bool compacted() const { return compacted_; }
  /// The ranges that the two maps store in different places, or that only the longer one has. Ascending and disjoint.
  std::vector<Extent> changes_since(const VersionMap& other) const;
  /// Whether both say the same of the bytes, and of who made the versions that both know.
  bool agrees_with(const VersionMap& other) const;
  /// The ranges that have a source; all others are zero. Adjacent ranges are joined.
  std::vector<Extent> stored_ranges() const;

  /// The sources in use: those of at least one byte.
  std::vector<std::shared_ptr<const Source>> sources() const;

  std::vector<std::byte> encode() const;
  /// As encode, in the format for large maps or in that for small ones, whatever the size.
  std::vector<std::byte> encode_parts() const;
  std::vector<std::byte> encode_whole() const;
  /// Of a partial map: what lies over the stored one.
  std::vector<std::byte> encode_delta() const;
  /// Replays a delta that encode_delta made. Its base must be at or before this version. The map then does not know
  /// any more who made its versions. Throws Error(corrupt).
  void apply_delta(ConstBytes sealed, const std::string& source);
  /// Of partial maps: whether what lies over the stored ones says the same.
  bool changes_as(const VersionMap& other) const;
  static VersionMap decode(ConstBytes sealed, const std::string& source);
  std::uint64_t blob_id() const { return blob_id_; }

  friend bool operator==(const VersionMap& a, const VersionMap& b) { return a.encode() == b.encode(); }

 private:
  void remember(const Replayed& replayed);
  void place_parts(const std::vector<Part>& parts, std::uint64_t start_bytes);
  std::vector<std::byte> encode_fragments(std::uint32_t magic, const MapHead& head) const;
  /// Throws Error(internal) for a partial map.
  void need_whole() const;
  std::uint32_t add_source(std::shared_ptr<const Source> source);
  /// Makes zeros of the bytes from `offset_bytes` to the end.
  void clear_from(std::uint64_t offset_bytes);
  void drop_unused_sources();
  /// The numbers of sources in use, in the order of their first byte.
  std::vector<std::uint32_t> used_sources() const;

  std::uint64_t blob_id_;
  std::uint64_t version_ = 0;
  std::uint64_t size_bytes_;
  std::uint64_t fence_below_ = 0;
  std::shared_ptr<const StoredMap> stored_;  ///< where the fragments do not say otherwise
  Fragments fragments_;
  std::vector<std::shared_ptr<const Source>> sources_;  ///< by number; some may be unused; null: zeros over stored_
  std::size_t sources_in_use_ = 0;                      ///< at the last call of drop_unused_sources
  std::deque<std::uint64_t> identities_;                ///< of the newest versions up to this one; 0 for void ones
  struct Step {
    std::uint64_t version;
    Replayed replayed;
  };
  std::deque<Step> replayed_;           ///< the last records and deltas, but not those before a decoded map
  std::uint64_t stored_fragments_ = 0;  ///< in stored_ and what it lies over
  std::uint64_t stored_bytes_ = 0;      ///< the sizes of these objects
  bool compacted_ = false;
};

}  // namespace penstock::store
